/* optimizer.c - see optimizer.h. */
#include "segment/optimizer.h"

static void adamw(struct device *d, const struct optimizer_rule *rule, const double *factor,
                  const struct optimizer_range *r)
{
    struct adamw a = rule->adamw;
    a.weight_decay = r->decays ? a.weight_decay : 0;
    if (optimizer_rounds(r)) {
        const struct adamw_state state = {r->master_dtype, r->slot_dtype, r->master,
                                          r->slot[0],      r->slot[1],    r->grad,
                                          r->param_dtype,  r->param};
        d->ops->adamw_bf16(d, &a, factor, &state, &r->rounding, r->elems);
        return;
    }
    d->ops->adamw(d, &a, factor, r->master, r->slot[0], r->slot[1], r->grad, r->param_dtype,
                  r->param, r->elems);
}

static void sgd(struct device *d, const struct optimizer_rule *rule, const double *factor,
                const struct optimizer_range *r)
{
    struct sgd s = rule->sgd;
    s.weight_decay = r->decays ? s.weight_decay : 0;
    d->ops->sgd(d, &s, factor, r->master, r->slot[0], r->grad, r->param_dtype, r->param, r->elems);
}

static const struct optimizer optimizers[] = {
    [OPTIMIZER_ADAMW] = {.name = "adamw",
                         .slots = 2,
                         .slot = {"exp_avg", "exp_avg_sq"},
                         .update = adamw},
    [OPTIMIZER_SGD] = {.name = "sgd", .slots = 1, .slot = {"momentum_buffer"}, .update = sgd},
};

const struct optimizer *optimizer_row(enum config_optimizer optimizer)
{
    return &optimizers[optimizer];
}
