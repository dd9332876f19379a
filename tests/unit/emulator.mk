# Products by chosen algorithms; the emulated GPU itself: what kernels are written in, streams, and the faults it must catch.
if HAVE_CUDA
UNIT_TESTS += tests/unit/test_cuda_products tests/unit/test_cuda_products_emulated \
	tests/unit/test_cuda_simt tests/unit/test_cuda_simt_emulated \
	tests/unit/test_cuda_streams tests/unit/test_cuda_streams_emulated \
	tests/emulate/test_faults_emulated
tests_unit_test_cuda_simt_SOURCES = tests/unit/test_cuda_simt.c tests/unit/simt_kernels.h
tests_unit_test_cuda_simt_LDADD = tests/unit/simt_kernels.o $(UNIT_LIBS)
tests_unit_test_cuda_simt_emulated_SOURCES = $(tests_unit_test_cuda_simt_SOURCES)
tests_unit_test_cuda_simt_emulated_LDADD = tests/emulate/kernels/simt_kernels.o \
	$(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_products_SOURCES = tests/unit/test_cuda_products.c $(ops_check)
tests_unit_test_cuda_products_emulated_SOURCES = $(tests_unit_test_cuda_products_SOURCES)
tests_unit_test_cuda_products_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_streams_SOURCES = tests/unit/test_cuda_streams.c
tests_unit_test_cuda_streams_emulated_SOURCES = $(tests_unit_test_cuda_streams_SOURCES)
tests_unit_test_cuda_streams_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_emulate_test_faults_emulated_SOURCES = tests/emulate/test_faults.c \
	tests/emulate/fault_kernels.h
tests_emulate_test_faults_emulated_LDADD = tests/emulate/kernels/fault_kernels.o \
	$(EMULATED_UNIT_LIBS)
endif
CLEANFILES += tests/unit/*_kernels.[do]
