# Tests of the GPU, each built twice: for a real one (exit 77 where there is none), and emulated.
if HAVE_CUDA
UNIT_TESTS += tests/unit/test_cuda_attention tests/unit/test_cuda_attention_emulated \
	tests/unit/test_cuda_documents tests/unit/test_cuda_documents_emulated \
	tests/unit/test_cuda_gemm tests/unit/test_cuda_gemm_emulated \
	tests/unit/test_cuda_step tests/unit/test_cuda_step_emulated \
	tests/unit/test_packed_step_cuda tests/unit/test_packed_step_cuda_emulated \
	tests/unit/test_cuda_offload tests/unit/test_cuda_offload_emulated \
	tests/emulate/test_nccl_emulated tests/emulate/test_products_emulated
cuda_attention = tests/unit/cuda_attention_check.c tests/unit/cuda_attention_check.h
tests_unit_test_cuda_attention_SOURCES = tests/unit/test_cuda_attention.c $(cuda_attention)
tests_unit_test_cuda_attention_emulated_SOURCES = $(tests_unit_test_cuda_attention_SOURCES)
tests_unit_test_cuda_attention_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_documents_SOURCES = tests/unit/test_cuda_documents.c $(cuda_attention)
tests_unit_test_cuda_documents_emulated_SOURCES = $(tests_unit_test_cuda_documents_SOURCES)
tests_unit_test_cuda_documents_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_gemm_SOURCES = tests/unit/test_cuda_gemm.c $(ops_check)
tests_unit_test_cuda_gemm_emulated_SOURCES = $(tests_unit_test_cuda_gemm_SOURCES)
tests_unit_test_cuda_gemm_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_step_SOURCES = tests/unit/test_cuda_step.c $(rig)
tests_unit_test_cuda_step_emulated_SOURCES = $(tests_unit_test_cuda_step_SOURCES)
tests_unit_test_cuda_step_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_packed_step_cuda_SOURCES = tests/unit/test_packed_step.c $(rig)
tests_unit_test_packed_step_cuda_CPPFLAGS = $(AM_CPPFLAGS) -DPACKED_DEVICE='"cuda"'
tests_unit_test_packed_step_cuda_emulated_SOURCES = $(tests_unit_test_packed_step_cuda_SOURCES)
tests_unit_test_packed_step_cuda_emulated_CPPFLAGS = $(tests_unit_test_packed_step_cuda_CPPFLAGS)
tests_unit_test_packed_step_cuda_emulated_LDADD = $(EMULATED_UNIT_LIBS)
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
