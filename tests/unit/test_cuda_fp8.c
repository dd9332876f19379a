/* test_cuda_fp8.c - operands of products rounded to fp8 on a GPU: codes and scales are those of the
 * reference, wherever k lies and of both kinds of blocks, for every number of bf16.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "fp8_check.h"

#include "base/philox.h"
#include "base/round.h"
#include "device/cuda/fp8.h"

/* The sign of zeros and of what is no number is not looked at. */
static int is_same_code(int a, int b)
{
    return a == b || ((a & 0x7f) == (b & 0x7f) && (!(a & 0x7f) || (a & 0x7f) == 0x7f));
}

static int is_same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void check_codes(const struct matrix *m, const struct cuda_fp8 *got)
{
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < got->padded; j++) {
            const int code = got->code[i * got->padded + j], is_there = j < m->k;
            const int64_t block = j / 128;
            const float scale =
                got->scale[m->squares ? i / 128 * got->step + block : block * got->step + i];
            const double want_scale = m->scale[i * m->k + (is_there ? j : m->k - 1)];
            int want = is_there ? m->code[i * m->k + j] : isnan(want_scale) ? 0x7f : 0;
            if (!is_same_code(code, want) || !is_same(scale, want_scale))
                fail_msg("[%lld,%lld] of %lld x %lld, %s: code %02x and scale %g, not %02x and %g",
                         (long long)i, (long long)j, (long long)m->rows, (long long)m->k,
                         m->squares ? "squares" : "vectors", code, (double)scale, want, want_scale);
        }
    for (int64_t i = 0; m->squares && i * 128 < m->rows; i++)
        for (int64_t j = got->padded / 128; j < got->step; j++)
            assert_true(got->scale[i * got->step + j] == 0);
}

/* Round it on the GPU; compare.  m is rounded, too. */
static void run_rounding(struct gpu *gpu, struct matrix *m, const struct lie *lie)
{
    struct error err = {0};
    struct tensor x = tensor_of(m, lie);
    struct cuda_fp8 to = {.rows = m->rows, .k = m->k, .squares = m->squares};
    const int64_t blocks = (m->k + 127) / 128;
    to.padded = blocks * 128;
    to.step = m->squares ? (blocks + 3) / 4 * 4 : m->rows;
    const size_t bytes = (size_t)x.elems * 2, codes = (size_t)(m->rows * to.padded);
    const size_t scales = (size_t)((m->squares ? (m->rows + 127) / 128 : blocks) * to.step) * 4;
    void *code = poisoned(codes), *scale = poisoned(scales);
    bf16 *at = on_gpu(gpu, x.data, bytes);
    to.code = on_gpu(gpu, code, codes);
    to.scale = on_gpu(gpu, scale, scales);
    cuda_fp8_round(gpu->d, &to, at + lie->offset, ld_of(m, lie), lie->k_contiguous);
    must(device_sync(gpu->d, &err), &err);
    off_gpu(gpu, code, codes, to.code);
    off_gpu(gpu, scale, scales, to.scale);
    off_gpu(gpu, x.data, bytes, at);
    to.code = code;
    to.scale = scale;
    round_matrix(m);
    check_codes(m, &to);
    tensor_free(&x);
    free(code);
    free(scale);
}

/* What blocks may hold besides: zeros, NaN, infinities, numbers whose scale is the least. */
static void put_rarities(struct matrix *m, uint64_t seed)
{
    static const double rare[] = {0, -0.0, NAN, INFINITY, -INFINITY, 1e-38, 0x1p-133, 3e38};
    for (uint64_t r = 0; r < 8; r++) {
        const int64_t row = (int64_t)(philox_u64(seed, r) % (uint64_t)m->rows);
        const int64_t first = m->k / 128 * (int64_t)(r % 2) * 128, end = min_i64(first + 128, m->k);
        const int is_whole = r < 2 || r == 5 || r == 6;
        for (int64_t j = first; j < end; j++)
            if (is_whole || j == first + (end - first) / 2)
                m->x[row * m->k + j] = rounded(DTYPE_BF16, rare[r]);
    }
}

static const int64_t row_counts[] = {16, 32, 144, 272}, depths[] = {16, 48, 128, 144, 272, 640};
static const int64_t paddings[] = {0, 0, 8, 3}, offsets[] = {0, 1, 8, 0};

/* Bit 0 and 1 of kind: k contiguous, squares. */
static void codes_and_scales_are_those_of_the_reference(void **state)
{
    struct gpu gpu = open_gpu();
    for (int c = 0; c < 4 * 4 * 6 * 4; c++) {
        const int kind = c % 4, where = c / 96;
        struct matrix m = make_matrix(row_counts[c / 4 % 4], depths[c / 16 % 6], kind / 2);
        struct lie lie = {kind % 2, paddings[where], offsets[where]};
        fill_matrix(&m, (uint64_t)c);
        if (where % 2)
            put_rarities(&m, (uint64_t)c);
        run_rounding(&gpu, &m, &lie);
        free_matrix(&m);
    }
    close_gpu(&gpu);
}

static double bf16_of(uint32_t bits)
{
    return bf16_to_f32((bf16)bits);
}

/* Every number of bf16: once among its neighbours, once with 448, which makes the scale 1, where it
 * is not larger. */
static void every_number_is_rounded(void **state)
{
    struct gpu gpu = open_gpu();
    for (int kind = 0; kind < 4; kind++) {
        struct matrix m = make_matrix(512, 128, 0);
        for (uint32_t e = 0; e < 65536; e++) {
            double x = bf16_of(e);
            m.x[e] = kind < 2 || fabs(x) <= 448 ? x : e % 2 ? -448 : 448;
            if (kind >= 2 && (e % 128 == 0 || isnan(x)))
                m.x[e] = e % 256 ? 448 : -448;
        }
        run_rounding(&gpu, &m, &(struct lie){kind % 2, 0, 0});
        free_matrix(&m);
    }
    close_gpu(&gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_and_scales_are_those_of_the_reference),
        cmocka_unit_test(every_number_is_rounded),
    };
    return check_main("cuda fp8", tests);
}
