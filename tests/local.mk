# Each folder of tests adds its programs to check_PROGRAMS and its scripts to dist.
UNIT_LIBS = $(TRIREME_LIBS) $(CMOCKA_LIBS)
LDADD = $(UNIT_LIBS)
AM_DEFAULT_SOURCE_EXT = .c
EXTRA_DIST += tests/check.sh tests/gpu.sh tests/gpu_kit.sh tests/install.sh tests/lint.sh tests/same_bits \
	tests/lint_self.sh $(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/tests/cli/*))

# Programs on the emulated GPU: what libemulate.a defines is not taken from elsewhere.
EMULATED_LIBS = $(WHOLE_ARCHIVE) tests/emulate/libemulate.a $(NO_WHOLE_ARCHIVE) libtrireme.a \
	$(HOST_LIBS) -lstdc++
EMULATED_UNIT_LIBS = $(EMULATED_LIBS) $(CMOCKA_LIBS)
if HAVE_CUDA
check_PROGRAMS += trireme-emulated trireme-faulty
trireme_emulated_SOURCES = $(trireme_SOURCES)
trireme_emulated_LDADD = $(EMULATED_LIBS)
trireme_faulty_SOURCES = $(trireme_SOURCES) tests/cli/faulty_gpu.c
trireme_faulty_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=cublasLtMatmul -Wl,--wrap=cuda_swiglu
trireme_faulty_LDADD = $(EMULATED_LIBS)
endif
include $(top_srcdir)/tests/emulate/local.mk
include $(top_srcdir)/tests/unit/local.mk
include $(top_srcdir)/tests/mpi/local.mk
include $(top_srcdir)/tests/slurm/local.mk
include $(top_srcdir)/tests/golden/local.mk
include $(top_srcdir)/tests/bench/local.mk
include $(top_srcdir)/tests/bench/published.mk
include $(top_srcdir)/tests/sanitize/local.mk
include $(top_srcdir)/tests/chaos/local.mk
include $(top_srcdir)/tests/fuzz/local.mk
