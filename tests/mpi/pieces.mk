# A model divided among ranks against the whole.
MPI_TESTS += tests/mpi/test_pieces
tests_mpi_test_pieces_SOURCES = tests/mpi/test_pieces.c tests/mpi/check.h $(divided)
tests_mpi_test_pieces_CPPFLAGS = $(AM_CPPFLAGS) -DPIECES_DEVICE='"device=cpu"'
tests_mpi_test_pieces_LDADD = $(TRIREME_LIBS)
if HAVE_NCCL
MPI_TESTS += tests/mpi/test_pieces_emulated
tests_mpi_test_pieces_emulated_SOURCES = $(tests_mpi_test_pieces_SOURCES)
tests_mpi_test_pieces_emulated_CPPFLAGS = $(AM_CPPFLAGS) \
	-DPIECES_DEVICE='"device=$(emulated_gpu)"'
tests_mpi_test_pieces_emulated_LDADD = $(EMULATED_LIBS)
endif

# An encoder-decoder in units against one in one.
MPI_TESTS += tests/mpi/test_boundaries
tests_mpi_test_boundaries_SOURCES = tests/mpi/test_boundaries.c $(translator) $(training)
tests_mpi_test_boundaries_LDADD = $(TRIREME_LIBS)
# Weights that several ranks hold.
MPI_TESTS += tests/mpi/test_replicas
tests_mpi_test_replicas_SOURCES = tests/mpi/test_replicas.c tests/mpi/check.h $(rig)
tests_mpi_test_replicas_LDADD = $(TRIREME_LIBS)
# Memory that loading takes; weights that one rank of a node reads for all.
hf_folder = tests/unit/hf_folder.c tests/unit/hf_folder.h
MPI_TESTS += tests/mpi/test_loading tests/mpi/test_loading_node
tests_mpi_test_loading_SOURCES = tests/mpi/test_loading.c tests/mpi/check.h $(hf_folder) $(rig)
tests_mpi_test_loading_LDADD = $(TRIREME_LIBS)
tests_mpi_test_loading_node_SOURCES = tests/mpi/test_loading_node.c tests/mpi/check.h $(hf_folder) $(rig)
tests_mpi_test_loading_node_LDADD = $(TRIREME_LIBS)
