# Gradients in bf16, on every layout; training.mk has what this shares.
MPI_TESTS += tests/mpi/test_grad_dtype
tests_mpi_test_grad_dtype_SOURCES = tests/mpi/test_grad_dtype.c $(training)
tests_mpi_test_grad_dtype_CPPFLAGS = $(AM_CPPFLAGS) -DGRAD_STEPS=50 -DGRAD_SHARE=1 -DGRAD_BATCH='"12"' -DGRAD_DEVICE='"cpu"'
tests_mpi_test_grad_dtype_LDADD = $(TRIREME_LIBS)
if HAVE_NCCL
MPI_TESTS += tests/mpi/test_grad_dtype_emulated
tests_mpi_test_grad_dtype_emulated_SOURCES = $(tests_mpi_test_grad_dtype_SOURCES)
tests_mpi_test_grad_dtype_emulated_CPPFLAGS = $(AM_CPPFLAGS) -DGRAD_STEPS=4 -DGRAD_SHARE=4 -DGRAD_BATCH='"6"' \
	-DGRAD_DEVICE='"$(emulated_gpu)"'
tests_mpi_test_grad_dtype_emulated_LDADD = $(EMULATED_LIBS)
endif
