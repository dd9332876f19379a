/* attention.h - what attention's two passes share: blocks, packed operands, products.
 *
 * Both passes work on scores transposed, keys down and queries across, in blocks of at most
 * BLOCK x BLOCK: a query is then a lane of a vector, so its running maximum, its sum and its
 * mask are vectors too, and no operation runs across lanes.
 *
 * Operands are held in units (unit.h).  fp16 is widened to fp32 on the way into operands, since its
 * products would pass its range, and so is bf16 where no instruction multiplies it.
 */
#ifndef TRIREME_DEVICE_CPU_ATTENTION_H
#define TRIREME_DEVICE_CPU_ATTENTION_H

#include "device/cpu/dropout.h"
#include "device/cpu/kernels.h"
#include "device/cpu/tile.h"

/* Queries, and keys, of a block.  With tiles products take less time than the loading and storing
 * of their sums, of which larger blocks need less; fp32 is as fast with either. */
enum { BLOCK = HAS_TILES ? 128 : 64 };

/* A head's dimensions in the terms of the packed operands. */
struct attention_shape {
    enum dtype dt;       /* of operands: bf16 or fp32 */
    enum dtype dt_rows;  /* of the tensors */
    int64_t dim;         /* elements of a head */
    int64_t row_units;   /* units of these */
    int64_t dim_units;   /* the same rounded up to what a product sums over; zeros are added */
    int64_t dim_rows;    /* dim rounded up to whole tiles, as rows of a product */
    int64_t dim_cols;    /* and as columns */
    int64_t block_units; /* units of BLOCK elements */
};

/* Rows of one head in a tensor: row r starts at element first + r * stride. */
struct attention_rows {
    const void *base;
    int64_t first, stride;
};

/* c[m,n] (+)= a b, with a [m][k] and b [k][n] of units and c fp32.  m is a multiple of
 * TILE_ROWS, n of TILE_COLS and k, in bf16, of TILE_UNITS; strides in units and floats.  Between
 * tiles_open() and tiles_close() of its thread. */
struct attention_product {
    enum dtype dt;
    int accumulate;
    int64_t m, n, k;
    const unit *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
};

void CPU(attention_product)(const struct attention_product *p);

struct attention_shape CPU(attention_shape)(const struct attention *a);

/* Copy n <= BLOCK rows to `to` [BLOCK][dim_units], for products that sum over a head's dimension.
 * Rows from n on and units from row_units on become zero. */
void CPU(attention_pack_rows)(unit *to, const struct attention_shape *s,
                              const struct attention_rows *from, int64_t n);

/* Repack such rows to `to` [block_units][dim_cols], for products that sum over the rows.  Columns
 * from dim on become zero. */
void CPU(attention_pack_sum)(unit *to, const struct attention_shape *s, const unit *rows);

/* to[j * ld_to + i] = from[i * ld_from + j] */
void CPU(attention_transpose)(unit *to, int64_t ld_to, const unit *from, int64_t ld_from,
                              int64_t rows, int64_t cols);

/* c (+)= a b for sums over the nk keys of a block: a [dim_rows][block_units], b
 * [block_units][BLOCK], c [dim_rows][BLOCK], n columns.  On the diagonal a column sums
 * only the keys its tile can see. */
void CPU(attention_sum_keys)(const struct attention_shape *s, float *c, const unit *a,
                             const unit *b, int64_t nk, int64_t n, int diagonal, int accumulate);

/* Write n rows of a head into a tensor, in its type, from fp32 rows that are ld floats apart, times
 * scale.  first: element with which the first row begins; stride: from row to row. */
void CPU(attention_write_rows)(void *base, int64_t first, int64_t stride,
                               const struct attention_shape *s, const float *from, int64_t ld,
                               float scale, int64_t n);

/* Return the bytes of scratch that the backward pass needs for all threads. */
size_t CPU(attention_backward_bytes)(const struct device *d, const struct attention *a);

/* What a block of scores hides from some of its queries. */
enum attention_mask {
    MASK_NONE,
    MASK_CAUSAL, /* of the block on the diagonal: keys after the query */
    MASK_LIMITS, /* keys outside the query's limits */
};

