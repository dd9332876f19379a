# Steps that others have published, against forecasts.
check_PROGRAMS += tests/bench/published
tests_bench_published_SOURCES = tests/bench/published.c
tests_bench_published_CPPFLAGS = $(AM_CPPFLAGS) -DTEST_FILES='"$(abs_top_srcdir)/tests"'
tests_bench_published_LDADD = $(TRIREME_LIBS)
