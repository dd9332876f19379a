/* gemm_tiles.c - large products of bf16 in AMX tiles: c = op(a) op(b) (+ addend).
 *
 * Goto's scheme (Goto and van de Geijn 2008): operands are packed into blocks that fit the caches,
 * and the innermost loops read those alone.
 *
 *   for columns jc, N of them                  all threads pack op(b)[:, jc] into panels of 32
 *     for rows ic, M of them                   a thread's task
 *       for kc, K of them                      it packs op(a)[ic, kc]
 *         for groups of panels, for 32 rows, for panels:  2 x 2 tiles of sums (tile.h)
 *
 * What is packed are tiles of 1 KiB: of op(a) 16 rows of 32 elements along k, of op(b) 16 pairs
 * along k of 16 columns, a pair being a unit (unit.h).  In memory an operand's elements along k are
 * side by side ("along") or a row apart ("across").  What lies as the tile wants it is copied,
 * pairs of two rows are interleaved, and what remains is transposed in registers:
 *
 *              along k                  across k
 *   op(a)      copy                     interleave, transpose
 *   op(b)      transpose                interleave
 *
 * Sums over more than K elements stay in fp32 in the thread's scratch between one K and the next. A
 * long k is done in pieces, each a product that adds to c, or where c has 16 bits to sums in fp32
 * beside it.  The order of an element's sum depends on k and on whether there is an addend, with
 * which a sum in fp32 begins; so its bits depend neither on threads nor on the other elements.
 */
#include <omp.h>

#include "device/cpu/gemm_own.h"
#include "device/cpu/run_queue.h"
#include "device/cpu/tile.h"

enum {
    SIDE = 32,              /* rows and columns of a block of sums */
    TILE_ELEMS = 16 * 32,   /* bf16 of a tile */
    MOST_M = 256,           /* M: with K, a part of the second cache; */
    MOST_M_ACROSS = 512,    /* where op(a) lies across k: its rows are read along M */
    ENOUGH_N = 1024,        /* N: packing op(a) once for so many takes an eighth of the time */
    GROUP = 16,             /* panels of op(b) that stay in the second cache */
    MOST_K = 512,           /* K: op(a)'s rows of a block stay in the first cache */
    PANELS_BYTES = 2 << 20, /* of op(b)[:, jc]; for ENOUGH_N columns more, up to */
    MOST_BYTES = 8 << 20,
    LEAST_SIDE = 64,      /* of m, n and k: smaller products are the library's */
    PIECE_K = 4096,       /* of k in a piece: ENOUGH_N columns of it are MOST_BYTES */
    MOST_SUMS = 64 << 20, /* bytes of sums beside c; a product with more is done in one piece, */
    LONGEST_K = 16384,    /* up to this k, and beyond by the library */
};

/* An operand in memory: element (i, k), i being a row of op(a) or a column of op(b). */
struct source {
    const bf16 *base;
    int64_t ld, count, k; /* i < count */
    int is_along;         /* 1: (i, k) is at i * ld + k; 0: at k * ld + i */
};

/* A product and the sizes of its blocks. */
struct blocking {
    const struct gemm *g;
    struct source a, b;
    int64_t k;                    /* rounded up to whole tiles */
    int64_t parts;                /* of k, each of about K */
    int64_t rows, columns, depth; /* M, N, and the longest K */
    int64_t splits; /* of the columns of a task's rows: with few rows all threads have some */
    bf16 *panels;   /* of op(b): [columns / 32][k / 32][2] tiles */
};

/* What a thread has for itself. */
struct thread_scratch {
    bf16 *block; /* of op(a): [rows / 32][K / 32][2] tiles */
    float *sums; /* [SIDE][SIDE] of the block at hand, or of all blocks of the task */
};

