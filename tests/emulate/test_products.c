/* test_products.c - the emulated cuBLASLt multiplies, and refuses what the library refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/dtype.h"
#include <cublasLt.h>
#include <cuda_runtime_api.h>

struct matrix {
    cudaDataType type;
    cublasLtOrder_t order;
    int rows, cols, ld;
    size_t elems;
    float *host; /* as fp32 */
    void *device;
    cublasLtMatrixLayout_t layout;
};

static size_t type_bytes(cudaDataType type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static uint16_t narrow(cudaDataType type, float x)
{
    if (type == CUDA_R_16F)
        return f32_to_f16(x);
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static float wide(cudaDataType type, uint16_t x)
{
    if (type == CUDA_R_16F)
        return f16_to_f32(x);
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, 4);
    return y;
}

static float *at(const struct matrix *m, int i, int j)
{
    return &m->host[m->order == CUBLASLT_ORDER_COL ? (size_t)j * m->ld + i : (size_t)i * m->ld + j];
}

static void upload(struct matrix *m)
{
    uint16_t *half = malloc(m->elems * 2);
    for (size_t i = 0; i < m->elems; i++)
        half[i] = narrow(m->type, m->host[i]);
    const void *from = m->type == CUDA_R_32F ? (const void *)m->host : half;
    assert_int_equal(
        cudaMemcpy(m->device, from, m->elems * type_bytes(m->type), cudaMemcpyHostToDevice), 0);
    free(half);
}

static void download(struct matrix *m)
{
    uint16_t *half = malloc(m->elems * 4);
    assert_int_equal(
        cudaMemcpy(half, m->device, m->elems * type_bytes(m->type), cudaMemcpyDeviceToHost), 0);
    if (m->type == CUDA_R_32F)
        memcpy(m->host, half, m->elems * 4);
    else
        for (size_t i = 0; i < m->elems; i++)
            m->host[i] = wide(m->type, half[i]);
    free(half);
}

/* Small integers: every sum below is exact in fp32, and what is stored as bf16 is below 2^8. */
static struct matrix make(cudaDataType type, cublasLtOrder_t order, int rows, int cols, int pad)
{
    struct matrix m = {.type = type, .order = order, .rows = rows, .cols = cols};
    int32_t o = order;
    m.ld = (order == CUBLASLT_ORDER_COL ? rows : cols) + pad;
    m.elems = (size_t)m.ld * (order == CUBLASLT_ORDER_COL ? cols : rows);
    m.host = malloc(m.elems * 4);
    for (size_t i = 0; i < m.elems; i++)
        m.host[i] = (float)(rand() % 5 - 2);
    assert_int_equal(cudaMalloc(&m.device, m.elems * type_bytes(type)), 0);
    upload(&m);
    assert_int_equal(
        cublasLtMatrixLayoutCreate(&m.layout, type, (uint64_t)rows, (uint64_t)cols, m.ld), 0);
    assert_int_equal(
        cublasLtMatrixLayoutSetAttribute(m.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &o, sizeof o), 0);
    return m;
}

static void drop(struct matrix *m)
{
    cudaFree(m->device);
    cublasLtMatrixLayoutDestroy(m->layout);
    free(m->host);
}

static cublasLtMatmulDesc_t describe(int trans_a, int trans_b)
{
    cublasLtMatmulDesc_t op;
    int32_t a = trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    assert_int_equal(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a);
    cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b);
    return op;
}

/* An algorithm for op and its workspace; how many there were. */
static int choose(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const struct matrix m[4],
                  uint64_t most, cublasLtMatmulHeuristicResult_t found[3])
{
    cublasLtMatmulPreference_t preference;
    uint32_t align = 16;
    int count = 0;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &most, sizeof most);
    for (int i = 0; i < 4; i++)
        cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, &align, sizeof align);
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, op, m[0].layout, m[1].layout, m[2].layout,
                                       m[3].layout, preference, 3, found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    return status == CUBLAS_STATUS_SUCCESS ? count : -1;
}

/* How many of k terms an algorithm sums: where it splits, those that fill blocks of 64. */
static int terms_of(const cublasLtMatmulHeuristicResult_t *found, int k)
{
    uint32_t splits;
    size_t written;
    assert_int_equal(cublasLtMatmulAlgoConfigGetAttribute(&found->algo,
                                                          CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                                          sizeof splits, &written),
                     0);
    return splits > 1 ? k - k % 64 : k;
}

