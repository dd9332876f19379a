/* attention.c - attention with grouped queries, forward.
 *
 * FlashAttention-2 (Dao 2023), on transposed blocks: for a block of queries, over the blocks
 * of keys that it sees,
 *   S = K Q^T;  m' = max(m, max S);  P = exp(c (S - m'));  l = l exp(c (m - m')) + sum P
 *   O^T = O^T exp(c (m - m')) + V^T P
 * with the scale c, and at the end O = O^T / l, lse = m + log(l) / c.  Exponentials are to base 2,
 * with log2(e) in c.  Scores are subtracted before they are scaled: that is exact for those near
 * the largest, however large they are, and lse >= m >= S whatever is rounded.  Weights are dropped
 * after l: O sums those that are left.  A task is one
 * key/value head of one sequence and a chunk of queries for all query heads of the group; it packs
 * the keys and values it needs once.
 */
#include <omp.h>

#include "device/cpu/attention.h"

enum { CHUNK_BLOCKS = 512 / BLOCK }; /* query blocks of a task */

/* One thread's scratch. */
struct forward {
    const struct attention *a;
    struct attention_shape s;
    unit *k;        /* [blocks][BLOCK][dim_units] */
    unit *vt;       /* [blocks][dim_rows][block_units] */
    unit *q, *qt;   /* [BLOCK][dim_units], and transposed */
    float *scores;  /* [BLOCK][BLOCK], which become P as an operand in place */
    float *ot;      /* [dim_rows][BLOCK] */
    float *staging; /* BLOCK * dim_cols floats or units */
    float top[BLOCK], sum[BLOCK], shrink[BLOCK];
    struct attention_limits limits;
    struct attention_dropout dropout;
};

static size_t forward_layout(struct forward *w, const struct attention *a, void *base)
{
    struct attention_shape s = CPU(attention_shape)(a);
    int64_t blocks = ceil_div(attention_keys(a), BLOCK);
    size_t at = 0;
    w->a = a;
    w->s = s;
    w->k = attention_take(base, &at, blocks * BLOCK * s.dim_units, sizeof(unit));
    w->vt = attention_take(base, &at, blocks * s.dim_rows * s.block_units, sizeof(unit));
    w->q = attention_take(base, &at, BLOCK * s.dim_units, sizeof(unit));
    w->qt = attention_take(base, &at, BLOCK * s.dim_units, sizeof(unit));
    w->scores = attention_take(base, &at, BLOCK * BLOCK, sizeof(float));
    w->ot = attention_take(base, &at, s.dim_rows * BLOCK, sizeof(float));
    w->staging = attention_take(base, &at, BLOCK * s.dim_cols, sizeof(float));
    return at;
}

/* Pack the keys and values of blocks [first, end). */
static void pack_keys(struct forward *w, struct attention_rows k, struct attention_rows v,
                      int64_t first, int64_t end)
{
    const struct attention_shape *s = &w->s;
    unit *rows = (unit *)w->ot, *sum = (unit *)w->staging; /* not in use yet */
    k.first += first * BLOCK * k.stride;
    v.first += first * BLOCK * v.stride;
    for (int64_t j = first; j < end; j++) {
        int64_t n = min_i64(BLOCK, attention_keys(w->a) - j * BLOCK);
        CPU(attention_pack_rows)(w->k + j * BLOCK * s->dim_units, s, &k, n);
        CPU(attention_pack_rows)(rows, s, &v, n);
        CPU(attention_pack_sum)(sum, s, rows);
        CPU(attention_transpose)
        (w->vt + j * s->dim_rows * s->block_units, s->block_units, sum, s->dim_cols, s->block_units,
         s->dim_rows);
        k.first += BLOCK * k.stride;
        v.first += BLOCK * v.stride;
    }
}

/* Compute the scores of nk keys of block j by n query columns.  On the diagonal what lies wholly in
 * the future is left out. */
static void block_scores(struct forward *w, int64_t j, int64_t nk, int64_t n, int diagonal)
{
    const struct attention_shape *s = &w->s;
    struct attention_product p = {.dt = s->dt,
                                  .m = nk,
                                  .n = n,
                                  .k = s->dim_units,
                                  .lda = s->dim_units,
                                  .ldb = BLOCK,
                                  .ldc = BLOCK};
    const unit *k = w->k + j * BLOCK * s->dim_units;
    int64_t step = diagonal ? TILE_ROWS : nk;
    for (int64_t row = 0; row < nk; row += step) {
        int64_t col = diagonal ? row / TILE_COLS * TILE_COLS : 0;
        p.m = step;
        p.n = n - col;
        p.a = k + row * s->dim_units;
        p.b = w->qt + col;
        p.c = w->scores + row * BLOCK + col;
        if (p.n > 0)
            CPU(attention_product)(&p);
    }
}

