# The ops against naive references.
UNIT_TESTS += tests/unit/test_ops tests/unit/test_ops_norm tests/unit/test_ops_loss tests/unit/test_ops_optimizer \
	tests/unit/test_ops_gemm tests/unit/test_ops_layernorm tests/unit/test_ops_dropout \
	tests/unit/test_ops_adamw_bf16 tests/unit/test_run_queue tests/unit/test_ops_adamw_8bit tests/unit/test_gemm_threads \
	tests/unit/test_ops_magnitude tests/unit/test_ops_nf4 tests/unit/test_ops_experts \
	tests/unit/test_ops_experts_gemm
ops_check = tests/unit/ops_check.c tests/unit/ops_check.h
tests_unit_test_gemm_threads_SOURCES = tests/unit/test_gemm_threads.c $(ops_check)
tests_unit_test_run_queue_SOURCES = tests/unit/test_run_queue.c $(ops_check)
tests_unit_test_ops_SOURCES = tests/unit/test_ops.c $(ops_check)
tests_unit_test_ops_norm_SOURCES = tests/unit/test_ops_norm.c $(ops_check)
tests_unit_test_ops_layernorm_SOURCES = tests/unit/test_ops_layernorm.c $(ops_check)
tests_unit_test_ops_magnitude_SOURCES = tests/unit/test_ops_magnitude.c $(ops_check)
tests_unit_test_ops_nf4_SOURCES = tests/unit/test_ops_nf4.c $(ops_check)
tests_unit_test_ops_experts_SOURCES = tests/unit/test_ops_experts.c $(ops_check)
tests_unit_test_ops_experts_gemm_SOURCES = tests/unit/test_ops_experts_gemm.c $(ops_check)
tests_unit_test_ops_adamw_bf16_SOURCES = tests/unit/test_ops_adamw_bf16.c $(ops_check)
tests_unit_test_ops_adamw_8bit_SOURCES = tests/unit/test_ops_adamw_8bit.c $(ops_check)
tests_unit_test_ops_dropout_SOURCES = tests/unit/test_ops_dropout.c $(ops_check)
tests_unit_test_ops_loss_SOURCES = tests/unit/test_ops_loss.c $(ops_check)
tests_unit_test_ops_optimizer_SOURCES = tests/unit/test_ops_optimizer.c $(ops_check)
tests_unit_test_ops_gemm_SOURCES = tests/unit/test_ops_gemm.c $(ops_check)
include $(top_srcdir)/tests/unit/simd.mk
