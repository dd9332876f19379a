/* self_check_layers.c - what layers have beside products and attention: norms, rotations, gates,
 * biases, the embedding. */
#include <math.h>

#include "device/self_check_private.h"

struct sizes {
    enum dtype dt;
    int64_t rows, cols;
    int accumulate;
};

/* Sizes: odd; rows of whole memory accesses; more rows than a GPU has blocks; rows of which a
 * thread has several accesses. */
static const struct sizes shapes[] = {
    {.rows = 5, .cols = 33, .accumulate = 1},
    {.rows = 13, .cols = 136},
    {.rows = 270, .cols = 24, .accumulate = 1},
    {.rows = 2, .cols = 4104},
};

/* Call check for each shape and format; the shape of many rows only in bf16. */
static void each_shape(struct trial *t, void (*check)(struct trial *t, const struct sizes *s))
{
    for (int i = 0; i < TRIAL_FORMATS * 4; i++) {
        struct sizes s = shapes[i % 4];
        s.dt = trial_formats[i / 4];
        if (s.rows < 256 || s.dt == DTYPE_BF16)
            check(t, &s);
    }
}

/* Add a tensor of positive numbers, for inverse deviations and squares. */
static void trial_positive(struct trial *t, int64_t elems)
{
    float *value = trial_read(t, DTYPE_F32, elems, 0.2)->values;
    for (int64_t i = 0; i < elems; i++)
        value[i] = fabsf(value[i]) + 0.5f;
}

/* ---- norms ---- */

static void rmsnorm(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    side->d->ops->rmsnorm(side->d, s->dt, at[0], at[1], at[2], at[3], at[4], at[5], s->rows,
                          s->cols, 1e-5f);
}

static void rmsnorm_backward(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    struct device *d = side->d;
    void *scratch = trial_scratch(side, d->ops->norm_backward_scratch(d, s->rows, s->cols, 1));
    if (!side->failed)
        d->ops->rmsnorm_backward(d, s->dt, at[0], at[1], at[2], at[3], at[4], at[5], at[6], s->rows,
                                 s->cols, s->accumulate, scratch);
}

static void rmsnorm_case(struct trial *t, const struct sizes *s)
{
    const int64_t elems = s->rows * s->cols, added = s->accumulate ? elems : 0;
    trial_begin(t, "rmsnorm", s->dt);
    trial_near(t, s->dt, elems);
    trial_exact(t, s->dt, added);
    trial_near(t, DTYPE_F32, s->rows);
    trial_read(t, s->dt, elems, 2);
    trial_read(t, s->dt, added, 1);
    trial_read(t, s->dt, s->cols, 1);
    trial_run(t, rmsnorm, s);
    trial_begin(t, "rmsnorm_backward", s->dt);
    trial_near(t, s->dt, elems);
    trial_gradient(t, s->cols, s->accumulate);
    trial_read(t, s->dt, elems, 1);
    trial_read(t, s->dt, added, 1);
    trial_read(t, s->dt, elems, 2);
    trial_read(t, s->dt, s->cols, 1);
    trial_positive(t, s->rows);
    trial_run(t, rmsnorm_backward, s);
}

void self_check_rmsnorm(struct trial *t, const struct self_check_family *family)
{
    each_shape(t, rmsnorm_case);
}

static void layernorm(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    side->d->ops->layernorm(side->d, s->dt, at[0], at[1], at[2], at[3], at[4], s->rows, s->cols,
                            1e-5f);
}

static void layernorm_backward(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    struct device *d = side->d;
    void *scratch = trial_scratch(side, d->ops->norm_backward_scratch(d, s->rows, s->cols, 2));
    if (!side->failed)
        d->ops->layernorm_backward(d, s->dt, at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7],
                                   s->rows, s->cols, s->accumulate, scratch);
}

static void layernorm_case(struct trial *t, const struct sizes *s)
{
    const int64_t elems = s->rows * s->cols;
    trial_begin(t, "layernorm", s->dt);
    trial_near(t, s->dt, elems);
    trial_near(t, DTYPE_F32, 2 * s->rows);
    trial_read(t, s->dt, elems, 2);
    trial_read(t, s->dt, s->cols, 1);
    trial_read(t, s->dt, s->cols, 1);
    trial_run(t, layernorm, s);
    trial_begin(t, "layernorm_backward", s->dt);
    trial_near(t, s->dt, elems);
    trial_gradient(t, s->cols, s->accumulate);
    trial_gradient(t, s->cols, s->accumulate);
    trial_read(t, s->dt, elems, 1);
    trial_read(t, s->dt, s->accumulate ? elems : 0, 1);
    trial_read(t, s->dt, elems, 2);
    trial_read(t, s->dt, s->cols, 1);
    trial_positive(t, 2 * s->rows);
    trial_run(t, layernorm_backward, s);
}

void self_check_layernorm(struct trial *t, const struct self_check_family *family)
{
    each_shape(t, layernorm_case);
}

struct head_norm {
    struct qk_norm n;
    int accumulate;
};

