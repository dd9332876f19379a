/* experts_gemm.c - the products of all experts, each of its own rows with its own matrix.
 *
 * Where the level has own kernels for products of this type, they make all of them.  Experts are
 * sorted by their number of rows.  Those at the front whose product takes more than a thread's
 * share of the time are made one by one by all threads; of the others each thread takes one at a
 * time, the largest first, so that no thread waits for others and the last ones to end are small:
 *
 *   rows 90 | 30 25 20 15 10 8 2,  2 threads        thread 0   90 90 | 30    15  10   2
 *                                                   thread 1   90 90 | 25  20  8
 *
 * Where an expert's product is made makes no difference to its bits.
 *
 * Else the library makes the products, expert by expert.  It compiles each size that it is given
 * and keeps it: as the numbers of rows are others at every call, it is given few sizes.  Rows are
 * cut into parts whose sizes are powers of two, and what is left is copied and filled up with
 * zeros:
 *
 *   717 rows   |------- 512 -------|-- 128 --|- 64 -| 13 and 3 of zeros |
 *
 * In weight_grad these are the rows that are summed over; parts after the first add to it.
 */
#include <omp.h>
#include <stdlib.h>

#include "device/cpu/gemm.h"
#include "device/cpu/gemm_own.h"

enum {
    MOST_ROWS = 1024, /* of a product by the library, */
    COPIED_ROWS = 64, /* at most where they are copied, */
    LEAST_ROWS = 16,  /* and at least */
};

struct operands {
    void *c;
    const void *a, *b;
    const int32_t *first;
};

/* The product of `count` slots of an expert; pointers are not set. */
static struct gemm size_of(const struct experts_gemm *g, int64_t count)
{
    struct gemm p = {.dt = g->dt, .dt_c = g->dt, .m = count};
    if (g->pass == EXPERTS_WEIGHT_GRAD) {
        p.dt_c = DTYPE_F32;
        p.trans_a = 1;
        p.m = g->out;
        p.n = g->in;
        p.k = count;
    } else {
        p.trans_b = g->pass == EXPERTS_FORWARD;
        p.n = p.trans_b ? g->out : g->in;
        p.k = p.trans_b ? g->in : g->out;
    }
    return gemm_dense(p);
}

/* Bytes that a slot has in a, and in the other operand that has slots: c, or b in weight_grad. */
static int64_t first_bytes(const struct experts_gemm *g)
{
    return (g->pass == EXPERTS_FORWARD ? g->in : g->out) * (int64_t)dtype_bytes(g->dt);
}

static int64_t second_bytes(const struct experts_gemm *g)
{
    return (g->pass == EXPERTS_FORWARD ? g->out : g->in) * (int64_t)dtype_bytes(g->dt);
}

/* The product of slots [begin, end) of an expert. */
static struct gemm product_of(const struct experts_gemm *g, const struct operands *o, int64_t e,
                              int64_t begin, int64_t end)
{
    const int64_t matrix = e * g->out * g->in, second = begin * second_bytes(g);
    const int is_grad = g->pass == EXPERTS_WEIGHT_GRAD;
    struct gemm p = size_of(g, end - begin);
    p.a = (const char *)o->a + begin * first_bytes(g);
    p.b = (const char *)o->b + (is_grad ? second : matrix * (int64_t)dtype_bytes(g->dt));
    p.c = (char *)o->c + (is_grad ? matrix * (int64_t)sizeof(float) : second);
    p.addend = is_grad && (g->accumulate || begin > o->first[e]) ? p.c : NULL;
    return p;
}

/* Write what there is of an expert without rows. */
static void clear_gradient(struct device *d, const struct experts_gemm *g, void *c)
{
    if (g->pass == EXPERTS_WEIGHT_GRAD && !g->accumulate)
        CPU(fill_zero)(d, c, (size_t)(g->out * g->in) * sizeof(float));
}

/* ---- by the level's own kernels ---- */

/* Does the level make all of these products itself? */
static int is_own(const struct device *d, const struct experts_gemm *g)
{
    const struct gemm most = size_of(g, g->slots);
    return d->packs_products && CPU(gemm_packed_takes)(&most);
}

static void multiply_own(struct device *d, const struct experts_gemm *g, const struct operands *o,
                         int64_t e, void *scratch)
{
    const struct gemm p = product_of(g, o, e, o->first[e], o->first[e + 1]);
    if (o->first[e] == o->first[e + 1])
        clear_gradient(d, g, p.c);
    else if (CPU(gemm_has_few_rows)(&p))
        CPU(gemm_of_few_rows)(d, &p, scratch);
    else
        CPU(gemm_packed)(d, &p, scratch);
}

struct expert {
    int32_t rows, number;
};

static int has_fewer_rows(const void *a, const void *b)
{
    const struct expert *x = a, *y = b;
    if (x->rows != y->rows)
        return x->rows < y->rows ? 1 : -1;
    return x->number > y->number ? 1 : -1;
}

/* Sort the experts by falling number of rows.  Returns how many of them all threads make together:
 * those that alone take a thread longer than its share, or all, where the others are too few to
 * keep all threads busy. */
static int64_t sort_experts(struct expert *sorted, const struct experts_gemm *g,
                            const int32_t *first, int threads)
{
    int64_t together = 0, with_rows = 0;
    for (int64_t e = 0; e < g->experts; e++) {
        sorted[e] = (struct expert){first[e + 1] - first[e], (int32_t)e};
        with_rows += sorted[e].rows > 0;
    }
    qsort(sorted, (size_t)g->experts, sizeof *sorted, has_fewer_rows);
    while (together < with_rows && sorted[together].rows * (int64_t)threads > g->slots)
        together++;
    return with_rows - together < 2 * threads ? with_rows : together;
}

