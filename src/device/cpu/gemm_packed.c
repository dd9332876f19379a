/* gemm_packed.c - large products from packed operands: c = op(a) op(b) (+ addend).
 *
 * Goto's scheme (Goto and van de Geijn 2008): operands are packed into blocks that fit the caches,
 * and the innermost loops read those alone.
 *
 *   for columns jc, N of them                  all threads pack op(b)[:, jc] into panels
 *     for rows ic, M of them                   a thread's task
 *       for kc, K of them                      it packs op(a)[ic, kc], unless it is read in place
 *         for groups of panels, for blocks of rows, for panels:  a block of sums
 *
 * How operands are packed, and blocks multiplied, depends on the level (gemm_format.h).
 *
 * Packing waits for memory, as its rows are far apart, and multiplying does not: what a task packs
 * next is prefetched while it multiplies.
 *
 * Tasks are divided evenly and always in the same way, because what a thread's core wrote, it finds
 * in its cache; a thread that is done takes what the others have not begun.
 *
 * k is cut twice.  A long k is cut into pieces: each is a product of its own, all of the above,
 * that adds to c, or where c has 16 bits to sums in fp32 beside it.  The k of a piece is cut into
 * parts of about K elements: between one part and the next its sums stay in fp32 in the thread's
 * scratch.
 *
 *   k        |---------------- piece 0 ---------------|---------------- piece 1 ---------------|
 *            |-- part 0 --|-- part 1 --|-- part 2 ----|-- part 0 --|-- part 1 --|-- part 2 ----|
 *
 * The order of an element's sum depends on k and on whether there is an addend, with which a sum in
 * fp32 begins; so its bits depend neither on threads nor on the other elements.
 */
#include <omp.h>

#include "device/cpu/gemm_format.h"
#include "device/cpu/gemm_own.h"
#include "device/cpu/run_queue.h"

enum {
    ENOUGH_N = 1024,        /* N: packing op(a) once for so many takes an eighth of the time */
    PANELS_BYTES = 2 << 20, /* of op(b)[:, jc], where k is one part, */
    MOST_BYTES = 8 << 20,   /* and where it is several, if ENOUGH_N columns need as much */
    LEAST_SIDE = 64,        /* of m, n and k: smaller products are the library's */
    MOST_SUMS = 64 << 20,   /* bytes of sums beside c; a larger product has one piece */
    LONGEST_K = 16384,      /* of a product in one piece; with a longer k it is the library's */
};

/* A product and the sizes of its blocks. */
struct blocking {
    const struct gemm *g;
    struct gemm_source a, b;
    int64_t k;                    /* rounded up to whole steps */
    int64_t parts;                /* of k, each of about K */
    int64_t rows, columns, depth; /* M, N, and the longest K */
    int64_t splits;      /* of the columns of a task's rows: with few rows all threads have some */
    unit *panels;        /* of op(b): [columns][k] elements, in panels */
    struct begun *begun; /* [threads] */
};

/* What a thread has for itself. */
struct thread_scratch {
    unit *block; /* of op(a): [rows][K] elements */
    float *sums; /* of the block at hand, or of all blocks of the task */
};

/* How many of a thread's tasks are begun, by it or by others; one cache line for each thread. */
struct begun {
    int64_t tasks;
    char pad[64 - sizeof(int64_t)];
};

/* Is a long k cut into pieces?  Their sums need memory in fp32: c's, or not too much beside c. */
static int has_pieces(const struct gemm *g)
{
    return g->k > level_format->piece_k &&
           (g->dt_c == DTYPE_F32 || g->m * g->n <= MOST_SUMS / (int64_t)sizeof(float));
}

/* Where number n of `count` pieces or parts of k begins; all are about as long, and but for the
 * last of whole steps. */
static int64_t cut_start(int64_t k, int64_t count, int64_t n)
{
    int64_t start = ceil_div(k, level_format->step_k) * n / count * level_format->step_k;
    return min_i64(start, k);
}

static int64_t pieces_of(const struct gemm *g)
{
    return has_pieces(g) ? ceil_div(g->k, level_format->piece_k) : 1;
}

/* Bytes of the sums beside c. */
static size_t all_sums_bytes(const struct gemm *g)
{
    if (g->dt_c == DTYPE_F32 || !has_pieces(g))
        return 0;
    return round_up_bytes((size_t)(g->m * g->n) * sizeof(float), 64);
}

