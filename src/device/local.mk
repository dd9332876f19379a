# The kernels are compiled once per instruction set and chosen at run time.
cpu_kernels = src/device/cpu/kernels.h src/device/cpu/simd.h src/device/cpu/attention.h src/device/cpu/pieces.h \
	src/device/cpu/unit.h src/device/cpu/tile.h src/device/cpu/bias.c src/device/cpu/attention.c \
	src/device/cpu/attention_backward.c src/device/cpu/attention_block.c src/device/cpu/attention_cached.c \
	src/device/cpu/dropout.h src/device/cpu/dropout.c src/device/cpu/elementwise.c src/device/cpu/embedding.c \
	src/device/cpu/experts.c src/device/cpu/experts_gemm.c src/device/cpu/fp8.c src/device/cpu/fp8.h \
	src/device/cpu/gemm_own.c src/device/cpu/gemm_own.h src/device/cpu/gemm_rows.c src/device/cpu/gemm_packed.c src/device/cpu/gemm_operand.h src/device/cpu/gemm_pack.h \
	src/device/cpu/gemm_block.h src/device/cpu/gemm_format.h src/device/cpu/gemm_strip.h src/device/cpu/heads.c \
	src/device/cpu/loss.c src/device/cpu/magnitude.c src/device/cpu/norm.c src/device/cpu/muon.c src/device/cpu/nf4.c \
	src/device/cpu/ops.c src/device/cpu/optimizer.c src/device/cpu/optimizer.h src/device/cpu/optimizer_8bit.c src/device/cpu/rope.c \
	src/device/cpu/swiglu.c
libtrireme_a_SOURCES += src/device/device.h src/device/ops.h src/device/ops_attention.h src/device/ops_experts.h \
	src/device/ops_optimizer.h src/device/device.c src/device/driver.h src/device/self_check.c src/device/self_check.h \
	src/device/self_check_attention.c src/device/self_check_cache.c src/device/self_check_experts.c src/device/self_check_layers.c \
	src/device/self_check_moves.c src/device/self_check_private.h src/device/self_check_products.c \
	src/device/self_check_sums.c src/device/trial.c src/device/trial.h src/device/product.h src/device/product.c src/device/shape_check.h src/device/shape_check.c \
	src/device/cpu/driver.c src/device/cpu/run_queue.h src/device/cpu/run_queue.c src/device/cpu/gemm.h src/device/cpu/gemm_blocks.c src/device/cpu/work.h
include $(top_srcdir)/src/device/cpu/gemm.mk
include $(top_srcdir)/src/device/cpu/levels.mk
