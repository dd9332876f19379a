/* test_cuda_gemm.c - matrix products on a GPU: every transposition, type, addend, stride, odd size
 * and alignment against sums in double, and that they repeat bit by bit.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "ops_check.h"

#include <stdio.h>

#include "base/philox.h"
#include "device/cuda/state.h"

enum { SKIPPED = 77 };
enum addend { NONE, SELF, OTHER, ADDENDS };
enum operand { A, B, C, ADDEND, OPERANDS };

/* What a product is and where its operands lie in their allocations, in elements. */
struct problem {
    struct gemm g;
    enum addend addend;
    int64_t offset[OPERANDS];
};

static const struct {
    enum dtype dt, dt_c;
} types[] = {{DTYPE_F32, DTYPE_F32},
             {DTYPE_BF16, DTYPE_BF16},
             {DTYPE_BF16, DTYPE_F32},
             {DTYPE_F16, DTYPE_F16},
             {DTYPE_F16, DTYPE_F32}};
enum { PAIRS = sizeof types / sizeof types[0] };

static char no_gpu[128]; /* why, or "" */

/* The scratch is kept from one product to the next that needs as much: its allocation ends where
 * that of the product does. */
struct gpu {
    struct device *d;
    struct mem mem;
    struct tensor poison; /* as many bytes of NaN as scratch has */
    void *scratch;
};

static struct gpu open_gpu(void)
{
    struct gpu gpu = {0};
    struct error err = {0};
    if (no_gpu[0])
        skip();
    if (device_open(&gpu.d, &(struct device_request){.kind = DEVICE_CUDA}, &err))
        fail_msg("%s", err.text);
    return gpu;
}

static void check(int status, const struct error *err)
{
    if (status)
        fail_msg("%s", err->text);
}

static void *on_gpu(struct gpu *gpu, const struct tensor *t)
{
    struct error err = {0};
    size_t bytes = (size_t)t->elems * dtype_bytes(t->dt);
    void *block = device_alloc(gpu->d, &gpu->mem, POOL_WORKSPACE, bytes, &err);
    check(block == NULL, &err);
    check(device_upload(gpu->d, block, t->data, bytes, &err), &err);
    return block;
}

static void off_gpu(struct gpu *gpu, const struct tensor *t, void *block)
{
    struct error err = {0};
    size_t bytes = (size_t)t->elems * dtype_bytes(t->dt);
    check(device_download(gpu->d, t->data, block, bytes, &err), &err);
    device_free(gpu->d, &gpu->mem, POOL_WORKSPACE, bytes, block);
}

static void free_scratch(struct gpu *gpu)
{
    if (gpu->scratch) {
        off_gpu(gpu, &gpu->poison, gpu->scratch);
        tensor_free(&gpu->poison);
        gpu->scratch = NULL;
    }
}

/* Scratch for a product, poisoned and 64-byte aligned. */
static char *make_scratch(struct gpu *gpu, const struct gemm *g)
{
    struct error err = {0};
    int64_t elems = ((int64_t)gpu->d->ops->gemm_scratch(gpu->d, g) + 64 + 3) / 4;
    if (gpu->scratch && gpu->poison.elems == elems) {
        check(device_upload(gpu->d, gpu->scratch, gpu->poison.data, (size_t)elems * 4, &err), &err);
    } else {
        free_scratch(gpu);
        gpu->poison = tensor_poisoned(DTYPE_F32, elems);
        gpu->scratch = on_gpu(gpu, &gpu->poison);
    }
    return (char *)gpu->scratch + 64;
}

static void close_gpu(struct gpu *gpu)
{
    free_scratch(gpu);
    device_close(gpu->d);
    assert_int_equal(gpu->mem.blocks, 0);
}

static struct problem make_problem(int type, int trans, enum addend addend, const int64_t mnk[3],
                                   int64_t padding)
{
    int64_t m = mnk[0], n = mnk[1], k = mnk[2];
    struct gemm g = {types[type].dt, types[type].dt_c, trans & 1, trans >> 1, m, n, k};
    g.lda = (g.trans_a ? m : k) + padding;
    g.ldb = (g.trans_b ? k : n) + padding;
    g.ldc = n + padding;
    return (struct problem){.g = g, .addend = addend};
}

