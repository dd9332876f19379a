/* self_check_moves.c - ops on flat tensors (add, scale, cast, decode, copy), dropout, packed heads,
 * chunks of sequences that ranks share, and the magnitudes of adapters. */
#include <math.h>
#include <string.h>

#include "base/nf4.h"
#include "device/self_check_private.h"

/* ---- flat tensors ---- */

struct flat {
    enum dtype dt, to;
    int64_t elems;
};

static void add(struct trial_side *side, void *const *at, const void *args)
{
    const struct flat *f = args;
    side->d->ops->add(side->d, f->dt, at[0], at[1], at[2], f->elems);
}

static void scale(struct trial_side *side, void *const *at, const void *args)
{
    const struct flat *f = args;
    side->d->ops->scale(side->d, f->dt, at[0], at[1], 1.7f, f->elems);
}

static void cast(struct trial_side *side, void *const *at, const void *args)
{
    const struct flat *f = args;
    side->d->ops->cast(side->d, f->to, at[0], f->dt, at[1], f->elems);
}

static void copy(struct trial_side *side, void *const *at, const void *args)
{
    const struct flat *f = args;
    side->d->ops->copy(side->d, at[0], at[1], (size_t)f->elems * dtype_bytes(f->dt));
}

static void fill_zero(struct trial_side *side, void *const *at, const void *args)
{
    const struct flat *f = args;
    side->d->ops->fill_zero(side->d, at[0], (size_t)f->elems * dtype_bytes(f->dt));
}

static void flat_case(struct trial *t, const struct flat *f)
{
    trial_begin(t, "add", f->dt);
    trial_exact(t, f->dt, f->elems);
    trial_read(t, f->dt, f->elems, 1);
    trial_read(t, f->dt, f->elems, 1);
    trial_run(t, add, f);
    trial_begin(t, "scale", f->dt);
    trial_exact(t, f->dt, f->elems);
    trial_read(t, f->dt, f->elems, 1);
    trial_run(t, scale, f);
    trial_begin(t, "copy", f->dt);
    trial_exact(t, f->dt, f->elems);
    trial_read(t, f->dt, f->elems, 1);
    trial_run(t, copy, f);
    trial_begin(t, "fill_zero", f->dt);
    trial_exact(t, f->dt, f->elems);
    trial_run(t, fill_zero, f);
}

static void decode_nf4(struct trial_side *side, void *const *at, const void *args)
{
    const struct flat *f = args;
    side->d->ops->decode_nf4(side->d, f->to, at[0], at[1], f->elems);
}

/* Records are made in the place of their numbers; those of one block are zeros. */
static void decode_case(struct trial *t, enum dtype to)
{
    enum { ELEMS = 129 * NF4_BLOCK };
    const struct flat f = {.to = to, .elems = ELEMS};
    trial_begin(t, "decode_nf4", to);
    trial_exact(t, to, ELEMS);
    void *records = trial_read(t, DTYPE_F32, ELEMS, 1)->values;
    memset(records, 0, NF4_BLOCK * sizeof(float));
    nf4_encode(records, records, ELEMS);
    trial_run(t, decode_nf4, &f);
}

/* Results are rounded once, so that bits are compared. */
void self_check_flat(struct trial *t, const struct self_check_family *family)
{
    for (int i = 0; i < TRIAL_FORMATS * 2; i++) {
        struct flat f = {.dt = trial_formats[i / 2], .elems = i % 2 ? 521 : 4104};
        flat_case(t, &f);
        for (int to = 0; to < TRIAL_FORMATS; to++) {
            f.to = trial_formats[to];
            if (f.to == f.dt)
                continue;
            trial_begin(t, "cast", f.dt);
            trial_exact(t, f.to, f.elems);
            trial_read(t, f.dt, f.elems, 1);
            trial_run(t, cast, &f);
        }
    }
    for (int to = 0; to < TRIAL_FORMATS; to++)
        decode_case(t, trial_formats[to]);
}

/* ---- dropout ---- */

static void dropout(struct trial_side *side, void *const *at, const void *args)
{
    struct dropout p = *(const struct dropout *)args;
    p.mask.samples = at[3];
    side->d->ops->dropout(side->d, &p, at[0], at[1], at[2]);
}

/* Without an addend bits are compared: they show the mask. */
void self_check_dropout(struct trial *t, const struct self_check_family *family)
{
    static const struct dropout drops[] = {
        {.rows = 18, .cols = 129, .first = 4, .batch = 3, .seq = 6, .ranks = 1, .row_chunks = 1},
        {.rows = 6, .cols = 512, .batch = 3, .seq = 6, .ranks = 3, .rank = 1, .row_chunks = 2},
        {.rows = 18,
         .cols = 40,
         .batch = 3,
         .seq = 6,
         .part = {.chunk = 3, .first = {6, 18}},
         .ranks = 1,
         .row_chunks = 1},
    };
    for (int i = 0; i < TRIAL_FORMATS * 3; i++) {
        struct dropout p = drops[i % 3];
        int64_t elems = p.rows * p.cols;
        p.dt = trial_formats[i / 3];
        p.mask = dropout_mask_of(0.25);
        p.mask.key = 0x123456789abcdefu * (uint64_t)(i + 1);
        trial_begin(t, "dropout", p.dt);
        if (i % 2)
            trial_near(t, p.dt, elems);
        else
            trial_exact(t, p.dt, elems);
        trial_read(t, p.dt, elems, 1);
        trial_read(t, p.dt, i % 2 ? elems : 0, 1);
        trial_tokens(t, 2 * p.batch, 1 << 16);
        trial_run(t, dropout, &p);
    }
}

/* ---- ranks that share heads, and sequences ---- */

static void pack_heads(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->pack_heads(side->d, args, at[0], at[1], at[2]);
}

