/* experts.c - what a router chooses, and the rows that go to experts and come back.
 *
 * Rows choose their experts one by one.  Their slots are then found by a counting sort, whose parts
 * depend on the number of rows alone: each part counts its slots at each expert, the counts of all
 * parts before it say where its own begin, and it numbers them from there on in the order of rows.
 *
 *   counts of parts        A B C          begin at     A  B  C
 *   rows 0 1 of 4          2 1 1                       0  3  5
 *   rows 2 3               1 1 2                       2  4  6
 *
 * Between both steps a row's weights are kept where its slots will be written.
 *
 * The gradient that evens the load out needs the load of a row's whole sequence.  A thread takes a
 * block of a sequence's rows and counts all of the sequence's slots for it, so that no thread waits
 * for another; a long sequence has long blocks, as otherwise most of the time would go into this.
 */
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

enum {
    MOST_PARTS = 16,  /* of the counting sort; its counts are on the stack */
    PART_ROWS = 64,   /* of a part at least */
    MOST_BLOCKS = 64, /* of a sequence in the gradient, */
    BLOCK_ROWS = 256, /* and rows of a block at least */
};

/* ---- choice ---- */

/* The order by which a row chooses: a NaN comes after all numbers. */
static int is_above(float a, float b)
{
    return a > b || (b != b && a == a);
}

/* Insert the numbers of the `chosen` largest logits into `expert`, by falling logit; of equal ones
 * the first comes first. */
static void choose(int32_t *expert, const float *logits, int64_t experts, int64_t chosen)
{
    int64_t count = 0;
    for (int64_t e = 0; e < experts; e++) {
        int64_t at = count;
        if (count == chosen && !is_above(logits[e], logits[expert[count - 1]]))
            continue;
        at = count < chosen ? count++ : count - 1;
        for (; at > 0 && is_above(logits[e], logits[expert[at - 1]]); at--)
            expert[at] = expert[at - 1];
        expert[at] = (int32_t)e;
    }
}

/* Logits of a row from e on; -infinity after the last. */
SIMD_INLINE vf get_logits(const float *logits, int64_t e, int64_t experts)
{
    vf v = vf_get_some(DTYPE_F32, logits, e, experts - e);
    vi is_there = vi_lanes() < (int32_t)min_i64(experts - e, CPU_LANES);
    return vf_select(is_there, v, vf_set(-INFINITY));
}

/* The largest number of a row; -infinity where all are NaN. */
static float top_of(const float *logits, int64_t experts)
{
    vf top = vf_set(-INFINITY);
    for (int64_t e = 0; e < experts; e += CPU_LANES)
        top = vf_max(get_logits(logits, e, experts), top);
    return vf_top(top);
}

/* The sum of e^(logit - top). */
static float sum_of(const float *logits, int64_t experts, float top)
{
    vf sum = {0};
    for (int64_t e = 0; e < experts; e += CPU_LANES)
        sum += vf_exp(get_logits(logits, e, experts) - vf_set(top));
    return vf_sum(sum);
}

/* share[j] = e^(logit - top) of the row's experts; returns what they are divided by. */
static float shares_of(const struct route *r, float *share, const float *logits,
                       const int32_t *expert)
{
    float top = top_of(logits, r->experts), all = sum_of(logits, r->experts, top), sum = 0;
    for (int64_t j = 0; j < r->chosen; j++) {
        vf v = vf_exp(vf_set(logits[expert[j]] - top));
        share[j] = v[0];
        sum += share[j];
    }
    return r->normed && all == all ? sum : all;
}

static void choose_row(const struct route *r, const struct routes *to, const float *logits,
                       int64_t row)
{
    float share[ROUTE_MOST_CHOSEN], sum;
    int32_t *expert = (int32_t *)to->expert + row * r->chosen;
    float *kept = (float *)to->slot + row * r->chosen;
    logits += row * r->experts;
    choose(expert, logits, r->experts, r->chosen);
    sum = shares_of(r, share, logits, expert);
    for (int64_t j = 0; j < r->chosen; j++) {
        float weight = share[j] / sum;
        memcpy(kept + j, &weight, sizeof weight);
    }
}

/* ---- slots ---- */

static int64_t parts_of(int64_t rows)
{
    int64_t parts = ceil_div(rows, PART_ROWS);
    return parts < MOST_PARTS ? parts : MOST_PARTS;
}

static void count_part(const struct route *r, int32_t *count, const int32_t *expert, int64_t part)
{
    int64_t parts = parts_of(r->rows);
    memset(count, 0, (size_t)r->experts * sizeof *count);
    for (int64_t i = r->rows * part / parts * r->chosen;
         i < r->rows * (part + 1) / parts * r->chosen; i++)
        count[expert[i]]++;
}

/* Replace the parts' counts by where their slots begin. */
static void find_starts(const struct route *r, int32_t *first, int32_t *counts)
{
    int32_t at = 0;
    for (int64_t e = 0; e < r->experts; e++) {
        first[e] = at;
        for (int64_t part = 0; part < parts_of(r->rows); part++) {
            int32_t count = counts[part * r->experts + e];
            counts[part * r->experts + e] = at;
            at += count;
        }
    }
    first[r->experts] = at;
}