static void make_tensors(const struct problem *p, struct tensor t[OPERANDS])
{
    const struct gemm *g = &p->g;
    int64_t rows_a = g->trans_a ? g->k : g->m, rows_b = g->trans_b ? g->n : g->k;
    t[A] = tensor_random(g->dt, p->offset[A] + rows_a * g->lda, 1, 1);
    t[B] = tensor_random(g->dt, p->offset[B] + rows_b * g->ldb, 2, 1);
    t[ADDEND] = tensor_random(g->dt_c, p->offset[ADDEND] + g->m * g->ldc, 3, 1);
    t[C] = tensor_poisoned(g->dt_c, p->offset[C] + g->m * g->ldc);
    if (p->addend == SELF)
        for (int64_t i = 0; i < g->m * g->ldc; i++)
            tensor_set(&t[C], p->offset[C] + i, tensor_get(&t[ADDEND], p->offset[ADDEND] + i));
}

typedef void multiplier(struct gpu *gpu, const struct gemm *g, void *scratch);

static void by_device(struct gpu *gpu, const struct gemm *g, void *scratch)
{
    struct error err = {0};
    check(gpu->d->ops->gemm(gpu->d, g, scratch, &err), &err);
}

static void by_plain_kernel(struct gpu *gpu, const struct gemm *g, void *scratch)
{
    cuda_gemm_plain(gpu->d, g);
}

/* Recorded and replayed, twice where c is not its own addend; done once before with another c, as
 * libraries load their kernels at first use, which a recording need not allow. */
static void by_recording(struct gpu *gpu, const struct gemm *g, void *scratch)
{
    struct error err = {0};
    struct gemm first = *g;
    size_t bytes = (size_t)(g->m * g->ldc) * dtype_bytes(g->dt_c);
    first.c = device_alloc(gpu->d, &gpu->mem, POOL_WORKSPACE, bytes, &err);
    check(first.c == NULL, &err);
    if (g->addend == g->c)
        first.addend = first.c;
    by_device(gpu, &first, scratch);
    check(device_sync(gpu->d, &err), &err);
    device_free(gpu->d, &gpu->mem, POOL_WORKSPACE, bytes, first.c);
    check(device_record_begin(gpu->d, &err), &err);
    by_device(gpu, g, scratch);
    struct device_recording *recording = device_record_end(gpu->d, &err);
    check(recording == NULL, &err);
    for (int times = 0; times < (g->addend == g->c ? 1 : 2); times++)
        check(device_replay(gpu->d, recording, &err), &err);
    check(device_sync(gpu->d, &err), &err);
    device_recording_destroy(gpu->d, recording);
}

/* Multiply on the GPU; t[C] then has the result. */
static void multiply(struct gpu *gpu, const struct problem *p, struct tensor t[OPERANDS],
                     multiplier *how)
{
    struct error err = {0};
    struct gemm g = p->g;
    char *block[OPERANDS], *scratch = make_scratch(gpu, &g);
    for (int i = 0; i < OPERANDS; i++)
        block[i] = on_gpu(gpu, &t[i]);
    g.a = block[A] + (size_t)p->offset[A] * dtype_bytes(g.dt);
    g.b = block[B] + (size_t)p->offset[B] * dtype_bytes(g.dt);
    g.c = block[C] + (size_t)p->offset[C] * dtype_bytes(g.dt_c);
    g.addend = p->addend == NONE ? NULL
               : p->addend == SELF
                   ? g.c
                   : block[ADDEND] + (size_t)p->offset[ADDEND] * dtype_bytes(g.dt_c);
    how(gpu, &g, scratch);
    check(device_sync(gpu->d, &err), &err);
    for (int i = 0; i < OPERANDS; i++)
        off_gpu(gpu, &t[i], block[i]);
}

/* Terms are of size 1: a sum of k is off by less than tolerance * sqrt(k).  For fp32 that is far
 * less than the 10 bits of TF32 could keep.  In 16 bits cuBLASLt may round a product before it adds
 * the addend, and then again. */
static void check_element(const struct problem *p, const struct tensor t[OPERANDS], int64_t i,
                          int64_t j)
{
    const struct gemm *g = &p->g;
    double addend = p->addend ? tensor_get(&t[ADDEND], p->offset[ADDEND] + i * g->ldc + j) : 0;
    double product = 0;
    for (int64_t l = 0; l < g->k; l++)
        product +=
            tensor_get(&t[A], p->offset[A] + (g->trans_a ? l * g->lda + i : i * g->lda + l)) *
            tensor_get(&t[B], p->offset[B] + (g->trans_b ? j * g->ldb + l : l * g->ldb + j));
    double want = product + addend, size = fabs(want) + sqrt((double)g->k);
    double got = tensor_get(&t[C], p->offset[C] + i * g->ldc + j);
    if (p->addend && g->dt_c != DTYPE_F32)
        size += fabs(product);
    if (!(fabs(got - want) <= tolerance_of(g->dt_c) * size))
        fail_msg("c[%lld,%lld] of %lldx%lldx%lld trans %d%d, %s to %s, addend %d: got %.9g, "
                 "want %.9g",
                 (long long)i, (long long)j, (long long)g->m, (long long)g->n, (long long)g->k,
                 g->trans_a, g->trans_b, dtype_name(g->dt), dtype_name(g->dt_c), p->addend, got,
                 want);
}

