# Orders of computation in a pipeline; step.mk has what they share.
UNIT_TESTS += tests/unit/test_schedule tests/unit/test_any_schedule
tests_unit_test_schedule_SOURCES = tests/unit/test_schedule.c $(rig)
tests_unit_test_schedule_CPPFLAGS = $(AM_CPPFLAGS) -DTEST_FILES='"$(abs_top_srcdir)/tests"'
EXTRA_DIST += tests/unit/schedules.csv
any_schedule = tests/unit/any_schedule.c tests/unit/any_schedule.h tests/unit/schedule_judge.c
tests_unit_test_any_schedule_SOURCES = tests/unit/test_any_schedule.c $(any_schedule) $(any) $(rig)
UNIT_TESTS += tests/unit/test_timeline tests/unit/test_schedule_memory
tests_unit_test_timeline_SOURCES = tests/unit/test_timeline.c
tests_unit_test_schedule_memory_SOURCES = tests/unit/test_schedule_memory.c $(rig)
UNIT_TESTS += tests/unit/test_play
tests_unit_test_play_SOURCES = tests/unit/test_play.c $(by_hand) $(rig)
tests_unit_test_play_CPPFLAGS = $(AM_CPPFLAGS) -DTEST_FILES='"$(abs_top_srcdir)/tests"'