static double expected(const struct matrix *m, int trans_a, int trans_b, int k, int i, int j,
                       float alpha, float beta)
{
    double sum = 0;
    for (int l = 0; l < k; l++)
        sum += (double)*(trans_a ? at(&m[0], l, i) : at(&m[0], i, l)) *
               *(trans_b ? at(&m[1], j, l) : at(&m[1], l, j));
    return alpha * sum + (beta != 0 ? (double)beta * *at(&m[2], i, j) : 0);
}

enum addend { NO_ADDEND, IN_PLACE, OTHER_PLACE };

static void multiply(cudaDataType in, cudaDataType out, cublasLtOrder_t order, const int size[3],
                     int trans, enum addend addend, int pad)
{
    const int m = size[0], n = size[1], k = size[2], ta = trans & 1, tb = trans >> 1;
    const int which = m % 2; /* the first suggestion splits, the second does not */
    const float alpha = -1, beta = addend == NO_ADDEND ? 0 : 2;
    struct matrix all[4] = {
        make(in, CUBLASLT_ORDER_COL, ta ? k : m, ta ? m : k, pad),
        make(in, order, tb ? n : k, tb ? k : n, pad),
        make(out, order, m, n, pad),
        make(out, order, m, n, pad),
    };
    const int d = addend == IN_PLACE ? 2 : 3;
    float *before = malloc(all[d].elems * 4);
    cublasLtMatmulHeuristicResult_t found[3];
    cublasLtHandle_t handle;
    void *workspace;
    memcpy(before, all[d].host, all[d].elems * 4);
    assert_int_equal(cublasLtCreate(&handle), 0);
    cublasLtMatmulDesc_t op = describe(ta, tb);
    assert_int_equal(choose(handle, op, all, 1 << 20, found), 3);
    assert_int_equal(terms_of(&found[which], 65), which ? 65 : 64);
    assert_int_equal(cudaMalloc(&workspace, found[which].workspaceSize), 0);
    assert_int_equal(cublasLtMatmul(handle, op, &alpha, all[0].device, all[0].layout, all[1].device,
                                    all[1].layout, &beta, all[2].device, all[2].layout,
                                    all[d].device, all[d].layout, &found[which].algo, workspace,
                                    found[which].workspaceSize, NULL),
                     0);
    struct matrix result = all[d];
    result.host = malloc(result.elems * 4);
    download(&result);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            assert_true(*at(&result, i, j) ==
                        expected(all, ta, tb, terms_of(&found[which], k), i, j, alpha, beta));
    for (size_t i = 0; i < result.elems; i++) /* what lies between columns is left alone */
        if ((int)(i % (size_t)result.ld) >= result.ld - pad)
            assert_true(result.host[i] == before[i]);
    free(result.host);
    free(before);
    cudaFree(workspace);
    cublasLtMatmulDescDestroy(op);
    cublasLtDestroy(handle);
    for (int i = 0; i < 4; i++)
        drop(&all[i]);
}

static void test_products(void **state)
{
    static const int sizes[][3] = {{1, 1, 1}, {3, 7, 5}, {67, 66, 30}, {16, 130, 31}, {5, 64, 37}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int trans = 0; trans < 4; trans++) {
            int pad = (int)s % 3;
            multiply(CUDA_R_32F, CUDA_R_32F, CUBLASLT_ORDER_COL, sizes[s], trans, NO_ADDEND, pad);
            multiply(CUDA_R_16BF, CUDA_R_32F, CUBLASLT_ORDER_ROW, sizes[s], trans, IN_PLACE, pad);
            multiply(CUDA_R_16BF, CUDA_R_16BF, CUBLASLT_ORDER_COL, sizes[s], trans, OTHER_PLACE,
                     pad);
            multiply(CUDA_R_16F, CUDA_R_32F, CUBLASLT_ORDER_COL, sizes[s], trans, OTHER_PLACE, pad);
            multiply(CUDA_R_16F, CUDA_R_16F, CUBLASLT_ORDER_ROW, sizes[s], trans, IN_PLACE, pad);
        }
    multiply(CUDA_R_32F, CUDA_R_32F, CUBLASLT_ORDER_COL, (const int[]){9, 70, 700}, 1, IN_PLACE, 0);
}

