# Machines: how long, by their descriptions, and their files.
UNIT_TESTS += tests/unit/test_machine tests/unit/test_machine_file
tests_unit_test_machine_SOURCES = tests/unit/test_machine.c
tests_unit_test_machine_file_SOURCES = tests/unit/test_machine_file.c
