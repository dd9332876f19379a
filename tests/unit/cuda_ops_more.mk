# The same of losses, of the optimizer's ops, and of those that generation, adapters and dropout brought.
if HAVE_CUDA
UNIT_TESTS += tests/unit/test_cuda_ops_loss tests/unit/test_cuda_ops_loss_emulated \
	tests/unit/test_cuda_ops_cached tests/unit/test_cuda_ops_cached_emulated \
	tests/unit/test_cuda_ops_magnitude tests/unit/test_cuda_ops_magnitude_emulated \
	tests/unit/test_cuda_ops_dropout tests/unit/test_cuda_ops_dropout_emulated \
	tests/unit/test_cuda_ops_optimizer tests/unit/test_cuda_ops_optimizer_emulated \
	tests/unit/test_cuda_ops_adamw_8bit tests/unit/test_cuda_ops_adamw_8bit_emulated
tests_unit_test_cuda_ops_cached_SOURCES = tests/unit/test_cuda_ops_cached.c $(cuda_check)
tests_unit_test_cuda_ops_cached_emulated_SOURCES = $(tests_unit_test_cuda_ops_cached_SOURCES)
tests_unit_test_cuda_ops_cached_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_ops_magnitude_SOURCES = tests/unit/test_cuda_ops_magnitude.c $(cuda_check)
tests_unit_test_cuda_ops_magnitude_emulated_SOURCES = $(tests_unit_test_cuda_ops_magnitude_SOURCES)
tests_unit_test_cuda_ops_magnitude_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_ops_dropout_SOURCES = tests/unit/test_cuda_ops_dropout.c $(cuda_check)
tests_unit_test_cuda_ops_dropout_emulated_SOURCES = $(tests_unit_test_cuda_ops_dropout_SOURCES)
tests_unit_test_cuda_ops_dropout_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_ops_optimizer_SOURCES = tests/unit/test_cuda_ops_optimizer.c $(cuda_check)
tests_unit_test_cuda_ops_optimizer_emulated_SOURCES = $(tests_unit_test_cuda_ops_optimizer_SOURCES)
tests_unit_test_cuda_ops_optimizer_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_ops_adamw_8bit_SOURCES = tests/unit/test_cuda_ops_adamw_8bit.c $(cuda_check)
tests_unit_test_cuda_ops_adamw_8bit_emulated_SOURCES = $(tests_unit_test_cuda_ops_adamw_8bit_SOURCES)
tests_unit_test_cuda_ops_adamw_8bit_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_ops_loss_SOURCES = tests/unit/test_cuda_ops_loss.c $(cuda_check)
tests_unit_test_cuda_ops_loss_emulated_SOURCES = $(tests_unit_test_cuda_ops_loss_SOURCES)
tests_unit_test_cuda_ops_loss_emulated_LDADD = $(EMULATED_UNIT_LIBS)
endif
include $(top_srcdir)/tests/unit/cuda_ops_experts.mk