/* The product of g without its addend, which leaves its sums [m, n] in `sums` instead of c. */
static struct gemm product_of_sums(const struct gemm *g, float *sums)
{
    struct gemm p = *g;
    p.dt_c = DTYPE_F32;
    p.c = sums;
    p.ldc = g->n;
    p.addend = NULL;
    return p;
}

int CPU(gemm_is_packed)(const struct gemm *g)
{
    return format_takes(g->dt) && g->m >= level_format->least_m && g->n >= LEAST_SIDE &&
           g->k >= LEAST_SIDE && (has_pieces(g) || g->k <= LONGEST_K);
}

int CPU(gemm_packed_takes)(const struct gemm *g)
{
    return format_takes(g->dt) && (has_pieces(g) || g->k <= LONGEST_K);
}

/* Has k several parts, between which a thread keeps the sums of all blocks of its task? */
static int keeps_sums(const struct blocking *by)
{
    return by->parts > 1;
}

static struct blocking blocking_of(const struct gemm *g, int threads)
{
    struct blocking by = {
        .g = g,
        .a = {.base = g->a, .ld = g->lda, .count = g->m, .k = g->k, .is_along = !g->trans_a},
        .b = {.base = g->b, .ld = g->ldb, .count = g->n, .k = g->k, .is_along = g->trans_b},
        .k = round_up(g->k, level_format->step_k)};
    const int64_t column_bytes = by.k / level_format->unit_elems * (int64_t)sizeof(unit);
    int64_t fit = PANELS_BYTES / column_bytes, most = MOST_BYTES / column_bytes;
    int64_t most_m = g->trans_a ? level_format->most_m_across : level_format->most_m;
    int64_t tasks = ceil_div(g->m, (int64_t)threads * most_m) * threads;
    by.parts = ceil_div(by.k, g->trans_a ? level_format->most_k_across : level_format->most_k);
    by.depth = round_up(ceil_div(by.k, by.parts), level_format->step_k);
    fit = keeps_sums(&by) ? min_i64(ENOUGH_N, most) : fit;
    by.columns = min_i64(fit / level_format->block_n * level_format->block_n,
                         round_up(g->n, level_format->block_n));
    by.rows = round_up(ceil_div(g->m, tasks), level_format->step_m);
    by.splits = ceil_div(threads, ceil_div(g->m, by.rows));
    return by;
}

/* The size of piece p of a product; pointers are still those of the whole. */
static struct gemm piece_size(const struct gemm *g, int64_t p)
{
    struct gemm piece = *g;
    piece.k = cut_start(g->k, pieces_of(g), p + 1) - cut_start(g->k, pieces_of(g), p);
    return piece;
}

static struct gemm piece_of(const struct gemm *g, int64_t p)
{
    struct gemm piece = piece_size(g, p);
    int64_t k = cut_start(g->k, pieces_of(g), p);
    const int64_t bytes = (int64_t)dtype_bytes(g->dt);
    piece.a = (const char *)g->a + (g->trans_a ? k * g->lda : k) * bytes;
    piece.b = (const char *)g->b + (g->trans_b ? k : k * g->ldb) * bytes;
    piece.addend = p ? g->c : g->addend;
    return piece;
}

/* The number of sums in a task's block. */
static int64_t block_elems(const struct blocking *by)
{
    return min_i64(level_format->block_m, by->rows) * level_format->block_n;
}

/* Bytes of the panels, and of a thread's two blocks; multiples of 64. */
static size_t panels_bytes(const struct blocking *by)
{
    return round_up_bytes((size_t)packed_units(by->columns, by->k) * sizeof(unit), 64);
}

static size_t block_bytes(const struct blocking *by)
{
    return round_up_bytes((size_t)packed_units(by->rows, by->depth) * sizeof(unit), 64);
}

static size_t sums_bytes(const struct blocking *by)
{
    int64_t elems = keeps_sums(by) ? by->rows * by->columns : block_elems(by);
    return round_up_bytes((size_t)elems * sizeof(float), 64);
}

size_t CPU(gemm_packed_scratch)(struct device *d, const struct gemm *g)
{
    size_t most = 0;
    for (int64_t p = 0; p < pieces_of(g); p++) {
        const struct gemm piece = piece_size(g, p);
        for (int threads = 1; threads <= d->threads; threads++) {
            struct blocking by = blocking_of(&piece, threads);
            size_t each = sizeof(struct begun) + block_bytes(&by) + sums_bytes(&by);
            most = max_bytes(most, panels_bytes(&by) + (size_t)threads * each);
        }
    }
    return all_sums_bytes(g) + most;
}

/* No product in one piece has more panels than MOST_BYTES, and none has more sums than MOST_SUMS.
 */
