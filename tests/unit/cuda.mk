# Tests of the GPU, each built twice: for a real one (exit 77 where there is none), and emulated.
if HAVE_CUDA
UNIT_TESTS += tests/unit/test_cuda_gemm tests/unit/test_cuda_gemm_emulated \
	tests/unit/test_cuda_step tests/unit/test_cuda_step_emulated \
	tests/unit/test_cuda_offload tests/unit/test_cuda_offload_emulated \
	tests/emulate/test_nccl_emulated tests/emulate/test_products_emulated
tests_unit_test_cuda_gemm_SOURCES = tests/unit/test_cuda_gemm.c $(ops_check)
tests_unit_test_cuda_gemm_emulated_SOURCES = $(tests_unit_test_cuda_gemm_SOURCES)
tests_unit_test_cuda_gemm_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_step_SOURCES = tests/unit/test_cuda_step.c $(rig)
tests_unit_test_cuda_step_emulated_SOURCES = $(tests_unit_test_cuda_step_SOURCES)
tests_unit_test_cuda_step_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_offload_SOURCES = tests/unit/test_cuda_offload.c tests/unit/slow_file.c $(rig)
tests_unit_test_cuda_offload_emulated_SOURCES = $(tests_unit_test_cuda_offload_SOURCES)
tests_unit_test_cuda_offload_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_emulate_test_nccl_emulated_SOURCES = tests/emulate/test_nccl.c
tests_emulate_test_nccl_emulated_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CFLAGS)
tests_emulate_test_nccl_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_emulate_test_products_emulated_SOURCES = tests/emulate/test_products.c
tests_emulate_test_products_emulated_CPPFLAGS = $(AM_CPPFLAGS) $(CUBLASLT_CFLAGS)
tests_emulate_test_products_emulated_LDADD = $(EMULATED_UNIT_LIBS)
endif
