/* test_ops_gemm.c - matrix products: every transposition, type, addend, stride and odd size. */
#include "ops_check.h"

#include "base/philox.h"
#include "device/cpu/gemm.h"

enum addend { NONE, SELF, OTHER };

/* One product with its tensors; c starts with poison, or with values where they are added. */
struct problem {
    struct gemm g;
    struct tensor a, b, c, addend;
    int64_t rows_a, rows_b;
};

static int64_t pad(int64_t cols, int padded)
{
    return cols + (padded ? 3 : 0);
}

/* Make c anew: poison, or what is added to. */
static void make_c(struct problem *p, enum addend addend)
{
    int64_t elems = p->addend.elems;
    p->c = addend == SELF ? tensor_copy(&p->addend) : tensor_poisoned(p->g.dt_c, elems);
    p->g.c = p->c.data;
    p->g.addend = addend == NONE ? NULL : addend == SELF ? p->c.data : p->addend.data;
}

static struct problem make_problem(enum dtype dt, enum dtype dt_c, int trans, enum addend addend,
                                   const int64_t mnk[3], int padded)
{
    int64_t m = mnk[0], n = mnk[1], k = mnk[2];
    struct gemm g = {dt, dt_c, trans & 1, trans >> 1, m, n, k};
    g.lda = pad(g.trans_a ? m : k, padded);
    g.ldb = pad(g.trans_b ? k : n, padded);
    g.ldc = pad(n, padded);
    struct problem p = {g, .rows_a = g.trans_a ? k : m, .rows_b = g.trans_b ? n : k};
    p.a = tensor_random(dt, p.rows_a * g.lda, 1, 1);
    p.b = tensor_random(dt, p.rows_b * g.ldb, 2, 1);
    p.addend = tensor_random(dt_c, m * g.ldc, 3, 1);
    make_c(&p, addend);
    p.g.a = p.a.data;
    p.g.b = p.b.data;
    return p;
}

static void free_problem(struct problem *p)
{
    tensor_free(&p->a);
    tensor_free(&p->b);
    tensor_free(&p->c);
    tensor_free(&p->addend);
}

/* Row i of a, and column j of b: what is multiplied for one element. */
static void row_of_a(const struct problem *p, int64_t i, double *row)
{
    for (int64_t l = 0; l < p->g.k; l++)
        row[l] = tensor_get(&p->a, p->g.trans_a ? l * p->g.lda + i : i * p->g.lda + l);
}

static void column_of_b(const struct problem *p, int64_t j, double *column)
{
    for (int64_t l = 0; l < p->g.k; l++)
        column[l] = tensor_get(&p->b, p->g.trans_b ? j * p->g.ldb + l : l * p->g.ldb + j);
}

/* Terms are of size 1: a sum of k is off by less than tolerance * sqrt(k). */
static void check_element(const struct problem *p, int64_t i, int64_t j, const double *row,
                          const double *column)
{
    double got = tensor_get(&p->c, i * p->g.ldc + j);
    double want = p->g.addend ? tensor_get(&p->addend, i * p->g.ldc + j) : 0;
    for (int64_t l = 0; l < p->g.k; l++)
        want += row[l] * column[l];
    double tolerance = tolerance_of(p->g.dt_c);
    if (!(fabs(got - want) <= tolerance * (fabs(want) + sqrt((double)p->g.k))))
        fail_msg("c[%lld,%lld] of %lldx%lldx%lld trans %d%d, %s to %s: got %.9g, want %.9g",
                 (long long)i, (long long)j, (long long)p->g.m, (long long)p->g.n,
                 (long long)p->g.k, p->g.trans_a, p->g.trans_b, dtype_name(p->g.dt),
                 dtype_name(p->g.dt_c), got, want);
}

static void check_all(const struct problem *p)
{
    const int64_t n = p->g.n, k = p->g.k;
    double *row = malloc((size_t)(k * (1 + n)) * sizeof *row), *columns = row + k;
    assert_non_null(row);
    for (int64_t j = 0; j < n; j++)
        column_of_b(p, j, columns + j * k);
    for (int64_t i = 0; i < p->g.m; i++) {
        row_of_a(p, i, row);
        for (int64_t j = 0; j < n; j++)
            check_element(p, i, j, row, columns + j * k);
    }
    free(row);
}

