# One program per folder of the house: tests/unit/test_FOLDER[_PART].c, cmocka.
check_PROGRAMS += $(UNIT_TESTS)
TESTS += $(UNIT_TESTS)
UNIT_TESTS = tests/unit/test_base
tests_unit_test_base_SOURCES = tests/unit/test_base.c
tests_unit_test_base_LDADD = $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_config
tests_unit_test_config_SOURCES = tests/unit/test_config.c
tests_unit_test_config_LDADD = $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_attention
tests_unit_test_attention_SOURCES = tests/unit/test_attention.c
tests_unit_test_attention_LDADD = $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_io_h5 tests/unit/test_tokens
tests_unit_test_io_h5_SOURCES = tests/unit/test_io_h5.c
tests_unit_test_io_h5_LDADD = $(UNIT_LIBS)
tests_unit_test_tokens_SOURCES = tests/unit/test_tokens.c
tests_unit_test_tokens_LDADD = $(UNIT_LIBS)
UNIT_TESTS += tests/unit/test_mesh
tests_unit_test_mesh_SOURCES = tests/unit/test_mesh.c
tests_unit_test_mesh_LDADD = $(UNIT_LIBS)
include $(top_srcdir)/tests/unit/ops.mk
UNIT_TESTS += tests/unit/test_io_checkpoint
tests_unit_test_io_checkpoint_SOURCES = tests/unit/test_io_checkpoint.c
tests_unit_test_io_checkpoint_LDADD = $(UNIT_LIBS)