static void fill_part(const struct route *r, const struct routes *to, float *weights, int32_t *next,
                      int64_t part)
{
    int64_t parts = parts_of(r->rows);
    int32_t *slot = (int32_t *)to->slot, *row = (int32_t *)to->row;
    for (int64_t i = r->rows * part / parts * r->chosen;
         i < r->rows * (part + 1) / parts * r->chosen; i++) {
        int32_t s = next[to->expert[i]]++;
        memcpy(weights + s, slot + i, sizeof *weights);
        row[s] = (int32_t)(i / r->chosen);
        slot[i] = s;
    }
}

void CPU(route)(struct device *d, const struct route *r, float *weights, int32_t *routes,
                const float *logits)
{
    const struct routes to = routes_of(routes, r->rows, r->experts, r->chosen);
    const int threads = cpu_threads(d, r->rows * r->experts * 4);
    int32_t counts[MOST_PARTS * ROUTE_MOST_EXPERTS];
#pragma omp parallel for num_threads(threads)
    for (int64_t row = 0; row < r->rows; row++)
        choose_row(r, &to, logits, row);
#pragma omp parallel for num_threads(threads)
    for (int64_t part = 0; part < parts_of(r->rows); part++)
        count_part(r, counts + part * r->experts, to.expert, part);
    find_starts(r, routes, counts);
#pragma omp parallel for num_threads(threads)
    for (int64_t part = 0; part < parts_of(r->rows); part++)
        fill_part(r, &to, weights, counts + part * r->experts, part);
}

/* ---- gradient ---- */

static int row_counts(const struct route *r, int64_t row)
{
    return !r->targets || r->targets[row] >= 0;
}

/* load[e] = balance * loss_scale * experts * f_e of the sequence that begins at row `begin`. */
static void find_load(const struct route *r, float *load, const struct routes *from, int64_t begin,
                      double loss_scale)
{
    int64_t end = min_i64(begin + r->seq, r->rows), rows = 0;
    memset(load, 0, (size_t)r->experts * sizeof *load);
    for (int64_t row = begin; row < end; row++) {
        int counts = row_counts(r, row);
        rows += counts;
        for (int64_t j = 0; counts && j < r->chosen; j++)
            load[from->expert[row * r->chosen + j]]++;
    }
    double factor = rows ? (double)r->balance * loss_scale * (double)r->experts / (double)rows : 0;
    for (int64_t e = 0; e < r->experts; e++)
        load[e] = (float)(factor * (double)load[e]);
}

/* to[e] += p_e (dp_e - sum p dp) of all experts. */
static void softmax_gradient(float *to, const float *p, const float *dp, int64_t experts)
{
    vf sum = {0};
    for (int64_t e = 0; e < experts; e += CPU_LANES)
        sum +=
            vf_get_some(DTYPE_F32, p, e, experts - e) * vf_get_some(DTYPE_F32, dp, e, experts - e);
    float mean = vf_sum(sum);
    for (int64_t e = 0; e < experts; e += CPU_LANES) {
        vf v = vf_get_some(DTYPE_F32, dp, e, experts - e) - vf_set(mean);
        v = v * vf_get_some(DTYPE_F32, p, e, experts - e) +
            vf_get_some(DTYPE_F32, to, e, experts - e);
        vf_put_some(DTYPE_F32, to, e, experts - e, v);
    }
}

/* p = softmax(logits) */
static void softmax(float *p, const float *logits, int64_t experts)
{
    float top = top_of(logits, experts), sum = sum_of(logits, experts, top);
    for (int64_t e = 0; e < experts; e += CPU_LANES) {
        vf v = vf_exp(vf_get_some(DTYPE_F32, logits, e, experts - e) - vf_set(top));
        vf_put_some(DTYPE_F32, p, e, experts - e, v / vf_set(sum));
    }
}

/* Where weights are divided by their sum, they are the softmax of the chosen logits alone. */
static void normed_gradient(const struct route *r, float *to, const float *dweights,
                            const float *logits, const int32_t *slot, const int32_t *expert)
{
    float share[ROUTE_MOST_CHOSEN], all = shares_of(r, share, logits, expert), sum = 0;
    for (int64_t j = 0; j < r->chosen; j++)
        sum += share[j] / all * dweights[slot[j]];
    for (int64_t j = 0; j < r->chosen; j++)
        to[expert[j]] = share[j] / all * (dweights[slot[j]] - sum);
}

static void row_gradient(const struct route *r, float *to, const float *dweights,
                         const float *logits, const struct routes *from, const float *load,
                         int64_t row)
{
    float p[ROUTE_MOST_EXPERTS], dp[ROUTE_MOST_EXPERTS];
    const int32_t *slot = from->slot + row * r->chosen, *expert = from->expert + row * r->chosen;
    memset(to, 0, (size_t)r->experts * sizeof *to);
    if (r->normed)
        normed_gradient(r, to, dweights, logits, slot, expert);
    if (r->normed && !load)
        return;
    if (load)
        memcpy(dp, load, (size_t)r->experts * sizeof *dp);
    else
        memset(dp, 0, (size_t)r->experts * sizeof *dp);
    for (int64_t j = 0; j < r->chosen && !r->normed; j++)
        dp[expert[j]] += dweights[slot[j]];
    softmax(p, logits, r->experts);
    softmax_gradient(to, p, dp, r->experts);
}