/* Columns past n keep what they had. */
static void check_padding(const struct problem *p, int had_values)
{
    for (int64_t i = 0; i < p->g.m; i++)
        for (int64_t j = p->g.n; j < p->g.ldc; j++) {
            double value = tensor_get(&p->c, i * p->g.ldc + j);
            assert_true(had_values ? value == tensor_get(&p->addend, i * p->g.ldc + j)
                                   : isnan(value));
        }
}

static struct tensor scratch_for(struct device *d, const struct gemm *g)
{
    struct gemm shape = *g;
    shape.a = shape.b = shape.addend = shape.c = NULL;
    return tensor_poisoned(DTYPE_F32, (int64_t)(d->ops->gemm_scratch(d, &shape) + 3) / 4);
}

static void run_case(struct device *d, enum dtype dt, enum dtype dt_c, int trans,
                     enum addend addend, const int64_t mnk[3], int padded)
{
    struct error err = {0};
    struct problem p = make_problem(dt, dt_c, trans, addend, mnk, padded);
    struct tensor scratch = scratch_for(d, &p.g);
    if (d->ops->gemm(d, &p.g, scratch.data, &err))
        fail_msg("%s", err.text);
    check_all(&p);
    check_padding(&p, addend == SELF);
    tensor_free(&scratch);
    free_problem(&p);
}

static const struct {
    enum dtype dt, dt_c;
} types[] = {{DTYPE_F32, DTYPE_F32},
             {DTYPE_BF16, DTYPE_BF16},
             {DTYPE_BF16, DTYPE_F32},
             {DTYPE_F16, DTYPE_F16},
             {DTYPE_F16, DTYPE_F32}};

enum { KINDS = sizeof types / sizeof types[0] };

static void every_kind_of_product(void **state)
{
    static const int64_t sizes[][3] = {{1, 1, 1},  {1, 7, 3},    {7, 1, 5},     {5, 9, 1},
                                       {7, 13, 5}, {33, 65, 17}, {64, 32, 128}, {61, 127, 31}};
    for (int threads = 1; threads <= 2; threads++) {
        struct device *d = open_device(NULL, threads);
        for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++)
            for (int kind = 0; kind < KINDS * 4 * 3 * 2; kind++)
                run_case(d, types[kind % KINDS].dt, types[kind % KINDS].dt_c, kind / KINDS % 4,
                         (enum addend)(kind / (4 * KINDS) % 3), sizes[size], kind / (12 * KINDS));
        device_close(d);
    }
}

/* Few rows by a matrix that is large enough for the kernel of their own, on every level. */
static void few_rows_by_a_matrix(void **state)
{
    for (int level = 0; device_cpu_level(level); level++) {
        struct device *d = open_device(device_cpu_level(level), 2);
        for (int64_t m = 1; m <= 17; m++)
            for (int kind = 0; kind < KINDS * 3; kind++) {
                const int64_t mnk[3] = {m, kind % 2 ? 259 : 128,
                                        kind % 2 ? 71
                                        : m % 4  ? 128
                                                 : 4200};
                run_case(d, types[kind % KINDS].dt, types[kind % KINDS].dt_c, 2,
                         (enum addend)(kind / KINDS), mnk, kind % 2);
            }
        device_close(d);
    }
}

