# The kernels are compiled once per instruction set and chosen at run time.
cpu_kernels = src/device/cpu/kernels.h src/device/cpu/simd.h src/device/cpu/attention.h \
	src/device/cpu/attention.c src/device/cpu/attention_backward.c \
	src/device/cpu/attention_block.c src/device/cpu/elementwise.c \
	src/device/cpu/embedding.c src/device/cpu/loss.c src/device/cpu/norm.c \
	src/device/cpu/ops.c src/device/cpu/optimizer.c src/device/cpu/rope.c
libtrireme_a_SOURCES += src/device/device.h src/device/ops.h src/device/table.c \
	src/device/cpu/gemm.h src/device/cpu/gemm_blocks.c src/device/cpu/work.h
if HAVE_ONEDNN
libtrireme_a_SOURCES += src/device/cpu/gemm_onednn.c src/device/cpu/onednn.h
else
libtrireme_a_SOURCES += src/device/cpu/gemm_cblas.c
endif
include $(top_srcdir)/src/device/cpu/levels.mk
