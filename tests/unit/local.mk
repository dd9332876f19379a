# One program per folder of the house: tests/unit/test_FOLDER[_PART].c, cmocka.  One source file and
# UNIT_LIBS need no further line.
if HAVE_CMOCKA
check_PROGRAMS += $(UNIT_TESTS)
TESTS += $(UNIT_TESTS)
endif
UNIT_TESTS = tests/unit/test_base tests/unit/test_box tests/unit/test_dtype tests/unit/test_config \
	tests/unit/test_config_write tests/unit/test_foreign tests/unit/test_named_model tests/unit/test_metrics tests/unit/test_alive \
	tests/unit/test_sources tests/unit/test_sampling tests/unit/test_product_file tests/unit/test_division \
	tests/unit/test_run_changes tests/unit/test_run_record tests/unit/test_run_spared tests/unit/test_cgroup
include $(top_srcdir)/tests/unit/comm.mk
include $(top_srcdir)/tests/unit/ops.mk
include $(top_srcdir)/tests/unit/attention.mk
include $(top_srcdir)/tests/unit/io.mk
include $(top_srcdir)/tests/unit/step.mk
include $(top_srcdir)/tests/unit/schedule.mk
include $(top_srcdir)/tests/unit/verify.mk
include $(top_srcdir)/tests/unit/pieces.mk
include $(top_srcdir)/tests/unit/plan.mk
include $(top_srcdir)/tests/unit/machine.mk
include $(top_srcdir)/tests/unit/cuda.mk
include $(top_srcdir)/tests/unit/fp8.mk
include $(top_srcdir)/tests/unit/cuda_attention.mk
include $(top_srcdir)/tests/unit/cuda_ops.mk
include $(top_srcdir)/tests/unit/cuda_ops_more.mk
include $(top_srcdir)/tests/unit/self_check.mk
include $(top_srcdir)/tests/unit/sdpa.mk
include $(top_srcdir)/tests/unit/cuda_plans.mk
include $(top_srcdir)/tests/unit/emulator.mk
