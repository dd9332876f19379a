/* gemm_rows.c - products of a few rows with a matrix, as generation has them: y = x w^T.
 *
 * They take at least the time to read w once, so everything else has to happen during that time.  A
 * thread takes some rows of w.  A block has R rows of x and C rows of w: its sums are vectors in
 * registers, along k, and are added up across lanes at the end:
 *
 *   sum[r][c] += x[r][k..] w[c][k..]          y[r][c] = sum of sum[r][c] (+ addend)
 *
 * Rows of x are first copied to scratch, vector by vector, in the order in which these sums read
 * them:
 *
 *   x   [m / R] of [k / vector] of [R] vectors
 *
 * Rows of w are prefetched: a block reads C of them at once, each only for a short time, and the
 * processor's own prefetching does not foresee the next block.
 *
 * An element of y is computed by the same steps whatever the number of rows, so that a text does
 * not depend on what is generated beside it.
 */
#include "base/round.h"
#include "device/cpu/gemm_own.h"
#include "device/cpu/simd.h"

/* Registers are 32 where vectors have 16 lanes, else 16. */
enum { WIDE = CPU_LANES == 16, SUMS = WIDE ? 24 : 8, MOST_C = 8 };
enum {
    MOST_ROWS = 16,        /* of x: with more of them the library is as fast */
    WORTH_ELEMS = 1 << 14, /* of w, at least */
    COLUMNS = 48,          /* of y in a thread's task: a multiple of every C and of every vector */
    PART_BYTES = 16384,    /* of R rows of x: a third of the first cache */
    AHEAD_BYTES = 8192     /* of w that are fetched before they are used, at least */
};

int CPU(gemm_has_few_rows)(const struct gemm *g)
{
    return g->m <= MOST_ROWS && !g->trans_a && g->trans_b && g->n * g->k >= WORTH_ELEMS;
}

/* Elements that a vector takes of a row: of bf16 pairs, whose products are added at once. */
SIMD_INLINE int64_t step_of(const enum dtype dt)
{
    return dt == DTYPE_BF16 ? 2 * CPU_LANES : CPU_LANES;
}

/* R of a product with m rows. */
static int64_t rows_at_once(int64_t m)
{
    return m == 1 ? 1 : m == 2 ? 2 : m <= 4 ? 4 : 8;
}

/* Elements of x in scratch for R rows. */
static int64_t packed_elems(const struct gemm *g)
{
    return rows_at_once(g->m) * round_up(g->k, step_of(g->dt));
}

size_t CPU(gemm_few_rows_scratch)(const struct gemm *g)
{
    int64_t blocks = ceil_div(g->m, rows_at_once(g->m));
    return (size_t)(blocks * packed_elems(g)) * dtype_bytes(g->dt);
}

/* Copy x to scratch; rows that are not there, and elements after the last, become 0. */
static void pack_rows(const struct gemm *g, char *to)
{
    size_t bytes = dtype_bytes(g->dt), whole = (size_t)step_of(g->dt) * bytes;
    int64_t R = rows_at_once(g->m);
    for (int64_t first = 0; first < g->m; first += R)
        for (int64_t k = 0; k < g->k; k += step_of(g->dt))
            for (int64_t row = first; row < first + R; row++, to += whole) {
                size_t some = row < g->m ? (size_t)min_i64(step_of(g->dt), g->k - k) * bytes : 0;
                const char *from = (const char *)g->a + (size_t)(row * g->lda + k) * bytes;
                memcpy(to, from, some);
                memset(to + some, 0, whole - some);
            }
}

/* A vector of at most `left` elements from index on, zeros after them. */
SIMD_INLINE vf get_vector(const enum dtype dt, const void *base, int64_t index, int64_t left)
{
    vf v = {0};
    if (dt != DTYPE_BF16)
        return vf_get_some(dt, base, index, left);
    if (left >= 2 * CPU_LANES)
        memcpy(&v, (const bf16 *)base + index, sizeof v);
    else
        memcpy(&v, (const bf16 *)base + index, (size_t)left * sizeof(bf16));
    return v;
}

SIMD_INLINE vf add_product(const enum dtype dt, vf sum, vf a, vf b)
{
    return dt == DTYPE_BF16 ? vf_dot_bf16(sum, (vb)a, (vb)b) : a * b + sum;
}

/* In each block of 2 half lanes put the sum of a's two halves, and after it that of b's. */
SIMD_INLINE vf add_halves(vf a, vf b, const int half)
{
    const vi lanes = vi_lanes();
    vi first = lanes + (((lanes & half) != 0) & (CPU_LANES - half));
    return simd_shuffle_two(a, b, first) + simd_shuffle_two(a, b, first + half);
}

/* out[i] = vf_sum(sum[i]) of 8 vectors, to the same bits.  Where lanes allow it vectors are halved
 * and paired in each round, and end in one, in whose lanes the sums lie by their reversed bits. */
SIMD_INLINE void add_across(const vf *sum, float *out)
{
    const int half = CPU_LANES / 2;
    float lane[CPU_LANES];
    if (CPU_LANES < 8) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            out[i] = vf_sum(sum[i]);
        return;
    }
    vf a = add_halves(sum[0], sum[1], half), b = add_halves(sum[2], sum[3], half);
    vf c = add_halves(sum[4], sum[5], half), d = add_halves(sum[6], sum[7], half);
    vf all = add_halves(add_halves(a, b, half / 2), add_halves(c, d, half / 2), half / 4);
