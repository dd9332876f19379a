# What CHECK_SHORT=1 leaves out; check-matrix, check-parallel and check-any have more cells still.
WHOLE_TESTS = $(filter %/test_layouts %/test_gpt2 %/test_offload %/test_precision %/test_matrix \
	%/test_schedules %/test_packing %/test_pipeline_bits %/test_pipeline_bits_emulated \
	%/test_dropout_emulated %/test_grad_dtype_emulated,$(MPI_TESTS))
check-whole: $(WHOLE_TESTS) tests/unit/test_verify tests/unit/test_verify_values
	tests/unit/test_verify
	tests/unit/test_verify_values
	TIMEOUT=7200 $(srcdir)/tests/mpi/run.sh $(WHOLE_TESTS)
check-whole: export CHECK_SHORT =
.PHONY: check-whole
