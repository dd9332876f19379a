/* attention_backward.c - attention with grouped queries, backward.
 *
 * FlashAttention-2 (Dao 2023), on transposed blocks.  With D = rowsum(dO O), for a block of
 * queries over the blocks of keys that it sees,
 *   P = exp(c (K Q^T - lse));  dS = P (V dO^T - D)
 *   dV += P dO;  dK += dS Q;  dQ^T += K^T dS
 * where the scale c of the scores is left to the end for dK and dQ.  K Q^T has the bits it had in
 * forward, so no weight is above 1.  Where weights are dropped, dV sums those that are left, and
 * what is dropped of P is dropped of V dO^T; D is as before, as O is made of those that are left.
 * D is summed in the order of V dO^T: where one key has all the weight, O is its V and dS is 0, not
 * rounding errors times large keys.  A task is one key/value head of one sequence with all query
 * heads of its group, and a chunk of the queries where there are few such heads; dK and dV of its
 * keys stay in its scratch, and are summed in the order of queries, then heads, and then of chunks.
 */
#include <omp.h>

#include "device/cpu/attention.h"

enum {
    ENOUGH_HEADS = 8, /* key/value heads of all sequences: with so many a task is a whole head */
    MOST_CHUNKS = 4,
    LEAST_BLOCKS = 256 / BLOCK, /* of queries in a chunk */
    MOST_SUM_ELEMS = 1 << 25,   /* of dK and dV of all chunks */
};

/* Floats of dK, or dV, of one key/value head of one sequence. */
static int64_t kv_elems(const struct attention *a)
{
    return ceil_div(attention_keys(a), BLOCK) * BLOCK * CPU(attention_shape)(a).dim_cols;
}

/* Chunks of queries: a function of the shape, so that bits do not depend on threads. */
static int64_t chunks_of(const struct attention *a)
{
    int64_t heads = a->batch * a->kv_heads, fit = ceil_div(a->seq, BLOCK) / LEAST_BLOCKS;
    int64_t chunks = heads >= ENOUGH_HEADS ? 1 : min_i64(fit, MOST_CHUNKS);
    while (chunks > 1 && chunks * 2 * kv_elems(a) * heads > MOST_SUM_ELEMS)
        chunks--;
    return chunks > 1 ? chunks : 1;
}

/* One thread's scratch. */
struct backward {
    const struct attention *a;
    struct attention_shape s;
    unit *k, *v;        /* [blocks][BLOCK][dim_units] */
    unit *kt;           /* [blocks][dim_rows][block_units] */
    float *dk, *dv;     /* [blocks][BLOCK][dim_cols]; of chunks, the task's */
    unit *rows;         /* [BLOCK][dim_units] */
    unit *qt, *dot;     /* Q^T and dO^T [dim_units][BLOCK] */
    unit *q, *dout;     /* for sums over queries [block_units][dim_cols] */
    float *scores, *dp; /* a strip of blocks: [TILE_ROWS][BLOCK] */
    unit *p, *ds;       /* for sums over queries [BLOCK][block_units] */
    unit *dst;          /* dS for sums over keys [block_units][BLOCK] */
    float *dqt;         /* [dim_rows][BLOCK] */
    float *staging;     /* BLOCK * dim_cols */
    float lse[BLOCK], delta[BLOCK];
    int is_cleared; /* 1: dk and dv begin as zeros, as not all queries see the keys in one order */
    struct attention_limits limits;
    struct attention_dropout dropout;
};

/* Rows of the tensors at the first query of a block of one head, and at its keys. */
struct block_at {
    struct attention_rows q, dout, o;
    const float *lse;
};