static void check_rows(struct device *d, int kind, const int64_t most[3])
{
    struct error err = {0};
    struct problem all = make_problem(types[kind].dt, types[kind].dt_c, 2, NONE, most, 0);
    struct tensor scratch = scratch_for(d, &all.g);
    assert_int_equal(d->ops->gemm(d, &all.g, scratch.data, &err), 0);
    for (int64_t m = 1; m < most[0]; m++) {
        struct problem few = all;
        few.g.m = m;
        few.c = tensor_poisoned(types[kind].dt_c, m * all.g.ldc);
        few.g.c = few.c.data;
        struct tensor less = scratch_for(d, &few.g);
        assert_int_equal(d->ops->gemm(d, &few.g, less.data, &err), 0);
        assert_memory_equal(few.c.data, all.c.data,
                            (size_t)(m * all.g.ldc) * dtype_bytes(types[kind].dt_c));
        tensor_free(&few.c);
        tensor_free(&less);
    }
    tensor_free(&scratch);
    free_problem(&all);
}

/* A row comes to the same bits whatever rows are beside it; of long rows too, which go in parts. */
static void rows_do_not_depend_on_others(void **state)
{
    static const int64_t most[][3] = {{16, 300, 77}, {16, 50, 4500}};
    for (int level = 0; device_cpu_level(level); level++) {
        struct device *d = open_device(device_cpu_level(level), 2);
        for (int kind = 0; kind < KINDS; kind++)
            for (size_t i = 0; i < sizeof most / sizeof most[0]; i++)
                check_rows(d, kind, most[i]);
        device_close(d);
    }
}

/* The same product again, with other tensors and after others: kept primitives mix up nothing. */
static void products_are_kept_apart(void **state)
{
    static const int64_t sizes[][3] = {{7, 13, 5}, {13, 7, 5}, {5, 13, 7}};
    struct device *d = open_device(NULL, 1);
    for (int round = 0; round < 3; round++)
        for (int size = 0; size < 3; size++)
            for (int addend = NONE; addend <= OTHER; addend++)
                run_case(d, DTYPE_F32, DTYPE_F32, round, (enum addend)addend, sizes[size], 0);
    device_close(d);
}

static void repeated_products_are_bitwise_equal(void **state)
{
    static const int64_t mnk[] = {129, 67, 257};
    struct error err = {0};
    uint64_t hash[2];
    for (int i = 0; i < 2; i++) {
        struct device *d = open_device(NULL, 2);
        struct problem p = make_problem(DTYPE_BF16, DTYPE_F32, 1, NONE, mnk, 0);
        struct tensor scratch = scratch_for(d, &p.g);
        assert_int_equal(d->ops->gemm(d, &p.g, scratch.data, &err), 0);
        hash[i] = tensor_hash(&p.c);
        tensor_free(&scratch);
        free_problem(&p);
        device_close(d);
    }
    assert_int_equal(hash[0], hash[1]);
}

/* Some elements at random and those in the corners. */
static void check_some(const struct problem *p)
{
    enum { CORNERS = 4, SOME = 304 };
    const uint64_t m = (uint64_t)p->g.m, n = (uint64_t)p->g.n;
    double *row = malloc((size_t)p->g.k * 2 * sizeof *row), *column = row + p->g.k;
    assert_non_null(row);
    for (uint64_t e = 0; e < SOME; e++) {
        uint64_t i = e < CORNERS ? e % 2 * (m - 1) : philox_u64(4, e - CORNERS) % m;
        uint64_t j = e < CORNERS ? e / 2 * (n - 1) : philox_u64(5, e - CORNERS) % n;
        row_of_a(p, (int64_t)i, row);
        column_of_b(p, (int64_t)j, column);
        check_element(p, (int64_t)i, (int64_t)j, row, column);
    }
    free(row);
}

/* Sizes with whole blocks and rests; elements at random and in the corners. */
static void by_blocks(struct device *d, enum dtype dt, const int64_t mnk[3], int kind)
{
    struct error err = {0};
    enum addend addend = (enum addend)(kind % 3);
    struct problem p = make_problem(dt, kind & 1 ? DTYPE_F32 : dt, kind % 4, addend, mnk, 1);
    size_t bytes = gemm_by_blocks_scratch(d, &p.g);
    struct tensor scratch = tensor_poisoned(DTYPE_F32, (int64_t)(bytes + 3) / 4);
    assert_int_equal(gemm_by_blocks(d, &p.g, scratch.data, &err), 0);
    check_some(&p);
    check_padding(&p, addend == SELF);
    tensor_free(&scratch);
    free_problem(&p);
}

