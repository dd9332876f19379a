# The long runs: sanitizers and valgrind.  How and why: doc/development.md.
EXTRA_DIST += tests/sanitize/asan.sh tests/sanitize/asan.supp tests/sanitize/commands.sh \
	tests/sanitize/build.inc tests/sanitize/keep_loaded.c tests/sanitize/tsan.sh \
	tests/sanitize/tsan.supp tests/sanitize/valgrind.sh tests/sanitize/valgrind.supp
check-asan:
	+CC='$(CC)' MAKE='$(MAKE)' UNIT_TESTS='$(UNIT_TESTS)' MPI_TESTS='$(MPI_TESTS)' \
	  $(srcdir)/tests/sanitize/asan.sh
check-tsan:
	+CC='$(CC)' MAKE='$(MAKE)' $(srcdir)/tests/sanitize/tsan.sh
check-valgrind: trireme
	$(srcdir)/tests/sanitize/valgrind.sh
clean-local:
	rm -rf build-asan build-tsan
.PHONY: check-asan check-tsan check-valgrind
