/* test_cuda_simt.c - the words kernels are written in mean the same on a GPU and emulated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "device/device.h"
#include "tests/unit/simt_kernels.h"

static void *upload(const void *from, size_t bytes)
{
    void *to = NULL;
    assert_int_equal(cudaMalloc(&to, bytes), cudaSuccess);
    if (from)
        assert_int_equal(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    return to;
}

static void download(void *to, void *from, size_t bytes)
{
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_int_equal(cudaFree(from), cudaSuccess);
}

static float wide(uint32_t bits)
{
    float x;
    bits <<= 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t narrow_exact(enum dtype dt, float x)
{
    if (dt == DTYPE_F16)
        return f32_to_f16(x);
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float wide_exact(enum dtype dt, uint16_t x)
{
    return dt == DTYPE_F16 ? f16_to_f32(x) : wide(x);
}

/* Small integers: every sum is exact whatever its order. */
static void test_products(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        int transposed = kind % 2;
        enum dtype dt = kind / 2 ? DTYPE_F16 : DTYPE_BF16;
        uint16_t a[16 * 16], b[16 * 8];
        float d[16 * 8], expected[16 * 8];
        for (int i = 0; i < 16 * 16; i++)
            a[i] = narrow_exact(dt, (float)(i * 37 % 101 - 50));
        for (int i = 0; i < 16 * 8; i++) {
            b[i] = narrow_exact(dt, (float)(i * 53 % 97 - 48));
            d[i] = (float)(i * 11 % 7);
        }
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 8; n++) {
                expected[m * 8 + n] = d[m * 8 + n];
                for (int k = 0; k < 16; k++)
                    expected[m * 8 + n] += wide_exact(dt, a[m * 16 + k]) *
                                           wide_exact(dt, b[transposed ? n * 16 + k : k * 8 + n]);
            }
        void *da = upload(a, sizeof a), *db = upload(b, sizeof b), *dd = upload(d, sizeof d);
        simt_product(NULL, dt, dd, da, db, transposed);
        download(d, dd, sizeof d);
        assert_memory_equal(d, expected, sizeof d);
        cudaFree(da);
        cudaFree(db);
    }
}

static int source(int kind, int lane, int width, int arg)
{
    int first = lane / width * width, last = first + width - 1;
    int from = kind == 1 ? lane ^ arg : kind == 2 ? lane + arg : first + arg % width;
    return from > last ? lane : from;
}

static void test_shuffles(void **state)
{
    static const int widths[] = {32, 16, 8, 2, 1};
    enum { THREADS = 96 };
    int32_t got[SIMT_SHUFFLES][THREADS];
    for (int w = 0; w < 5; w++)
        for (int arg = 0; arg < 32; arg += 5) {
            void *out = upload(NULL, sizeof got);
            simt_shuffles(NULL, THREADS, widths[w], arg, out);
            download(got, out, sizeof got);
            for (int kind = 0; kind < SIMT_SHUFFLES; kind++)
                for (int i = 0; i < THREADS; i++)
                    assert_int_equal(got[kind][i],
                                     i / 32 * 32 + source(kind, i % 32, widths[w], arg));
        }
}

static void test_ballots(void **state)
{
    static const int lanes[] = {1, 7, 16, 32};
    enum { THREADS = 64 };
    uint32_t got[THREADS];
    for (int l = 0; l < 4; l++) {
        void *out = upload(NULL, sizeof got);
        uint32_t votes = 0xaaaaaaaau & (lanes[l] == 32 ? ~0u : (1u << lanes[l]) - 1);
        simt_ballots(NULL, THREADS, lanes[l], out);
        download(got, out, sizeof got);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(got[i], i % 32 < lanes[l] ? votes : 0);
    }
}

static void test_threads_that_ended_are_not_waited_for(void **state)
{
    static const int live[] = {1, 31, 33, 200};
    for (int l = 0; l < 4; l++) {
        int64_t got[200], sum = (int64_t)live[l] * (live[l] - 1) / 2;
        size_t bytes = sizeof got[0] * (size_t)live[l];
        void *out = upload(NULL, bytes);
        simt_early_exit(NULL, 200, live[l], out);
        download(got, out, bytes);
        for (int i = 0; i < live[l]; i++)
            assert_int_equal(got[i], sum);
    }
}

