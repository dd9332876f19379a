# test_simd once per level, exit 77 where it cannot run.
UNIT_TESTS += tests/unit/test_simd_generic
tests_unit_test_simd_generic_SOURCES = tests/unit/test_simd.c
tests_unit_test_simd_generic_CPPFLAGS = $(libcpu_generic_a_CPPFLAGS)
tests_unit_test_simd_generic_CFLAGS = $(libcpu_generic_a_CFLAGS)
if CPU_X86
UNIT_TESTS += tests/unit/test_simd_avx2 tests/unit/test_simd_avx512 tests/unit/test_simd_avx512_bf16
tests_unit_test_simd_avx2_SOURCES = tests/unit/test_simd.c
tests_unit_test_simd_avx2_CPPFLAGS = $(libcpu_avx2_a_CPPFLAGS)
tests_unit_test_simd_avx2_CFLAGS = $(libcpu_avx2_a_CFLAGS)
tests_unit_test_simd_avx512_SOURCES = tests/unit/test_simd.c
tests_unit_test_simd_avx512_CPPFLAGS = $(libcpu_avx512_a_CPPFLAGS)
tests_unit_test_simd_avx512_CFLAGS = $(libcpu_avx512_a_CFLAGS)
tests_unit_test_simd_avx512_bf16_SOURCES = tests/unit/test_simd.c
tests_unit_test_simd_avx512_bf16_CPPFLAGS = $(libcpu_avx512_bf16_a_CPPFLAGS)
tests_unit_test_simd_avx512_bf16_CFLAGS = $(libcpu_avx512_bf16_a_CFLAGS)
endif