size_t CPU(gemm_packed_most_scratch)(const struct gemm *g, int threads)
{
    const struct format *f = level_format;
    const int64_t rows = min_i64(round_up(g->m, f->step_m), max_i64(f->most_m, f->most_m_across));
    const int64_t columns = round_up(g->n, f->block_n), k = round_up(g->k, f->step_k);
    const int64_t depth = min_i64(k, max_i64(f->most_k, f->most_k_across));
    size_t panels = min_bytes((size_t)packed_units(columns, k) * sizeof(unit), MOST_BYTES);
    size_t block = round_up_bytes((size_t)packed_units(rows, depth) * sizeof(unit), 64);
    size_t sums = (size_t)(rows * columns) * sizeof(float);
    size_t each = sizeof(struct begun) + block +
                  min_bytes(sums, (size_t)(rows * (ENOUGH_N + f->block_n)) * sizeof(float));
    size_t all = g->dt_c == DTYPE_F32 || g->k <= f->piece_k
                     ? 0
                     : min_bytes((size_t)(g->m * g->n) * sizeof(float), MOST_SUMS);
    return round_up_bytes(all, 64) + panels + (size_t)threads * each;
}

/* Pack thread t's share of columns [jc, end): some panels, or of all panels some steps of k. */
static void pack_panels(const struct blocking *by, int64_t jc, int64_t end, int t, int threads)
{
    const int64_t width = level_format->block_n, step = level_format->step_k;
    int64_t all = by->b.is_along ? ceil_div(end - jc, width) : by->k / step;
    int64_t from = all * t / threads, to = all * (t + 1) / threads;
    struct gemm_range r = {jc, end, from * step, to * step};
    unit *at = by->panels + packed_units(width, from * step);
    if (by->b.is_along) {
        r = (struct gemm_range){jc + from * width, min_i64(jc + to * width, end), 0, by->k};
        at = by->panels + from * packed_units(width, by->k);
    }
    pack_operand(at, packed_units(width, by->k), by->g->dt, &by->b, &r, width, 1);
}

/* A block of c: where it begins, and its rows, a multiple of step_m. */
struct block {
    int64_t row, col, rows;
};

/* Does all of it lie in c? */
static int is_whole(const struct gemm *g, const struct block *b)
{
    return b->row + b->rows <= g->m && b->col + level_format->block_n <= g->n;
}

