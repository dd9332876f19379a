# Kernels for GPUs are compiled by nvcc for every architecture of CUDA_ARCHS; nothing else is.
cuda_kernels = $(sort $(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/src/device/cuda/*.cu)))
cuda_objects = $(cuda_kernels:.cu=.o)
EXTRA_DIST += $(cuda_kernels) $(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/src/device/cuda/*.cuh))
# The sizes of a GPU's scratch are known to every build, for plans.
libtrireme_a_SOURCES += src/device/cuda/sizes.h src/device/cuda/sizes.c \
	src/device/cuda/planning.c src/device/cuda/sdpa.h src/device/cuda/cuda_ops.h
if HAVE_CUDA
libtrireme_a_LIBADD += $(cuda_objects)
libtrireme_a_SOURCES += src/device/cuda/state.h src/device/cuda/driver.c \
	src/device/cuda/discover.c src/device/cuda/bytes.c src/device/cuda/ops.c \
	src/device/cuda/gemm.c src/device/cuda/gemm.h src/device/cuda/gemm_tune.c \
	src/device/cuda/gemm_fp8.c src/device/cuda/fp8.h src/device/cuda/shape_check.c \
	src/device/cuda/shape_check_private.h src/device/cuda/shape_compare.c \
	src/device/cuda/shape_product.c src/device/cuda/shape_attention.c src/device/cuda/cublaslt.c
include $(top_srcdir)/src/device/cuda/sdpa.mk
else
libtrireme_a_SOURCES += src/device/cuda/absent.c src/device/cuda/sdpa_sizes.c
endif
