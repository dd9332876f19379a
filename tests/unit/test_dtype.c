/* test_dtype.c - fp16 by its definition and against the compiler's own; names and sizes of types.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/dtype.h"
#include "base/philox.h"

enum { TOP = 0x7c00, SIGN = 0x8000 }; /* infinity */

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Sign, 5 bits of exponent, 10 bits of fraction. */
static void every_half_is_what_ieee_says(void **state)
{
    for (uint32_t half = 0; half < 0x10000; half++) {
        int exponent = half >> 10 & 31, fraction = half & 1023;
        double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        float got = f16_to_f32((f16)half);
        assert_int_equal(bits_of(got) >> 31, half >> 15);
        if (exponent == 31 && fraction)
            assert_true(isnan(got));
        else
            assert_true(fabsf(got) == (exponent == 31 ? INFINITY : size));
    }
}

static void every_half_survives(void **state)
{
    for (uint32_t half = 0; half < 0x10000; half++) {
        uint32_t quiet = (half & ~SIGN) > TOP ? 0x200 : 0;
        assert_int_equal(f32_to_f16(f16_to_f32((f16)half)), half | quiet);
    }
}

/* The tie between each half and the next, and the floats next to it on both sides; the one behind
 * 65504 would be 65536, where infinity begins, so 65520 is the tie there. */
static void floats_go_to_the_nearest_half(void **state)
{
    for (uint32_t half = 0; half < TOP; half++) {
        float next = half + 1 < TOP ? f16_to_f32((f16)(half + 1)) : 65536;
        float tie = (f16_to_f32((f16)half) + next) / 2;
        for (uint32_t sign = 0; sign <= SIGN; sign += SIGN) {
            float s = sign ? -1 : 1;
            assert_int_equal(f32_to_f16(s * tie), sign | (half + half % 2));
            assert_int_equal(f32_to_f16(s * nextafterf(tie, 0)), sign | half);
            assert_int_equal(f32_to_f16(s * nextafterf(tie, INFINITY)), sign | (half + 1));
        }
    }
}

static void the_ends(void **state)
{
    assert_int_equal(f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(f32_to_f16(65520), TOP);
    assert_int_equal(f32_to_f16(-65520), SIGN | TOP);
    assert_int_equal(f32_to_f16(3.4e38f), TOP);
    assert_int_equal(f32_to_f16(INFINITY), TOP);
    assert_int_equal(f32_to_f16(-INFINITY), SIGN | TOP);
    assert_int_equal(f32_to_f16(0x1p-24f), 1);
    assert_int_equal(f32_to_f16(0x1p-25f), 0);
    assert_int_equal(f32_to_f16(0x1.000002p-25f), 1);
    assert_int_equal(f32_to_f16(-1e-40f), SIGN);
    assert_int_equal(f32_to_f16(-0.0f), SIGN);
    for (uint32_t fraction = 1; fraction < 0x800000; fraction += 997)
        for (uint32_t sign = 0; sign < 2; sign++) {
            f16 half = f32_to_f16(of_bits(sign << 31 | 0x7f800000u | fraction));
            assert_int_equal(half >> 15, sign);
            assert_true((half & 0x7e00) == 0x7e00); /* a quiet NaN */
        }
}

/* clang may have the macro without the type. */
#if defined __FLT16_MAX__ && !defined __clang__
static f16 by_compiler(float x)
{
    _Float16 value = (_Float16)x;
    f16 half;
    memcpy(&half, &value, sizeof half);
    return half;
}

static void the_compiler_agrees(void **state)
{
    for (uint32_t half = 0; half < 0x10000; half++) {
        _Float16 value;
        memcpy(&value, &(f16){(f16)half}, sizeof value);
        assert_int_equal(bits_of(f16_to_f32((f16)half)), bits_of((float)value));
    }
    for (uint64_t i = 0; i < 1 << 19; i++) {
        uint64_t bits = philox_u64(1, i);
        float any = of_bits((uint32_t)bits);
        float near = of_bits((uint32_t)(bits >> 32) % 0x17000000u + 0x32000000u); /* 2^-27..2^19 */
        assert_int_equal(f32_to_f16(any), by_compiler(any));
        assert_int_equal(f32_to_f16(near), by_compiler(near));
        assert_int_equal(f32_to_f16(-near), by_compiler(-near));
    }
}
#else
static void the_compiler_agrees(void **state)
{
    print_message("skipped: this compiler has no _Float16\n");
    skip();
}
#endif

static void names_are_found_again(void **state)
{
    for (int dt = 0; dt < DTYPE_COUNT; dt++) {
        assert_int_equal(dtype_find(dtype_name((enum dtype)dt)), dt);
        assert_in_range(dtype_bytes((enum dtype)dt), 1, 8);
    }
    assert_int_equal(dtype_bytes(DTYPE_F16), 2);
    assert_string_equal(dtype_name(DTYPE_F16), "fp16");
    assert_int_equal(dtype_find("fp17"), -1);
}

/* One value that is not finite among others, wherever it is. */
static void what_is_not_finite_is_found(void **state)
{
    enum { MOST = 70 };
    static const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int d = 0; d < 3; d++)
        for (int count = 0; count < MOST; count++) {
            float wide[MOST], values[MOST];
            for (int i = 0; i < count; i++)
                wide[i] = i % 2 ? 60000 : -6e-5f;
            dtype_narrow(values, dtypes[d], wide, count);
            assert_true(dtype_are_finite(values, dtypes[d], count));
            for (int i = 0; i < count; i++) {
                float was = wide[i];
                wide[i] = bad[i % 4];
                dtype_narrow(values, dtypes[d], wide, count);
                assert_false(dtype_are_finite(values, dtypes[d], count));
                wide[i] = was;
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_is_what_ieee_says),  cmocka_unit_test(every_half_survives),
        cmocka_unit_test(floats_go_to_the_nearest_half), cmocka_unit_test(the_ends),
        cmocka_unit_test(the_compiler_agrees),           cmocka_unit_test(names_are_found_again),
        cmocka_unit_test(what_is_not_finite_is_found),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