static void products_through_fp32_blocks(void **state)
{
    static const int64_t sizes[][3] = {{515, 7, 1027}, {3, 517, 33}, {512, 513, 5}, {1, 1, 1025}};
    for (int threads = 1; threads <= 2; threads++) {
        struct device *d = open_device(NULL, threads);
        for (int size = 0; size < 4; size++)
            for (int kind = 0; kind < 24; kind++)
                by_blocks(d, kind < 12 ? DTYPE_BF16 : DTYPE_F16, sizes[size], kind % 12);
        device_close(d);
    }
}

/* Sums that fp16 has no room for while they are made, or at the end, and such as are denormal. */
static void fp16_products_are_rounded_once(void **state)
{
    static const struct {
        double a[2], b[2], addend, want;
    } rows[] = {
        {{300, 300}, {300, -300}, 7, 7},
        {{300, 300}, {300, 300}, 0, INFINITY},
        {{-300, 0}, {300, 0}, 0, -INFINITY},
        {{300, 0}, {300, 0}, -60000, 30000},
        {{65504, 15.5}, {1, 1}, 0, 65504},
        {{65504, 16}, {1, 1}, 0, INFINITY},
        {{0x1p-12, 0}, {0x1p-12, 0}, 0, 0x1p-24},
        {{0x1p-13, 0x1p-24}, {0x1p-12, 0x1p-10}, 0, 0x1p-24}, /* past the tie by the last term */
        {{0x1p-13, 0}, {0x1p-12, 0}, 0, 0},
        {{NAN, 0}, {1, 1}, 0, NAN},
    };
    struct error err = {0};
    struct device *d = open_device(NULL, 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct problem p = make_problem(DTYPE_F16, DTYPE_F16, 0, OTHER, (int64_t[]){1, 1, 2}, 0);
        struct tensor scratch = scratch_for(d, &p.g);
        for (int l = 0; l < 2; l++) {
            tensor_set(&p.a, l, rows[i].a[l]);
            tensor_set(&p.b, l, rows[i].b[l]);
        }
        tensor_set(&p.addend, 0, rows[i].addend);
        assert_int_equal(d->ops->gemm(d, &p.g, scratch.data, &err), 0);
        double got = tensor_get(&p.c, 0);
        assert_true(isnan(rows[i].want) ? isnan(got) : got == rows[i].want);
        tensor_free(&scratch);
        free_problem(&p);
    }
    device_close(d);
}

static void nothing_times_something_is_nothing(void **state)
{
    struct error err = {0};
    struct device *d = open_device(NULL, 1);
    struct gemm g = {DTYPE_F32, DTYPE_F32, .m = 0, .n = 5, .k = 3, .lda = 3, .ldb = 5, .ldc = 5};
    assert_int_equal(d->ops->gemm_scratch(d, &g), 0);
    assert_int_equal(d->ops->gemm(d, &g, NULL, &err), 0);
    device_close(d);
}

enum { GUARD = 4096 }; /* floats behind the scratch */

/* Scratch and behind it a guard, which a product must not write. */
static struct tensor guarded_scratch(struct device *d, const struct gemm *g)
{
    struct tensor plain = scratch_for(d, g);
    struct tensor guarded = tensor_poisoned(DTYPE_F32, plain.elems + GUARD);
    tensor_free(&plain);
    return guarded;
}

static int guard_holds(const struct tensor *scratch)
{
    for (int64_t i = scratch->elems - GUARD; i < scratch->elems; i++)
        if (!isnan(tensor_get(scratch, i)))
            return 0;
    return 1;
}

static int level_runs_here(const char *name)
{
    for (int level = 0; device_cpu_level(level); level++)
        if (!strcmp(device_cpu_level(level), name))
            return 1;
    return 0;
}

/* A device that makes large products itself.  AVX2's kernels are tested on machines with AVX-512
 * too, where a run leaves these products to the library. */