/* Read a block of an fp32 addend into sums, with zeros outside of it. */
static void get_block(float *sums, const struct gemm *g, const struct block *b)
{
    const int64_t width = level_format->block_n;
    int64_t rows = min_i64(b->rows, g->m - b->row), columns = min_i64(width, g->n - b->col);
    memset(sums, 0, (size_t)(b->rows * width) * sizeof *sums);
    for (int64_t r = 0; r < rows; r++)
        memcpy(sums + r * width, (const float *)g->addend + (b->row + r) * g->ldc + b->col,
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

/* Write a block of sums to c. */
SIMD_INLINE void put_block(const enum dtype dt, const struct gemm *g, const float *sums,
                           const struct block *b)
{
    int64_t rows = min_i64(b->rows, g->m - b->row);
    int64_t columns = min_i64(level_format->block_n, g->n - b->col);
    put_rows(dt, g, sums, level_format->block_n, b->row, b->col, rows, columns);
}

/* Where the sums of a block begin: what an fp32 addend has, or zeros. */
static struct tile_sums first_sums(const struct gemm *g, float *sums, const struct block *b)
{
    if (g->dt_c != DTYPE_F32 || !g->addend)
        return (struct tile_sums){NULL, 0};
    if (is_whole(g, b))
        return (struct tile_sums){(float *)g->addend + b->row * g->ldc + b->col, g->ldc};
    get_block(sums, g, b);
    return (struct tile_sums){sums, level_format->block_n};
}

/* Where the last part of k leaves a block's sums: in c, or in `sums` on their way to it. */
static struct gemm_block_target last_target(const struct gemm *g, float *sums,
                                            const struct block *b)
{
    const int64_t at = (b->row * g->ldc + b->col) * (int64_t)dtype_bytes(g->dt_c);
    int is_fp32 = g->dt_c == DTYPE_F32;
    if (!is_whole(g, b) || (FORMAT == TILES && !is_fp32))
        return (struct gemm_block_target){sums, level_format->block_n, DTYPE_F32, NULL};
    return (struct gemm_block_target){(char *)g->c + at, g->ldc, g->dt_c,
                                      g->addend && !is_fp32 ? (const char *)g->addend + at : NULL};
}

/* What strips prefetch during a block: the next panel, for the same part of k. */
static struct gemm_ahead next_panel(const struct blocking *by, const unit *panel)
{
    const unit *next = panel + packed_units(level_format->block_n, by->k);
    return (struct gemm_ahead){.at = (const char *)next};
}

/* What tiles prefetch during a block: the next block's sums, and in the last part of k rows of c,
 * as storing to a line waits until it was read.  With a K of 512 these are half of the block's
 * rows: with more at a time, the loads of op(b) would wait. */
static struct gemm_ahead next_sums(const struct blocking *by, const float *sums,
                                   const struct block *b, int is_last)
{
    const struct gemm *g = by->g;
    const int64_t bytes = (int64_t)dtype_bytes(g->dt_c), at = b->row * g->ldc + b->col;
    struct tile_ahead tiles = {.row_bytes = g->ldc * bytes,
                               .row_lines = g->dt_c == DTYPE_F32 ? 2 : 1};
    if (keeps_sums(by))
        tiles.sums = sums + block_elems(by);
    if (is_last && is_whole(g, b))
        tiles.row = (const char *)g->c + at * bytes;
    return (struct gemm_ahead){.tiles = tiles};
}

/* Multiply a block for k in [kc, end).  Up to the last part of k its sums are in `sums`, not in c,
 * where rows are often a power of two apart and push each other out of the first cache.  `ahead`
 * says what is prefetched meanwhile: with vectors the caller has set it, for tiles and strips this
 * function does.
 */
static void run_block(const struct blocking *by, float *sums, const struct gemm_block_rows *a,
                      const unit *panel, const struct block *b, int64_t kc, int64_t end,
                      struct gemm_ahead *ahead)
{
    const struct gemm *g = by->g;
    struct tile_sums from = {sums, level_format->block_n};
    struct gemm_block_target to = {sums, level_format->block_n, DTYPE_F32, NULL};
    if (FORMAT == STRIPS)
        *ahead = next_panel(by, panel);
    if (FORMAT == TILES)
        *ahead = next_sums(by, sums, b, end == by->k);
    if (kc == 0)
        from = first_sums(g, sums, b);
    if (end == by->k)
        to = last_target(g, sums, b);
    multiply_packed(a, panel, &from, &to, min_i64(b->rows, g->m - b->row), end - kc, ahead);
    if (to.first == sums && end == by->k)
        WITH_DTYPE(put_block, g->dt_c, g, sums, b);
}

/* The first row from ic on that has to be packed: those before are read in place. */
static int64_t first_packed(const struct blocking *by, int64_t ic, int64_t last)
{
    const struct gemm_source *a = &by->a;
    int fits_units = a->ld % 2 == 0 && (uintptr_t)a->base % sizeof(unit) == 0;
    if (FORMAT != VECTORS || !a->is_along || !fits_units || a->k != by->k)
        return ic;
    return ic + (last - ic) / SIDE * SIDE;
}

/* The rows of op(a) at (row, kc), of which those from `packed` on are packed, `stride` units for
 * each step_m of them. */
static struct gemm_block_rows rows_at(const struct blocking *by, const unit *block, int64_t stride,
                                      int64_t packed, int64_t row, int64_t kc)
{
    if (row >= packed)
        return (struct gemm_block_rows){block + (row - packed) / level_format->step_m * stride, 0};
    return (struct gemm_block_rows){(const unit *)((const bf16 *)by->a.base + row * by->a.ld + kc),
                                    by->a.ld / 2};
}

/* A part of k in a task: rows [ic, last), panels [first, end) of the columns from jc on, k in [kc,
 * end_k). */
struct part {
    int64_t ic, last, jc, first, end, kc, end_k;
};

/* What is packed after this part where op(a) lies across k: the same rows for the next K, or after
 * the last K as many of the following rows, which are as a rule the next task's.  A piece is what
 * they have of one k. */
static struct gemm_ahead after_part(const struct blocking *by, const struct part *p)
{
    const struct gemm_source *a = &by->a;
    int64_t k = p->end_k < by->k ? p->end_k : 0, row = k ? p->ic : p->last;
    if (a->is_along || row >= a->count)
        return (struct gemm_ahead){.at = NULL};
    return (struct gemm_ahead){.at = (const char *)((const bf16 *)a->base + k * a->ld + row),
                               .stride = a->ld * (int64_t)sizeof(bf16),
                               .pieces = min_i64(p->end_k - p->kc, a->k - k)};
}

/* Multiply blocks of op(a), packed from row `packed` on, by all panels, a group of panels at a
 * time. */
static void multiply_part(const struct blocking *by, const struct thread_scratch *own,
                          const struct part *p, int64_t packed)
{
    const int64_t stride = packed_units(level_format->step_m, p->end_k - p->kc);
    const int64_t kept = keeps_sums(by) ? block_elems(by) : 0, height = level_format->block_m;
    struct gemm_ahead ahead = after_part(by, p);
    for (int64_t group = p->first; group < p->end; group += level_format->group)
        for (int64_t row = p->ic; row < p->last; row += height) {
            const struct gemm_block_rows a = rows_at(by, own->block, stride, packed, row, p->kc);
            const int64_t rows = round_up(min_i64(height, p->last - row), level_format->step_m);
            for (int64_t panel = group; panel < min_i64(group + level_format->group, p->end);
                 panel++) {
                const struct block b = {row, p->jc + panel * level_format->block_n, rows};
                int64_t number = (row - p->ic) / height * (p->end - p->first) + panel - p->first;
                run_block(by, own->sums + number * kept, &a,
                          by->panels + packed_units(level_format->block_n, panel * by->k + p->kc),
                          &b, p->kc, p->end_k, &ahead);
            }
        }
}

/* Run a task: rows of c from ic on by panels [first, end) of the columns from jc on. */
static void run_task(const struct blocking *by, const struct thread_scratch *own, int64_t jc,
                     int64_t ic, int64_t first, int64_t end)
{
    int64_t last = min_i64(ic + by->rows, by->g->m), packed = first_packed(by, ic, last);
    for (int64_t n = 0; n < by->parts && first < end; n++) {
        const struct part p = {.ic = ic,
                               .last = last,
                               .jc = jc,
                               .first = first,
                               .end = end,
                               .kc = cut_start(by->k, by->parts, n),
                               .end_k = cut_start(by->k, by->parts, n + 1)};
        const struct gemm_range r = {packed, last, p.kc, p.end_k};
        pack_operand(own->block, packed_units(level_format->step_m, p.end_k - p.kc), by->g->dt,
                     &by->a, &r, level_format->step_m, FORMAT == VECTORS);
        multiply_part(by, own, &p, packed);
    }
}

/* Run task t of columns [jc, end): some rows, or of few rows some of the columns. */
static void run_task_number(const struct blocking *by, const struct thread_scratch *own, int64_t jc,
                            int64_t end, int64_t t)
{
    int64_t split = t % by->splits, panels = ceil_div(end - jc, level_format->block_n);
    run_task(by, own, jc, t / by->splits * by->rows, panels * split / by->splits,
             panels * (split + 1) / by->splits);
}

/* Run thread t's tasks of columns [jc, end), and then those that others have not begun. */
static void run_tasks(const struct blocking *by, const struct thread_scratch *own, int64_t jc,
                      int64_t end, int t, int threads)
{
    int64_t tasks = ceil_div(by->g->m, by->rows) * by->splits;
    for (int i = 0; i < threads; i++) {
        int whose = (t + i) % threads;
        int64_t first = tasks * whose / threads, count = tasks * (whose + 1) / threads - first;
        int64_t *begun = &by->begun[whose].tasks;
        for (int64_t n; (n = __atomic_fetch_add(begun, 1, __ATOMIC_RELAXED)) < count;)
            run_task_number(by, own, jc, end, first + n);
    }
}

static void multiply(struct device *d, const struct gemm *g, void *scratch)
{
    int threads = run_queue_threads(d);
    struct blocking by = blocking_of(g, threads);
    size_t each = block_bytes(&by) + sums_bytes(&by);
    by.begun = scratch;
    by.panels = (unit *)(by.begun + threads);
#pragma omp parallel num_threads(threads)
    {
        int t = omp_get_thread_num(), all = omp_get_num_threads();
        char *at = (char *)by.panels + panels_bytes(&by) + (size_t)t * each;
        struct thread_scratch own = {(unit *)at, (float *)(at + block_bytes(&by))};
        tiles_open();
        for (int64_t jc = 0; jc < g->n; jc += by.columns) {
            int64_t end = min_i64(jc + by.columns, g->n);
            by.begun[t].tasks = 0;
            pack_panels(&by, jc, end, t, all);
#pragma omp barrier
            run_tasks(&by, &own, jc, end, t, all);
#pragma omp barrier
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

void CPU(gemm_packed)(struct device *d, const struct gemm *g, void *scratch)
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
        WITH_DTYPE(put_rows, g->dt_c, g, sums + row * g->n, g->n, row, 0, 1, g->n);
}
