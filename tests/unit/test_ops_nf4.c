/* test_ops_nf4.c - weights of 4 bits: codes are bitsandbytes' and the nearest, and every kernel
 * makes the same numbers of them. */
#include "ops_check.h"

#include "base/nf4.h"

#include <stdio.h>

enum { MOST = 300 * NF4_BLOCK };

static const float share[NF4_SHARES] = NF4_TABLE;

/* ---- the format ---- */

/* What bitsandbytes 0.50.2 makes of these numbers (quantize_4bit, nf4, blocks of 64). */
static void codes_are_those_of_bitsandbytes(void **state)
{
    static const char *const want[] = {
        "0feeddcba9876543221100ffeedccba9765433211100feeddcba987654322110",
        "0ffeeddcba9765433211100feeedcba9876543221100ffeeddcba98654432111",
        "10edcb98877777776654310fedba98777777776553210fdcb988777777766543",
    };
    float values[3 * NF4_BLOCK], back[NF4_BLOCK];
    unsigned char records[3 * NF4_BYTES];
    for (int i = 0; i < 3 * NF4_BLOCK; i++) {
        float x = (float)(i * 7919 % 2003 - 1001) / 1024;
        values[i] = i < 2 * NF4_BLOCK ? x : x * x * x * 1e-3f;
    }
    nf4_encode(records, values, 3 * NF4_BLOCK);
    for (int b = 0; b < 3; b++) {
        const unsigned char *record = records + b * NF4_BYTES;
        char text[2 * NF4_BLOCK];
        for (int i = 0; i < NF4_BLOCK / 2; i++)
            snprintf(text + 2 * i, 3, "%02x", record[NF4_CODES + i]);
        assert_string_equal(text, want[b]);
        float largest = 0, kept;
        for (int i = 0; i < NF4_BLOCK; i++)
            largest = fmaxf(largest, fabsf(values[b * NF4_BLOCK + i]));
        memcpy(&kept, record, sizeof kept);
        assert_true(kept == largest);
        nf4_decode(back, record, NF4_BLOCK);
        for (int i = 0; i < NF4_BLOCK; i++) {
            int code = record[NF4_CODES + i / 2] >> (i % 2 ? 0 : 4) & 15;
            assert_true(back[i] == share[code] * largest);
        }
    }
}

/* Numbers so close to the middle of two shares that a division by the largest magnitude and a
 * product with its reciprocal end on different sides: bitsandbytes 0.50.2 has the codes of
 * products. */
static void shares_are_products_with_a_reciprocal(void **state)
{
    static const struct {
        float largest, number;
        int code;
    } of[] = {
        {0x1.efa8c2p-5f, 0x1.217a88p-6f, 11},
        {0x1.b4887ap-5f, -0x1.919b38p-6f, 3},
        {0x1.cda764p-5f, 0x1.28bebep-5f, 13},
    };
    for (int i = 0; i < 3; i++) {
        const float values[NF4_BLOCK] = {of[i].largest, of[i].number};
        unsigned char record[NF4_BYTES];
        nf4_encode(record, values, NF4_BLOCK);
        assert_int_equal(record[NF4_CODES], 15 << 4 | of[i].code);
    }
}

static void a_number_becomes_the_nearest_share(void **state)
{
    struct tensor x = tensor_random(DTYPE_F32, MOST, 3, 0.02), y = tensor_copy(&x);
    unsigned char *records = malloc(nf4_bytes(MOST));
    nf4_encode(records, x.data, MOST);
    nf4_decode(y.data, records, MOST);
    for (int64_t i = 0; i < MOST; i++) {
        double largest = 0, least = 1;
        for (int64_t k = i / NF4_BLOCK * NF4_BLOCK, end = k + NF4_BLOCK; k < end; k++)
            largest = fmax(largest, fabs(tensor_get(&x, k)));
        for (int k = 0; k < NF4_SHARES; k++)
            least = fmin(least, fabs(tensor_get(&x, i) - share[k] * largest));
        assert_true(fabs(tensor_get(&x, i) - tensor_get(&y, i)) <= least + 1e-7 * largest);
    }
    free(records);
    tensor_free(&x);
    tensor_free(&y);
}

/* Coded, decoded and coded again, blocks are what they were: also those of zeros, and those whose
 * numbers are close to the limits of fp32. */
static void coding_again_changes_nothing(void **state)
{
    struct tensor x = tensor_random(DTYPE_F32, MOST, 4, 1);
    float *values = x.data;
    unsigned char *first = malloc(nf4_bytes(MOST)), *second = malloc(nf4_bytes(MOST));
    for (int64_t i = 0; i < MOST; i++) {
        static const float scales[] = {1, 0, 1e-37f, 1e30f, -3, 0x1p-12f, 1e-39f};
        values[i] *= scales[i / NF4_BLOCK % 7];
    }
    nf4_encode(first, values, MOST);
    nf4_decode(values, first, MOST);
    nf4_encode(second, values, MOST);
    assert_memory_equal(first, second, nf4_bytes(MOST));
    for (int64_t i = NF4_BLOCK; i < 2 * NF4_BLOCK; i++)
        assert_true(values[i] == 0);
    free(first);
    free(second);
    tensor_free(&x);
}

/* ---- the op ---- */

static uint64_t decode(struct device *d, enum dtype dt)
{
    static const int64_t blocks[] = {1, 2, 5, 255, 257, 300};
    struct tensor x = tensor_random(DTYPE_F32, MOST, 5, 0.02);
    unsigned char *records = malloc(nf4_bytes(MOST));
    uint64_t hash = 0;
    nf4_encode(records, x.data, MOST);
    nf4_decode(x.data, records, MOST);
    for (int i = 0; i < 6; i++) {
        struct tensor y = tensor_poisoned(dt, blocks[i] * NF4_BLOCK);
        d->ops->decode_nf4(d, dt, y.data, records, y.elems);
        for (int64_t k = 0; k < y.elems; k++)
            assert_true(tensor_get(&y, k) == rounded(dt, tensor_get(&x, k)));
        hash = hash * 31 + tensor_hash(&y);
        tensor_free(&y);
    }
    free(records);
    tensor_free(&x);
    return hash;
}

static void every_kernel_makes_the_same_numbers(void **state)
{
    for_each_setting(decode);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_those_of_bitsandbytes),
        cmocka_unit_test(shares_are_products_with_a_reciprocal),
        cmocka_unit_test(a_number_becomes_the_nearest_share),
        cmocka_unit_test(coding_again_changes_nothing),
        cmocka_unit_test(every_kernel_makes_the_same_numbers),
    };
    return cmocka_run_group_tests_name("ops nf4", tests, NULL, NULL);
}