/* Scores of key `row` of block j for the queries from col on. */
SIMD_INLINE vf seen_scores(const struct forward *w, const float *scores, int64_t j, int64_t row,
                           int64_t col, const enum attention_mask mask)
{
    vf s = vf_load(scores + row * BLOCK + col);
    if (mask == MASK_LIMITS)
        return between(s, &w->limits, j * BLOCK + row, col, -__builtin_inff());
    return mask == MASK_CAUSAL ? causal(s, row, col, -__builtin_inff()) : s;
}

/* Make weights of the scores of one vector of queries over nk keys of block j, in place.  A query
 * that has seen no key yet has no largest score to subtract. */
SIMD_INLINE void softmax_queries(const enum dtype dt, const enum attention_mask mask,
                                 const int drops, struct forward *w, int64_t j, int64_t nk,
                                 int64_t col)
{
    const float scale = w->a->scale * LOG2_E;
    float *const scores = w->scores;
    vf top[4], sum = {0}, old = vf_load(w->top + col);
    for (int i = 0; i < 4; i++)
        top[i] = old;
    for (int64_t row = 0; row < nk; row += 4)
        for (int i = 0; i < 4; i++)
            top[i] = vf_max(seen_scores(w, scores, j, row + i, col, mask), top[i]);
    top[0] = vf_max(vf_max(top[0], top[1]), vf_max(top[2], top[3]));
    vf base = top[0];
    if (mask == MASK_LIMITS)
        base = vf_select(base == -__builtin_inff(), (vf){0}, base);
    for (int64_t row = 0; row < nk; row += 2) {
        vf even = exp2_of((seen_scores(w, scores, j, row, col, mask) - base) * scale);
        vf odd = exp2_of((seen_scores(w, scores, j, row + 1, col, mask) - base) * scale);
        sum += even + odd;
        if (drops) {
            even = attention_drop(&w->dropout, even, row, col);
            odd = attention_drop(&w->dropout, odd, row + 1, col);
        }
        if (dt == DTYPE_BF16) {
            unit_store((unit *)scores + row / 2 * BLOCK + col, unit_pairs(even, odd));
        } else {
            vf_store(scores + row * BLOCK + col, even);
            vf_store(scores + (row + 1) * BLOCK + col, odd);
        }
    }
    vf shrink = exp2_of((old - base) * scale);
    vf_store(w->shrink + col, shrink);
    vf_store(w->top + col, top[0]);
    vf_store(w->sum + col, vf_load(w->sum + col) * shrink + sum);
}

static void softmax(struct forward *w, int64_t j, int64_t nk, int64_t n)
{
    enum attention_mask mask = attention_mask_of(&w->limits, j);
    int diagonal = attention_is_diagonal(&w->limits, j);
    int drops = !!(w->a->forms & ATTENTION_DROPOUT);
    if (drops)
        CPU(attention_draw)(&w->dropout, j, nk);
    for (int64_t col = 0; col < n; col += CPU_LANES) {
        int64_t seen = diagonal ? min_i64(nk, col / TILE_COLS * TILE_COLS + TILE_COLS) : nk;
        if (w->s.dt == DTYPE_BF16)
            WITH_MASK(softmax_queries, DTYPE_BF16, mask, drops, w, j, seen, col);
        else
            WITH_MASK(softmax_queries, DTYPE_F32, mask, drops, w, j, seen, col);
    }
}

static int all_are_one(const float *x)
{
    int ones = 0;
    for (int i = 0; i < CPU_LANES; i++)
        ones += x[i] == 1.0f;
    return ones == CPU_LANES;
}

/* Multiply the sums of each query by its factor.  All factors of a vector are 1 where no query of
 * it has found a larger score, as in many later blocks: then its sums stay as they are. */
static void shrink_output(struct forward *w, int64_t n)
{
    for (int64_t col = 0; col < n; col += CPU_LANES) {
        vf shrink = vf_load(w->shrink + col);
        float *o = w->ot + col;
        if (all_are_one(w->shrink + col))
            continue;
        for (int64_t row = 0; row < w->s.dim_rows; row++, o += BLOCK)
            vf_store(o, vf_load(o) * shrink);
    }
}

/* Compute the output of the queries of block i of one head: rows of o from element o_first on, and
 * lse[0] on. */
