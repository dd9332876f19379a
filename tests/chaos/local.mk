# Trials by chance: kills, also between the calls that move a run, corruption, failing calls and
# allocations.  How: doc/development.md.
EXTRA_DIST += tests/chaos/chaos.inc tests/chaos/kill.sh tests/chaos/corrupt.sh tests/chaos/io_errors.sh \
	tests/chaos/allocations.sh tests/chaos/moves.sh tests/chaos/kill_at.c tests/chaos/preload.c tests/chaos/mutate.c
KILLS = 200
CORRUPTIONS = 1000
IO_ERRORS = 150
ALLOCATIONS = 400
MOVES = all
SIGNAL_STARTS = 40
check-chaos: trireme
	TRIREME=$(abs_builddir)/trireme KILLS=$(KILLS) CORRUPTIONS=$(CORRUPTIONS) IO_ERRORS=$(IO_ERRORS) \
	  ALLOCATIONS=$(ALLOCATIONS) MOVES=$(MOVES) $(srcdir)/tests/cli/chaos.sh
	TRIREME=$(abs_builddir)/trireme SIGNAL_STARTS=$(SIGNAL_STARTS) $(srcdir)/tests/cli/signals.sh
.PHONY: check-chaos
