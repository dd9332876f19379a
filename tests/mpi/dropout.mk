# What training drops, on every layout; training.mk has what this shares.
MPI_TESTS += tests/mpi/test_dropout
tests_mpi_test_dropout_SOURCES = tests/mpi/test_dropout.c $(training)
tests_mpi_test_dropout_CPPFLAGS = $(AM_CPPFLAGS) -DDROPOUT_STEPS=30 -DDROPOUT_SHARE=1 -DDROPOUT_FALL=0.3 -DDROPOUT_DEVICE='"cpu"'
tests_mpi_test_dropout_LDADD = $(TRIREME_LIBS)
if HAVE_NCCL
MPI_TESTS += tests/mpi/test_dropout_emulated
tests_mpi_test_dropout_emulated_SOURCES = $(tests_mpi_test_dropout_SOURCES)
tests_mpi_test_dropout_emulated_CPPFLAGS = $(AM_CPPFLAGS) -DDROPOUT_STEPS=4 -DDROPOUT_SHARE=2 -DDROPOUT_FALL=-1 \
	-DDROPOUT_DEVICE='"$(emulated_gpu)"'
tests_mpi_test_dropout_emulated_LDADD = $(EMULATED_LIBS)
endif
