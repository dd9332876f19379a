# Attention by cuDNN where it was found, else by the own kernels alone.
if HAVE_CUDNN
libtrireme_a_SOURCES += src/device/cuda/sdpa_cudnn.c src/device/cuda/sdpa_graph.c \
	src/device/cuda/sdpa_graph.h src/device/cuda/sdpa_shape.c src/device/cuda/sdpa_sizes.c \
	src/device/cuda/sdpa_text.c src/device/cuda/sdpa_tiles.c src/device/cuda/sdpa_tiles.h
else
libtrireme_a_SOURCES += src/device/cuda/sdpa_absent.c
endif