/* What lies around the elements of c is as it was. */
static void check_around(const struct problem *p, const struct tensor t[OPERANDS])
{
    const struct gemm *g = &p->g;
    for (int64_t i = 0; i < p->offset[C]; i++)
        assert_true(isnan(tensor_get(&t[C], i)));
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = g->n; j < g->ldc; j++) {
            double value = tensor_get(&t[C], p->offset[C] + i * g->ldc + j);
            double was = tensor_get(&t[ADDEND], p->offset[ADDEND] + i * g->ldc + j);
            assert_true(p->addend == SELF ? value == was : isnan(value));
        }
}

enum { ALL_ELEMENTS = 10000 };

/* All elements of small results, the corners and some hundred of large ones. */
static uint64_t run_case(struct gpu *gpu, const struct problem *p, multiplier *how)
{
    const struct gemm *g = &p->g;
    struct tensor t[OPERANDS];
    make_tensors(p, t);
    multiply(gpu, p, t, how);
    for (int64_t e = 0; e < g->m * g->n && g->m * g->n <= ALL_ELEMENTS; e++)
        check_element(p, t, e / g->n, e % g->n);
    for (uint64_t e = 0; e < 300 && g->m * g->n > ALL_ELEMENTS; e++)
        check_element(p, t, (int64_t)(philox_u64(4, e) % (uint64_t)g->m),
                      (int64_t)(philox_u64(5, e) % (uint64_t)g->n));
    for (int corner = 0; corner < 4; corner++)
        check_element(p, t, corner & 1 ? g->m - 1 : 0, corner & 2 ? g->n - 1 : 0);
    check_around(p, t);
    uint64_t hash = tensor_hash(&t[C]);
    for (int i = 0; i < OPERANDS; i++)
        tensor_free(&t[i]);
    return hash;
}

static const int64_t sizes[][3] = {{1, 1, 1},  {1, 7, 3},    {7, 1, 5},     {5, 9, 1},
                                   {7, 13, 5}, {33, 65, 17}, {64, 32, 128}, {61, 127, 31},
                                   {3, 5, 0},  {1, 256, 64}, {256, 1, 64}};
enum { SIZES = sizeof sizes / sizeof sizes[0], KINDS = PAIRS * 4 * ADDENDS * 2 };

static struct problem kind_of_problem(int kind, const int64_t mnk[3])
{
    return make_problem(kind % PAIRS, kind / PAIRS % 4, (enum addend)(kind / (4 * PAIRS) % ADDENDS),
                        mnk, kind / (4 * PAIRS * ADDENDS) ? 3 : 0);
}

static void every_kind_of_product(void **state)
{
    struct gpu gpu = open_gpu();
    for (int size = 0; size < SIZES; size++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct problem p = kind_of_problem(kind, sizes[size]);
            run_case(&gpu, &p, by_device);
        }
    close_gpu(&gpu);
}

static void every_kind_of_product_by_the_plain_kernel(void **state)
{
    struct gpu gpu = open_gpu();
    for (int size = 0; size < SIZES; size++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct problem p = kind_of_problem(kind, sizes[size]);
            p.offset[A] = kind % 2;
            p.offset[C] = kind % 7;
            run_case(&gpu, &p, by_plain_kernel);
        }
    close_gpu(&gpu);
}

/* Sizes whose rows are aligned, at pointers that are not, one operand after another. */
static void operands_aligned_to_their_element(void **state)
{
    static const int64_t shapes[][3] = {{64, 32, 48}, {40, 24, 16}, {19, 23, 29}};
    struct gpu gpu = open_gpu();
    for (int shape = 0; shape < 3; shape++)
        for (int type = 0; type < PAIRS; type++)
            for (int which = 0; which <= OPERANDS; which++)
                for (int64_t by = 1; by <= 4; by += by) {
                    struct problem p = make_problem(type, which % 4, OTHER, shapes[shape], 0);
                    for (int i = 0; i < OPERANDS; i++)
                        p.offset[i] = i == which || which == OPERANDS ? by : 0;
                    run_case(&gpu, &p, by_device);
                }
    close_gpu(&gpu);
}

