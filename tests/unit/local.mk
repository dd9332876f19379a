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
UNIT_TESTS += tests/unit/test_mesh
tests_unit_test_mesh_SOURCES = tests/unit/test_mesh.c
tests_unit_test_mesh_LDADD = $(UNIT_LIBS)
include $(top_srcdir)/tests/unit/ops.mk
include $(top_srcdir)/tests/unit/io.mk