static void qk_norm(struct trial_side *side, void *const *at, const void *args)
{
    const struct head_norm *h = args;
    side->d->ops->qk_norm(side->d, &h->n, at[0], at[1], at[2], at[3], at[4]);
}

static void qk_norm_backward(struct trial_side *side, void *const *at, const void *args)
{
    const struct head_norm *h = args;
    struct device *d = side->d;
    void *scratch =
        trial_scratch(side, d->ops->norm_backward_scratch(d, h->n.rows, h->n.head_dim, 2));
    if (!side->failed)
        d->ops->qk_norm_backward(d, &h->n, at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7],
                                 h->accumulate, scratch);
}

static void qk_norm_case(struct trial *t, const struct head_norm *h)
{
    const struct qk_norm *n = &h->n;
    const int64_t elems = n->rows * (n->heads + 2 * n->kv_heads) * n->head_dim;
    const int64_t normed = n->rows * (n->heads + n->kv_heads);
    trial_begin(t, "qk_norm", n->dt);
    trial_near(t, n->dt, elems);
    trial_near(t, DTYPE_F32, normed);
    trial_read(t, n->dt, elems, 2);
    trial_read(t, n->dt, n->head_dim, 1);
    trial_read(t, n->dt, n->head_dim, 1);
    trial_run(t, qk_norm, h);
    trial_begin(t, "qk_norm_backward", n->dt);
    trial_near(t, n->dt, elems);
    trial_gradient(t, n->head_dim, h->accumulate);
    trial_gradient(t, n->head_dim, h->accumulate);
    trial_read(t, n->dt, elems, 1);
    trial_read(t, n->dt, elems, 2);
    trial_read(t, n->dt, n->head_dim, 1);
    trial_read(t, n->dt, n->head_dim, 1);
    trial_positive(t, normed);
    trial_run(t, qk_norm_backward, h);
}

void self_check_qk_norm(struct trial *t, const struct self_check_family *family)
{
    static const struct head_norm norms[] = {
        {{.rows = 5, .heads = 3, .kv_heads = 1, .head_dim = 34, .eps = 1e-6f}, 1},
        {{.rows = 13, .heads = 4, .kv_heads = 2, .head_dim = 128, .eps = 1e-6f}, 0},
        {{.rows = 3, .heads = 2, .kv_heads = 2, .head_dim = 256, .eps = 1e-6f}, 0},
    };
    for (int i = 0; i < TRIAL_FORMATS * 3; i++) {
        struct head_norm h = norms[i % 3];
        h.n.dt = trial_formats[i / 3];
        qk_norm_case(t, &h);
    }
}

/* ---- rotations and gates ---- */

static void rope(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->rope(side->d, args, at[0], at[1], at[2], at[3]);
}

void self_check_rope(struct trial *t, const struct self_check_family *family)
{
    static const struct rope rotations[] = {
        {.rows = 21, .seq = 7, .row_heads = 5, .rotated = 3, .head_dim = 34, .inverse = 1},
        {.rows = 14, .seq = 7, .row_heads = 6, .rotated = 4, .head_dim = 128},
    };
    for (int i = 0; i < TRIAL_FORMATS * 2; i++) {
        struct rope r = rotations[i % 2];
        r.dt = trial_formats[i / 2];
        trial_begin(t, "rope", r.dt);
        trial_near(t, r.dt, r.rows * r.row_heads * r.head_dim);
        trial_read(t, r.dt, r.rows * r.row_heads * r.head_dim, 1);
        trial_read(t, DTYPE_F32, r.seq * r.head_dim, 0.7);
        trial_tokens(t, i % 2 ? r.rows : 0, r.seq);
        trial_run(t, rope, &r);
    }
}

static void swiglu(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    side->d->ops->swiglu(side->d, s->dt, at[0], at[1], s->rows, s->cols);
}

static void swiglu_backward(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    side->d->ops->swiglu_backward(side->d, s->dt, at[0], at[2], at[1], s->rows, s->cols);
}

static void swiglu_scaled(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    side->d->ops->swiglu_scaled(side->d, s->dt, at[0], at[1], at[2], s->rows, s->cols);
}

static void swiglu_scaled_backward(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    side->d->ops->swiglu_scaled_backward(side->d, s->dt, at[0], at[1], at[4], at[2], at[3], s->rows,
                                         s->cols);
}

static void swiglu_scaled_case(struct trial *t, const struct sizes *s)
{
    const int64_t elems = s->rows * s->cols;
    trial_begin(t, "swiglu_scaled", s->dt);
    trial_near(t, s->dt, elems);
    trial_read(t, s->dt, 2 * elems, 2);
    trial_read(t, DTYPE_F32, s->rows, 1);
    trial_run(t, swiglu_scaled, s);
    trial_begin(t, "swiglu_scaled_backward", s->dt);
    trial_near(t, s->dt, 2 * elems);
    trial_near(t, DTYPE_F32, s->rows)->size = sqrt((double)s->cols);
    trial_read(t, s->dt, 2 * elems, 2);
    trial_read(t, DTYPE_F32, s->rows, 1);
    trial_read(t, s->dt, elems, 1);
    trial_run(t, swiglu_scaled_backward, s);
}

