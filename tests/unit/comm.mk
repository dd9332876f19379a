# Ranks and nodes, without MPI.
UNIT_TESTS += tests/unit/test_mesh tests/unit/test_thread tests/unit/test_exchange \
	tests/unit/test_gpu_choice tests/unit/test_link_limit tests/unit/test_nccl_cuda \
	tests/unit/test_nccl_faults tests/unit/test_run_summary
tests_unit_test_exchange_CPPFLAGS = $(AM_CPPFLAGS) $(MPI_CFLAGS)
tests_unit_test_run_summary_CPPFLAGS = $(AM_CPPFLAGS) $(MPI_CFLAGS)
tests_unit_test_link_limit_CPPFLAGS = $(AM_CPPFLAGS) $(MPI_CFLAGS)