/* Scratch of a product by so many threads. */
static size_t own_bytes(const struct experts_gemm *g, int threads)
{
    const struct gemm most = size_of(g, g->slots);
    struct gemm few = size_of(g, 1);
    size_t bytes = CPU(gemm_packed_most_scratch)(&most, threads);
    for (; few.m <= g->slots && CPU(gemm_has_few_rows)(&few); few.m++)
        bytes = max_bytes(bytes, CPU(gemm_few_rows_scratch)(&few));
    return round_up_bytes(bytes, 64);
}

static void multiply_all_own(struct device *d, const struct experts_gemm *g,
                             const struct operands *o, void *scratch)
{
    const int threads = cpu_threads(d, g->experts * g->out * g->in * 2);
    const size_t each = own_bytes(g, 1);
    struct expert sorted[ROUTE_MOST_EXPERTS];
    int64_t together = sort_experts(sorted, g, o->first, threads);
    for (int64_t i = 0; i < together; i++)
        multiply_own(d, g, o, sorted[i].number, scratch);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t i = together; i < g->experts; i++)
        multiply_own(d, g, o, sorted[i].number,
                     (char *)scratch + (size_t)omp_get_thread_num() * each);
}

/* ---- by the library ---- */

/* Rows of the library's next product, of which `left` are left. */
static int64_t part_rows(int64_t left)
{
    int64_t rows = LEAST_ROWS;
    while (left <= COPIED_ROWS ? rows < left : 2 * rows <= left && rows < MOST_ROWS)
        rows *= 2;
    return rows;
}

static size_t copy_bytes(int64_t row_bytes)
{
    return round_up_bytes((size_t)(COPIED_ROWS * row_bytes), 64);
}

/* Copy some rows, and zeros up to `all` of them. */
static void copy_rows(void *to, const void *from, int64_t rows, int64_t all, int64_t row_bytes)
{
    memcpy(to, from, (size_t)(rows * row_bytes));
    memset((char *)to + rows * row_bytes, 0, (size_t)((all - rows) * row_bytes));
}

/* Multiply the `rows` rows of p as if they were `all`. */
static int multiply_copies(struct device *d, const struct experts_gemm *g, const struct gemm *p,
                           int64_t rows, int64_t all, void *scratch, struct error *err)
{
    char *first = scratch, *second = first + copy_bytes(first_bytes(g));
    void *rest = second + copy_bytes(second_bytes(g));
    struct gemm q = size_of(g, all);
    copy_rows(first, p->a, rows, all, first_bytes(g));
    q.a = first;
    q.addend = p->addend;
    if (g->pass == EXPERTS_WEIGHT_GRAD) {
        copy_rows(second, p->b, rows, all, second_bytes(g));
        q.b = second;
        q.c = p->c;
        return gemm_library(d, &q, rest, err);
    }
    q.b = p->b;
    q.c = second;
    if (gemm_library(d, &q, rest, err))
        return -1;
    memcpy(p->c, second, (size_t)(rows * second_bytes(g)));
    return 0;
}

static int multiply_parts(struct device *d, const struct experts_gemm *g, const struct operands *o,
                          int64_t e, void *scratch, struct error *err)
{
    const int64_t end = o->first[e + 1];
    for (int64_t begin = o->first[e], rows; begin < end; begin += rows) {
        rows = part_rows(end - begin);
        const struct gemm p = product_of(g, o, e, begin, min_i64(begin + rows, end));
        int rc = begin + rows <= end ? gemm_library(d, &p, scratch, err)
                                     : multiply_copies(d, g, &p, end - begin, rows, scratch, err);
        if (rc)
            return -1;
    }
    return 0;
}

static int multiply_by_library(struct device *d, const struct experts_gemm *g,
                               const struct operands *o, void *scratch, struct error *err)
{
    for (int64_t e = 0; e < g->experts; e++) {
        const struct gemm p = product_of(g, o, e, o->first[e], o->first[e + 1]);
        if (o->first[e] == o->first[e + 1])
            clear_gradient(d, g, p.c);
        else if (CPU(gemm_has_few_rows)(&p))
            CPU(gemm_of_few_rows)(d, &p, scratch);
        else if (multiply_parts(d, g, o, e, scratch, err))
            return -1;
    }
    return 0;
}

static size_t library_bytes(struct device *d, const struct experts_gemm *g)
{
    const size_t copies = copy_bytes(first_bytes(g)) + copy_bytes(second_bytes(g));
    struct gemm few = size_of(g, 1);
    size_t most = 0;
    for (int64_t rows = LEAST_ROWS, last = 0; !last; rows *= 2) {
        const struct gemm p = size_of(g, rows);
        size_t bytes = gemm_library_scratch(d, &p);
        most = max_bytes(most, bytes);
        last = rows == MOST_ROWS || rows >= g->slots;
    }
    for (most += copies; CPU(gemm_has_few_rows)(&few); few.m++)
        most = max_bytes(most, CPU(gemm_few_rows_scratch)(&few));
    return most;
}

int CPU(experts_gemm)(struct device *d, const struct experts_gemm *g, void *c, const void *a,
                      const void *b, const int32_t *first, void *scratch, struct error *err)
{
    const struct operands o = {c, a, b, first};
    if (!is_own(d, g))
        return multiply_by_library(d, g, &o, scratch, err);
    multiply_all_own(d, g, &o, scratch);
    return 0;
}

size_t CPU(experts_gemm_scratch)(struct device *d, const struct experts_gemm *g)
{
    if (!is_own(d, g))
        return library_bytes(d, g);
    return max_bytes(own_bytes(g, d->threads), (size_t)d->threads * own_bytes(g, 1));
}