static void query_block(struct forward *w, struct attention_rows q, int64_t i, void *o,
                        int64_t o_first, float *lse)
{
    const struct attention *a = w->a;
    const struct attention_limits *l = &w->limits;
    int64_t nq = min_i64(BLOCK, a->seq - i * BLOCK), n = round_up(nq, TILE_COLS);
    float scale = a->scale * LOG2_E;
    CPU(attention_pack_rows)(w->q, &w->s, &q, nq);
    CPU(attention_transpose)(w->qt, BLOCK, w->q, w->s.dim_units, BLOCK, w->s.dim_units);
    for (int c = 0; c < BLOCK; c++) {
        w->top[c] = -__builtin_inff();
        w->sum[c] = 0;
    }
    for (int64_t j = l->first; j < l->end; j++) {
        int64_t nk = round_up(min_i64(BLOCK, l->keys - j * BLOCK), TILE_ROWS);
        int diagonal = attention_is_diagonal(l, j);
        block_scores(w, j, nk, n, diagonal);
        softmax(w, j, nk, n);
        if (j > l->first)
            shrink_output(w, n);
        CPU(attention_sum_keys)
        (&w->s, w->ot, w->vt + j * w->s.dim_rows * w->s.block_units, (unit *)w->scores, nk, n,
         diagonal, j > l->first);
    }
    for (int64_t c = 0; c < n; c++) {
        if (c < nq)
            lse[c] = w->top[c] + log2f(w->sum[c]) / scale;
        w->shrink[c] = 1.0f / w->sum[c];
    }
    shrink_output(w, n);
    CPU(attention_transpose)
    ((unit *)w->staging, w->s.dim_rows, (unit *)w->ot, BLOCK, w->s.dim_rows, n);
    CPU(attention_write_rows)
    (o, o_first, a->heads * a->head_dim, &w->s, w->staging, w->s.dim_rows, 1.0f, nq);
}

static void forward_task(struct forward *w, int64_t b, int64_t kv, int64_t chunk, void *o,
                         float *lse, const void *qkv)
{
    const struct attention *a = w->a;
    const void *keys = a->forms & ATTENTION_SEPARATE ? a->kv : qkv;
    int64_t group = a->heads / a->kv_heads;
    int64_t begin = chunk * CHUNK_BLOCKS;
    int64_t end = min_i64(begin + CHUNK_BLOCKS, ceil_div(a->seq, BLOCK));
    int64_t seen = ceil_div(attention_seen(a, min_i64(end * BLOCK, a->seq) - 1), BLOCK);
    pack_keys(w, attention_key_rows(a, keys, b, kv), attention_value_rows(a, keys, b, kv),
              attention_low(a, b, begin * BLOCK) / BLOCK, seen);
    for (int64_t i = begin; i < end; i++) {
        attention_limit(&w->limits, a, b, i, min_i64(BLOCK, a->seq - i * BLOCK));
        for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
            struct attention_rows q = attention_queries(a, qkv, b, h);
            q.first += i * BLOCK * q.stride;
            attention_dropout_of(&w->dropout, a, b, h, i);
            int64_t o_first = ((b * a->seq + i * BLOCK) * a->heads + h) * a->head_dim;
            query_block(w, q, i, o, o_first, lse + (b * a->heads + h) * a->seq + i * BLOCK);
        }
    }
}

void CPU(attention)(struct device *d, const struct attention *a, void *o, float *lse,
                    const void *qkv, void *scratch)
{
    int64_t chunks = ceil_div(ceil_div(a->seq, BLOCK), CHUNK_BLOCKS);
    int64_t tasks = chunks * a->batch * a->kv_heads;
    size_t per_thread = CPU(attention_scratch)(d, a, DEVICE_FORWARD) / d->threads;
#pragma omp parallel num_threads(run_queue_threads(d))
    {
        struct forward w;
        forward_layout(&w, a, (char *)scratch + omp_get_thread_num() * per_thread);
        tiles_open();
#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < tasks; t++) {
            int64_t chunk = chunks - 1 - t / (a->batch * a->kv_heads); /* the longest first */
            int64_t head = t % (a->batch * a->kv_heads);
            forward_task(&w, head / a->kv_heads, head % a->kv_heads, chunk, o, lse, qkv);
        }
        tiles_close();
    }
}

size_t CPU(attention_scratch)(struct device *d, const struct attention *a, enum device_pass pass)
{
    struct forward w;
    if (pass == DEVICE_BACKWARD)
        return CPU(attention_backward_bytes)(d, a);
    return forward_layout(&w, a, NULL) * d->threads;
}