static size_t backward_layout(struct backward *w, const struct attention *a, void *base)
{
    struct attention_shape s = CPU(attention_shape)(a);
    int64_t blocks = ceil_div(attention_keys(a), BLOCK);
    size_t at = 0;
    w->a = a;
    w->s = s;
    w->k = attention_take(base, &at, blocks * BLOCK * s.dim_units, sizeof(unit));
    w->v = attention_take(base, &at, blocks * BLOCK * s.dim_units, sizeof(unit));
    w->kt = attention_take(base, &at, blocks * s.dim_rows * s.block_units, sizeof(unit));
    int64_t own = chunks_of(a) > 1 ? 0 : blocks * BLOCK * s.dim_cols;
    w->dk = attention_take(base, &at, own, sizeof(float));
    w->dv = attention_take(base, &at, own, sizeof(float));
    w->rows = attention_take(base, &at, BLOCK * s.dim_units, sizeof(unit));
    w->qt = attention_take(base, &at, BLOCK * s.dim_units, sizeof(unit));
    w->dot = attention_take(base, &at, BLOCK * s.dim_units, sizeof(unit));
    w->q = attention_take(base, &at, s.block_units * s.dim_cols, sizeof(unit));
    w->dout = attention_take(base, &at, s.block_units * s.dim_cols, sizeof(unit));
    w->scores = attention_take(base, &at, TILE_ROWS * BLOCK, sizeof(float));
    w->dp = attention_take(base, &at, TILE_ROWS * BLOCK, sizeof(float));
    w->p = attention_take(base, &at, BLOCK * s.block_units, sizeof(unit));
    w->ds = attention_take(base, &at, BLOCK * s.block_units, sizeof(unit));
    w->dst = w->ds; /* fp32: one layout serves both sums */
    if (s.dt == DTYPE_BF16)
        w->dst = attention_take(base, &at, BLOCK * s.block_units, sizeof(unit));
    w->dqt = attention_take(base, &at, s.dim_rows * BLOCK, sizeof(float));
    w->staging = attention_take(base, &at, BLOCK * s.dim_cols, sizeof(float));
    return at;
}

/* After the scratch of the threads: dK and dV of each chunk, [batch * kv_heads][chunks][2]. */
size_t CPU(attention_backward_bytes)(const struct device *d, const struct attention *a)
{
    struct backward w;
    int64_t chunks = chunks_of(a), shared = chunks > 1 ? chunks * 2 * kv_elems(a) : 0;
    return backward_layout(&w, a, NULL) * (size_t)d->threads +
           (size_t)(a->batch * a->kv_heads * shared) * sizeof(float);
}

/* Pack the keys and values of blocks [first, end). */
static void pack_keys(struct backward *w, struct attention_rows k, struct attention_rows v,
                      int64_t first, int64_t end)
{
    const struct attention_shape *s = &w->s;
    unit *sum = (unit *)w->staging;
    k.first += first * BLOCK * k.stride;
    v.first += first * BLOCK * v.stride;
    for (int64_t j = first; j < end; j++) {
        int64_t n = min_i64(BLOCK, attention_keys(w->a) - j * BLOCK);
        unit *rows = w->k + j * BLOCK * s->dim_units;
        CPU(attention_pack_rows)(rows, s, &k, n);
        CPU(attention_pack_rows)(w->v + j * BLOCK * s->dim_units, s, &v, n);
        CPU(attention_pack_sum)(sum, s, rows);
        CPU(attention_transpose)
        (w->kt + j * s->dim_rows * s->block_units, s->block_units, sum, s->dim_cols, s->block_units,
         s->dim_rows);
        k.first += BLOCK * k.stride;
        v.first += BLOCK * v.stride;
    }
}

/* Compute D of the queries of a block, whose rows of O are in w->rows: the diagonal of O dO^T,
 * which has the order of sums of V dO^T. */
static void row_products(struct backward *w)
{
    const int64_t ld = w->s.dim_units;
    struct attention_product p = {.dt = w->s.dt,
                                  .m = TILE_ROWS,
                                  .n = TILE_COLS,
                                  .k = ld,
                                  .c = w->scores, /* not in use yet */
                                  .lda = ld,
                                  .ldb = BLOCK,
                                  .ldc = BLOCK};
    for (int64_t row = 0; row < BLOCK; row += TILE_ROWS) {
        int64_t col = row / TILE_COLS * TILE_COLS;
        p.a = w->rows + row * ld;
        p.b = w->dot + col;
        CPU(attention_product)(&p);
        for (int64_t i = 0; i < TILE_ROWS; i++)
            w->delta[row + i] = w->scores[i * BLOCK + row - col + i];
    }
}

/* Pack Q and dO of nq queries in both layouts, and set lse and D, so that weights of the queries
 * that pad the block are 0. */
static void pack_queries(struct backward *w, const struct block_at *at, int64_t nq)
{
    const struct attention_shape *s = &w->s;
    CPU(attention_pack_rows)(w->rows, s, &at->q, nq);
    CPU(attention_pack_sum)(w->q, s, w->rows);
    CPU(attention_transpose)(w->qt, BLOCK, w->rows, s->dim_units, BLOCK, s->dim_units);
    CPU(attention_pack_rows)(w->rows, s, &at->dout, nq);
    CPU(attention_pack_sum)(w->dout, s, w->rows);
    CPU(attention_transpose)(w->dot, BLOCK, w->rows, s->dim_units, BLOCK, s->dim_units);
    CPU(attention_pack_rows)(w->rows, s, &at->o, nq);
    row_products(w);
    for (int64_t r = 0; r < BLOCK; r++)
        w->lse[r] = r < nq ? at->lse[r] : 1e30f;
}

