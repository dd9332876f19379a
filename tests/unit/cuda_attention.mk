# Attention on GPUs, and over packed documents; each built twice, as in cuda.mk.
if HAVE_CUDA
UNIT_TESTS += tests/unit/test_cuda_attention tests/unit/test_cuda_attention_emulated \
	tests/unit/test_cuda_documents tests/unit/test_cuda_documents_emulated \
	tests/unit/test_packed_step_cuda tests/unit/test_packed_step_cuda_emulated
cuda_attention = tests/unit/cuda_attention_check.c tests/unit/cuda_attention_check.h
tests_unit_test_cuda_attention_SOURCES = tests/unit/test_cuda_attention.c $(cuda_attention)
tests_unit_test_cuda_attention_emulated_SOURCES = $(tests_unit_test_cuda_attention_SOURCES)
tests_unit_test_cuda_attention_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_documents_SOURCES = tests/unit/test_cuda_documents.c $(cuda_attention)
tests_unit_test_cuda_documents_emulated_SOURCES = $(tests_unit_test_cuda_documents_SOURCES)
tests_unit_test_cuda_documents_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_packed_step_cuda_SOURCES = tests/unit/test_packed_step.c $(rig)
tests_unit_test_packed_step_cuda_CPPFLAGS = $(AM_CPPFLAGS) -DPACKED_DEVICE='"cuda"'
tests_unit_test_packed_step_cuda_emulated_SOURCES = $(tests_unit_test_packed_step_cuda_SOURCES)
tests_unit_test_packed_step_cuda_emulated_CPPFLAGS = $(tests_unit_test_packed_step_cuda_CPPFLAGS)
tests_unit_test_packed_step_cuda_emulated_LDADD = $(EMULATED_UNIT_LIBS)
endif
