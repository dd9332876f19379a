/* test_simd.c - the vector functions under every kernel; one program per level. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

static float exp_of(float x)
{
    float lanes[CPU_LANES];
    vf_store(lanes, vf_exp(vf_set(x)));
    for (int i = 1; i < CPU_LANES; i++)
        assert_memory_equal(&lanes[i], &lanes[0], sizeof lanes[0]);
    return lanes[0];
}

/* Distance from the true value in units of the last place of that value. */
static double ulps(float got, double want)
{
    float near = (float)want;
    return fabs(got - want) / (nextafterf(near, INFINITY) - near);
}

static void exp_is_accurate(void **state)
{
    double worst = 0;
    for (int i = 0; i < 2000000; i++) {
        float x = -87.33654f + (float)i * (176.05937f / 2000000);
        double error = ulps(exp_of(x), exp(x));
        worst = error > worst ? error : worst;
    }
    for (float x = -1e-3f; x < 1e-3f; x += 1e-7f) {
        double error = ulps(exp_of(x), exp(x));
        worst = error > worst ? error : worst;
    }
    print_message("exp: worst error %.3f ulp\n", worst);
    assert_true(worst < 1.5);
}

static void exp_has_the_right_ends(void **state)
{
    assert_true(exp_of(0) == 1);
    assert_true(exp_of(-0.0f) == 1);
    assert_true(exp_of(-INFINITY) == 0);
    assert_true(exp_of(INFINITY) == INFINITY);
    assert_true(isnan(exp_of(NAN)));
    assert_true(isnan(exp_of(-NAN)));
    assert_true(exp_of(FLT_MAX) == INFINITY);
    assert_true(exp_of(-FLT_MAX) == 0);
    assert_true(exp_of(88.722839f) == INFINITY);
    assert_true(isfinite(exp_of(88.72283f)));
    assert_true(exp_of(-87.33655f) == 0);
    assert_true(exp_of(-87.33654f) >= FLT_MIN);
    assert_true(exp_of(1e-42f) == 1);
}

/* All upper halves with lower halves on, next to and far from the tie. */
static void bf16_rounds_as_one_value_does(void **state)
{
    static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t upper = 0; upper < 0x10000; upper++)
        for (size_t l = 0; l < sizeof lower / sizeof lower[0]; l++) {
            uint32_t bits = upper << 16 | lower[l];
            float x;
            bf16 got[CPU_LANES];
            memcpy(&x, &bits, sizeof x);
            vf_store_bf16(got, vf_set(x));
            assert_int_equal(got[0], f32_to_bf16(x));
        }
    for (uint32_t bits = 0; bits < 0x10000; bits += CPU_LANES) {
        bf16 in[CPU_LANES];
        float out[CPU_LANES];
        for (uint32_t i = 0; i < CPU_LANES; i++)
            in[i] = (bf16)(bits + i);
        vf_store(out, vf_get(DTYPE_BF16, in, 0));
        for (uint32_t i = 0; i < CPU_LANES; i++) {
            float want = bf16_to_f32(in[i]);
            assert_memory_equal(&out[i], &want, sizeof want);
        }
    }
}

/* Every upper half, with what may lie below, on and above a tie of numbers and denormals. */
static void f16_rounds_as_one_value_does(void **state)
{
    static const uint32_t lower[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x1fff, 0x2000,
                                     0x3000, 0x5000, 0x7fff, 0x8000, 0x8001, 0xf000, 0xffff};
    for (uint32_t upper = 0; upper < 0x10000; upper++)
        for (size_t l = 0; l < sizeof lower / sizeof lower[0]; l++) {
            uint32_t bits = upper << 16 | lower[l];
            float x;
            f16 got[CPU_LANES], want;
            memcpy(&x, &bits, sizeof x);
            want = f32_to_f16(x);
            vf_put(DTYPE_F16, got, 0, vf_set(x));
            assert_int_equal(got[CPU_LANES - 1], want);
            vf_put_part(DTYPE_F16, got, 0, 1, vf_set(-x));
            assert_int_equal(got[0], want ^ 0x8000);
        }
    for (uint32_t bits = 0; bits < 0x10000; bits += CPU_LANES) {
        f16 in[CPU_LANES];
        float out[CPU_LANES];
        for (uint32_t i = 0; i < CPU_LANES; i++)
            in[i] = (f16)(bits + i);
        vf_store(out, vf_get(DTYPE_F16, in, 0));
        for (uint32_t i = 0; i < CPU_LANES; i++) {
            float want = f16_to_f32(in[i]), part = vf_get_part(DTYPE_F16, in, i, 1)[0];
            assert_memory_equal(&out[i], &want, sizeof want);
            assert_memory_equal(&part, &want, sizeof want);
        }
    }
}

