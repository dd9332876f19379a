# libemulate.a: the kernels compiled for this processor, and a CUDA runtime and libraries for them.
emulate_sources = $(sort $(wildcard $(srcdir)/tests/emulate/*.cc))
emulate_kernels = $(patsubst src/device/cuda/%.cu,tests/emulate/kernels/%.o,$(cuda_kernels))
emulate_objects = $(patsubst $(srcdir)/%.cc,%.o,$(emulate_sources)) $(emulate_kernels)
EXTRA_DIST += $(patsubst $(srcdir)/%,%,$(emulate_sources) $(wildcard $(srcdir)/tests/emulate/*.h) \
	$(wildcard $(srcdir)/tests/emulate/device/cuda/*) $(wildcard $(srcdir)/tests/*/*_kernels.cu))
EMULATE_COMPILE = $(CXX) -std=gnu++17 $(CXXFLAGS) -pthread -Wall -Wextra -Wno-unused-parameter \
	-Wno-unknown-pragmas -I$(top_srcdir)/tests/emulate $(NVIDIA_CFLAGS) $(AM_CPPFLAGS) -MMD -MP
# As nvcc is told to, see src/m4/nvcc.mk; codes of 8 bits have the fused products of a GPU.
EMULATE_KERNEL = $(EMULATE_COMPILE) -ffp-contract=off -DDYNAMIC8_FMA=fmaf -x c++
tests/emulate/libemulate.a: $(emulate_objects)
	$(AM_V_AR)rm -f $@ && $(AR) cr $@ $(emulate_objects) && $(RANLIB) $@
tests/emulate/kernels/%.o: $(srcdir)/src/device/cuda/%.cu
	$(AM_V_EMULATE)$(MKDIR_P) $(@D) && $(EMULATE_KERNEL) -c -o $@ $<
tests/emulate/kernels/%.o: $(srcdir)/tests/emulate/%.cu
	$(AM_V_EMULATE)$(MKDIR_P) $(@D) && $(EMULATE_KERNEL) -c -o $@ $<
tests/emulate/kernels/%.o: $(srcdir)/tests/unit/%.cu
	$(AM_V_EMULATE)$(MKDIR_P) $(@D) && $(EMULATE_KERNEL) -c -o $@ $<
tests/emulate/%.o: $(srcdir)/tests/emulate/%.cc
	$(AM_V_EMULATE)$(MKDIR_P) $(@D) && $(EMULATE_COMPILE) -c -o $@ $<
-include $(emulate_objects:.o=.d) $(wildcard tests/emulate/kernels/*_kernels.d tests/unit/*_kernels.d)
CLEANFILES += tests/emulate/libemulate.a tests/emulate/*.[do] tests/emulate/kernels/*.[do]

# Every setting of the tests on the emulated GPU; tests/check.sh shortens some (CHECK_SHORT).
check-long: $(UNIT_TESTS)
	for test in $(filter %_emulated,$(UNIT_TESTS)); do ./$$test || exit 1; done
.PHONY: check-long
