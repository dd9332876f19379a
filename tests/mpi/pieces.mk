# A model divided among ranks against the whole.
MPI_TESTS += tests/mpi/test_pieces
tests_mpi_test_pieces_SOURCES = tests/mpi/test_pieces.c tests/mpi/check.h $(divided)
tests_mpi_test_pieces_LDADD = $(TRIREME_LIBS)

# An encoder-decoder in units against one in one.
MPI_TESTS += tests/mpi/test_boundaries
tests_mpi_test_boundaries_SOURCES = tests/mpi/test_boundaries.c $(translator) $(training)
tests_mpi_test_boundaries_LDADD = $(TRIREME_LIBS)
