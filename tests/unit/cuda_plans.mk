# Plans of cuDNN, made with a driver that does nothing; all of them by check-plans.
EXTRA_DIST += tests/unit/described_gpu.c
if HAVE_CUDNN
UNIT_TESTS += tests/unit/test_cuda_plans tests/unit/test_cuda_tiles tests/unit/test_cuda_tiles_emulated
tests_unit_test_cuda_tiles_SOURCES = tests/unit/test_cuda_tiles.c $(ops_check)
tests_unit_test_cuda_tiles_emulated_SOURCES = $(tests_unit_test_cuda_tiles_SOURCES)
tests_unit_test_cuda_tiles_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_plans_SOURCES = tests/unit/test_cuda_plans.c $(ops_check)
tests_unit_test_cuda_plans_CPPFLAGS = $(AM_CPPFLAGS) $(CUDNN_CFLAGS)
tests_unit_test_cuda_plans_LDADD = $(UNIT_LIBS)
EXTRA_tests_unit_test_cuda_plans_DEPENDENCIES = tests/unit/described_gpu.so
tests/unit/described_gpu.so: $(srcdir)/tests/unit/described_gpu.c
	$(AM_V_CC)$(MKDIR_P) $(@D) && $(CC) $(CFLAGS) -shared -fPIC -Wl,-soname,libcuda.so.1 -o $@ \
	  $(srcdir)/tests/unit/described_gpu.c
CLEANFILES += tests/unit/described_gpu.so
check-plans: tests/unit/test_cuda_plans
	PLANS=all tests/unit/test_cuda_plans
else
check-plans:
	@echo "check-plans: this build has no cuDNN (see configure's summary)" >&2; exit 1
endif
.PHONY: check-plans
