/* self_check_attention.c - attention: by cuDNN, a family for each format and direction, by the own
 * kernels, and over a cache. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/round.h"
#include "device/self_check_private.h"

/* The bound of results in a format: a few times the error of one rounding, as the terms summed were
 * rounded themselves.  trial.c compares it with single numbers, as a share of root mean squares,
 * and a quarter of it with all numbers together. */
static double bound_of(enum dtype dt)
{
    return dt == DTYPE_BF16 ? 4e-2 : dt == DTYPE_F16 ? 5e-3 : 1e-4;
}

enum { O, LSE, QKV, KV, DOCUMENTS, SAMPLES, FORWARD_TENSORS };
enum { DQKV = FORWARD_TENSORS, DKV, DOUT };

static struct attention placed(const struct attention *shape, void *const *at)
{
    struct attention a = *shape;
    a.kv = at[KV];
    a.documents = at[DOCUMENTS];
    a.dropout.samples = at[SAMPLES];
    return a;
}

static int64_t lse_elems(const struct attention *a)
{
    return a->batch * a->heads * a->seq;
}

/* Multiply by a factor: the CPU's lse is divided by scale, the GPU's is not. */
static void multiply(float *y, const float *x, float factor, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++)
        y[i] = x[i] * factor;
}

static void forward(struct trial_side *side, void *const *at, const void *args)
{
    const struct attention a = placed(args, at);
    struct device *d = side->d;
    void *scratch = trial_scratch(side, d->ops->attention_scratch(d, &a, DEVICE_FORWARD));
    if (side->failed)
        return;
    d->ops->attention(d, &a, at[O], at[LSE], at[QKV], scratch);
    if (d->kind == DEVICE_CPU)
        multiply(at[LSE], at[LSE], a.scale, lse_elems(&a));
}

static void backward(struct trial_side *side, void *const *at, const void *args)
{
    struct attention a = placed(args, at);
    struct device *d = side->d;
    size_t own = round_up_bytes(sizeof(float) * (size_t)lse_elems(&a), 64);
    char *scratch = trial_scratch(side, own + d->ops->attention_scratch(d, &a, DEVICE_BACKWARD));
    const float *lse = at[LSE];
    if (side->failed)
        return;
    if (d->kind == DEVICE_CPU) {
        multiply((float *)scratch, lse, 1 / a.scale, lse_elems(&a));
        lse = (float *)scratch;
        scratch += own;
    }
    a.dkv = at[DKV];
    d->ops->attention_backward(d, &a, at[DQKV], at[DOUT], at[O], lse, at[QKV], scratch);
}

/* Add the documents of an attention: three in each sequence, for each query the first key of its
 * own. */
static void add_documents(struct trial *t, const struct attention *a)
{
    struct trial_tensor *tensor = trial_tokens(t, a->batch * a->seq, 1);
    int32_t *first = tensor->values;
    for (int64_t row = 0; row < a->batch * a->seq; row++) {
        int32_t position = (int32_t)(row % a->seq), third = (int32_t)a->seq / 3 + 1;
        first[row] = position / third * third;
    }
}

static struct trial_tensor *measured(struct trial_tensor *tensor, enum dtype dt, int64_t row)
{
    tensor->bound = bound_of(dt);
    tensor->row = row;
    return tensor;
}

struct sizes {
    int64_t row, kv_row, rows, kv_rows; /* elements of a row */
};

static struct sizes sizes_of(const struct attention *a)
{
    int is_apart = !!(a->forms & ATTENTION_SEPARATE);
    return (struct sizes){.row = (a->heads + (is_apart ? 0 : 2 * a->kv_heads)) * a->head_dim,
                          .kv_row = is_apart ? 2 * a->kv_heads * a->head_dim : 0,
                          .rows = a->batch * a->seq,
                          .kv_rows = is_apart ? a->batch * a->kv_seq : 0};
}

/* Scores of random inputs are near 0.  Some heads of trained models have none but far below 0: a
 * key behind the last one that a kernel does not mask then has a weight of e^120 in place of 1, and
 * gradients are NaN that otherwise would be right. */
enum scores { SCORES_RANDOM, SCORES_LOW };

/* Lower all scores of packed projections by 120: element 0 of each key is 1, that of each query
 * -120 / scale.  Elements 0 of the gradients are then sums of terms of hundreds that may cancel: of
 * these, roundings to 16 bits are about as large as the bound, and a right library may be beyond.
 */