/* Store a vector in units of a row; for bf16 rounded to nearest, as the upper halves of the units.
 */
SIMD_INLINE void store_row(unit *row, int64_t col, vf v, const enum dtype dt)
{
    if (dt == DTYPE_BF16) {
        vh half = simd_narrow(((vu)v + 0x8000u) >> 16);
        memcpy((bf16 *)row + col, &half, sizeof half);
    } else {
        unit_store(row + col, (vu)v);
    }
}

/* Compute P and dS of key rows [row, row + TILE_ROWS) of block j from their scores and dP. */
SIMD_INLINE void strip_gradients(const enum dtype dt, const enum attention_mask mask,
                                 const int drops, struct backward *w, int64_t j, int64_t row,
                                 int64_t first, int64_t n)
{
    const float scale = w->a->scale * LOG2_E;
    const int64_t units = w->s.block_units;
    for (int64_t i = 0; i < TILE_ROWS; i += 2)
        for (int64_t col = first; col < n; col += CPU_LANES) {
            vf lse = vf_load(w->lse + col), delta = vf_load(w->delta + col), ds[2];
            for (int64_t e = 0; e < 2; e++) {
                int64_t at = (i + e) * BLOCK + col;
                vf p = exp2_of((vf_load(w->scores + at) - lse) * scale);
                if (mask == MASK_CAUSAL)
                    p = causal(p, row + i + e, col, 0);
                if (mask == MASK_LIMITS)
                    p = between(p, &w->limits, j * BLOCK + row + i + e, col, 0);
                vf dp = vf_load(w->dp + at);
                if (drops)
                    dp = attention_drop(&w->dropout, dp, row + i + e, col);
                ds[e] = p * (dp - delta);
                if (drops)
                    p = attention_drop(&w->dropout, p, row + i + e, col);
                store_row(w->p + (row + i + e) * units, col, p, dt);
                store_row(w->ds + (row + i + e) * units, col, ds[e], dt);
            }
            if (dt == DTYPE_BF16)
                unit_store(w->dst + (row + i) / 2 * BLOCK + col, unit_pairs(ds[0], ds[1]));
        }
}

/* Compute P and dS of block j, strip by strip so that scores and dP stay in the caches. */
static void block_gradients(struct backward *w, int64_t j, int64_t nk, int64_t n)
{
    const struct attention_shape *s = &w->s;
    enum attention_mask mask = attention_mask_of(&w->limits, j);
    int diagonal = attention_is_diagonal(&w->limits, j);
    int drops = !!(w->a->forms & ATTENTION_DROPOUT);
    if (drops)
        CPU(attention_draw)(&w->dropout, j, nk);
    for (int64_t row = 0; row < nk; row += TILE_ROWS) {
        int64_t col = diagonal ? row / TILE_COLS * TILE_COLS : 0;
        int64_t at = (j * BLOCK + row) * s->dim_units;
        struct attention_product p = {.dt = s->dt,
                                      .m = TILE_ROWS,
                                      .n = n - col,
                                      .k = s->dim_units,
                                      .a = w->k + at,
                                      .b = w->qt + col,
                                      .c = w->scores + col,
                                      .lda = s->dim_units,
                                      .ldb = BLOCK,
                                      .ldc = BLOCK};
        CPU(attention_product)(&p);
        p.a = w->v + at;
        p.b = w->dot + col;
        p.c = w->dp + col;
        CPU(attention_product)(&p);
        if (s->dt == DTYPE_BF16)
            WITH_MASK(strip_gradients, DTYPE_BF16, mask, drops, w, j, row, col, n);
        else
            WITH_MASK(strip_gradients, DTYPE_F32, mask, drops, w, j, row, col, n);
    }
}

/* c (+)= a b for sums over the n queries of a block; on the diagonal a key's row sums only the
 * queries that come at or after its strip. */
static void sum_queries(const struct attention_shape *s, float *c, const unit *a, const unit *b,
                        int64_t nk, int64_t n, int diagonal, int accumulate)
{
    int64_t step = diagonal ? TILE_ROWS : nk;
    for (int64_t row = 0; row < nk; row += step) {
        int64_t past = diagonal ? row * s->block_units / BLOCK : 0;
        struct attention_product p = {.dt = s->dt,
                                      .accumulate = accumulate,
                                      .m = step,
                                      .n = s->dim_cols,
                                      .k = n * s->block_units / BLOCK - past,
                                      .a = a + row * s->block_units + past,
                                      .b = b + past * s->dim_cols,
                                      .c = c + row * s->dim_cols,
                                      .lda = s->block_units,
                                      .ldb = s->dim_cols,
                                      .ldc = s->dim_cols};
        CPU(attention_product)(&p);
    }
}