static void parts_stay_in_bounds(void **state)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int type = 0; type < 3; type++)
        for (int64_t n = 1; n <= CPU_LANES; n++) {
            float from[2 * CPU_LANES], to[2 * CPU_LANES];
            memset(to, 0xa5, sizeof to);
            for (int i = 0; i < 2 * CPU_LANES; i++)
                vf_put_part(types[type], from, i, 1, vf_set((float)i));
            vf v = vf_get_some(types[type], from, 3, n);
            vf_put_some(types[type], to, 0, n, v);
            size_t bytes = (size_t)n * dtype_bytes(types[type]);
            assert_memory_equal(to, (char *)from + 3 * dtype_bytes(types[type]), bytes);
            assert_int_equal(((unsigned char *)to)[bytes], 0xa5);
            for (int64_t i = n; i < CPU_LANES; i++)
                assert_true(v[i] == 0);
        }
}

static void lanes_reduce(void **state)
{
    for (int at = 0; at < CPU_LANES; at++) {
        float x[CPU_LANES];
        for (int i = 0; i < CPU_LANES; i++)
            x[i] = -1.0f - (float)i;
        x[at] = 5;
        float sum = 0;
        for (int i = 0; i < CPU_LANES; i++)
            sum += x[i];
        assert_true(vf_sum(vf_load(x)) == sum);
        assert_true(vf_top(vf_load(x)) == 5);
        assert_true(vf_max(vf_load(x), vf_set(0))[at] == 5);
        assert_true(vf_select(vi_lanes() == at, vf_load(x), vf_set(9))[at] == 5);
        assert_true(vf_select(vi_lanes() != at, vf_load(x), vf_set(9))[at] == 9);
    }
}

static void halves_are_exact_in_fp64(void **state)
{
    float lanes[CPU_LANES];
    for (int i = 0; i < CPU_LANES; i++)
        lanes[i] = ldexpf(1.0f + (float)i / 64, 40 - 5 * i);
    vd lower = vf_half(vf_load(lanes), 0), upper = vf_half(vf_load(lanes), 1);
    for (int i = 0; i < CPU_LANES / 2; i++) {
        assert_true(lower[i] == (double)lanes[i]);
        assert_true(upper[i] == (double)lanes[i + CPU_LANES / 2]);
    }
}

static void bf16_dot_is_a_dot(void **state)
{
    bf16 a[2 * CPU_LANES], b[2 * CPU_LANES];
    vb left, right;
    for (int i = 0; i < 2 * CPU_LANES; i++) {
        a[i] = f32_to_bf16(philox_normal(1, (uint64_t)i));
        b[i] = f32_to_bf16(philox_normal(2, (uint64_t)i));
    }
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    vf got = vf_dot_bf16(vf_set(3), left, right);
    for (int i = 0; i < CPU_LANES; i++) {
        double want = 3 + (double)bf16_to_f32(a[2 * i]) * bf16_to_f32(b[2 * i]) +
                      (double)bf16_to_f32(a[2 * i + 1]) * bf16_to_f32(b[2 * i + 1]);
        assert_true(fabs(got[i] - want) < 4e-6);
    }
}

static void denormals_come_back(void **state)
{
    volatile float tiny = 1e-40f;
    unsigned saved = simd_no_denormals();
    simd_denormals(saved);
    assert_true(tiny * 0.5f > 0);
}

#define TEXT2(level) #level
#define TEXT(level)  TEXT2(level)

/* Not in main(): there a compiler may fill it by instructions of this level before main() has
 * looked whether the machine has them. */
static const struct CMUnitTest tests[] = {
    cmocka_unit_test(exp_is_accurate),
    cmocka_unit_test(exp_has_the_right_ends),
    cmocka_unit_test(bf16_rounds_as_one_value_does),
    cmocka_unit_test(f16_rounds_as_one_value_does),
    cmocka_unit_test(parts_stay_in_bounds),
    cmocka_unit_test(lanes_reduce),
    cmocka_unit_test(halves_are_exact_in_fp64),
    cmocka_unit_test(bf16_dot_is_a_dot),
    cmocka_unit_test(denormals_come_back),
};

int main(void)
{
    int level = 0;
    while (device_cpu_level(level) && strcmp(device_cpu_level(level), TEXT(CPU_LEVEL)))
        level++;
    if (!device_cpu_level(level)) {
        printf("skipped: this machine has no %s instructions\n", TEXT(CPU_LEVEL));
        return 77;
    }
    return cmocka_run_group_tests_name("simd " TEXT(CPU_LEVEL), tests, NULL, NULL);
}
