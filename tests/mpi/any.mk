# Settings by chance; training.mk has what this shares.
MPI_TESTS += tests/mpi/test_any
tests_mpi_test_any_SOURCES = tests/mpi/test_any.c $(any) $(training)
tests_mpi_test_any_CPPFLAGS = $(AM_CPPFLAGS) -DANY_CASES=24 -DANY_DEVICE='"device=cpu"'
tests_mpi_test_any_LDADD = $(TRIREME_LIBS)
if HAVE_NCCL
MPI_TESTS += tests/mpi/test_any_emulated
tests_mpi_test_any_emulated_SOURCES = $(tests_mpi_test_any_SOURCES)
tests_mpi_test_any_emulated_CPPFLAGS = $(AM_CPPFLAGS) -DANY_CASES=1 \
	-DANY_DEVICE='"device=$(emulated_gpu)"'
tests_mpi_test_any_emulated_LDADD = $(EMULATED_LIBS)
endif

# Many more settings by chance.
check-any: tests/mpi/test_any
	ANY=400 TIMEOUT=7200 $(srcdir)/tests/mpi/run.sh tests/mpi/test_any
.PHONY: check-any
include $(top_srcdir)/tests/mpi/any_schedule.mk
include $(top_srcdir)/tests/mpi/generate.mk
include $(top_srcdir)/tests/mpi/whole.mk