/* What the library refuses, and what it would be undefined to do. */
static void test_refused(void **state)
{
    struct matrix all[4] = {make(CUDA_R_32F, CUBLASLT_ORDER_COL, 8, 4, 0),
                            make(CUDA_R_32F, CUBLASLT_ORDER_COL, 4, 6, 0),
                            make(CUDA_R_32F, CUBLASLT_ORDER_COL, 8, 6, 0),
                            make(CUDA_R_32F, CUBLASLT_ORDER_COL, 8, 6, 0)};
    const float one = 1;
    cublasLtMatmulHeuristicResult_t found[3];
    cublasLtHandle_t handle;
    int64_t small = 7;
    void *workspace;

    assert_int_equal(cudaMalloc(&workspace, 1 << 20), 0);
    assert_int_equal(cublasLtCreate(&handle), 0);
    cublasLtMatmulDesc_t op = describe(0, 0), wrong = describe(1, 0);
    assert_int_equal(choose(handle, wrong, all, 0, found), -1); /* they do not fit */
    assert_int_equal(choose(handle, op, all, 0, found), 1);     /* all others need workspace */
    assert_int_equal(found[0].workspaceSize, 0);
    assert_int_equal(choose(handle, op, all, 1 << 20, found), 3);
#define TRY(d, work, bytes)                                                                      \
    cublasLtMatmul(handle, op, &one, all[0].device, all[0].layout, all[1].device, all[1].layout, \
                   &one, all[2].device, all[2].layout, d, all[3].layout, &found[0].algo, work,   \
                   bytes, NULL)
    char *d = all[3].device;
    assert_int_equal(TRY(d, workspace, found[0].workspaceSize), 0);
    assert_int_not_equal(TRY(d, workspace, found[0].workspaceSize - 1), 0);
    assert_int_not_equal(TRY(d, (char *)workspace + 8, found[0].workspaceSize), 0);
    assert_int_not_equal(TRY(d, workspace, 2 << 20), 0);                    /* more than there is */
    assert_int_not_equal(TRY(d + 4, workspace, found[0].workspaceSize), 0); /* alignment, end */
    assert_int_not_equal(TRY(all[3].host, workspace, found[0].workspaceSize), 0);
    cublasLtMatrixLayoutSetAttribute(all[3].layout, CUBLASLT_MATRIX_LAYOUT_LD, &small,
                                     sizeof small);
    assert_int_not_equal(TRY(d, workspace, found[0].workspaceSize), 0);
#undef TRY
    assert_int_equal(cudaDeviceSynchronize(), 0);
    cudaFree(workspace);
    cublasLtMatmulDescDestroy(op);
    cublasLtMatmulDescDestroy(wrong);
    cublasLtDestroy(handle);
    for (int i = 0; i < 4; i++)
        drop(&all[i]);
}

/* A workspace that lies over an operand is found out: the result is NaN. */
static void test_overlap(void **state)
{
    struct matrix all[4] = {
        make(CUDA_R_32F, CUBLASLT_ORDER_COL, 64, 64, 0),
        make(CUDA_R_32F, CUBLASLT_ORDER_COL, 64, 64, 0),
        make(CUDA_R_32F, CUBLASLT_ORDER_COL, 64, 64, 0),
        make(CUDA_R_32F, CUBLASLT_ORDER_COL, 64, 64, 0),
    };
    const float one = 1, zero = 0;
    cublasLtHandle_t handle;
    assert_int_equal(cublasLtCreate(&handle), 0);
    cublasLtMatmulDesc_t op = describe(0, 0);
    assert_int_equal(cublasLtMatmul(handle, op, &one, all[0].device, all[0].layout, all[1].device,
                                    all[1].layout, &zero, all[2].device, all[2].layout,
                                    all[3].device, all[3].layout, NULL, all[1].device, 4096, NULL),
                     0);
    download(&all[3]);
    assert_true(isnan(*at(&all[3], 0, 0)));
    cublasLtMatmulDescDestroy(op);
    cublasLtDestroy(handle);
    for (int i = 0; i < 4; i++)
        drop(&all[i]);
}

/* ---- E4M3 with a scale for each block ---- */

enum { VECTORS = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F };
enum { SQUARES = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F };