static void lower_scores(struct trial_tensor *qkv, const struct attention *a)
{
    const int64_t slots = a->heads + 2 * a->kv_heads, all = a->batch * a->seq * slots;
    for (int64_t i = 0; i < all; i++) {
        const float first = i % slots < a->heads ? -120 / a->scale : 1;
        char *at = (char *)qkv->values + (size_t)(i * a->head_dim) * dtype_bytes(a->dt);
        if (i % slots < a->heads + a->kv_heads)
            dtype_narrow(at, a->dt, &first, 1);
    }
}

static void add_inputs(struct trial *t, const struct attention *a, enum scores scores)
{
    const struct sizes s = sizes_of(a);
    struct trial_tensor *qkv = trial_read(t, a->dt, s.rows * s.row, 1);
    if (scores == SCORES_LOW)
        lower_scores(qkv, a);
    trial_read(t, a->dt, s.kv_rows * s.kv_row, 1);
    if (a->forms & ATTENTION_DOCUMENTS)
        add_documents(t, a);
    else
        trial_none(t);
    trial_tokens(t, a->forms & ATTENTION_DROPOUT ? 2 * a->batch : 0, 1 << 16);
}

/* Check the passes.  Backward is given the CPU's results of forward, so that errors do not add up.
 */
static void attention_case(struct trial *t, const struct attention *shape, enum scores scores,
                           unsigned passes)
{
    struct attention a = *shape;
    const struct sizes s = sizes_of(&a);
    const int64_t out = s.rows * a.heads * a.head_dim;
    a.scale = 1 / sqrtf((float)a.head_dim);
    const uint64_t drawn = t->drawn;
    trial_begin(t, "attention", a.dt);
    measured(trial_near(t, a.dt, out), a.dt, a.heads * a.head_dim);
    measured(trial_near(t, DTYPE_F32, lse_elems(&a)), DTYPE_F32, 0);
    add_inputs(t, &a, scores);
    if (passes & 1u << DEVICE_FORWARD)
        trial_run(t, forward, &a);
    else
        trial_reference(t, forward, &a);
    if (t->dead || !(passes & 1u << DEVICE_BACKWARD))
        return;
    void *o = array_make((size_t)out, dtype_bytes(a.dt));
    float *lse = array_make((size_t)lse_elems(&a), sizeof *lse);
    memcpy(o, trial_result(t, O), (size_t)out * dtype_bytes(a.dt));
    memcpy(lse, trial_result(t, LSE), (size_t)lse_elems(&a) * sizeof *lse);
    trial_begin(t, "attention_backward", a.dt);
    trial_copy(t, a.dt, out, o);
    trial_copy(t, DTYPE_F32, lse_elems(&a), lse);
    t->drawn = drawn; /* the same inputs */
    add_inputs(t, &a, scores);
    measured(trial_near(t, a.dt, s.rows * s.row), a.dt, s.row)->skip =
        scores == SCORES_LOW ? a.head_dim : 0;
    measured(trial_near(t, a.dt, s.kv_rows * s.kv_row), a.dt, s.kv_row);
    trial_read(t, a.dt, out, 1);
    trial_run(t, backward, &a);
    free(o);
    free(lse);
}

/* Whole tiles, because older versions are asked for no others. */
static struct attention cudnn_shape(const struct self_check_family *family)
{
    return (struct attention){.dt = family->dt,
                              .batch = 2,
                              .seq = 128,
                              .heads = 2,
                              .kv_heads = 1,
                              .head_dim = family->dt == DTYPE_BF16 ? 128 : 64};
}

/* Is the family also checked with any_order?  Backward in bf16 is. */
static int has_any_order(const struct self_check_family *family)
{
    return family->pass == DEVICE_BACKWARD && family->dt == DTYPE_BF16;
}

void self_check_cudnn_begin(struct device *gpu, const struct self_check_family *family)
{
    struct attention a = cudnn_shape(family);
    for (; a.any_order <= has_any_order(family); a.any_order++)
        device_attention_prepare(gpu, &a, family->pass);
}

/* Other bits each time are right where sums are asked for in any order. */
void self_check_cudnn(struct trial *t, const struct self_check_family *family)
{
    struct device_attention before, after;
    struct attention a = cudnn_shape(family);
    device_attention(t->gpu.d, &before);
    attention_case(t, &a, SCORES_RANDOM, 1u << family->pass);
    device_attention(t->gpu.d, &after);
    if (after.by_library == before.by_library) {
        *t->row = (struct self_check_row){.family = family->name, .verdict = SELF_CHECK_UNUSED};
        return;
    }
    attention_case(t, &a, SCORES_LOW, 1u << family->pass);
    if (!has_any_order(family))
        return;
    a.any_order = t->any_order = 1;
    attention_case(t, &a, SCORES_RANDOM, 1u << family->pass);
    t->any_order = 0;
}

