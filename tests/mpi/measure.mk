# What trireme doctor --measure does, whose sources are the program's.
MPI_TESTS += tests/mpi/test_measure
tests_mpi_test_measure_SOURCES = tests/mpi/test_measure.c tests/mpi/check.h \
	src/doctor/measure_products.c src/doctor/measure_work.c src/doctor/measure_work.h
tests_mpi_test_measure_LDADD = $(TRIREME_LIBS)
