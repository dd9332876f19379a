# Tests of io.
UNIT_TESTS += tests/unit/test_io_h5 tests/unit/test_io_checkpoint tests/unit/test_io_boxes tests/unit/test_io_faults \
	tests/unit/test_flips tests/unit/test_io_crafted tests/unit/test_swap tests/unit/test_tokens
tests_unit_test_io_h5_SOURCES = tests/unit/test_io_h5.c
tests_unit_test_io_h5_LDADD = $(UNIT_LIBS)
tests_unit_test_io_checkpoint_SOURCES = tests/unit/test_io_checkpoint.c tests/unit/test_io_checkpoint.h
tests_unit_test_io_checkpoint_LDADD = $(UNIT_LIBS)
tests_unit_test_io_boxes_SOURCES = tests/unit/test_io_boxes.c tests/unit/test_io_checkpoint.h
tests_unit_test_io_boxes_LDADD = $(UNIT_LIBS)
tests_unit_test_io_faults_SOURCES = tests/unit/test_io_faults.c tests/unit/test_io_checkpoint.h
tests_unit_test_io_faults_LDADD = $(UNIT_LIBS)
tests_unit_test_flips_SOURCES = tests/unit/test_flips.c
tests_unit_test_flips_LDADD = $(UNIT_LIBS)
tests_unit_test_io_crafted_SOURCES = tests/unit/test_io_crafted.c
tests_unit_test_io_crafted_LDADD = $(UNIT_LIBS)
tests_unit_test_swap_SOURCES = tests/unit/test_swap.c tests/unit/slow_file.c
tests_unit_test_swap_LDADD = $(UNIT_LIBS)
tests_unit_test_tokens_SOURCES = tests/unit/test_tokens.c
tests_unit_test_tokens_LDADD = $(UNIT_LIBS)

# 5000 flipped bits of a token file, where tests/check.sh tries some hundreds.
check-flips: tests/unit/test_flips
	TRIREME_FLIPS=5000 tests/unit/test_flips
.PHONY: check-flips
