/* self_check_sums.c - the loss, the optimizers and their sums, and the sums that transfers make. */
#include <math.h>

#include "base/dynamic8.h"
#include "base/philox.h"
#include "base/round.h"
#include "device/self_check_private.h"

/* ---- the loss ---- */

struct loss {
    enum dtype dt, dt_x; /* dt_x: of logits */
    int64_t rows, vocab, ld, first;
};

static const float factor_of_loss = 0.125f;

static void cross_entropy(struct trial_side *side, void *const *at, const void *args)
{
    const struct loss *l = args;
    side->d->ops->cross_entropy(side->d, l->dt, at[0], at[1], l->ld, l->dt_x, at[2], l->ld, at[3],
                                l->rows, l->vocab, factor_of_loss, at[4]);
}

static void loss_sum(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->loss_sum(side->d, at[0], at[1], at[2], ((const struct loss *)args)->rows);
}

/* Add targets: the first and the last token, others, and masked rows. */
static void add_targets(struct trial *t, const struct loss *l)
{
    int32_t *target = trial_tokens(t, l->rows, l->vocab)->values;
    for (int64_t r = 0; r < l->rows; r++) {
        const int32_t picks[] = {0, (int32_t)l->vocab - 1, target[r], -100, -1};
        target[r] = picks[r % 5];
    }
}

static const struct loss losses[] = {
    {.rows = 11, .vocab = 521, .ld = 524, .first = 3},
    {.rows = 6, .vocab = 4096, .ld = 4096},
    {.rows = 2, .vocab = 32003, .ld = 32004}, /* more than a block keeps in registers */
};
enum { LOSSES = sizeof losses / sizeof losses[0] };

static void cross_entropy_case(struct trial *t, const struct loss *l, int is_scaled)
{
    trial_begin(t, "cross_entropy", l->dt);
    trial_near(t, DTYPE_F32, l->rows);
    trial_near(t, l->dt, l->rows * l->ld);
    trial_read(t, l->dt_x, l->rows * l->ld, 2);
    add_targets(t, l);
    if (is_scaled)
        trial_copy(t, DTYPE_F64, 1, &(double){1024});
    else
        trial_none(t);
    trial_run(t, cross_entropy, l);
}

/* Case i: activations of each format with fp32 logits, then bf16 with bf16 logits. */
static struct loss loss_of(int i, int shapes)
{
    struct loss l = losses[i % shapes];
    int format = i / shapes, own = format == TRIAL_FORMATS;
    l.dt = own ? DTYPE_BF16 : trial_formats[format];
    l.dt_x = own ? DTYPE_BF16 : DTYPE_F32;
    return l;
}

void self_check_loss(struct trial *t, const struct self_check_family *family)
{
    for (int i = 0; i < (TRIAL_FORMATS + 1) * LOSSES; i++) {
        struct loss l = loss_of(i, LOSSES);
        cross_entropy_case(t, &l, i % 2);
    }
    struct loss l = {.rows = 521, .vocab = 50};
    trial_begin(t, "loss_sum", DTYPE_F32);
    trial_changed(t, DTYPE_F64, 2, 10);
    trial_read(t, DTYPE_F32, l.rows, 3);
    add_targets(t, &l);
    trial_run(t, loss_sum, &l);
}

/* ---- the same in parts ---- */

static void softmax_part(struct trial_side *side, void *const *at, const void *args)
{
    const struct loss *l = args;
    side->d->ops->softmax_part(side->d, at[0], at[1], l->dt_x, at[2], l->ld, at[3], l->rows,
                               l->vocab, l->first);
}

static void softmax_term(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->softmax_term(side->d, at[0], at[1], at[2], at[3],
                               ((const struct loss *)args)->rows);
}

static void softmax_loss(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->softmax_loss(side->d, at[0], at[1], at[2], at[3],
                               ((const struct loss *)args)->rows);
}

static void softmax_gradient(struct trial_side *side, void *const *at, const void *args)
{
    const struct loss *l = args;
    side->d->ops->softmax_gradient(side->d, l->dt, at[0], l->ld, l->dt_x, at[1], l->ld, at[2],
                                   at[3], at[4], l->rows, l->vocab, l->first, factor_of_loss, NULL);
}

/* Add the largest logits of all ranks, above those of this one; add_sums() adds their sums and the
 * logits of targets. */
