# Programs that mpirun starts at 1, 2, 3 and 4 ranks by tests/mpi/run.sh.
check_PROGRAMS += $(MPI_TESTS)
EXTRA_DIST += tests/mpi/run.sh
MPI_TESTS = tests/mpi/test_comm_group tests/mpi/test_comm_world tests/mpi/test_comm_large \
	tests/mpi/test_comm_device tests/mpi/test_messages
tests_mpi_test_comm_group_SOURCES = tests/mpi/test_comm_group.c tests/mpi/check.h
tests_mpi_test_comm_group_LDADD = $(TRIREME_LIBS)
tests_mpi_test_comm_world_SOURCES = tests/mpi/test_comm_world.c tests/mpi/check.h
tests_mpi_test_comm_world_LDADD = $(TRIREME_LIBS)
tests_mpi_test_comm_large_SOURCES = tests/mpi/test_comm_large.c tests/mpi/check.h
tests_mpi_test_comm_large_LDADD = $(TRIREME_LIBS)
tests_mpi_test_comm_device_SOURCES = tests/mpi/test_comm_device.c tests/mpi/check.h \
	tests/mpi/device_arrays.h
tests_mpi_test_comm_device_LDADD = $(TRIREME_LIBS)
if HAVE_NCCL
MPI_TESTS += tests/mpi/test_comm_device_emulated tests/mpi/test_messages_emulated
tests_mpi_test_comm_device_emulated_SOURCES = $(tests_mpi_test_comm_device_SOURCES)
tests_mpi_test_comm_device_emulated_LDADD = $(EMULATED_LIBS)
endif
include $(top_srcdir)/tests/mpi/node_memory.mk
include $(top_srcdir)/tests/mpi/checkpoint.mk
include $(top_srcdir)/tests/mpi/training.mk
include $(top_srcdir)/tests/mpi/parallel.mk
include $(top_srcdir)/tests/mpi/pieces.mk
include $(top_srcdir)/tests/mpi/any.mk
include $(top_srcdir)/tests/mpi/measure.mk
check-mpi: $(MPI_TESTS)
	$(srcdir)/tests/mpi/run.sh $(MPI_TESTS)
.PHONY: check-mpi
