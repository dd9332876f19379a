/* optimizer.c - the rows of the optimizers: what each keeps, and which op of the device steps it.
 */
#include "segment/optimizer.h"

#include <math.h>

#include "base/dynamic8.h"

static void adamw(struct device *d, const struct optimizer_rule *rule, const double *factor,
                  const struct optimizer_range *r)
{
    struct adamw a = rule->adamw;
    a.weight_decay = r->decays ? a.weight_decay : 0;
    const struct adamw_state state = {
        .dt_p = r->master_dtype,
        .dt_m = r->slot_dtype,
        .p = r->master,
        .m = r->slot[0],
        .v = r->slot[1],
        .g = r->grad,
        .dt_g = r->grad_dtype,
        .dt_copy = r->param_dtype,
        .copy = r->param,
        .m_largest = r->slot[2],
        .v_largest = r->slot[3],
    };
    d->ops->adamw(d, &a, factor, &state, &r->rounding, r->elems);
}

static void sgd(struct device *d, const struct optimizer_rule *rule, const double *factor,
                const struct optimizer_range *r)
{
    struct sgd s = rule->sgd;
    s.weight_decay = r->decays ? s.weight_decay : 0;
    d->ops->sgd(d, &s, factor, r->master, r->slot[0], r->grad_dtype, r->grad, r->param_dtype,
                r->param, r->elems);
}

/* What torch.optim.Muon multiplies the learning rate by. */
static double adjusted(enum config_adjust_lr adjust, double rows, double cols)
{
    if (adjust == ADJUST_LR_MATCH_RMS_ADAMW)
        return 0.2 * sqrt(fmax(rows, cols));
    return sqrt(fmax(1, rows / cols));
}

static void muon(struct device *d, const struct optimizer_rule *rule, const double *factor,
                 const struct optimizer_range *r)
{
    struct muon m = rule->muon;
    m.weight_decay = r->decays ? m.weight_decay : 0;
    m.adjusted_lr = (float)(m.lr * adjusted(rule->adjust_lr, (double)r->rows, (double)r->cols));
    d->ops->muon(d, &m, factor, r->master, r->grad, r->param_dtype, r->param, r->elems);
}

static const struct optimizer optimizers[] = {
    [OPTIMIZER_ADAMW] = {.name = "adamw",
                         .slots = 2,
                         .slot = {{.name = "exp_avg"}, {.name = "exp_avg_sq"}},
                         .update = adamw},
    [OPTIMIZER_SGD] = {.name = "sgd",
                       .slots = 1,
                       .slot = {{.name = "momentum_buffer"}},
                       .update = sgd},
    [OPTIMIZER_MUON] = {.name = "muon",
                        .slots = 1,
                        .slot = {{.name = "momentum_buffer"}},
                        .of_matrices = 1,
                        .update = muon},
    [OPTIMIZER_ADAMW8BIT] = {.name = "adamw8bit",
                             .slots = 4,
                             .slot = {{.name = "exp_avg", .kept = KEPT_CODES},
                                      {.name = "exp_avg_sq", .kept = KEPT_CODES},
                                      {.name = "exp_avg_absmax", .kept = KEPT_LARGEST},
                                      {.name = "exp_avg_sq_absmax", .kept = KEPT_LARGEST}},
                             .block = DYNAMIC8_BLOCK,
                             .least = 4096, /* as bitsandbytes' min_8bit_size */
                             .update = adamw},
};

const struct optimizer *optimizer_row(enum config_optimizer optimizer)
{
    return &optimizers[optimizer];
}

enum dtype optimizer_slot_dtype(const struct optimizer *optimizer, int k, enum dtype configured)
{
    enum optimizer_kept kept = optimizer->slot[k].kept;
    return kept == KEPT_NUMBERS ? configured : kept == KEPT_CODES ? DTYPE_U8 : DTYPE_F32;
}

int64_t optimizer_slot_elems(const struct optimizer *optimizer, int k, int64_t elems)
{
    return optimizer->slot[k].kept == KEPT_LARGEST ? elems / optimizer->block : elems;
}

size_t optimizer_slot_bytes(const struct optimizer *optimizer, int k, int64_t elems,
                            enum dtype configured)
{
    return (size_t)optimizer_slot_elems(optimizer, k, elems) *
           dtype_bytes(optimizer_slot_dtype(optimizer, k, configured));
}

double optimizer_bytes_each(const struct optimizer *optimizer, enum dtype configured)
{
    const int64_t elems = optimizer->block ? optimizer->block : 1;
    size_t bytes = 0;
    for (int k = 0; k < optimizer->slots; k++)
        bytes += optimizer_slot_bytes(optimizer, k, elems, configured);
    return (double)bytes / (double)elems;
}

enum config_optimizer optimizer_of(enum config_optimizer configured, int takes)
{
    return takes ? configured : OPTIMIZER_ADAMW;
}