/* Is k done in pieces?  Their sums need memory in fp32. */
static int has_pieces(const struct gemm *g)
{
    return g->k > PIECE_K &&
           (g->dt_c == DTYPE_F32 || g->m * g->n <= MOST_SUMS / (int64_t)sizeof(float));
}

/* Where part p of k begins; all are about as long, and but for the last of whole tiles. */
static int64_t part_start(int64_t k, int64_t parts, int64_t p)
{
    int64_t start = ceil_div(k, 32) * p / parts * 32;
    return min_i64(start, k);
}

static int64_t pieces_of(const struct gemm *g)
{
    return has_pieces(g) ? ceil_div(g->k, PIECE_K) : 1;
}

/* Bytes of the sums beside c. */
static size_t all_sums_bytes(const struct gemm *g)
{
    if (g->dt_c == DTYPE_F32 || !has_pieces(g))
        return 0;
    return round_up_bytes((size_t)(g->m * g->n) * sizeof(float), 64);
}

/* The same product with its sums there, and without the addend. */
static struct gemm product_of_sums(const struct gemm *g, float *sums)
{
    struct gemm p = *g;
    p.dt_c = DTYPE_F32;
    p.c = sums;
    p.ldc = g->n;
    p.addend = NULL;
    return p;
}

int CPU(gemm_has_tiles)(const struct gemm *g)
{
    return HAS_TILES && g->dt == DTYPE_BF16 && g->m >= LEAST_SIDE && g->n >= LEAST_SIDE &&
           g->k >= LEAST_SIDE && (has_pieces(g) || g->k <= LONGEST_K);
}

/* Are there several K? */
static int keeps_sums(const struct blocking *by)
{
    return by->parts > 1;
}

static struct blocking blocking_of(const struct gemm *g, int threads)
{
    struct blocking by = {.g = g,
                          .a = {(const bf16 *)g->a, g->lda, g->m, g->k, !g->trans_a},
                          .b = {(const bf16 *)g->b, g->ldb, g->n, g->k, g->trans_b},
                          .k = round_up(g->k, 32)};
    const int64_t column_bytes = by.k * (int64_t)sizeof(bf16);
    int64_t fit = PANELS_BYTES / column_bytes, most = MOST_BYTES / column_bytes;
    int64_t most_m = g->trans_a ? MOST_M_ACROSS : MOST_M;
    int64_t tasks = ceil_div(g->m, (int64_t)threads * most_m) * threads;
    by.parts = ceil_div(by.k, MOST_K);
    by.depth = round_up(ceil_div(by.k, by.parts), 32);
    fit = keeps_sums(&by) ? min_i64(ENOUGH_N, most) : fit;
    by.columns = min_i64(fit / SIDE * SIDE, round_up(g->n, SIDE));
    by.rows = round_up(ceil_div(g->m, tasks), SIDE);
    by.splits = ceil_div(threads, ceil_div(g->m, by.rows));
    return by;
}

/* Piece p of a product, of its size only. */
static struct gemm piece_size(const struct gemm *g, int64_t p)
{
    struct gemm piece = *g;
    piece.k = part_start(g->k, pieces_of(g), p + 1) - part_start(g->k, pieces_of(g), p);
    return piece;
}

static struct gemm piece_of(const struct gemm *g, int64_t p)
{
    struct gemm piece = piece_size(g, p);
    int64_t k = part_start(g->k, pieces_of(g), p);
    piece.a = (const bf16 *)g->a + (g->trans_a ? k * g->lda : k);
    piece.b = (const bf16 *)g->b + (g->trans_b ? k : k * g->ldb);
    piece.addend = p ? g->c : g->addend;
    return piece;
}

/* Bytes of the panels, and of a thread's two blocks; multiples of 64. */
static size_t panels_bytes(const struct blocking *by)
{
    return (size_t)(by->columns * by->k) * sizeof(bf16);
}

static size_t block_bytes(const struct blocking *by)
{
    return (size_t)(by->rows * by->depth) * sizeof(bf16);
}