static void add_tops(struct trial *t, int64_t rows)
{
    float *top = trial_read(t, DTYPE_F32, rows, 0.1)->values;
    for (int64_t r = 0; r < rows; r++)
        top[r] += 9.5f;
}

static void add_sums(struct trial *t, int64_t rows)
{
    float *sum = trial_read(t, DTYPE_F32, 2 * rows, 1)->values;
    for (int64_t r = 0; r < rows; r++)
        sum[2 * r] = fabsf(sum[2 * r]) + 3;
}

static void softmax_case(struct trial *t, const struct loss *l)
{
    trial_begin(t, "softmax_part", l->dt);
    trial_near(t, DTYPE_F32, l->rows);
    trial_near(t, DTYPE_F32, 2 * l->rows);
    trial_read(t, l->dt_x, l->rows * l->ld, 2);
    add_targets(t, l);
    trial_run(t, softmax_part, l);
    trial_begin(t, "softmax_term", l->dt);
    trial_near(t, DTYPE_F32, 2 * l->rows);
    add_sums(t, l->rows);
    trial_read(t, DTYPE_F32, l->rows, 1);
    add_tops(t, l->rows);
    trial_run(t, softmax_term, l);
    trial_begin(t, "softmax_loss", l->dt);
    trial_near(t, DTYPE_F32, l->rows);
    add_tops(t, l->rows);
    add_sums(t, l->rows);
    add_targets(t, l);
    trial_run(t, softmax_loss, l);
    trial_begin(t, "softmax_gradient", l->dt);
    trial_near(t, l->dt, l->rows * l->ld);
    trial_read(t, l->dt_x, l->rows * l->ld, 2);
    add_targets(t, l);
    add_tops(t, l->rows);
    add_sums(t, l->rows);
    trial_run(t, softmax_gradient, l);
}

void self_check_softmax(struct trial *t, const struct self_check_family *family)
{
    for (int i = 0; i < (TRIAL_FORMATS + 1) * 2; i++) {
        struct loss l = loss_of(i, 2);
        softmax_case(t, &l);
    }
}

/* ---- sums of the optimizer ---- */

struct squares {
    enum dtype dt;
    int64_t elems;
};

static void sumsq(struct trial_side *side, void *const *at, const void *args)
{
    const struct squares *s = args;
    side->d->ops->sumsq(side->d, at[0], s->dt, at[1], s->elems);
}

static void set(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->set(side->d, at[0], args, 8);
}

static void sum_from_last(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->sum_from_last(side->d, at[0], at[1], *(const int *)args);
}

struct factor {
    double targets, squares, loss_scale, nominal, clip;
};

static void update_factor(struct trial_side *side, void *const *at, const void *args)
{
    const struct factor *f = args;
    side->d->ops->update_factor(side->d, at[0], at[1], at[2], at[3], f->nominal, f->clip);
}

void self_check_sums(struct trial *t, const struct self_check_family *family)
{
    static const int64_t lengths[] = {521, 100003};
    static const int count = 7;
    static const double values[8] = {1.5, -2, 1e300, 0, 1e-300, 6, 7, -8.25};
    static const struct factor factors[] = {
        {.targets = 100, .squares = 4, .loss_scale = 1, .nominal = 128, .clip = 1},
        {.targets = 100, .squares = 1e-4, .loss_scale = 1024, .nominal = 128, .clip = 1},
        {.targets = 0, .squares = 4, .loss_scale = 1, .nominal = 128, .clip = 1},
        {.targets = 100, .squares = INFINITY, .loss_scale = 1, .nominal = 128, .clip = 1},
    };
    for (int i = 0; i < 4; i++) {
        const struct squares s = {i < 2 ? DTYPE_F32 : DTYPE_BF16, lengths[i % 2]};
        trial_begin(t, "sumsq", s.dt);
        trial_changed(t, DTYPE_F64, 1, 1);
        trial_read(t, s.dt, s.elems, 1);
        trial_run(t, sumsq, &s);
    }
    trial_begin(t, "sum_from_last", DTYPE_F64);
    trial_exact(t, DTYPE_F64, 1);
    trial_read(t, DTYPE_F64, count, 1);
    trial_run(t, sum_from_last, &count);
    trial_begin(t, "set", DTYPE_F64);
    trial_exact(t, DTYPE_F64, 8);
    trial_run(t, set, values);
    for (int i = 0; i < 4; i++) {
        trial_begin(t, "update_factor", DTYPE_F64);
        trial_near(t, DTYPE_F64, 1);
        trial_copy(t, DTYPE_F64, 1, &factors[i].targets);
        trial_copy(t, DTYPE_F64, 1, &factors[i].squares);
        trial_copy(t, DTYPE_F64, 1, &factors[i].loss_scale);
        trial_run(t, update_factor, &factors[i]);
    }
}