static void pack_heads_backward(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->pack_heads_backward(side->d, args, at[0], at[1], at[2]);
}

void self_check_heads(struct trial *t, const struct self_check_family *family)
{
    static const struct pack_heads forms[] = {
        {.rows = 17, .heads = 3, .kv_heads = 2, .first = 2, .group = 4, .packed = 3, .head_dim = 7},
        {.rows = 9, .heads = 4, .kv_heads = 3, .first = 2, .group = 2, .packed = 2, .head_dim = 64},
    };
    for (int i = 0; i < TRIAL_FORMATS * 2; i++) {
        struct pack_heads p = forms[i % 2];
        p.dt = trial_formats[i / 2];
        const int64_t q = p.rows * p.heads * p.head_dim, kv = 2 * p.rows * p.kv_heads * p.head_dim;
        const int64_t y = q + 2 * p.rows * p.packed * p.head_dim;
        trial_begin(t, "pack_heads", p.dt);
        trial_exact(t, p.dt, y);
        trial_read(t, p.dt, q, 1);
        trial_read(t, p.dt, kv, 1);
        trial_run(t, pack_heads, &p);
        trial_begin(t, "pack_heads_backward", p.dt);
        trial_exact(t, p.dt, q);
        trial_exact(t, p.dt, kv);
        trial_read(t, p.dt, y, 1);
        trial_run(t, pack_heads_backward, &p);
    }
}

static void order_chunks(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->order_chunks(side->d, args, at[0], at[1]);
}

void self_check_chunks(struct trial *t, const struct self_check_family *family)
{
    static const int64_t cols[] = {7, 40, 2056};
    for (int i = 0; i < 6; i++) {
        const struct order_chunks o = {.batch = 1 + i % 2,
                                       .ranks = 2 + i % 2,
                                       .chunk_bytes = (size_t)cols[i % 3] * sizeof(bf16),
                                       .inverse = i / 3};
        const int64_t elems = o.batch * 2 * o.ranks * cols[i % 3];
        trial_begin(t, "order_chunks", DTYPE_BF16);
        trial_exact(t, DTYPE_BF16, elems);
        trial_read(t, DTYPE_BF16, elems, 1);
        trial_run(t, order_chunks, &o);
    }
}

/* ---- magnitudes of adapters (DoRA) ---- */

static void row_squares(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->row_squares(side->d, args, at[0], at[1], at[2], at[3], at[4]);
}

static void squares_case(struct trial *t, enum dtype dt, int64_t rows, int64_t cols, int64_t rank)
{
    const struct row_squares s = {dt, rows, cols, rank, 1.25f};
    trial_begin(t, "row_squares", dt);
    trial_near(t, DTYPE_F32, rows)->size = 4 * (double)cols;
    trial_read(t, dt, rows * cols, 2);
    trial_read(t, dt, rows * rank, 0.1);
    trial_read(t, DTYPE_F32, rows * rank, 1);
    float *aa = trial_read(t, DTYPE_F32, rank * rank, 0.1)->values;
    for (int64_t i = 0; i < rank; i++)
        for (int64_t k = 0; k < i; k++)
            aa[i * rank + k] = aa[k * rank + i]; /* as A A^T is */
    trial_run(t, row_squares, &s);
}

struct columns {
    struct column_scale s;
    int accumulate;
};

static void scale_columns(struct trial_side *side, void *const *at, const void *args)
{
    const struct columns *c = args;
    side->d->ops->scale_columns(side->d, &c->s, at[0], at[1], at[2], at[3]);
}

static void scale_columns_backward(struct trial_side *side, void *const *at, const void *args)
{
    const struct columns *c = args;
    struct device *d = side->d;
    void *scratch = trial_scratch(side, d->ops->bias_backward_scratch(d, c->s.rows, c->s.cols));
    if (!side->failed)
        d->ops->scale_columns_backward(d, &c->s, at[0], at[1], at[2], at[3], c->accumulate,
                                       scratch);
}

/* Squares of columns, with a 0 among them. */
static void add_squares(struct trial *t, int64_t cols)
{
    float *square = trial_read(t, DTYPE_F32, cols, 1)->values;
    for (int64_t i = 0; i < cols; i++)
        square[i] = i % 5 == 3 ? 0 : square[i] * square[i] + 0.1f;
}

/* Scale c's columns of each row; where rows have more, these are not to be touched. */
static void columns_case(struct trial *t, const struct columns *c)
{
    const int64_t elems = c->s.rows * c->s.ld;
    trial_begin(t, "scale_columns", c->s.dt);
    trial_changed(t, c->s.dt, elems, 1);
    trial_read(t, c->s.dt, elems, 2);
    trial_read(t, c->s.dt, c->s.cols, 1);
    add_squares(t, c->s.cols);
    trial_run(t, scale_columns, c);
    trial_begin(t, "scale_columns_backward", c->s.dt);
    trial_gradient(t, c->s.cols, c->accumulate)->size = 10 * sqrt((double)c->s.rows);
    trial_read(t, c->s.dt, elems, 1);
    trial_read(t, c->s.dt, elems, 2);
    add_squares(t, c->s.cols);
    trial_run(t, scale_columns_backward, c);
}

void self_check_magnitudes(struct trial *t, const struct self_check_family *family)
{
    for (int i = 0; i < TRIAL_FORMATS; i++) {
        struct columns odd = {{trial_formats[i], 9, 31, 35}, 1};
        struct columns even = {{trial_formats[i], 150, 48, 48}, 0};
        squares_case(t, trial_formats[i], 7, 131, 5);
        squares_case(t, trial_formats[i], 9, 64, 16);
        columns_case(t, &odd);
        columns_case(t, &even);
    }
}