#pragma GCC unroll 4
    for (int left = half / 8; left > 0; left /= 2)
        all += simd_shuffle(all, vi_lanes() ^ left);
    vf_store(lane, all);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        out[i] = lane[(i & 1) * half + (i >> 1 & 1) * half / 2 + (i >> 2 & 1) * half / 4];
}

/* Add the products of elements [k, end) of R packed rows of x and C rows of w, which begin at w[c],
 * to the sums that `kept` has from earlier elements.  The sums go to kept again or, after the last
 * elements, across lanes to out.  next: the element of w from which it prefetches meanwhile. */
SIMD_INLINE void block(const enum dtype dt, const int R, const int C, const struct gemm *g,
                       const void *x, const int64_t w[MOST_C], int64_t next, int64_t k, int64_t end,
                       vf *kept, float *out)
{
    const int64_t step = step_of(dt), bytes = (int64_t)dtype_bytes(dt);
    const char *ahead = (const char *)g->b + next * bytes;
    vf sum[SUMS];
#pragma GCC unroll 24
    for (int i = 0; i < R * C; i++)
        sum[i] = k ? kept[i] : (vf){0};
    for (; k < end; k += step, ahead += sizeof(vf)) {
        vf y[MOST_C];
#pragma GCC unroll 8
        for (int c = 0; c < C; c++) {
            __builtin_prefetch(ahead + c * g->ldb * bytes);
            y[c] = get_vector(dt, g->b, w[c] + k, end - k);
        }
#pragma GCC unroll 24
        for (int i = 0; i < R * C; i++)
            sum[i] =
                add_product(dt, sum[i], get_vector(dt, x, k * R + i / C * step, step), y[i % C]);
    }
    if (end < g->k) {
#pragma GCC unroll 24
        for (int i = 0; i < R * C; i++)
            kept[i] = sum[i];
    } else {
#pragma GCC unroll 4
        for (int i = 0; i < R * C; i += 8)
            add_across(sum + i, out + i);
    }
}

/* Write columns [col, end) of all rows of the result: the sums in y, with the addend. */
SIMD_INLINE void put_rows(const enum dtype dt, const struct gemm *g, const float *y, int64_t col,
                          int64_t end)
{
    for (int64_t row = 0; row < g->m; row++, y += COLUMNS)
        for (int64_t at = col; at < end; at += CPU_LANES) {
            int64_t to = row * g->ldc + at;
            vf v = vf_load(y + at - col);
            if (g->addend)
                v += vf_get_some(dt, g->addend, to, end - at);
            vf_put_some(dt, g->c, to, end - at, v);
        }
}

/* The element of w with which block t begins, of the columns [col, end) or of those after them. */
static int64_t find_next(const struct gemm *g, int64_t t, int64_t groups, int64_t part, int C,
                         int64_t col, int64_t end)
{
    int64_t blocks = groups * ceil_div(g->k, part);
    if (t >= blocks)
        return (end + (t - blocks) % groups * C) * g->ldb;
    return (col + t % groups * C) * g->ldb + t / groups * part;
}

/* Multiply all rows of x, R at a time, by columns [col, end) of y, C at a time; long rows in parts,
 * so that those of x stay in the first cache. */
SIMD_INLINE void columns(const enum dtype dt, const int R, const int C, const struct gemm *g,
                         const char *x, int64_t col, int64_t end)
{
    const int64_t bytes = (int64_t)dtype_bytes(dt), rows_bytes = packed_elems(g) * bytes;
    const int64_t groups = ceil_div(end - col, C), part = min_i64(g->k, PART_BYTES / (R * bytes));
    const int64_t early = AHEAD_BYTES / (C * part * bytes) + 1;
    float y[MOST_ROWS * COLUMNS], out[SUMS];
    vf sums[MOST_ROWS * COLUMNS];
    for (int64_t t = 0; t < groups * ceil_div(g->k, part); t++) {
        int64_t k = t / groups * part, first = t % groups * C, w[MOST_C];
        int64_t next = find_next(g, t + early, groups, part, C, col, end);
#pragma GCC unroll 8
        for (int c = 0; c < C; c++)
            w[c] = min_i64(col + first + c, end - 1) * g->ldb;
        for (int64_t row = 0; row < g->m; row += R) {
            block(dt, R, C, g, x + row / R * rows_bytes, w, next, k, min_i64(k + part, g->k),
                  sums + row * COLUMNS + first * R, out);
            for (int i = 0; i < R * C && k + part >= g->k; i++)
                if (first + i % C < end - col)
                    y[(row + i / C) * COLUMNS + first + i % C] = out[i];
        }
    }
    WITH_DTYPE(put_rows, g->dt_c, g, y, col, end);
}

SIMD_INLINE void columns_of(const enum dtype dt, const struct gemm *g, const char *x, int64_t col,
                            int64_t end)
{
    switch (rows_at_once(g->m)) {
    case 1: columns(dt, 1, 8, g, x, col, end); break;
    case 2: columns(dt, 2, 4, g, x, col, end); break;
    case 4: columns(dt, 4, WIDE ? 6 : 2, g, x, col, end); break;
    default: columns(dt, 8, WIDE ? 3 : 1, g, x, col, end);
    }
}

void CPU(gemm_of_few_rows)(struct device *d, const struct gemm *g, void *scratch)
{
    int64_t bytes = g->n * g->k * (int64_t)dtype_bytes(g->dt);
    pack_rows(g, scratch);
#pragma omp parallel for num_threads(cpu_threads(d, bytes)) schedule(static)
    for (int64_t col = 0; col < g->n; col += COLUMNS)
        WITH_DTYPE(columns_of, g->dt, g, scratch, col, min_i64(col + COLUMNS, g->n));
}
