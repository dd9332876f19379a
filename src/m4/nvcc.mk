# .cu to .o, with the headers it depends on.  The library holds no C++ runtime: exceptions and
# guards of static variables are off, so that cc links the programs.  Products are not fused with
# sums but by fmaf(), see simt.cuh.
SUFFIXES = .cu .o
AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =
AM_V_EMULATE = $(am__v_EMULATE_@AM_V@)
am__v_EMULATE_ = $(am__v_EMULATE_@AM_DEFAULT_V@)
am__v_EMULATE_0 = @echo "  EMULATE " $@;
am__v_EMULATE_1 =
NVCC_COMPILE = $(NVCC) -std=c++17 $(CUDA_GENCODE) $(NVCCFLAGS) -fmad=false $(NVCC_WARNINGS) \
	-Xcompiler -fno-exceptions,-fno-rtti,-fno-threadsafe-statics -I$(top_srcdir)/src $(CUDA_CFLAGS)
.cu.o:
	$(AM_V_NVCC)$(MKDIR_P) $(@D) && \
	  $(NVCC_COMPILE) -MMD -MP -MF $(@:.o=.d) -MT $@ -c -o $@ $<
-include $(wildcard src/device/cuda/*.d)
CLEANFILES += src/device/cuda/*.d