/* ---- optimizers ---- */

struct update_trial {
    enum dtype dt_p, dt_m, dt_copy; /* dt_copy DTYPE_F32: no copy */
    int64_t elems;
    enum dtype dt_g; /* of the gradient: fp32 or bf16 */
};
#define STEP(p, m, copy, count) \
    .dt_p = DTYPE_##p, .dt_m = DTYPE_##m, .dt_copy = DTYPE_##copy, .elems = count

static void adamw(struct trial_side *side, void *const *at, const void *args)
{
    static const struct adamw rule = {.lr = 3e-3f,
                                      .beta2 = 0.95f,
                                      .eps = 1e-8f,
                                      .weight_decay = 0.1f,
                                      .one_minus_beta1 = 0.1f,
                                      .one_minus_beta2 = 0.05f,
                                      .bias1 = 0.271f,
                                      .bias2 = 0.142625f};
    static const struct rounding rounding = {0x1234567890abcdefu, 3, 6};
    const struct update_trial *s = args;
    const struct adamw_state state = {.dt_p = s->dt_p,
                                      .dt_m = s->dt_m,
                                      .p = at[0],
                                      .m = at[1],
                                      .v = at[2],
                                      .dt_g = s->dt_g,
                                      .g = at[4],
                                      .dt_copy = s->dt_copy,
                                      .copy = at[3],
                                      .m_largest = at[6],
                                      .v_largest = at[7]};
    side->d->ops->adamw(side->d, &rule, at[5], &state, &rounding, s->elems);
}

/* Add the tensors of an update: p, one mean or two (of gradients, of squares), the copy of p, the
 * gradient and its factor. */
static void add_state(struct trial *t, const struct update_trial *s, int means)
{
    trial_changed(t, s->dt_p, s->elems, 1)->size = 1;
    trial_changed(t, s->dt_m, s->elems, 0.1)->size = 0.1;
    if (means == 2) { /* of squares */
        struct trial_tensor *v = trial_changed(t, s->dt_m, s->elems, 0.01);
        for (int64_t i = 0; i < s->elems; i++)
            if (s->dt_m == DTYPE_F32)
                ((float *)v->values)[i] = fabsf(((float *)v->values)[i]);
            else
                ((bf16 *)v->values)[i] &= 0x7fff;
    }
    trial_near(t, s->dt_copy, s->dt_copy == DTYPE_F32 ? 0 : s->elems);
}

static void adamw_cases(struct trial *t, const struct update_trial *steps, int count)
{
    for (int i = 0; i < count; i++) {
        trial_begin(t, "adamw", steps[i].dt_m);
        add_state(t, &steps[i], 2);
        trial_read(t, steps[i].dt_g, steps[i].elems, 0.1);
        trial_copy(t, DTYPE_F64, 1, &(double){i % 4 == 3 ? NAN : 0.37});
        trial_none(t);
        trial_none(t);
        trial_run(t, adamw, &steps[i]);
    }
}

void self_check_adamw(struct trial *t, const struct self_check_family *family)
{
    static const struct update_trial steps[] = {
        {STEP(F32, F32, F32, 521)},
        {STEP(F32, F32, BF16, 4104)},
        {STEP(F32, F32, F16, 1031)},
        {STEP(F32, F32, BF16, 521)}, /* of a factor that is no number */
        {STEP(F32, F32, BF16, 1031), .dt_g = DTYPE_BF16},
    };
    adamw_cases(t, steps, 5);
}

void self_check_adamw_bf16(struct trial *t, const struct self_check_family *family)
{
    static const struct update_trial steps[] = {
        {STEP(F32, BF16, BF16, 4104)},
        {STEP(BF16, F32, F32, 521)},
        {STEP(BF16, BF16, F32, 1031)},
        {STEP(BF16, BF16, F32, 521), .dt_g = DTYPE_BF16},
    };
    adamw_cases(t, steps, 4);
}

/* Add codes of moments.  A share near the edge of two levels may become either: one level is within
 * the bound, all codes a level off are beyond it, by the measure of rows. */