/* Plain of the usual widths; packed documents in a window with dropout; queries of a part of their
 * sequence; keys of their own. */
static const struct attention own_shapes[] = {
    {.batch = 2, .seq = 37, .heads = 3, .kv_heads = 1, .head_dim = 64},
    {.batch = 1, .seq = 66, .heads = 2, .kv_heads = 1, .head_dim = 128},
    {.batch = 2,
     .seq = 33,
     .heads = 2,
     .kv_heads = 2,
     .head_dim = 34,
     .forms = ATTENTION_DOCUMENTS | ATTENTION_WINDOW | ATTENTION_DROPOUT,
     .window = 9},
    {.batch = 1,
     .seq = 16,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 80,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART,
     .kv_seq = 48,
     .part = {.chunk = 8, .first = {8, 40}}},
    {.batch = 1,
     .seq = 17,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 256,
     .forms = ATTENTION_SEPARATE,
     .kv_seq = 17},
};

void self_check_attention(struct trial *t, const struct self_check_family *family)
{
    const unsigned before = t->gpu.d->replaced;
    t->gpu.d->replaced = device_attention_family(family->dt, DEVICE_FORWARD) |
                         device_attention_family(family->dt, DEVICE_BACKWARD);
    for (size_t i = 0; i < sizeof own_shapes / sizeof own_shapes[0]; i++) {
        struct attention a = own_shapes[i];
        a.dt = family->dt;
        if (a.forms & ATTENTION_DROPOUT) {
            a.dropout = dropout_mask_of(0.25);
            a.dropout.key = 0x123456789abcdefu;
        }
        attention_case(t, &a, SCORES_RANDOM, 1u << DEVICE_FORWARD | 1u << DEVICE_BACKWARD);
    }
    t->gpu.d->replaced = before;
}

static void cached(struct trial_side *side, void *const *at, const void *args)
{
    struct device *d = side->d;
    void *scratch = trial_scratch(side, d->ops->attention_cached_scratch(d, args));
    if (!side->failed)
        d->ops->attention_cached(d, args, at[0], at[1], at[2], at[3], scratch);
}

/* A token of each of three sequences, four that follow one another, a token after many, so many
 * sequences that heads share a block, and prompts. */
void self_check_attention_cached(struct trial *t, const struct self_check_family *family)
{
    static const struct attention_cached shapes[] = {
        {.batch = 3, .seq = 1, .capacity = 70, .heads = 4, .kv_heads = 2, .head_dim = 64},
        {.batch = 1,
         .seq = 4,
         .capacity = 33,
         .heads = 2,
         .kv_heads = 1,
         .head_dim = 128,
         .window = 17},
        {.batch = 2, .seq = 1, .capacity = 1100, .heads = 2, .kv_heads = 1, .head_dim = 16},
        {.batch = 128, .seq = 1, .capacity = 9, .heads = 16, .kv_heads = 4, .head_dim = 16},
        {.batch = 1, .seq = 130, .capacity = 300, .heads = 2, .kv_heads = 1, .head_dim = 64},
    };
    enum { SHAPES = sizeof shapes / sizeof shapes[0] };
    for (int i = 0; i < SHAPES * TRIAL_FORMATS; i++) {
        struct attention_cached a = shapes[i % SHAPES];
        const int64_t rows = a.batch * a.seq, kept = 2 * a.kv_heads * a.head_dim;
        a.dt = trial_formats[i / SHAPES];
        a.scale = 1 / sqrtf((float)a.head_dim);
        trial_begin(t, "attention_cached", a.dt);
        trial_near(t, a.dt, rows * a.heads * a.head_dim);
        trial_changed(t, a.dt, a.batch * a.capacity * kept, 1);
        trial_read(t, a.dt, rows * (a.heads * a.head_dim + kept), 1);
        struct trial_tensor *positions = trial_tokens(t, rows, a.capacity - a.seq + 1);
        ((int32_t *)positions->values)[0] = (int32_t)(a.capacity - a.seq);
        trial_run(t, cached, &a);
    }
}
