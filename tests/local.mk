# Each folder of tests adds its programs to check_PROGRAMS and its scripts to dist.
UNIT_LIBS = $(TRIREME_LIBS) $(CMOCKA_LIBS)
LDADD = $(UNIT_LIBS)
AM_DEFAULT_SOURCE_EXT = .c
EXTRA_DIST += tests/check.sh tests/install.sh tests/lint.sh tests/lint_self.sh
include $(top_srcdir)/tests/unit/local.mk
include $(top_srcdir)/tests/mpi/local.mk
include $(top_srcdir)/tests/slurm/local.mk
include $(top_srcdir)/tests/golden/local.mk
include $(top_srcdir)/tests/bench/local.mk
include $(top_srcdir)/tests/sanitize/local.mk
