# Layers divided among tensor ranks; training.mk has what this shares.
MPI_TESTS += tests/mpi/test_tensor
tests_mpi_test_tensor_SOURCES = tests/mpi/test_tensor.c $(training)
tests_mpi_test_tensor_CPPFLAGS = $(AM_CPPFLAGS) -DTENSOR_STEPS=50 -DTENSOR_DROP=0.3 -DTENSOR_SHARE=3 \
	-DTENSOR_DEVICE='"device=cpu"'
tests_mpi_test_tensor_LDADD = $(TRIREME_LIBS)
if HAVE_NCCL
MPI_TESTS += tests/mpi/test_tensor_emulated
tests_mpi_test_tensor_emulated_SOURCES = $(tests_mpi_test_tensor_SOURCES)
tests_mpi_test_tensor_emulated_CPPFLAGS = $(AM_CPPFLAGS) -DTENSOR_STEPS=5 -DTENSOR_DROP=0.001 -DTENSOR_SHARE=10 \
	-DTENSOR_DEVICE='"device=cuda comm.share_gpu=true"'
tests_mpi_test_tensor_emulated_LDADD = $(EMULATED_LIBS)
endif

# All cells of layers divided among tensor ranks.
check-tensor: tests/mpi/test_tensor
	TENSOR=all TIMEOUT=7200 $(srcdir)/tests/mpi/run.sh tests/mpi/test_tensor
.PHONY: check-tensor
