# Ops of the GPU against the CPU's, each program for a real GPU (exit 77 where there is none) and an
# emulated one.
if HAVE_CUDA
UNIT_TESTS += tests/unit/test_cuda_ops tests/unit/test_cuda_ops_emulated \
	tests/unit/test_cuda_ops_sums tests/unit/test_cuda_ops_sums_emulated \
	tests/unit/test_cuda_ops_layernorm tests/unit/test_cuda_ops_layernorm_emulated \
	tests/unit/test_cuda_ops_qk_norm tests/unit/test_cuda_ops_qk_norm_emulated
cuda_check = tests/unit/cuda_check.c tests/unit/cuda_check.h $(ops_check)
tests_unit_test_cuda_ops_SOURCES = tests/unit/test_cuda_ops.c $(cuda_check)
tests_unit_test_cuda_ops_emulated_SOURCES = $(tests_unit_test_cuda_ops_SOURCES)
tests_unit_test_cuda_ops_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_ops_sums_SOURCES = tests/unit/test_cuda_ops_sums.c $(cuda_check)
tests_unit_test_cuda_ops_sums_emulated_SOURCES = $(tests_unit_test_cuda_ops_sums_SOURCES)
tests_unit_test_cuda_ops_sums_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_ops_layernorm_SOURCES = tests/unit/test_cuda_ops_layernorm.c $(cuda_check)
tests_unit_test_cuda_ops_layernorm_emulated_SOURCES = $(tests_unit_test_cuda_ops_layernorm_SOURCES)
tests_unit_test_cuda_ops_layernorm_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_ops_qk_norm_SOURCES = tests/unit/test_cuda_ops_qk_norm.c $(cuda_check)
tests_unit_test_cuda_ops_qk_norm_emulated_SOURCES = $(tests_unit_test_cuda_ops_qk_norm_SOURCES)
tests_unit_test_cuda_ops_qk_norm_emulated_LDADD = $(EMULATED_UNIT_LIBS)
endif
