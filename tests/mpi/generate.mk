# Texts continued on several ranks; training.mk has what this shares.
MPI_TESTS += tests/mpi/test_generate
tests_mpi_test_generate_SOURCES = tests/mpi/test_generate.c tests/mpi/check.h $(rig)
tests_mpi_test_generate_CPPFLAGS = $(AM_CPPFLAGS) -DGENERATE_SHARE=1 -DGENERATE_DEVICE='"device=cpu"'
tests_mpi_test_generate_LDADD = $(TRIREME_LIBS)
if HAVE_NCCL
MPI_TESTS += tests/mpi/test_generate_emulated
tests_mpi_test_generate_emulated_SOURCES = $(tests_mpi_test_generate_SOURCES)
tests_mpi_test_generate_emulated_CPPFLAGS = $(AM_CPPFLAGS) -DGENERATE_SHARE=4 \
	-DGENERATE_DEVICE='"device=$(emulated_gpu)"'
tests_mpi_test_generate_emulated_LDADD = $(EMULATED_LIBS)
endif
