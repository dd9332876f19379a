# Trials by chance: kills, corruption, failing calls and allocations.  How: doc/development.md.
EXTRA_DIST += tests/chaos/chaos.inc tests/chaos/kill.sh tests/chaos/corrupt.sh tests/chaos/io_errors.sh \
	tests/chaos/allocations.sh tests/chaos/preload.c tests/chaos/mutate.c
KILLS = 200
CORRUPTIONS = 1000
IO_ERRORS = 150
ALLOCATIONS = 400
check-chaos: trireme
	TRIREME=$(abs_builddir)/trireme KILLS=$(KILLS) CORRUPTIONS=$(CORRUPTIONS) IO_ERRORS=$(IO_ERRORS) \
	  ALLOCATIONS=$(ALLOCATIONS) $(srcdir)/tests/cli/chaos.sh
.PHONY: check-chaos