static size_t sums_bytes(const struct blocking *by)
{
    int64_t elems = keeps_sums(by) ? by->rows * by->columns : SIDE * SIDE;
    return (size_t)elems * sizeof(float);
}

size_t CPU(gemm_tiles_scratch)(struct device *d, const struct gemm *g)
{
    size_t most = 0;
    for (int64_t p = 0; p < pieces_of(g); p++) {
        const struct gemm piece = piece_size(g, p);
        for (int threads = 1; threads <= d->threads; threads++) {
            struct blocking by = blocking_of(&piece, threads);
            size_t each = block_bytes(&by) + sums_bytes(&by);
            most = max_bytes(most, panels_bytes(&by) + (size_t)threads * each);
        }
    }
    return all_sums_bytes(g) + most;
}

static uint32_t element_of(const struct source *s, int64_t i, int64_t k)
{
    if (i >= s->count || k >= s->k)
        return 0;
    return s->base[s->is_along ? i * s->ld + k : k * s->ld + i];
}

/* A tile over the edge of its operand, zeros outside, with i along rows or lanes. */
static void edge_tile(vu v[16], const struct source *s, int64_t i, int64_t k, int i_is_lane)
{
    for (int64_t row = 0; row < 16; row++)
        for (int64_t lane = 0; lane < 16; lane++) {
            int64_t at = i + (i_is_lane ? lane : row), pair = k + 2 * (i_is_lane ? row : lane);
            v[row][lane] = element_of(s, at, pair) | element_of(s, at, pair + 1) << 16;
        }
}

/* Units of two neighbouring rows. */
SIMD_INLINE vu interleave(const bf16 *even, const bf16 *odd)
{
    vh low, high;
    memcpy(&low, even, sizeof low);
    memcpy(&high, odd, sizeof high);
    return simd_widen(low) | simd_widen(high) << 16;
}

/* The tile from (i, k) on: i along lanes for op(b), along rows for op(a). */
SIMD_INLINE void pack_tile(bf16 *to, const struct source *s, int64_t i, int64_t k,
                           const int i_is_lane)
{
    const bf16 *from = s->base + (s->is_along ? i * s->ld + k : k * s->ld + i);
    vu v[16];
    if (i + 16 > s->count || k + 32 > s->k) {
        edge_tile(v, s, i, k, i_is_lane);
    } else if (s->is_along) {
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++)
            v[r] = unit_load((const unit *)(from + r * s->ld));
        if (i_is_lane)
            unit_transpose(v);
    } else {
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++)
            v[r] = interleave(from + 2 * r * s->ld, from + (2 * r + 1) * s->ld);
        if (!i_is_lane)
            unit_transpose(v);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++)
        unit_store((unit *)to + r * 16, v[r]);
}

/* i in [first, last) and k in [begin, end) of an operand. */
struct range {
    int64_t first, last, begin, end;
};

/* Tiles of a range, in the order of memory; `stride` elements are between panels of 32 of i. */
SIMD_INLINE void pack(bf16 *to, int64_t stride, const struct source *s, const struct range *r,
                      const int i_is_lane)
{
    int64_t panels = ceil_div(r->last - r->first, SIDE), steps = ceil_div(r->end - r->begin, 32);
    for (int64_t t = 0; t < panels * steps; t++) {
        int64_t panel = s->is_along ? t / steps : t % panels;
        int64_t step = s->is_along ? t % steps : t / panels;
        bf16 *tiles = to + panel * stride + step * 2 * TILE_ELEMS;
        pack_tile(tiles, s, r->first + panel * SIDE, r->begin + step * 32, i_is_lane);
        pack_tile(tiles + TILE_ELEMS, s, r->first + panel * SIDE + 16, r->begin + step * 32,
                  i_is_lane);
    }
}

