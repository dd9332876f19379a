/* fp8_check.c - see fp8_check.h. */
#include "fp8_check.h"

#include <stdio.h>

#include "base/philox.h"
#include "base/round.h"

enum { SKIPPED = 77 };

static char no_gpu[128]; /* why there is none, or "" */

void must(int failed, const struct error *err)
{
    if (failed)
        fail_msg("%s", err->text);
}

struct gpu open_gpu(void)
{
    struct gpu gpu = {0};
    struct error err = {0};
    if (no_gpu[0])
        skip();
    must(device_open(&gpu.d, &(struct device_request){.kind = DEVICE_CUDA}, &err), &err);
    return gpu;
}

void close_gpu(struct gpu *gpu)
{
    device_close(gpu->d);
    assert_int_equal(gpu->mem.blocks, 0);
}

void *on_gpu(struct gpu *gpu, const void *from, size_t bytes)
{
    struct error err = {0};
    void *block = device_alloc(gpu->d, &gpu->mem, POOL_WORKSPACE, bytes, &err);
    must(block == NULL, &err);
    must(device_upload(gpu->d, block, from, bytes, &err), &err);
    return block;
}

void off_gpu(struct gpu *gpu, void *to, size_t bytes, void *block)
{
    struct error err = {0};
    must(device_download(gpu->d, to, block, bytes, &err), &err);
    device_free(gpu->d, &gpu->mem, POOL_WORKSPACE, bytes, block);
}

void *poisoned(size_t bytes)
{
    void *block = malloc(bytes);
    assert_non_null(block);
    return memset(block, 0xff, bytes);
}

/* What E4M3 stands for, sign aside: code 0x7f is NaN. */
static double size_of(int code)
{
    return code >> 3 ? ldexp(8 + (code & 7), (code >> 3) - 10) : ldexp(code & 7, -9);
}

/* The nearest code; of two that are as near the even one. */
static int nearest(double x)
{
    int code = 0;
    if (isnan(x))
        return 0x7f;
    for (int other = 1; other < 0x7f; other++) {
        double nearer = fabs(fabs(x) - size_of(code)) - fabs(fabs(x) - size_of(other));
        if (nearer < 0)
            break;
        if (nearer > 0 || other % 2 == 0)
            code = other;
    }
    return code | (signbit(x) ? 0x80 : 0);
}

/* Of a block whose largest magnitude is this; not a number where one of it is none or infinite. */
static double scale_of(double largest)
{
    int exponent = -117;
    if (!isfinite(largest))
        return NAN;
    while (largest / ldexp(1, exponent) > 448)
        exponent++;
    return largest > 0 ? ldexp(1, exponent) : 1;
}

static double largest_of_block(const struct matrix *m, int64_t row, int64_t k)
{
    const int64_t first = m->squares ? row / 128 * 128 : row,
                  end = m->squares ? first + 128 : row + 1;
    double largest = 0;
    for (int64_t i = first; i < end && i < m->rows; i++)
        for (int64_t j = k / 128 * 128; j < k / 128 * 128 + 128 && j < m->k; j++) {
            double size = fabs(m->x[i * m->k + j]);
            largest = isnan(largest) || size <= largest ? largest : size;
        }
    return largest;
}

struct matrix make_matrix(int64_t rows, int64_t k, int squares)
{
    struct matrix m = {rows, k, squares};
    m.x = calloc((size_t)(rows * k), sizeof *m.x);
    m.scale = calloc((size_t)(rows * k), sizeof *m.scale);
    m.code = calloc((size_t)(rows * k), sizeof *m.code);
    return m;
}

void free_matrix(struct matrix *m)
{
    free(m->x);
    free(m->scale);
    free(m->code);
}

void round_matrix(struct matrix *m)
{
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->k; j++) {
            int is_first = j % 128 == 0 && (i % 128 == 0 || !m->squares);
            int64_t from = (m->squares ? i / 128 * 128 : i) * m->k + j / 128 * 128;
            m->scale[i * m->k + j] =
                is_first ? scale_of(largest_of_block(m, i, j)) : m->scale[from];
        }
    for (int64_t e = 0; e < m->rows * m->k; e++) {
        m->code[e] = nearest(m->x[e] / m->scale[e]);
        double size = (m->code[e] & 0x7f) == 0x7f ? NAN : size_of(m->code[e] & 0x7f);
        m->x[e] = (m->code[e] & 0x80 ? -size : size) * m->scale[e];
    }
}

int64_t ld_of(const struct matrix *m, const struct lie *lie)
{
    return (lie->k_contiguous ? m->k : m->rows) + lie->padding;
}

static int64_t place_of(const struct matrix *m, const struct lie *lie, int64_t row, int64_t k)
{
    const int64_t ld = ld_of(m, lie);
    return lie->offset + (lie->k_contiguous ? row * ld + k : k * ld + row);
}

struct tensor tensor_of(const struct matrix *m, const struct lie *lie)
{
    const int64_t lines = lie->k_contiguous ? m->rows : m->k;
    struct tensor t = tensor_poisoned(DTYPE_BF16, lie->offset + lines * ld_of(m, lie));
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->k; j++)
            tensor_set(&t, place_of(m, lie, i, j), m->x[i * m->k + j]);
    return t;
}

void fill_matrix(struct matrix *m, uint64_t seed)
{
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->k; j++) {
            int exponent = (int)((i * 5 + i / 128 * 3 + j / 128 * 7) % 11) - 5;
            double x = philox_normal(seed, (uint64_t)(i * m->k + j));
            m->x[i * m->k + j] = rounded(DTYPE_BF16, ldexp(x, exponent));
        }
}

int check_group(const char *name, const struct CMUnitTest *tests, size_t count)
{
    if (device_gpu_count(no_gpu) > 0)
        no_gpu[0] = 0;
    else
        printf("all is skipped: %s\n", no_gpu);
    int failed = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    return failed ? failed : no_gpu[0] ? SKIPPED : 0;
}
