# Is what verify accepts right, and is what is wrong refused?
UNIT_TESTS += tests/unit/test_verify tests/unit/test_verify_ranks tests/unit/test_verify_values
UNIT_TESTS += tests/unit/test_deadlock tests/unit/test_verify_segments tests/unit/test_verify_streams
UNIT_TESTS += tests/unit/test_verify_updaters tests/unit/test_verify_overlaps
programs = tests/unit/programs.c tests/unit/programs.h $(translator) $(rig)
tests_unit_test_verify_SOURCES = tests/unit/test_verify.c $(programs)
tests_unit_test_verify_overlaps_SOURCES = tests/unit/test_verify_overlaps.c $(programs)
tests_unit_test_verify_streams_SOURCES = tests/unit/test_verify_streams.c $(programs)
tests_unit_test_verify_updaters_SOURCES = tests/unit/test_verify_updaters.c $(programs)
tests_unit_test_verify_values_SOURCES = tests/unit/test_verify_values.c $(programs)
tests_unit_test_verify_segments_SOURCES = tests/unit/test_verify_segments.c $(rig)
by_hand = tests/unit/by_hand.c tests/unit/by_hand.h
tests_unit_test_verify_ranks_SOURCES = tests/unit/test_verify_ranks.c $(by_hand) $(rig)
tests_unit_test_deadlock_SOURCES = tests/unit/test_deadlock.c $(by_hand) $(rig)
UNIT_TESTS += tests/unit/test_history tests/unit/test_history_order
UNIT_TESTS += tests/unit/test_history_fields
faults = tests/unit/faults.c tests/unit/faults.h $(divided)
tests_unit_test_history_SOURCES = tests/unit/test_history.c $(faults)
tests_unit_test_history_order_SOURCES = tests/unit/test_history_order.c $(faults)
tests_unit_test_history_fields_SOURCES = tests/unit/test_history_fields.c $(faults)
UNIT_TESTS += tests/unit/test_dropout_verify
tests_unit_test_dropout_verify_SOURCES = tests/unit/test_dropout_verify.c $(rig)
# Updates beside forward.
UNIT_TESTS += tests/unit/test_pending_update
tests_unit_test_pending_update_SOURCES = tests/unit/test_pending_update.c $(rig)