/* Call function(dt, mask, drops, ...), which is inlined with these constants; dt is that of
 * operands, drops whether weights are dropped. */
#define WITH_MASK(function, dt, mask, drops, ...)      \
    do {                                               \
        if (drops)                                     \
            function(dt, MASK_LIMITS, 1, __VA_ARGS__); \
        else if ((mask) == MASK_LIMITS)                \
            function(dt, MASK_LIMITS, 0, __VA_ARGS__); \
        else if ((mask) == MASK_CAUSAL)                \
            function(dt, MASK_CAUSAL, 0, __VA_ARGS__); \
        else                                           \
            function(dt, MASK_NONE, 0, __VA_ARGS__);   \
    } while (0)

/* The keys that the queries of a block see: query c those from low[c] to before high[c] of its
 * sequence, all of which lie in the blocks of keys from `first` to before `end`. */
struct attention_limits {
    int is_plain; /* causal, of whole sequences: the block on the diagonal is masked by its shape */
    int64_t block; /* of the queries */
    int64_t keys;  /* in the sequence */
    int64_t first, end;
    int32_t low[BLOCK], high[BLOCK], highest_low, lowest_high;
};

/* The first key after those that the query in row r of a sequence sees. */
static inline int64_t attention_seen(const struct attention *a, int64_t r)
{
    return a->forms & ATTENTION_FULL ? attention_keys(a) : sequence_position(&a->part, r) + 1;
}

/* The first key that the query in row r of sequence b sees; it never falls from query to query. */
static inline int32_t attention_low(const struct attention *a, int64_t b, int64_t r)
{
    int32_t window = (int32_t)attention_window_start(a, sequence_position(&a->part, r));
    int32_t document = a->forms & ATTENTION_DOCUMENTS ? a->documents[b * a->seq + r] : 0;
    return document > window ? document : window;
}

/* The limits of the n queries of block i of sequence b. */
static inline void attention_limit(struct attention_limits *l, const struct attention *a, int64_t b,
                                   int64_t i, int64_t n)
{
    int64_t query = i * BLOCK;
    l->is_plain = !(a->forms & (ATTENTION_FULL | ATTENTION_PART));
    l->block = i;
    l->keys = attention_keys(a);
    l->first = 0;
    l->end = ceil_div(attention_seen(a, query + n - 1), BLOCK);
    l->highest_low = 0;
    memset(l->low, 0, sizeof l->low);
    for (int64_t c = 0; c < BLOCK; c++)
        l->high[c] = (int32_t)attention_seen(a, query + c);
    l->lowest_high = l->high[0];
    if (!(a->forms & (ATTENTION_DOCUMENTS | ATTENTION_WINDOW)))
        return;
    int32_t lowest = INT32_MAX;
    for (int64_t c = 0; c < n; c++) {
        l->low[c] = attention_low(a, b, query + c);
        l->highest_low = l->low[c] > l->highest_low ? l->low[c] : l->highest_low;
        lowest = l->low[c] < lowest ? l->low[c] : lowest;
    }
    l->first = lowest / BLOCK;
}

/* The mask of key block j: MASK_LIMITS where more hides its keys than the diagonal of a plain
 * sequence. */
static inline enum attention_mask attention_mask_of(const struct attention_limits *l, int64_t j)
{
    if (l->highest_low > j * BLOCK || (!l->is_plain && l->lowest_high < (j + 1) * BLOCK))
        return MASK_LIMITS;
    return l->is_plain && j == l->block ? MASK_CAUSAL : MASK_NONE;
}

/* Does block j of keys lie on the diagonal, so that the tiles after each query can be left out? */
static inline int attention_is_diagonal(const struct attention_limits *l, int64_t j)
{
    return l->is_plain && j == l->block;
}

/* Where the rows of one head of a sequence lie in a tensor: its queries in q or a tensor of the
 * same shape; below, its keys, and its values. */
static inline struct attention_rows attention_queries(const struct attention *a, const void *base,
                                                      int64_t b, int64_t h)
{
    int64_t heads = a->heads + (a->forms & ATTENTION_SEPARATE ? 0 : 2 * a->kv_heads);
    int64_t row = heads * a->head_dim;
    return (struct attention_rows){base, b * a->seq * row + h * a->head_dim, row};
}

