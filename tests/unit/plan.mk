# Runs on paper.
UNIT_TESTS += tests/unit/test_estimate tests/unit/test_fit tests/unit/test_large tests/unit/test_choices
tests_unit_test_estimate_SOURCES = tests/unit/test_estimate.c $(rig)
tests_unit_test_fit_SOURCES = tests/unit/test_fit.c $(rig)
tests_unit_test_large_SOURCES = tests/unit/test_large.c $(rig)
tests_unit_test_choices_SOURCES = tests/unit/test_choices.c $(rig)
# The sizes of GPUs in builds without CUDA, and where they have to be the same.
if HAVE_CUDNN
UNIT_TESTS += tests/unit/test_cuda_sizes
endif
if !HAVE_CUDA
UNIT_TESTS += tests/unit/test_cuda_sizes
endif
tests_unit_test_cuda_sizes_SOURCES = tests/unit/test_cuda_sizes.c
UNIT_TESTS += tests/unit/test_forecast
tests_unit_test_forecast_SOURCES = tests/unit/test_forecast.c $(rig)
UNIT_TESTS += tests/unit/test_search tests/unit/test_fewest tests/unit/test_record
tests_unit_test_record_SOURCES = tests/unit/test_record.c $(rig)
tests_unit_test_fewest_SOURCES = tests/unit/test_fewest.c $(rig)
tests_unit_test_search_SOURCES = tests/unit/test_search.c $(rig)
tests_unit_test_logits_SOURCES = tests/unit/test_logits.c $(rig)
UNIT_TESTS += tests/unit/test_deviation
tests_unit_test_deviation_SOURCES = tests/unit/test_deviation.c $(rig)
