# The same bits with any number of stages; training.mk has what this shares.
MPI_TESTS += tests/mpi/test_pipeline_bits
tests_mpi_test_pipeline_bits_SOURCES = tests/mpi/test_pipeline_bits.c $(training)
tests_mpi_test_pipeline_bits_CPPFLAGS = $(AM_CPPFLAGS) -DBITS_STEPS=4 -DBITS_SHARE=3 -DBITS_WHOLE=1 -DBITS_DEVICE='"device=cpu"'
tests_mpi_test_pipeline_bits_LDADD = $(TRIREME_LIBS)
if HAVE_NCCL
MPI_TESTS += tests/mpi/test_pipeline_bits_emulated
tests_mpi_test_pipeline_bits_emulated_SOURCES = $(tests_mpi_test_pipeline_bits_SOURCES)
tests_mpi_test_pipeline_bits_emulated_CPPFLAGS = $(AM_CPPFLAGS) -DBITS_STEPS=2 -DBITS_SHARE=31 -DBITS_WHOLE=5 \
	-DBITS_DEVICE='"device=$(emulated_gpu)"'
tests_mpi_test_pipeline_bits_emulated_LDADD = $(EMULATED_LIBS)
endif
