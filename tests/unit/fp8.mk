# Products in fp8: on CPUs; on a GPU, a real one (exit 77 where there is none), and the emulated one.
UNIT_TESTS += tests/unit/test_fp8
fp8_reference = tests/unit/fp8_reference.c tests/unit/fp8_reference.h $(ops_check)
tests_unit_test_fp8_SOURCES = tests/unit/test_fp8.c $(fp8_reference)
if HAVE_CUDA
UNIT_TESTS += tests/unit/test_cuda_fp8 tests/unit/test_cuda_fp8_emulated \
	tests/unit/test_cuda_fp8_products tests/unit/test_cuda_fp8_products_emulated
fp8_check = tests/unit/fp8_check.c tests/unit/fp8_check.h $(fp8_reference)
tests_unit_test_cuda_fp8_SOURCES = tests/unit/test_cuda_fp8.c $(fp8_check)
tests_unit_test_cuda_fp8_emulated_SOURCES = $(tests_unit_test_cuda_fp8_SOURCES)
tests_unit_test_cuda_fp8_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_fp8_products_SOURCES = tests/unit/test_cuda_fp8_products.c $(fp8_check)
tests_unit_test_cuda_fp8_products_emulated_SOURCES = $(tests_unit_test_cuda_fp8_products_SOURCES)
tests_unit_test_cuda_fp8_products_emulated_LDADD = $(EMULATED_UNIT_LIBS)
endif