static void add_codes(struct trial *t, int64_t elems, float (*decode)(uint8_t))
{
    struct trial_tensor *codes = trial_exact(t, DTYPE_U8, elems);
    for (int64_t i = 0; i < elems; i++)
        ((uint8_t *)codes->values)[i] =
            (uint8_t)(philox_u64((uint64_t)t->count, (uint64_t)i) >> 32);
    codes->use = TRIAL_NEAR;
    codes->decode = decode;
    codes->bound = 0.03;
    codes->row = elems;
}

/* Add the largest magnitudes of the blocks, of which some are 0. */
static void add_largest(struct trial *t, int64_t elems, double scale)
{
    struct trial_tensor *largest =
        trial_changed(t, DTYPE_F32, ceil_div(elems, DYNAMIC8_BLOCK), scale);
    float *values = largest->values;
    for (int64_t i = 0; i < largest->elems; i++)
        values[i] = i % 5 == 4 ? 0 : fabsf(values[i]);
}

void self_check_adamw_8bit(struct trial *t, const struct self_check_family *family)
{
    static const struct update_trial steps[] = {
        {STEP(F32, U8, F32, 521)},
        {STEP(F32, U8, BF16, 17 * DYNAMIC8_BLOCK)},
        {STEP(F32, U8, F16, 5000), .dt_g = DTYPE_BF16},
        {STEP(F32, U8, BF16, 521)}, /* of a factor that is no number */
        {STEP(BF16, U8, F32, 5000)},
        {STEP(BF16, U8, F32, 1031), .dt_g = DTYPE_BF16},
    };
    for (int i = 0; i < 6; i++) {
        const struct update_trial *s = &steps[i];
        trial_begin(t, "adamw", s->dt_m);
        trial_changed(t, s->dt_p, s->elems, 1)->size = 1;
        add_codes(t, s->elems, dynamic8_signed);
        add_codes(t, s->elems, dynamic8_unsigned);
        trial_near(t, s->dt_copy, s->dt_copy == DTYPE_F32 ? 0 : s->elems);
        trial_read(t, s->dt_g, s->elems, 0.1);
        trial_copy(t, DTYPE_F64, 1, &(double){i == 3 ? NAN : 0.37});
        add_largest(t, s->elems, 0.1);
        add_largest(t, s->elems, 0.01);
        trial_run(t, adamw, s);
    }
}

static void sgd(struct trial_side *side, void *const *at, const void *args)
{
    const struct update_trial *s = args;
    const struct sgd rule = {3e-3f, 0.9f, 0.1f};
    side->d->ops->sgd(side->d, &rule, at[4], at[0], at[1], s->dt_g, at[3], s->dt_copy, at[2],
                      s->elems);
}

static const struct update_trial flat_steps[] = {{STEP(F32, F32, F32, 521)},
                                                 {STEP(F32, F32, BF16, 4104)},
                                                 {STEP(F32, F32, F16, 1031)},
                                                 {STEP(F32, F32, BF16, 521), .dt_g = DTYPE_BF16}};

void self_check_sgd(struct trial *t, const struct self_check_family *family)
{
    for (int i = 0; i < 4; i++) {
        trial_begin(t, "sgd", DTYPE_F32);
        add_state(t, &flat_steps[i], 1);
        trial_read(t, flat_steps[i].dt_g, flat_steps[i].elems, 0.1);
        trial_copy(t, DTYPE_F64, 1, &(double){0.37});
        trial_run(t, sgd, &flat_steps[i]);
    }
}

static void momentum(struct trial_side *side, void *const *at, const void *args)
{
    const struct update_trial *s = args;
    const struct momentum rule = {.one_minus_momentum = 0.05f, .nesterov = s->elems % 2};
    side->d->ops->momentum(side->d, &rule, at[2], at[0], at[1], s->elems);
}

static void muon(struct trial_side *side, void *const *at, const void *args)
{
    const struct update_trial *s = args;
    const struct muon rule = {.lr = 3e-3f, .weight_decay = 0.1f, .adjusted_lr = 5e-3f};
    side->d->ops->muon(side->d, &rule, at[3], at[0], at[1], s->dt_copy, at[2], s->elems);
}

static void normalize(struct trial_side *side, void *const *at, const void *args)
{
    const int64_t rows = *(const int64_t *)args;
    side->d->ops->normalize(side->d, at[0], at[1], at[2], 1e-7f, rows * rows);
}