static void larger_products(void **state)
{
    static const int64_t shapes[][3] = {{128, 256, 1024}, {129, 67, 1027}, {8, 264, 2048}};
    struct gpu gpu = open_gpu();
    for (int shape = 0; shape < 3; shape++)
        for (int kind = 0; kind < 4 * PAIRS; kind++) {
            struct problem p = make_problem(kind % PAIRS, kind / PAIRS,
                                            (enum addend)(kind % ADDENDS), shapes[shape], 0);
            run_case(&gpu, &p, by_device);
        }
    close_gpu(&gpu);
}

/* Again after others, on this device and on a new one. */
static void repeated_products_are_bitwise_equal(void **state)
{
    static const int64_t mnk[] = {129, 67, 1025}, other[] = {64, 32, 48};
    uint64_t first[PAIRS];
    for (int round = 0; round < 4; round++) {
        struct gpu gpu = open_gpu();
        for (int type = 0; type < PAIRS; type++) {
            struct problem p = make_problem(type, 1, OTHER, mnk, 0);
            uint64_t hash = run_case(&gpu, &p, by_device);
            if (round == 0)
                first[type] = hash;
            assert_true(hash == first[type]);
            p = make_problem(type, 2, NONE, other, 0);
            run_case(&gpu, &p, by_device);
            p = make_problem(type, 1, OTHER, mnk, 0);
            assert_true(run_case(&gpu, &p, by_device) == first[type]);
        }
        close_gpu(&gpu);
    }
}

static void recorded_products_are_the_same(void **state)
{
    static const int64_t shapes[][3] = {{61, 127, 31}, {64, 128, 32}, {3, 5, 0}};
    struct gpu gpu = open_gpu();
    for (int shape = 0; shape < 3; shape++)
        for (int kind = 0; kind < 4 * PAIRS * ADDENDS; kind++) {
            struct problem p = kind_of_problem(kind, shapes[shape]);
            uint64_t recorded = run_case(&gpu, &p, by_recording);
            assert_true(run_case(&gpu, &p, by_device) == recorded);
        }
    close_gpu(&gpu);
}

static void nothing_times_something_is_nothing(void **state)
{
    struct error err = {0};
    struct gpu gpu = open_gpu();
    struct gemm g = {DTYPE_F32, DTYPE_F32, .m = 0, .n = 5, .k = 3, .lda = 3, .ldb = 5, .ldc = 5};
    assert_int_equal(gpu.d->ops->gemm_scratch(gpu.d, &g), 0);
    assert_int_equal(gpu.d->ops->gemm(gpu.d, &g, NULL, &err), 0);
    close_gpu(&gpu);
}

/* A plan made where no GPU is holds where one is; and scratch has a bound. */
static void scratch_is_planned_without_a_gpu(void **state)
{
    struct error err = {0};
    struct device *planning;
    struct gpu gpu = {0};
    check(
        device_open(&planning, &(struct device_request){.kind = DEVICE_CUDA, .planning = 1}, &err),
        &err);
    if (!no_gpu[0])
        gpu = open_gpu();
    for (int size = 0; size < SIZES; size++)
        for (int64_t times = 1; times < 1 << 20; times <<= 4) {
            const int64_t mnk[] = {sizes[size][0] * times, sizes[size][1] * times, sizes[size][2]};
            struct problem p = make_problem(1, 0, NONE, mnk, 0);
            size_t bytes = planning->ops->gemm_scratch(planning, &p.g);
            assert_true(bytes <= (size_t)33 << 20);
            if (gpu.d)
                assert_int_equal(bytes, gpu.d->ops->gemm_scratch(gpu.d, &p.g));
        }
    device_close(planning);
    if (gpu.d)
        close_gpu(&gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_is_planned_without_a_gpu),
        cmocka_unit_test(nothing_times_something_is_nothing),
        cmocka_unit_test(every_kind_of_product),
        cmocka_unit_test(every_kind_of_product_by_the_plain_kernel),
        cmocka_unit_test(operands_aligned_to_their_element),
        cmocka_unit_test(larger_products),
        cmocka_unit_test(repeated_products_are_bitwise_equal),
        cmocka_unit_test(recorded_products_are_the_same),
    };
    if (device_gpu_count(no_gpu) > 0)
        no_gpu[0] = 0;
    else
        printf("all but planning is skipped: %s\n", no_gpu);
    int failed = cmocka_run_group_tests_name("cuda gemm", tests, NULL, NULL);
    return failed ? failed : no_gpu[0] ? SKIPPED : 0;
}
