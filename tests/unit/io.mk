# Tests of io.
UNIT_TESTS += tests/unit/test_io_h5 tests/unit/test_io_checkpoint tests/unit/test_io_boxes tests/unit/test_io_faults \
	tests/unit/test_safetensors tests/unit/test_safetensors_nf4 tests/unit/test_flips tests/unit/test_io_crafted tests/unit/test_swap tests/unit/test_tokens tests/unit/test_tokens_changed \
	tests/unit/test_packing tests/unit/test_read_ahead tests/unit/test_tokenizer tests/unit/test_tokenizer_parts
UNIT_TESTS += tests/unit/test_chat tests/unit/test_jsonl tests/unit/test_megatron tests/unit/test_npy tests/unit/test_event_file \
	tests/unit/test_catalog
h5_data = tests/unit/h5_data.c tests/unit/h5_data.h
h5_data_flags = $(AM_CPPFLAGS) $(HDF5_CFLAGS) $(MPI_CFLAGS)
tests_unit_test_io_h5_SOURCES = tests/unit/test_io_h5.c tests/unit/test_folder.h $(h5_data)
tests_unit_test_io_h5_CPPFLAGS = $(h5_data_flags)
tests_unit_test_io_checkpoint_SOURCES = tests/unit/test_io_checkpoint.c tests/unit/test_io_checkpoint.h
tests_unit_test_io_boxes_SOURCES = tests/unit/test_io_boxes.c tests/unit/test_io_checkpoint.h $(h5_data)
tests_unit_test_io_boxes_CPPFLAGS = $(h5_data_flags)
tests_unit_test_io_faults_SOURCES = tests/unit/test_io_faults.c tests/unit/test_io_checkpoint.h
tests_unit_test_io_crafted_SOURCES = tests/unit/test_io_crafted.c tests/unit/test_folder.h $(h5_data)
tests_unit_test_io_crafted_CPPFLAGS = $(h5_data_flags)
tests_unit_test_catalog_SOURCES = tests/unit/test_catalog.c $(h5_data)
tests_unit_test_catalog_CPPFLAGS = $(h5_data_flags)
tests_unit_test_swap_SOURCES = tests/unit/test_swap.c tests/unit/slow_file.c
tests_unit_test_tokens_SOURCES = tests/unit/test_tokens.c tests/unit/test_folder.h $(h5_data)
tests_unit_test_tokens_CPPFLAGS = $(h5_data_flags)
tests_unit_test_tokens_changed_SOURCES = tests/unit/test_tokens_changed.c tests/unit/test_folder.h

# 5000 flipped bits of a token file, where tests/check.sh tries some hundreds.
check-flips: tests/unit/test_flips
	TRIREME_FLIPS=5000 tests/unit/test_flips
.PHONY: check-flips
tests_unit_test_safetensors_nf4_CPPFLAGS = $(AM_CPPFLAGS) -DGOLDEN_DIR='"$(abs_top_srcdir)/tests/golden"'