static void polynomial(struct trial_side *side, void *const *at, const void *args)
{
    const struct polynomial p = {.a = 3.4445f, .b = -4.7750f, .c = 2.0315f};
    side->d->ops->polynomial(side->d, &p, at[0], at[1], *(const int64_t *)args);
}

void self_check_muon(struct trial *t, const struct self_check_family *family)
{
    static const int64_t rows[] = {31, 64};
    for (int i = 0; i < 3; i++) {
        const struct update_trial *s = &flat_steps[i];
        trial_begin(t, "momentum", DTYPE_F32);
        trial_changed(t, DTYPE_F32, s->elems, 0.1)->size = 0.1;
        trial_changed(t, DTYPE_F32, s->elems, 0.1)->size = 0.1;
        trial_copy(t, DTYPE_F64, 1, &(double){0.37});
        trial_run(t, momentum, s);
        trial_begin(t, "muon", s->dt_copy);
        trial_changed(t, DTYPE_F32, s->elems, 1)->size = 1;
        trial_read(t, DTYPE_F32, s->elems, 0.1);
        trial_near(t, s->dt_copy, s->dt_copy == DTYPE_F32 ? 0 : s->elems);
        trial_copy(t, DTYPE_F64, 1, &(double){0.37});
        trial_run(t, muon, s);
    }
    for (int i = 0; i < 2; i++) {
        trial_begin(t, "normalize", DTYPE_F32);
        trial_near(t, DTYPE_F32, rows[i] * rows[i]);
        trial_read(t, DTYPE_F32, rows[i] * rows[i], 1);
        trial_copy(t, DTYPE_F64, 1, &(double){3.7});
        trial_run(t, normalize, &rows[i]);
        trial_begin(t, "polynomial", DTYPE_F32);
        trial_changed(t, DTYPE_F32, rows[i] * rows[i], 1)->size = 1;
        trial_read(t, DTYPE_F32, rows[i] * rows[i], 1);
        trial_run(t, polynomial, &rows[i]);
    }
}

/* ---- what transfers add up and cast ---- */

struct parts {
    enum dtype dt;
    int count, accumulate;
    int64_t stride, elems;
};

/* What device_sum_parts() has to compute, as the CPU has no such operation to compare with. */
static void sum_on_host(const struct parts *p, float *recv, const char *parts)
{
    for (int64_t i = 0; i < p->elems; i++) {
        float sum = p->accumulate ? recv[i] : 0, term;
        for (int m = 0; m < p->count; m++) {
            dtype_widen(&term, parts + (size_t)(m * p->stride + i) * dtype_bytes(p->dt), p->dt, 1);
            sum += term;
        }
        recv[i] = sum;
    }
}

static void sum_parts(struct trial_side *side, void *const *at, const void *args)
{
    const struct parts *p = args;
    if (side->d->kind == DEVICE_CPU)
        sum_on_host(p, at[0], at[1]);
    else
        device_sum_parts(side->d, DEVICE_COMPUTE, at[0], p->dt, at[1], p->count, p->stride,
                         p->elems, p->accumulate);
}

static void cast_on_stream(struct trial_side *side, void *const *at, const void *args)
{
    const struct parts *p = args;
    if (side->d->kind == DEVICE_CPU)
        side->d->ops->cast(side->d, p->dt, at[0], DTYPE_F32, at[1], p->elems);
    else
        device_cast(side->d, DEVICE_COMPUTE, p->dt, at[0], DTYPE_F32, at[1], p->elems);
}

void self_check_parts(struct trial *t, const struct self_check_family *family)
{
    for (int i = 0; i < TRIAL_FORMATS; i++) {
        const struct parts p = {trial_formats[i], 3, i % 2, 528, 521};
        trial_begin(t, "sum_parts", p.dt);
        trial_gradient(t, p.elems, p.accumulate)->use = TRIAL_EXACT;
        trial_read(t, p.dt, 2 * p.stride + p.elems, 1);
        trial_run(t, sum_parts, &p);
        if (p.dt == DTYPE_F32)
            continue;
        trial_begin(t, "cast_on_stream", p.dt);
        trial_exact(t, p.dt, p.elems);
        trial_read(t, DTYPE_F32, p.elems, 1);
        trial_run(t, cast_on_stream, &p);
    }
}
