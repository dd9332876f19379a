# Checkpoints of several ranks, also as HDF5 programs see them.
MPI_TESTS += tests/mpi/test_checkpoint
tests_mpi_test_checkpoint_SOURCES = tests/mpi/test_checkpoint.c tests/mpi/check.h $(h5_data)
tests_mpi_test_checkpoint_CPPFLAGS = $(h5_data_flags)
tests_mpi_test_checkpoint_LDADD = $(TRIREME_LIBS)
MPI_TESTS += tests/mpi/test_new_rows
tests_mpi_test_new_rows_SOURCES = tests/mpi/test_new_rows.c tests/mpi/check.h $(hf_folder) $(rig)
tests_mpi_test_new_rows_LDADD = $(TRIREME_LIBS)