static struct device *open_packed(const struct packed *p, int threads)
{
    struct device *d = open_device(p->level, threads);
    d->packs_products = 1;
    return d;
}

/* Where no level has such kernels, the library makes all products, as it likes. */
static void need_packed(void)
{
    for (int i = 0; i < PACKED; i++)
        if (level_runs_here(packed[i].level))
            return;
    print_message("skipped: no kernels of our own here: the library does not promise this\n");
    skip();
}

/* Make c of a problem, and check it; returns its hash. */
static uint64_t large_product(const struct packed *own, int threads, struct problem *p,
                              enum addend addend)
{
    struct error err = {0};
    struct device *d = open_packed(own, threads);
    tensor_free(&p->c);
    make_c(p, addend);
    struct tensor scratch = guarded_scratch(d, &p->g);
    assert_int_equal(d->ops->gemm(d, &p->g, scratch.data, &err), 0);
    check_some(p);
    check_padding(p, addend == SELF);
    assert_true(guard_holds(&scratch));
    uint64_t hash = tensor_hash(&p->c);
    tensor_free(&scratch);
    device_close(d);
    return hash;
}

/* One large product, with each number of threads; they all make the same bits. */
static void large_products_with(const struct packed *own, const int *threads, int count,
                                enum dtype dt_c, int kind, const int64_t mnk[3])
{
    enum addend addend = (enum addend)(kind / 4 % 3);
    struct problem p = make_problem(own->dt, dt_c, kind % 4, addend, mnk, kind / 12);
    uint64_t first = large_product(own, threads[0], &p, addend);
    for (int i = 1; i < count; i++)
        assert_true(large_product(own, threads[i], &p, addend) == first);
    free_problem(&p);
}

/* Of the 24 kinds all are tested for bf16 on the best level, and else every fifth: each
 * transposition and addend once at least. */
static int kind_step_of(const struct packed *own)
{
    return own->dt == DTYPE_BF16 && !strcmp(own->level, device_cpu_level(0)) ? 1 : 5;
}

static void large_products_of(const struct packed *own)
{
    static const int64_t sizes[][3] = {{64, 64, 64},    {97, 70, 65},     {512, 96, 513},
                                       {65, 1100, 600}, {300, 67, 1026},  {64, 2100, 500},
                                       {384, 64, 64},   {397, 1100, 600}, {415, 67, 2114}};
    static const int threads[] = {1, 2, 5};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int kind = 0; kind < 24; kind += kind_step_of(own))
            for (int f32 = 0; f32 < 2; f32++)
                large_products_with(own, threads, sizes[i][0] < own->least_m ? 1 : 3,
                                    f32 ? DTYPE_F32 : own->dt, kind, sizes[i]);
}

/* Products that a level with kernels for them makes from packed operands: sides and k with and
 * without rests, k in one part and in several, columns at once and one group behind the other, more
 * threads than blocks of rows.  They have the same bits with any number of threads. */
static void large_products(void **state)
{
    need_packed();
    for (int i = 0; i < PACKED; i++)
        if (level_runs_here(packed[i].level))
            large_products_of(&packed[i]);
}

/* A sum so long that it is made in pieces, also where c, in 16 bits, cannot hold it in between. The
 * other size has pieces of equal length. */
static void sums_longer_than_a_piece(void **state)
{
    static const int64_t mnk[] = {397, 66, 16384 + 77}, equal_pieces[] = {400, 1024, 16384 + 4096};
    static const int one = 1, two = 2;
    need_packed();
    for (int i = 0; i < PACKED; i++) {
        const struct packed *own = &packed[i];
        if (!level_runs_here(own->level))
            continue;
        for (int kind = 0; kind < 24; kind += kind_step_of(own))
            large_products_with(own, &two, 1, kind < 12 ? DTYPE_F32 : own->dt, kind % 12, mnk);
        large_products_with(own, &one, 1, DTYPE_F32, 2, equal_pieces);
        large_products_with(own, &one, 1, own->dt, 10, equal_pieces);
    }
}

