# Training on several ranks; rig.c is shared with the unit tests.
MPI_TESTS += tests/mpi/test_layouts tests/mpi/test_plan tests/mpi/test_gpt2 tests/mpi/test_offload \
	tests/mpi/test_precision tests/mpi/test_matrix tests/mpi/test_schedules
training = tests/mpi/check.h tests/mpi/training.c tests/mpi/training.h $(rig)
# Without the self-check (its tests: tests/cli, tests/unit), which takes a second and loads kernels before a step does.
emulated_gpu = cuda comm.share_gpu=true run.self_check=off
tests_mpi_test_layouts_SOURCES = tests/mpi/test_layouts.c $(training)
tests_mpi_test_layouts_LDADD = $(TRIREME_LIBS)
tests_mpi_test_gpt2_SOURCES = tests/mpi/test_gpt2.c $(training)
tests_mpi_test_gpt2_LDADD = $(TRIREME_LIBS)
tests_mpi_test_plan_SOURCES = tests/mpi/test_plan.c $(training)
tests_mpi_test_plan_LDADD = $(TRIREME_LIBS)
tests_mpi_test_offload_SOURCES = tests/mpi/test_offload.c $(training)
tests_mpi_test_offload_LDADD = $(TRIREME_LIBS)
tests_mpi_test_precision_SOURCES = tests/mpi/test_precision.c $(training)
tests_mpi_test_precision_LDADD = $(TRIREME_LIBS)
tests_mpi_test_matrix_SOURCES = tests/mpi/test_matrix.c $(training)
tests_mpi_test_matrix_LDADD = $(TRIREME_LIBS)
tests_mpi_test_schedules_SOURCES = tests/mpi/test_schedules.c $(training)
tests_mpi_test_schedules_LDADD = $(TRIREME_LIBS)
tests_mpi_test_messages_SOURCES = tests/mpi/test_messages.c tests/mpi/check.h
tests_mpi_test_messages_LDADD = $(TRIREME_LIBS)
tests_mpi_test_messages_emulated_SOURCES = $(tests_mpi_test_messages_SOURCES)
tests_mpi_test_messages_emulated_LDADD = $(EMULATED_LIBS)

# The full product of the parity matrix.
check-matrix: tests/mpi/test_matrix
	MATRIX=all TIMEOUT=7200 $(srcdir)/tests/mpi/run.sh tests/mpi/test_matrix
.PHONY: check-matrix