static void test_copies_ahead(void **state)
{
    static const int stages[] = {1, 2, 4};
    enum { ROWS = 13, COLS = 20 };
    float in[ROWS][COLS], got[32];
    for (int i = 0; i < ROWS * COLS; i++)
        in[i / COLS][i % COLS] = (float)(i % 31);
    for (int s = 0; s < 3; s++) {
        void *from = upload(in, sizeof in), *out = upload(NULL, sizeof got);
        simt_pipeline(NULL, stages[s], ROWS, COLS, from, out);
        download(got, out, sizeof got);
        cudaFree(from);
        for (int c = 0; c < 32; c++) {
            float sum = 0;
            for (int k = 0; k < ROWS && c < COLS; k++)
                sum += in[k][c];
            assert_true(got[c] == sum);
        }
    }
}

/* The nearer of the two bf16 numbers around x; of two as near, the even one. */
static uint16_t nearest(float x)
{
    uint32_t bits, low, high;
    memcpy(&bits, &x, sizeof bits);
    low = bits >> 16;
    high = low + 1;
    double below = fabs((double)x - (double)wide(low));
    double above = (high & 0x7fff) == 0x7f80 ? ldexp(1.0, 128) - fabs((double)x)
                                             : fabs((double)wide(high) - (double)x);
    return (uint16_t)(below < above || (below == above && low % 2 == 0) ? low : high);
}

static void test_rounding(void **state)
{
    enum { COUNT = 1 << 16 };
    static const uint32_t ends[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x5a5a, 0xa5a5};
    static float in[COUNT];
    static uint16_t got[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t bits = ((i * 40503u) & 0xffff) << 16 | ends[i % 8];
        memcpy(&in[i], &bits, sizeof bits);
    }
    void *from = upload(in, sizeof in), *out = upload(NULL, sizeof got);
    simt_narrow(NULL, DTYPE_BF16, COUNT / 2, from, out);
    download(got, out, sizeof got);
    cudaFree(from);
    for (int i = 0; i < COUNT; i++)
        if (isnan(in[i]))
            assert_true(isnan(wide(got[i])));
        else if (isinf(in[i]))
            assert_int_equal(got[i], narrow_exact(DTYPE_BF16, in[i]));
        else
            assert_int_equal(got[i], nearest(in[i]));
}

/* What an fp16 number is worth, from what its bits mean. */
static double worth(uint16_t x)
{
    int exponent = x >> 10 & 31, fraction = x & 0x3ff;
    double magnitude = exponent == 0    ? ldexp(fraction, -24)
                       : exponent == 31 ? (fraction ? NAN : INFINITY)
                                        : ldexp(1024 + fraction, exponent - 25);
    return x & 0x8000 ? -magnitude : magnitude;
}

static void test_fp16_is_widened_exactly(void **state)
{
    enum { COUNT = 1 << 16 };
    static uint16_t in[COUNT];
    static float got[COUNT];
    for (int i = 0; i < COUNT; i++)
        in[i] = (uint16_t)i;
    void *from = upload(in, sizeof in), *out = upload(NULL, sizeof got);
    simt_widen(NULL, COUNT / 2, from, out);
    download(got, out, sizeof got);
    cudaFree(from);
    for (int i = 0; i < COUNT; i++) {
        assert_true(isnan(worth(in[i])) ? isnan(got[i]) : got[i] == worth(in[i]));
        assert_int_equal(!!signbit(got[i]), isnan(got[i]) ? !!signbit(got[i]) : i >> 15);
    }
}

/* Between every two neighbours of fp16, denormals and infinity among them: near the lower, a tie,
 * near the upper. */
