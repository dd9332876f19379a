# Layers divided among tensor ranks and pipeline stages; training.mk has what this shares.
MPI_TESTS += tests/mpi/test_parallel
tests_mpi_test_parallel_SOURCES = tests/mpi/test_parallel.c $(training)
tests_mpi_test_parallel_CPPFLAGS = $(AM_CPPFLAGS) -DPARALLEL_STEPS=50 -DPARALLEL_DROP=0.3 -DPARALLEL_SHARE=37 \
	-DPARALLEL_DEVICE='"device=cpu"'
tests_mpi_test_parallel_LDADD = $(TRIREME_LIBS)
if HAVE_NCCL
MPI_TESTS += tests/mpi/test_parallel_emulated
tests_mpi_test_parallel_emulated_SOURCES = $(tests_mpi_test_parallel_SOURCES)
tests_mpi_test_parallel_emulated_CPPFLAGS = $(AM_CPPFLAGS) -DPARALLEL_STEPS=3 -DPARALLEL_DROP=-1 -DPARALLEL_SHARE=127 \
	-DPARALLEL_DEVICE='"device=$(emulated_gpu)"'
tests_mpi_test_parallel_emulated_LDADD = $(EMULATED_LIBS)
endif
include $(top_srcdir)/tests/mpi/pipeline_bits.mk
include $(top_srcdir)/tests/mpi/dropout.mk
include $(top_srcdir)/tests/mpi/grad_dtype.mk

# All cells of test_parallel.
check-parallel: tests/mpi/test_parallel
	RANKS="2 3 4 8" PARALLEL=all TIMEOUT=7200 $(srcdir)/tests/mpi/run.sh tests/mpi/test_parallel
.PHONY: check-parallel
# Packed documents on several ranks.
MPI_TESTS += tests/mpi/test_packing
tests_mpi_test_packing_SOURCES = tests/mpi/test_packing.c $(training)
tests_mpi_test_packing_LDADD = $(TRIREME_LIBS)
