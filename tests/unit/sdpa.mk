# Attention by cuDNN; without a GPU only its graphs are looked at.
if HAVE_CUDNN
UNIT_TESTS += tests/unit/test_cuda_sdpa
tests_unit_test_cuda_sdpa_SOURCES = tests/unit/test_cuda_sdpa.c $(ops_check)
tests_unit_test_cuda_sdpa_CPPFLAGS = $(AM_CPPFLAGS) $(CUDNN_CFLAGS)
tests_unit_test_cuda_sdpa_LDADD = $(UNIT_LIBS)
endif