/* A run's device makes the products that doctor says, and those alone. */
static void a_run_has_the_products_that_are_named(void **state)
{
    struct device *d = open_device(NULL, 2);
    const struct gemm g = gemm_dense(
        (struct gemm){.dt = DTYPE_BF16, .dt_c = DTYPE_BF16, .m = 512, .n = 512, .k = 512});
    const size_t bytes = d->ops->gemm_scratch(d, &g);
    int is_own = d->packs_products;
    assert_int_equal(is_own, device_own_products() != NULL);
    d->packs_products = 0;
    assert_int_equal(d->ops->gemm_scratch(d, &g) != bytes, is_own);
    device_close(d);
}

/* Sums beside c, which one of 16 bits has, get 64 MiB of scratch at most. */
static void sums_beside_c_are_bounded(void **state)
{
    enum { SIDE = 4096, K = 8192, SUMS = 64 << 20 };
    need_packed();
    for (int i = 0; i < PACKED; i++) {
        if (!level_runs_here(packed[i].level) || packed[i].dt == DTYPE_F32)
            continue;
        struct device *d = open_packed(&packed[i], 2);
        struct gemm g = gemm_dense(
            (struct gemm){.dt = packed[i].dt, .dt_c = packed[i].dt, .m = SIDE, .n = SIDE, .k = K});
        size_t most = d->ops->gemm_scratch(d, &g);
        g.m++;
        assert_true(most > SUMS && d->ops->gemm_scratch(d, &g) < SUMS);
        device_close(d);
    }
}

/* The first rows and columns of a product by themselves. */
static void check_few_of(const struct packed *own, enum dtype dt_c, enum addend addend)
{
    enum { M = 420, N = 128, K = 16384 + 600, FEW_M = 390, FEW_N = 67 };
    static const int64_t mnk[] = {M, N, K};
    const size_t size = dtype_bytes(dt_c);
    struct error err = {0};
    struct device *d = open_packed(own, 2);
    struct problem all = make_problem(own->dt, dt_c, 2, addend, mnk, 0);
    struct problem few = all;
    make_c(&few, addend);
    few.g.m = FEW_M;
    few.g.n = FEW_N;
    struct tensor scratch = scratch_for(d, &all.g), less = scratch_for(d, &few.g);
    assert_int_equal(d->ops->gemm(d, &all.g, scratch.data, &err), 0);
    assert_int_equal(d->ops->gemm(d, &few.g, less.data, &err), 0);
    for (size_t row = 0; row < FEW_M; row++)
        assert_memory_equal((char *)few.c.data + row * N * size,
                            (char *)all.c.data + row * N * size, FEW_N * size);
    tensor_free(&scratch);
    tensor_free(&less);
    tensor_free(&few.c);
    free_problem(&all);
    device_close(d);
}

/* From packed operands an element comes to the same bits whatever rows and columns are beside it.
 */
static void elements_do_not_depend_on_others(void **state)
{
    need_packed();
    for (int i = 0; i < PACKED; i++)
        for (int addend = NONE; addend <= OTHER && level_runs_here(packed[i].level); addend++) {
            check_few_of(&packed[i], DTYPE_F32, (enum addend)addend);
            check_few_of(&packed[i], packed[i].dt, (enum addend)addend);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_product),
        cmocka_unit_test(few_rows_by_a_matrix),
        cmocka_unit_test(rows_do_not_depend_on_others),
        cmocka_unit_test(products_are_kept_apart),
        cmocka_unit_test(repeated_products_are_bitwise_equal),
        cmocka_unit_test(products_through_fp32_blocks),
        cmocka_unit_test(large_products),
        cmocka_unit_test(sums_longer_than_a_piece),
        cmocka_unit_test(a_run_has_the_products_that_are_named),
        cmocka_unit_test(sums_beside_c_are_bounded),
        cmocka_unit_test(elements_do_not_depend_on_others),
        cmocka_unit_test(fp16_products_are_rounded_once),
        cmocka_unit_test(nothing_times_something_is_nothing),
    };
    return cmocka_run_group_tests_name("ops gemm", tests, NULL, NULL);
}
