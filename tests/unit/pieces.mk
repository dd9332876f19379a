# Units divided among ranks: divided.c is what tests on one rank and on several share.
UNIT_TESTS += tests/unit/test_pieces tests/unit/test_divided_state
divided = tests/unit/divided.c tests/unit/divided.h $(rig)
tests_unit_test_pieces_SOURCES = tests/unit/test_pieces.c $(divided)
tests_unit_test_divided_state_SOURCES = tests/unit/test_divided_state.c $(divided)
# Rows that tensor ranks exchange in chunks; who accessed which bytes.
UNIT_TESTS += tests/unit/test_row_chunks tests/unit/test_access
tests_unit_test_row_chunks_SOURCES = tests/unit/test_row_chunks.c $(faults)
UNIT_TESTS += tests/unit/test_tensor_graphs tests/unit/test_context_graphs
tests_unit_test_tensor_graphs_SOURCES = tests/unit/test_tensor_graphs.c $(rig)
tests_unit_test_context_graphs_SOURCES = tests/unit/test_context_graphs.c $(rig)
# Positions and documents that data gives.
UNIT_TESTS += tests/unit/test_places
tests_unit_test_places_SOURCES = tests/unit/test_places.c $(rig)
# Rows of logits at once.
UNIT_TESTS += tests/unit/test_head_chunk
tests_unit_test_head_chunk_SOURCES = tests/unit/test_head_chunk.c $(rig)
# An encoder-decoder, which tests on one rank and on several share.
UNIT_TESTS += tests/unit/test_boundaries
translator = tests/unit/translator.c tests/unit/translator.h
tests_unit_test_boundaries_SOURCES = tests/unit/test_boundaries.c $(translator) $(rig)
# Gradients in bf16.
UNIT_TESTS += tests/unit/test_grad_dtype
tests_unit_test_grad_dtype_SOURCES = tests/unit/test_grad_dtype.c $(rig)
# Parts of tensors in the files of others.
UNIT_TESTS += tests/unit/test_hf_tensors
tests_unit_test_hf_tensors_SOURCES = tests/unit/test_hf_tensors.c $(rig)
