# Programs that mpirun starts at 1, 2, 3 and 4 ranks by tests/mpi/run.sh.
check_PROGRAMS += $(MPI_TESTS)
MPI_TESTS =
EXTRA_DIST +=