static void swiglu_case(struct trial *t, const struct sizes *s)
{
    const int64_t elems = s->rows * s->cols;
    trial_begin(t, "swiglu", s->dt);
    trial_near(t, s->dt, elems);
    trial_read(t, s->dt, 2 * elems, 2);
    trial_run(t, swiglu, s);
    trial_begin(t, "swiglu_backward", s->dt);
    trial_near(t, s->dt, 2 * elems);
    trial_read(t, s->dt, 2 * elems, 2);
    trial_read(t, s->dt, elems, 1);
    trial_run(t, swiglu_backward, s);
}

void self_check_swiglu(struct trial *t, const struct self_check_family *family)
{
    each_shape(t, swiglu_case);
    each_shape(t, swiglu_scaled_case);
}

static void gelu(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    side->d->ops->gelu(side->d, s->dt, at[0], at[1], at[2], s->rows, s->cols);
}

static void gelu_backward(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    side->d->ops->gelu_backward(side->d, s->dt, at[0], at[3], at[1], at[2], s->rows, s->cols);
}

static void gelu_case(struct trial *t, const struct sizes *s)
{
    const int64_t elems = s->rows * s->cols;
    trial_begin(t, "gelu", s->dt);
    trial_near(t, s->dt, elems);
    trial_read(t, s->dt, elems, 2);
    trial_read(t, s->dt, s->cols, 1);
    trial_run(t, gelu, s);
    trial_begin(t, "gelu_backward", s->dt);
    trial_near(t, s->dt, elems);
    trial_read(t, s->dt, elems, 2);
    trial_read(t, s->dt, s->cols, 1);
    trial_read(t, s->dt, elems, 1);
    trial_run(t, gelu_backward, s);
}

void self_check_gelu(struct trial *t, const struct self_check_family *family)
{
    each_shape(t, gelu_case);
}

static void bias(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    side->d->ops->bias(side->d, s->dt, at[0], at[1], at[2], s->rows, s->cols);
}

static void bias_backward(struct trial_side *side, void *const *at, const void *args)
{
    const struct sizes *s = args;
    struct device *d = side->d;
    void *scratch = trial_scratch(side, d->ops->bias_backward_scratch(d, s->rows, s->cols));
    if (!side->failed)
        d->ops->bias_backward(d, s->dt, at[0], at[1], s->rows, s->cols, s->accumulate, scratch);
}

static void bias_case(struct trial *t, const struct sizes *s)
{
    const int64_t elems = s->rows * s->cols;
    trial_begin(t, "bias", s->dt);
    trial_near(t, s->dt, elems);
    trial_read(t, s->dt, elems, 1);
    trial_read(t, s->dt, s->cols, 1);
    trial_run(t, bias, s);
    trial_begin(t, "bias_backward", s->dt);
    trial_gradient(t, s->cols, s->accumulate)->size = sqrt((double)s->rows);
    trial_read(t, s->dt, elems, 1);
    trial_run(t, bias_backward, s);
}

void self_check_bias(struct trial *t, const struct self_check_family *family)
{
    each_shape(t, bias_case);
}

/* ---- the embedding ---- */

struct table {
    enum dtype dt;
    int64_t rows, cols, first, own;
    int accumulate;
};

static void embedding(struct trial_side *side, void *const *at, const void *args)
{
    const struct table *e = args;
    side->d->ops->embedding(side->d, e->dt, at[0], at[1], at[2], e->rows, e->cols, e->first,
                            e->own);
}

static void embedding_backward(struct trial_side *side, void *const *at, const void *args)
{
    const struct table *e = args;
    side->d->ops->embedding_backward(side->d, e->dt, at[0], at[1], at[2], e->rows, e->cols,
                                     e->first, e->own, e->accumulate);
}

/* Tokens more than once, some never, and some of other ranks; rows are added in order on both. */
void self_check_embedding(struct trial *t, const struct self_check_family *family)
{
    static const struct table tables[] = {
        {.rows = 31, .cols = 33, .first = 2, .own = 11, .accumulate = 1},
        {.rows = 70, .cols = 136, .own = 29},
    };
    for (int i = 0; i < TRIAL_FORMATS * 2; i++) {
        struct table e = tables[i % 2];
        e.dt = trial_formats[i / 2];
        trial_begin(t, "embedding", e.dt);
        trial_exact(t, e.dt, e.rows * e.cols);
        trial_read(t, e.dt, e.own * e.cols, 1);
        trial_tokens(t, e.rows, e.first + e.own + 2);
        trial_run(t, embedding, &e);
        trial_begin(t, "embedding_backward", e.dt);
        trial_gradient(t, e.own * e.cols, e.accumulate)->use = TRIAL_EXACT;
        trial_read(t, e.dt, e.rows * e.cols, 1);
        trial_tokens(t, e.rows, e.first + e.own + 2);
        trial_run(t, embedding_backward, &e);
    }
}
