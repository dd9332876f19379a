# Attention on the CPU.
UNIT_TESTS += tests/unit/test_attention tests/unit/test_attention_forms
attention_check = tests/unit/attention_check.c tests/unit/attention_check.h
tests_unit_test_attention_SOURCES = tests/unit/test_attention.c $(attention_check)
tests_unit_test_attention_forms_SOURCES = tests/unit/test_attention_forms.c $(attention_check)
UNIT_TESTS += tests/unit/test_ops_cached
tests_unit_test_ops_cached_SOURCES = tests/unit/test_ops_cached.c $(ops_check)