/* Thread t's share of packing columns [jc, end): some panels, or of all panels some steps of k. */
static void pack_panels(const struct blocking *by, int64_t jc, int64_t end, int t, int threads)
{
    int64_t all = by->b.is_along ? ceil_div(end - jc, SIDE) : by->k / 32;
    int64_t from = all * t / threads, to = all * (t + 1) / threads;
    struct range r = {jc, end, from * 32, to * 32};
    bf16 *at = by->panels + from * 2 * TILE_ELEMS;
    if (by->b.is_along) {
        r = (struct range){jc + from * SIDE, min_i64(jc + to * SIDE, end), 0, by->k};
        at = by->panels + from * SIDE * by->k;
    }
    pack(at, SIDE * by->k, &by->b, &r, 1);
}

/* The block of an fp32 addend at (row, col), zeros outside. */
static void get_block(float *sums, const struct gemm *g, int64_t row, int64_t col)
{
    int64_t rows = min_i64(SIDE, g->m - row), columns = min_i64(SIDE, g->n - col);
    memset(sums, 0, SIDE * SIDE * sizeof *sums);
    for (int64_t r = 0; r < rows; r++)
        memcpy(sums + r * SIDE, (const float *)g->addend + (row + r) * g->ldc + col,
               (size_t)columns * sizeof *sums);
}

/* Write rows of sums, ld apart, to c from (row, col) on; in 16 bits the addend with them. */
SIMD_INLINE void put_rows(const enum dtype dt, const struct gemm *g, const float *sums, int64_t ld,
                          int64_t row, int64_t col, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++, sums += ld)
        for (int64_t c = 0; c < columns; c += CPU_LANES) {
            int64_t at = (row + r) * g->ldc + col + c;
            vf v = vf_get_some(DTYPE_F32, sums, c, columns - c);
            if (dt != DTYPE_F32 && g->addend)
                v += vf_get_some(dt, g->addend, at, columns - c);
            vf_put_some(dt, g->c, at, columns - c, v);
        }
}

/* Write a block of sums to c from (row, col) on. */
SIMD_INLINE void put_block(const enum dtype dt, const struct gemm *g, const float *sums,
                           int64_t row, int64_t col)
{
    int64_t rows = min_i64(SIDE, g->m - row), columns = min_i64(SIDE, g->n - col);
    put_rows(dt, g, sums, SIDE, row, col, rows, columns);
}

/* Where the sums of the block at (row, col) begin: what an fp32 addend has, or zeros. */
static struct tile_sums first_sums(const struct gemm *g, float *sums, int64_t row, int64_t col)
{
    if (g->dt_c != DTYPE_F32 || !g->addend)
        return (struct tile_sums){NULL, 0};
    if (row + SIDE <= g->m && col + SIDE <= g->n)
        return (struct tile_sums){(float *)g->addend + row * g->ldc + col, g->ldc};
    get_block(sums, g, row, col);
    return (struct tile_sums){sums, SIDE};
}

/* The block at (row, col) for k in [kc, end), from packed tiles; its sums are in `sums` before the
 * last part of k.  In c rows of sums are often a power of two apart, and push each other out of the
 * first cache. */
static void multiply_block(const struct blocking *by, float *sums, const bf16 *a, const bf16 *b,
                           int64_t row, int64_t col, int64_t kc, int64_t end)
{
    const struct gemm *g = by->g;
    struct tile_sums kept = {sums, SIDE}, from = kept, to = kept;
    int is_last = end == by->k;
    if (kc == 0)
        from = first_sums(g, sums, row, col);
    if (is_last && g->dt_c == DTYPE_F32 && row + SIDE <= g->m && col + SIDE <= g->n)
        to = (struct tile_sums){(float *)g->c + row * g->ldc + col, g->ldc};
    tile_block_packed((const unit *)a, (const unit *)b, &from, &to, (end - kc) / 2,
                      keeps_sums(by) ? sums + SIDE * SIDE : NULL);
    if (to.first != sums || !is_last)
        return;
    if (g->dt_c == DTYPE_F32)
        put_block(DTYPE_F32, g, sums, row, col);
    else
        put_block(DTYPE_BF16, g, sums, row, col);
}

