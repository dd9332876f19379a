# Training on several ranks; rig.c is shared with the unit tests.
MPI_TESTS += tests/mpi/test_layouts
training = tests/mpi/check.h tests/mpi/training.c tests/mpi/training.h $(rig)
tests_mpi_test_layouts_SOURCES = tests/mpi/test_layouts.c $(training)
tests_mpi_test_layouts_LDADD = $(TRIREME_LIBS)