SIMD_INLINE void round_row(enum dtype dt, void *to, const float *from, int64_t first, int64_t elems)
{
    for (int64_t i = 0; i < elems; i += CPU_LANES)
        vf_put_some(dt, to, first + i, elems - i, vf_get_some(DTYPE_F32, from, i, elems - i));
}

void CPU(route_backward)(struct device *d, const struct route *r, void *dlogits,
                         const float *dweights, const float *logits, const int32_t *routes,
                         const double *loss_scale)
{
    const struct routes from = routes_of(routes, r->rows, r->experts, r->chosen);
    const int64_t block = max_i64(BLOCK_ROWS, ceil_div(r->seq, MOST_BLOCKS));
    const int64_t blocks = ceil_div(r->seq, block), sequences = ceil_div(r->rows, r->seq);
#pragma omp parallel for num_threads(cpu_threads(d, r->rows * r->experts * 4))
    for (int64_t t = 0; t < sequences * blocks; t++) {
        int64_t begin = t / blocks * r->seq, row = begin + t % blocks * block;
        int64_t end = min_i64(min_i64(row + block, begin + r->seq), r->rows);
        float load[ROUTE_MOST_EXPERTS], to[ROUTE_MOST_EXPERTS];
        if (r->balance != 0)
            find_load(r, load, &from, begin, loss_scale ? *loss_scale : 1);
        for (; row < end; row++) {
            row_gradient(r, to, dweights, logits + row * r->experts, &from,
                         r->balance != 0 && row_counts(r, row) ? load : NULL, row);
            WITH_DTYPE(round_row, r->dt, dlogits, to, row * r->experts, r->experts);
        }
    }
}

void CPU(route_load)(struct device *d, const struct route *r, double *load, const int32_t *routes)
{
    const struct routes from = routes_of(routes, r->rows, r->experts, r->chosen);
#pragma omp parallel for num_threads(cpu_threads(d, r->rows * r->chosen * 4))
    for (int64_t e = 0; e < r->experts; e++) {
        int64_t count = 0;
        for (int64_t s = from.first[e]; s < from.first[e + 1]; s++)
            count += row_counts(r, from.row[s]);
        load[e] += (double)count;
    }
}

/* ---- rows ---- */

void CPU(dispatch)(struct device *d, const struct experts_rows *r, void *y, const void *x,
                   const int32_t *routes)
{
    const struct routes by = routes_of(routes, r->rows, r->experts, r->chosen);
    const int64_t slots = r->rows * r->chosen, bytes = r->columns * (int64_t)dtype_bytes(r->dt);
#pragma omp parallel for num_threads(cpu_threads(d, slots *bytes))
    for (int64_t s = 0; s < slots; s++)
        memcpy((char *)y + s * bytes, (const char *)x + by.row[s] * bytes, (size_t)bytes);
}

/* Combine a row; the slots of the next one, which the processor does not foresee, are prefetched.
 */
SIMD_INLINE void combine_row_to(enum dtype dt, enum dtype dt_sum, const struct experts_rows *r,
                                void *y, const void *x, const void *addend, const int32_t *slots,
                                int64_t row)
{
    const int32_t *slot = slots + row * r->chosen;
    const int32_t *next = row + 1 < r->rows ? slot + r->chosen : slot;
    for (int64_t i = 0; i < r->columns; i += CPU_LANES) {
        vf sum = {0};
        if (addend)
            sum = vf_get_some(dt_sum, addend, row * r->columns + i, r->columns - i);
        for (int64_t j = 0; j < r->chosen; j++) {
            vf_prefetch(dt, x, next[j] * r->columns + i);
            sum += vf_get_some(dt, x, slot[j] * r->columns + i, r->columns - i);
        }
        vf_put_some(dt_sum, y, row * r->columns + i, r->columns - i, sum);
    }
}

SIMD_INLINE void combine_row(enum dtype dt, const struct experts_rows *r, void *y, const void *x,
                             const void *addend, const int32_t *slots, int64_t row)
{
    if (r->dt_sum == DTYPE_F32)
        combine_row_to(dt, DTYPE_F32, r, y, x, addend, slots, row);
    else
        combine_row_to(dt, dt, r, y, x, addend, slots, row);
}

void CPU(combine)(struct device *d, const struct experts_rows *r, void *y, const void *x,
                  const void *addend, const int32_t *routes)
{
    const struct routes by = routes_of(routes, r->rows, r->experts, r->chosen);
#pragma omp parallel for num_threads(cpu_threads(d, r->rows * r->columns * 4))
    for (int64_t row = 0; row < r->rows; row++)
        WITH_DTYPE(combine_row, r->dt, r, y, x, addend, by.slot, row);
}
