# Machines: how long, by their descriptions.
UNIT_TESTS += tests/unit/test_machine
tests_unit_test_machine_SOURCES = tests/unit/test_machine.c
