# Products in fp8 on CPUs.
UNIT_TESTS += tests/unit/test_fp8
tests_unit_test_fp8_SOURCES = tests/unit/test_fp8.c $(ops_check)
