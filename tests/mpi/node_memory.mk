# Ranks that read one another's memory; the test changes which ranks are on one node.
MPI_TESTS += tests/mpi/test_node_memory
tests_mpi_test_node_memory_SOURCES = tests/mpi/test_node_memory.c tests/mpi/check.h
tests_mpi_test_node_memory_LDADD = $(TRIREME_LIBS)
tests_mpi_test_node_memory_CPPFLAGS = $(AM_CPPFLAGS) $(MPI_CFLAGS)