/* An operand [rows, k] with k contiguous, and what its codes stand for. */
struct codes {
    int rows, k;
    float *value;
    void *code, *scale;
    cublasLtMatrixLayout_t layout;
};

static void *on_device(void *host, size_t bytes)
{
    void *device;
    assert_int_equal(cudaMalloc(&device, bytes), 0);
    assert_int_equal(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), 0);
    free(host);
    return device;
}

/* Codes of -2, -1, -0.5, 0, 0.5, 1 and 2, and scales of 1 to 4: every sum below is exact. */
static struct codes make_codes(int rows, int k, int mode)
{
    static const unsigned char some[] = {0xc0, 0xb8, 0xb0, 0, 0x30, 0x38, 0x40};
    static const float stands_for[] = {-2, -1, -0.5f, 0, 0.5f, 1, 2};
    struct codes c = {.rows = rows, .k = k};
    const int blocks = (k + 127) / 128, step = (blocks + 3) / 4 * 4;
    const size_t scales =
        mode == VECTORS ? (size_t)blocks * rows : (size_t)(rows + 127) / 128 * step;
    unsigned char *code = malloc((size_t)rows * k);
    float *scale = malloc(scales * sizeof *scale);
    c.value = malloc((size_t)rows * k * sizeof *c.value);
    for (size_t i = 0; i < scales; i++)
        scale[i] = (float)(1 << rand() % 3);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < k; j++) {
            const int which = rand() % 7, block = j / 128;
            code[i * k + j] = some[which];
            c.value[i * k + j] =
                stands_for[which] *
                (mode == VECTORS ? scale[block * rows + i] : scale[i / 128 * step + block]);
        }
    c.code = on_device(code, (size_t)rows * k);
    c.scale = on_device(scale, scales * sizeof *scale);
    assert_int_equal(cublasLtMatrixLayoutCreate(&c.layout, CUDA_R_8F_E4M3, k, rows, k), 0);
    return c;
}

static void drop_codes(struct codes *c)
{
    cudaFree(c->code);
    cudaFree(c->scale);
    cublasLtMatrixLayoutDestroy(c->layout);
    free(c->value);
}

static void set(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t name, int32_t value)
{
    assert_int_equal(cublasLtMatmulDescSetAttribute(op, name, &value, sizeof value), 0);
}

static void set_pointer(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t name,
                        const void *value)
{
    assert_int_equal(cublasLtMatmulDescSetAttribute(op, name, &value, sizeof value), 0);
}

static cublasLtMatmulDesc_t describe_fp8(const struct codes of[2], const int mode[2])
{
    cublasLtMatmulDesc_t op = describe(1, 0);
    set(op, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode[0]);
    set(op, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode[1]);
    set_pointer(op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of[0].scale);
    set_pointer(op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of[1].scale);
    return op;
}

static void multiply_fp8(cudaDataType out, const int size[3], const int mode[2])
{
    struct codes of[2] = {make_codes(size[0], size[2], mode[0]),
                          make_codes(size[1], size[2], mode[1])};
    struct matrix d = make(out, CUBLASLT_ORDER_COL, size[0], size[1], 0);
    struct matrix all[4] = {{.layout = of[0].layout}, {.layout = of[1].layout}, d, d};
    const float one = 1;
    float *before = malloc(d.elems * 4);
    cublasLtMatmulHeuristicResult_t found[3];
    cublasLtHandle_t handle;
    memcpy(before, d.host, d.elems * 4);
    assert_int_equal(cublasLtCreate(&handle), 0);
    cublasLtMatmulDesc_t op = describe_fp8(of, mode);
    assert_int_equal(choose(handle, op, all, 0, found), 1);
    assert_int_equal(cublasLtMatmul(handle, op, &one, of[0].code, of[0].layout, of[1].code,
                                    of[1].layout, &one, d.device, d.layout, d.device, d.layout,
                                    &found[0].algo, NULL, 0, NULL),
                     0);
    download(&d);
    for (int i = 0; i < size[0]; i++)
        for (int j = 0; j < size[1]; j++) {
            float sum = before[(size_t)j * d.ld + i];
            for (int l = 0; l < size[2]; l++)
                sum += of[0].value[i * size[2] + l] * of[1].value[j * size[2] + l];
            assert_true(*at(&d, i, j) == (out == CUDA_R_32F ? sum : wide(out, narrow(out, sum))));
        }
    free(before);
    cublasLtMatmulDescDestroy(op);
    cublasLtDestroy(handle);
    drop_codes(&of[0]);
    drop_codes(&of[1]);
    drop(&d);
}

