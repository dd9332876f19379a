# Ops of experts of a GPU against the CPU's; built twice, as in cuda_ops.mk.
if HAVE_CUDA
UNIT_TESTS += tests/unit/test_cuda_ops_experts tests/unit/test_cuda_ops_experts_emulated \
	tests/unit/test_cuda_ops_experts_gemm tests/unit/test_cuda_ops_experts_gemm_emulated
tests_unit_test_cuda_ops_experts_SOURCES = tests/unit/test_cuda_ops_experts.c $(cuda_check)
tests_unit_test_cuda_ops_experts_emulated_SOURCES = $(tests_unit_test_cuda_ops_experts_SOURCES)
tests_unit_test_cuda_ops_experts_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_ops_experts_gemm_SOURCES = tests/unit/test_cuda_ops_experts_gemm.c $(cuda_check)
tests_unit_test_cuda_ops_experts_gemm_emulated_SOURCES = $(tests_unit_test_cuda_ops_experts_gemm_SOURCES)
tests_unit_test_cuda_ops_experts_gemm_emulated_LDADD = $(EMULATED_UNIT_LIBS)
endif