/* Add the gradients that query block i of one head gives.  begin: the task's first block, for the
 * head that is the first to write to its keys; -1: another head has written to them. */
static void query_block(struct backward *w, const struct block_at *at, int64_t i, int64_t begin,
                        void *dq)
{
    const struct attention *a = w->a;
    const struct attention_shape *s = &w->s;
    const struct attention_limits *l = &w->limits;
    int64_t nq = min_i64(BLOCK, a->seq - i * BLOCK), n = round_up(nq, TILE_COLS);
    pack_queries(w, at, nq);
    for (int64_t j = l->first; j < l->end; j++) {
        int64_t nk = round_up(min_i64(BLOCK, l->keys - j * BLOCK), TILE_ROWS);
        int64_t key = j * BLOCK * s->dim_cols;
        int diagonal = attention_is_diagonal(l, j);
        int first = l->is_plain ? diagonal || i == begin : i == begin && !w->is_cleared;
        int old = begin < 0 || !first;
        block_gradients(w, j, nk, n);
        sum_queries(s, w->dv + key, w->p, w->dout, nk, n, diagonal, old);
        sum_queries(s, w->dk + key, w->ds, w->q, nk, n, diagonal, old);
        CPU(attention_sum_keys)
        (s, w->dqt, w->kt + j * s->dim_rows * s->block_units, w->dst, nk, n, diagonal,
         j > l->first);
    }
    CPU(attention_transpose)
    ((unit *)w->staging, s->dim_rows, (unit *)w->dqt, BLOCK, s->dim_rows, n);
    CPU(attention_write_rows)
    (dq, at->q.first, at->q.stride, s, w->staging, s->dim_rows, a->scale, nq);
}

/* The same rows of a tensor from row i * BLOCK on. */
static struct attention_rows from_block(struct attention_rows rows, int64_t i)
{
    rows.first += i * BLOCK * rows.stride;
    return rows;
}

/* Set dK and dV to 0, as with ATTENTION_PART some keys are seen by no query of the task, and a key
 * may be seen first by any of them. */
static void clear_keys(struct backward *w)
{
    size_t elems = (size_t)(ceil_div(attention_keys(w->a), BLOCK) * BLOCK * w->s.dim_cols);
    memset(w->dk, 0, elems * sizeof *w->dk);
    memset(w->dv, 0, elems * sizeof *w->dv);
}

/* A task: queries of blocks [begin, end) of the heads that read key/value head kv of sequence b. */
struct task {
    int64_t b, kv, begin, end;
};

/* The task of chunk c. */
static struct task task_of(const struct attention *a, int64_t head, int64_t c)
{
    int64_t blocks = ceil_div(a->seq, BLOCK), chunks = chunks_of(a);
    return (struct task){head / a->kv_heads, head % a->kv_heads, blocks * c / chunks,
                         blocks * (c + 1) / chunks};
}

/* The blocks of keys that a task's queries see lie in [range[0], range[1]). */
static void keys_of(const struct attention *a, const struct task *t, int64_t range[2])
{
    int is_plain = !(a->forms & (ATTENTION_FULL | ATTENTION_PART));
    range[0] = is_plain ? attention_low(a, t->b, t->begin * BLOCK) / BLOCK : 0;
    range[1] = is_plain ? t->end : ceil_div(attention_keys(a), BLOCK);
}

static struct attention_rows kv_rows(const struct attention *a, const void *base,
                                     const struct task *t, int is_value)
{
    return is_value ? attention_value_rows(a, base, t->b, t->kv)
                    : attention_key_rows(a, base, t->b, t->kv);
}