static void test_rounding_to_fp16(void **state)
{
    enum { NUMBERS = 0x7c00, COUNT = 6 * NUMBERS };
    static float in[COUNT];
    static uint16_t got[COUNT], expected[COUNT];
    for (int i = 0; i < NUMBERS; i++) {
        double low = worth((uint16_t)i), high = i + 1 < NUMBERS ? worth((uint16_t)(i + 1)) : 65536;
        float tie = (float)((low + high) / 2);
        const float between[3] = {nextafterf(tie, -1), tie, nextafterf(tie, INFINITY)};
        const int nearest_of[3] = {i, i + i % 2, i + 1};
        for (int j = 0; j < 6; j++) {
            in[6 * i + j] = j / 3 ? -between[j % 3] : between[j % 3];
            expected[6 * i + j] = (uint16_t)(nearest_of[j % 3] | (j / 3 ? 0x8000 : 0));
        }
    }
    void *from = upload(in, sizeof in), *out = upload(NULL, sizeof got);
    simt_narrow(NULL, DTYPE_F16, COUNT / 2, from, out);
    download(got, out, sizeof got);
    cudaFree(from);
    for (int i = 0; i < COUNT; i++)
        if (got[i] != expected[i])
            fail_msg("%a becomes %04x, not %04x", (double)in[i], got[i], expected[i]);
}

static void test_exp2(void **state)
{
    enum { COUNT = 4001 };
    float in[COUNT], got[COUNT];
    for (int i = 0; i < COUNT - 1; i++)
        in[i] = (float)(i - 2000) / 16.0f;
    in[COUNT - 1] = -INFINITY;
    void *from = upload(in, sizeof in), *out = upload(NULL, sizeof got);
    simt_exp2(NULL, COUNT, from, out);
    download(got, out, sizeof got);
    cudaFree(from);
    for (int i = 0; i < COUNT; i++) {
        double exact = exp2((double)in[i]);
        if (exact >= ldexp(1.0, 128))
            assert_true(isinf(got[i]));
        else if (exact < ldexp(1.0, -126))
            assert_true(got[i] == 0);
        else
            assert_true(fabs((double)got[i] / exact - 1) <= 2 * ldexp(1.0, -23));
    }
}

static void test_shared_memory(void **state)
{
    static const int counts[] = {1, 97, 12288, 50000};
    static float in[50000], got[50000];
    for (int c = 0; c < 4; c++) {
        size_t bytes = (size_t)counts[c] * sizeof(float);
        for (int i = 0; i < counts[c]; i++)
            in[i] = (float)i;
        void *from = upload(in, bytes), *out = upload(NULL, bytes);
        int code = simt_reverse(NULL, counts[c], from, out);
        if (code == cudaErrorInvalidValue) { /* GPUs before 9.0 have less than 200000 bytes */
            cudaGetLastError();
            cudaFree(from);
            cudaFree(out);
            continue;
        }
        download(got, out, bytes);
        cudaFree(from);
        for (int i = 0; i < counts[c]; i++)
            assert_true(got[i] == in[counts[c] - 1 - i]);
    }
}

static void test_grids(void **state)
{
    static const int grids[][2][3] = {
        {{3, 1, 1}, {1024, 1, 1}}, {{2, 3, 5}, {7, 3, 2}}, {{1, 70, 1}, {1, 1, 33}}};
    for (int c = 0; c < 3; c++) {
        int count = 1;
        for (int i = 0; i < 3; i++)
            count *= grids[c][0][i] * grids[c][1][i];
        int32_t *got = calloc((size_t)count, sizeof *got);
        void *out = upload(NULL, (size_t)count * sizeof *got);
        simt_number(NULL, grids[c][0], grids[c][1], out);
        download(got, out, (size_t)count * sizeof *got);
        for (int i = 0; i < count; i++)
            assert_int_equal(got[i], i);
        free(got);
    }
}

static void test_16_bytes(void **state)
{
    enum { COUNT = 131 };
    uint8_t in[16 * COUNT], got[16 * COUNT];
    for (int i = 0; i < 16 * COUNT; i++)
        in[i] = (uint8_t)(i * 7);
    void *from = upload(in, sizeof in), *out = upload(NULL, sizeof got);
    simt_copy(NULL, COUNT, from, out);
    download(got, out, sizeof got);
    cudaFree(from);
    assert_memory_equal(got, in, sizeof in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_shuffles),
        cmocka_unit_test(test_ballots),
        cmocka_unit_test(test_threads_that_ended_are_not_waited_for),
        cmocka_unit_test(test_copies_ahead),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_rounding_to_fp16),
        cmocka_unit_test(test_fp16_is_widened_exactly),
        cmocka_unit_test(test_exp2),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_16_bytes),
    };
    char why[128];
    if (!device_gpu_count(why)) {
        print_message("skipped: no GPU: %s\n", why);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