static inline struct attention_rows attention_key_rows(const struct attention *a, const void *base,
                                                       int64_t b, int64_t kv)
{
    int64_t before = a->forms & ATTENTION_SEPARATE ? 0 : a->heads;
    int64_t row = (before + 2 * a->kv_heads) * a->head_dim;
    int64_t first = b * attention_keys(a) * row + (before + kv) * a->head_dim;
    return (struct attention_rows){base, first, row};
}

static inline struct attention_rows attention_value_rows(const struct attention *a,
                                                         const void *base, int64_t b, int64_t kv)
{
    return attention_key_rows(a, base, b, a->kv_heads + kv);
}

/* The next count elements of size bytes of a scratch area, aligned; *offset moves on.  With
 * base NULL only the offset counts, which is how scratch is sized. */
static inline void *attention_take(void *base, size_t *offset, int64_t count, size_t size)
{
    size_t at = *offset;
    *offset = round_up_bytes(at + (size_t)count * size, 64);
    return base ? (char *)base + at : NULL;
}

static const float LOG2_E = 0x1.715476p0f;

/* 2^x, to about 2e-7, for x up to 120; below 2^-125 it is 0.  The exponent field is set
 * from the integer part, 2^fraction comes from a polynomial.  NaN stays NaN. */
SIMD_INLINE vf exp2_of(vf x)
{
    const float to_integer = 0x1.8p23f;
    vf shifted = x + to_integer;
    vf f = x - (shifted - to_integer);
    vf y = f * 1.33335581e-3f + 9.61812911e-3f;
    y = y * f + 5.55041087e-2f;
    y = y * f + 2.40226507e-1f;
    y = y * f + 6.93147181e-1f;
    y = y * f + 1.0f;
    y = (vf)((vu)y + ((vu)shifted << 23));
    return (vf)((vi)y & ~(shifted <= to_integer - 126.0f));
}

/* Scores x of key `row` of a block on the diagonal, for the queries (lanes) from col on: those of
 * queries before the key become `hidden`. */
SIMD_INLINE vf causal(vf x, int64_t row, int64_t col, float hidden)
{
    return vf_select(vi_lanes() < (int32_t)(row - col), vf_set(hidden), x);
}

/* Scores x of a key for the queries (lanes) from col on: those of queries that do not see the key
 * become `hidden`. */
SIMD_INLINE vf between(vf x, const struct attention_limits *l, int64_t key, int64_t col,
                       float hidden)
{
    vi low, high, here = (int32_t)key - (vi){0};
    memcpy(&low, l->low + col, sizeof low);
    memcpy(&high, l->high + col, sizeof high);
    return vf_select((low > here) | (high <= here), vf_set(hidden), x);
}

/* What decides which weights are dropped, for a block of queries of one head. */
struct attention_dropout {
    const struct dropout_mask *mask;
    struct philox4 counter;
    uint32_t position[BLOCK];     /* of each query in its sequence */
    uint32_t words[BLOCK][BLOCK]; /* random, [key][query], for one block of keys */
};

/* Set mask, counter and positions for the queries of block i of head h of sequence b. */
static inline void attention_dropout_of(struct attention_dropout *w, const struct attention *a,
                                        int64_t b, int64_t h, int64_t i)
{
    if (!(a->forms & ATTENTION_DROPOUT))
        return;
    w->mask = &a->dropout;
    w->counter = dropout_counter(w->mask, b, a->first_head + h);
    for (int64_t c = 0; c < BLOCK; c++)
        w->position[c] = (uint32_t)sequence_position(&a->part, i * BLOCK + c);
}

/* Draw the words of nk keys of block j. */
void CPU(attention_draw)(struct attention_dropout *w, int64_t j, int64_t nk);

/* Weights, or their gradients, of key `row` of the block for the queries from col on: those dropped
 * are 0, the others larger for it. */
SIMD_INLINE vf attention_drop(const struct attention_dropout *w, vf x, int64_t row, int64_t col)
{
    vu word;
    memcpy(&word, &w->words[row][col], sizeof word);
    return vf_select(word < w->mask->limit, (vf){0}, x * w->mask->factor);
}

#endif