static void run_task(struct backward *w, const struct task *t, void *dqkv, const void *dout,
                     const void *o, const float *lse, const void *qkv)
{
    const struct attention *a = w->a;
    const void *keys = a->forms & ATTENTION_SEPARATE ? a->kv : qkv;
    int64_t dim = a->head_dim, group = a->heads / a->kv_heads, out_row = a->heads * dim, range[2];
    keys_of(a, t, range);
    pack_keys(w, kv_rows(a, keys, t, 0), kv_rows(a, keys, t, 1), range[0], range[1]);
    w->is_cleared = !!(a->forms & ATTENTION_PART);
    if (w->is_cleared)
        clear_keys(w);
    for (int64_t i = t->begin; i < t->end; i++) {
        attention_limit(&w->limits, a, t->b, i, min_i64(BLOCK, a->seq - i * BLOCK));
        for (int64_t h = t->kv * group; h < (t->kv + 1) * group; h++) {
            int64_t out_first = (t->b * a->seq + i * BLOCK) * out_row + h * dim;
            struct block_at at = {.q = from_block(attention_queries(a, qkv, t->b, h), i),
                                  .dout = {dout, out_first, out_row},
                                  .o = {o, out_first, out_row},
                                  .lse = lse + (t->b * a->heads + h) * a->seq + i * BLOCK};
            attention_dropout_of(&w->dropout, a, t->b, h, i);
            query_block(w, &at, i, h == t->kv * group ? t->begin : -1, dqkv);
        }
    }
}

/* Write dK and dV of blocks [first, end) of the keys of task t. */
static void write_keys(const struct backward *w, const struct task *t, void *dqkv, int64_t first,
                       int64_t end)
{
    const struct attention *a = w->a;
    void *dkeys = a->forms & ATTENTION_SEPARATE ? a->dkv : dqkv;
    struct attention_rows k = from_block(kv_rows(a, dkeys, t, 0), first);
    struct attention_rows v = from_block(kv_rows(a, dkeys, t, 1), first);
    int64_t at = first * BLOCK * w->s.dim_cols;
    int64_t n = min_i64(end * BLOCK, attention_keys(a)) - first * BLOCK;
    CPU(attention_write_rows)
    (dkeys, k.first, k.stride, &w->s, w->dk + at, w->s.dim_cols, a->scale, n);
    CPU(attention_write_rows)
    (dkeys, v.first, v.stride, &w->s, w->dv + at, w->s.dim_cols, 1.0f, n);
}

/* Add dK and dV of key block j of the chunks whose queries see it, in the order of chunks, and
 * write the sums.  The first such chunk's memory holds the sums; w->dk is that of the head's chunk
 * 0. */
static void sum_chunks(struct backward *w, int64_t head, int64_t j, void *dqkv)
{
    int64_t elems = kv_elems(w->a), each = BLOCK * w->s.dim_cols, chunks = chunks_of(w->a);
    float *dk = w->dk, *sum = NULL;
    for (int64_t c = 0; c < chunks; c++) {
        const struct task t = task_of(w->a, head, c);
        float *x = dk + c * 2 * elems + j * each;
        int64_t range[2];
        keys_of(w->a, &t, range);
        if (j < range[0] || j >= range[1])
            continue;
        for (int64_t i = 0; i < each && sum; i += CPU_LANES) {
            vf_store(sum + i, vf_load(sum + i) + vf_load(x + i));
            vf_store(sum + elems + i, vf_load(sum + elems + i) + vf_load(x + elems + i));
        }
        sum = sum ? sum : x;
    }
    const struct task t = task_of(w->a, head, 0);
    w->dk = sum - j * each;
    w->dv = w->dk + elems;
    write_keys(w, &t, dqkv, j, j + 1);
}

void CPU(attention_backward)(struct device *d, const struct attention *a, void *dqkv,
                             const void *dout, const void *o, const float *lse, const void *qkv,
                             void *scratch)
{
    struct backward sizes;
    const size_t per_thread = backward_layout(&sizes, a, NULL);
    const int64_t heads = a->batch * a->kv_heads, chunks = chunks_of(a), elems = kv_elems(a);
    const int64_t blocks = ceil_div(attention_keys(a), BLOCK);
    float *shared = (float *)((char *)scratch + per_thread * (size_t)d->threads);
#pragma omp parallel num_threads(run_queue_threads(d))
    {
        struct backward w;
        backward_layout(&w, a, (char *)scratch + (size_t)omp_get_thread_num() * per_thread);
        tiles_open();
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < heads * chunks; i++) {
            int64_t head = i % heads, c = chunks - 1 - i / heads; /* the longest first */
            const struct task t = task_of(a, head, c);
            if (chunks > 1) {
                w.dk = shared + (head * chunks + c) * 2 * elems;
                w.dv = w.dk + elems;
            }
            run_task(&w, &t, dqkv, dout, o, lse, qkv);
            if (chunks == 1)
                write_keys(&w, &t, dqkv, 0, blocks);
        }
        tiles_close();
#pragma omp for schedule(static)
        for (int64_t i = 0; i < (chunks > 1 ? heads * blocks : 0); i++) {
            w.dk = shared + i / blocks * chunks * 2 * elems;
            sum_chunks(&w, i / blocks, i % blocks, dqkv);
        }
    }
}