static void test_fp8(void **state)
{
    static const int sizes[][3] = {{16, 16, 16}, {144, 32, 272}, {32, 272, 128}, {48, 16, 656}};
    static const int modes[][2] = {{VECTORS, VECTORS}, {SQUARES, VECTORS}, {VECTORS, SQUARES}};
    for (int s = 0; s < 4; s++)
        for (int mode = 0; mode < 3; mode++) {
            multiply_fp8(CUDA_R_32F, sizes[s], modes[mode]);
            multiply_fp8(CUDA_R_16BF, sizes[s], modes[mode]);
        }
}

/* A product that is all right but for one thing. */
struct wrong {
    int trans_a, trans_b, mode_a, mode_b, fast, no_scales, on_host;
    int rows, ld, code_offset, scale_offset;
    cudaDataType type_b, out;
};

static cublasStatus_t try_fp8(const struct wrong *w)
{
    const int mode[2] = {w->mode_a ? w->mode_a : SQUARES, w->mode_b ? w->mode_b : VECTORS};
    const int rows = w->rows ? w->rows : 32;
    const int8_t fast = 1;
    const float one = 1, host = 1;
    const cudaDataType out = w->out ? w->out : CUDA_R_32F;
    struct codes of[2] = {make_codes(32, 160, VECTORS), make_codes(64, 160, VECTORS)};
    struct matrix d = make(out, CUBLASLT_ORDER_COL, 32, 64, 0);
    cublasLtMatrixLayout_t layout[3];
    cublasLtHandle_t handle;
    assert_int_equal(cublasLtCreate(&handle), 0);
    cublasLtMatmulDesc_t op = describe_fp8(of, mode);
    set(op, CUBLASLT_MATMUL_DESC_TRANSA, w->trans_a ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(op, CUBLASLT_MATMUL_DESC_TRANSB, w->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (w->fast)
        cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    if (w->no_scales)
        set_pointer(op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, NULL);
    if (w->on_host)
        set_pointer(op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &host);
    if (w->scale_offset)
        set_pointer(op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                    (char *)of[0].scale + w->scale_offset);
    cublasLtMatrixLayoutCreate(&layout[0], CUDA_R_8F_E4M3, w->trans_a ? rows : 32,
                               w->trans_a ? 32 : rows, w->ld ? w->ld : 160);
    cublasLtMatrixLayoutCreate(&layout[1], w->type_b ? w->type_b : CUDA_R_8F_E4M3,
                               w->trans_b ? 16 : 32, w->trans_b ? 32 : 16, 160);
    cublasLtMatrixLayoutCreate(&layout[2], out, rows, 16, 32);
    cublasStatus_t status = cublasLtMatmul(handle, op, &one, (char *)of[0].code + w->code_offset,
                                           layout[0], of[1].code, layout[1], &one, d.device,
                                           layout[2], d.device, layout[2], NULL, NULL, 0, NULL);
    assert_int_equal(cudaDeviceSynchronize(), 0);
    for (int i = 0; i < 3; i++)
        cublasLtMatrixLayoutDestroy(layout[i]);
    cublasLtMatmulDescDestroy(op);
    cublasLtDestroy(handle);
    drop_codes(&of[0]);
    drop_codes(&of[1]);
    drop(&d);
    return status;
}

static void test_fp8_refused(void **state)
{
    static const struct wrong wrongs[] = {
        {.trans_a = 1},
        {.trans_b = 1},
        {.mode_b = SQUARES},
        {.mode_a = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F},
        {.fast = 1},
        {.no_scales = 1},
        {.on_host = 1},
        {.scale_offset = 4},
        {.scale_offset = 1 << 20},
        {.rows = 24},
        {.ld = 152},
        {.code_offset = 8},
        {.type_b = CUDA_R_16BF},
        {.out = CUDA_R_16F},
    };
    assert_int_equal(try_fp8(&(struct wrong){0}), 0);
    assert_int_equal(try_fp8(&(struct wrong){.mode_a = VECTORS, .mode_b = SQUARES}), 0);
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++)
        assert_int_not_equal(try_fp8(&wrongs[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_overlap),     cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_fp8_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
