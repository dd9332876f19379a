# The self-check of a GPU, and the check of a run's shapes; built twice, as in cuda.mk.  Two play
# cuDNN's attention.
if HAVE_CUDA
UNIT_TESTS += tests/unit/test_cuda_self_check tests/unit/test_cuda_self_check_emulated \
	tests/unit/test_cuda_self_check_kept tests/unit/test_cuda_self_check_kept_emulated
play_cudnn = -Wl,--wrap=cuda_sdpa_forward -Wl,--wrap=cuda_sdpa_backward -Wl,--wrap=cuda_sdpa_report
tests_unit_test_cuda_self_check_SOURCES = tests/unit/test_cuda_self_check.c $(cuda_check)
tests_unit_test_cuda_self_check_LDFLAGS = $(AM_LDFLAGS) $(play_cudnn)
tests_unit_test_cuda_self_check_emulated_SOURCES = $(tests_unit_test_cuda_self_check_SOURCES)
tests_unit_test_cuda_self_check_emulated_LDFLAGS = $(AM_LDFLAGS) $(play_cudnn)
tests_unit_test_cuda_self_check_emulated_LDADD = $(EMULATED_UNIT_LIBS)
UNIT_TESTS += tests/unit/test_cuda_shape_check tests/unit/test_cuda_shape_check_emulated
play_shapes = -Wl,--wrap=cuda_sdpa_forward -Wl,--wrap=cuda_sdpa_backward -Wl,--wrap=cuda_sdpa_refuse
tests_unit_test_cuda_shape_check_SOURCES = tests/unit/test_cuda_shape_check.c $(ops_check)
tests_unit_test_cuda_shape_check_LDFLAGS = $(AM_LDFLAGS) $(play_shapes)
tests_unit_test_cuda_shape_check_emulated_SOURCES = $(tests_unit_test_cuda_shape_check_SOURCES)
tests_unit_test_cuda_shape_check_emulated_LDFLAGS = $(AM_LDFLAGS) $(play_shapes)
tests_unit_test_cuda_shape_check_emulated_LDADD = $(EMULATED_UNIT_LIBS)
tests_unit_test_cuda_self_check_kept_SOURCES = tests/unit/test_cuda_self_check_kept.c $(cuda_check)
tests_unit_test_cuda_self_check_kept_emulated_SOURCES = $(tests_unit_test_cuda_self_check_kept_SOURCES)
tests_unit_test_cuda_self_check_kept_emulated_LDADD = $(EMULATED_UNIT_LIBS)
endif