/* Rows [ic, last) of c by panels [first, end) of the columns from jc on. */
static void run_task(const struct blocking *by, const struct thread_scratch *own, int64_t jc,
                     int64_t ic, int64_t first, int64_t end)
{
    int64_t last = min_i64(ic + by->rows, by->g->m), blocks = ceil_div(last - ic, SIDE);
    int64_t kept = keeps_sums(by) ? SIDE * SIDE : 0;
    for (int64_t p = 0; p < by->parts && first < end; p++) {
        int64_t kc = part_start(by->k, by->parts, p);
        const struct range r = {ic, last, kc, part_start(by->k, by->parts, p + 1)};
        int64_t stride = (r.end - kc) * SIDE;
        pack(own->block, stride, &by->a, &r, 0);
        for (int64_t group = first; group < end; group += GROUP)
            for (int64_t i = 0; i < blocks; i++)
                for (int64_t panel = group; panel < min_i64(group + GROUP, end); panel++)
                    multiply_block(by, own->sums + (i * (end - first) + panel - first) * kept,
                                   own->block + i * stride,
                                   by->panels + (panel * by->k + kc) * SIDE, ic + i * SIDE,
                                   jc + panel * SIDE, kc, r.end);
    }
}

/* All tasks of columns [jc, end), shared by the threads. */
static void run_tasks(const struct blocking *by, const struct thread_scratch *own, int64_t jc,
                      int64_t end)
{
    int64_t tasks = ceil_div(by->g->m, by->rows) * by->splits, panels = ceil_div(end - jc, SIDE);
#pragma omp for schedule(static)
    for (int64_t t = 0; t < tasks; t++) {
        int64_t split = t % by->splits;
        run_task(by, own, jc, t / by->splits * by->rows, panels * split / by->splits,
                 panels * (split + 1) / by->splits);
    }
}

static void multiply(struct device *d, const struct gemm *g, void *scratch)
{
    int threads = run_queue_threads(d);
    struct blocking by = blocking_of(g, threads);
    size_t each = block_bytes(&by) + sums_bytes(&by);
    by.panels = (bf16 *)scratch;
#pragma omp parallel num_threads(threads)
    {
        char *at = (char *)scratch + panels_bytes(&by) + (size_t)omp_get_thread_num() * each;
        struct thread_scratch own = {(bf16 *)at, (float *)(at + block_bytes(&by))};
        tiles_open();
        for (int64_t jc = 0; jc < g->n; jc += by.columns) {
            int64_t end = min_i64(jc + by.columns, g->n);
            pack_panels(&by, jc, end, omp_get_thread_num(), omp_get_num_threads());
#pragma omp barrier
            run_tasks(&by, &own, jc, end);
        }
        tiles_close();
    }
}

static void multiply_pieces(struct device *d, const struct gemm *g, void *scratch)
{
    for (int64_t p = 0; p < pieces_of(g); p++) {
        const struct gemm piece = piece_of(g, p);
        multiply(d, &piece, scratch);
    }
}

void CPU(gemm_by_tiles)(struct device *d, const struct gemm *g, void *scratch)
{
    const size_t bytes = all_sums_bytes(g);
    const float *sums = (float *)scratch;
    if (!bytes) {
        multiply_pieces(d, g, scratch);
        return;
    }
    const struct gemm p = product_of_sums(g, (float *)scratch);
    multiply_pieces(d, &p, (char *)scratch + bytes);
#pragma omp parallel for num_threads(cpu_threads(d, g->m * g->n * 4))
    for (int64_t row = 0; row < g->m; row++)
        put_rows(DTYPE_BF16, g, sums + row * g->n, g->n, row, 0, 1, g->n);
}
