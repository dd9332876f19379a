# The long runs: sanitizers and valgrind.  How and why: doc/development.md.
EXTRA_DIST += tests/sanitize/asan.sh tests/sanitize/asan.supp tests/sanitize/commands.sh \
	tests/sanitize/keep_loaded.c tests/sanitize/valgrind.sh tests/sanitize/valgrind.supp
check-asan:
	+CC='$(CC)' MAKE='$(MAKE)' UNIT_TESTS='$(UNIT_TESTS)' MPI_TESTS='$(MPI_TESTS)' \
	  $(srcdir)/tests/sanitize/asan.sh
check-valgrind: trireme
	$(srcdir)/tests/sanitize/valgrind.sh
clean-local:
	rm -rf build-asan
.PHONY: check-asan check-valgrind
