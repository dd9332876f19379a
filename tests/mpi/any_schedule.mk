# Pipeline schedules by chance; schedule.mk has what makes them.
MPI_TESTS += tests/mpi/test_any_schedule
tests_mpi_test_any_schedule_SOURCES = tests/mpi/test_any_schedule.c tests/mpi/check.h $(any_schedule) $(any) $(rig)
tests_mpi_test_any_schedule_CPPFLAGS = $(AM_CPPFLAGS) -DSCHEDULES_CASES=50 \
	-DSCHEDULES_DEVICE='"device=cpu"'
tests_mpi_test_any_schedule_LDADD = $(TRIREME_LIBS)
if HAVE_NCCL
MPI_TESTS += tests/mpi/test_any_schedule_emulated
tests_mpi_test_any_schedule_emulated_SOURCES = $(tests_mpi_test_any_schedule_SOURCES)
tests_mpi_test_any_schedule_emulated_CPPFLAGS = $(AM_CPPFLAGS) -DSCHEDULES_CASES=6 \
	-DSCHEDULES_DEVICE='"device=$(emulated_gpu)"'
tests_mpi_test_any_schedule_emulated_LDADD = $(EMULATED_LIBS)
endif

# 10,000 of them.
check-schedules: tests/mpi/test_any_schedule
	SCHEDULES=2500 TIMEOUT=7200 $(srcdir)/tests/mpi/run.sh tests/mpi/test_any_schedule
.PHONY: check-schedules
