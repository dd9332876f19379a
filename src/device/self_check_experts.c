/* self_check_experts.c - the ops of a mixture of experts: routers, the rows that go to experts and
 * come back, and the products of experts. */
#include <math.h>
#include <string.h>

#include "device/self_check_private.h"

/* ---- routers ---- */

enum { WEIGHTS, ROUTES, MOST_ROUTES = 8192 };

static void route(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->route(side->d, args, at[WEIGHTS], at[ROUTES], at[2]);
}

static void route_backward(struct trial_side *side, void *const *at, const void *args)
{
    struct route r = *(const struct route *)args;
    r.targets = at[5];
    side->d->ops->route_backward(side->d, &r, at[0], at[1], at[2], at[3], at[4]);
}

/* Add logits, the same for all calls, with equal ones and a row of NaN among them. */
static void add_logits(struct trial *t, const struct route *r)
{
    t->drawn = 0;
    float *logit = trial_read(t, DTYPE_F32, r->rows * r->experts, 2)->values;
    for (int64_t i = 0; i < r->rows * r->experts; i++)
        if (i / r->experts == 4)
            logit[i] = NAN;
        else if (i % 3 == 0)
            logit[i] = roundf(logit[i]);
}

/* Try route, and keep the CPU's routes. */
static void route_case(struct trial *t, const struct route *r, int32_t *routes)
{
    const int64_t elems = routes_elems(r->rows, r->experts, r->chosen);
    trial_begin(t, "route", r->dt);
    trial_near(t, DTYPE_F32, r->rows * r->chosen);
    trial_exact(t, DTYPE_I32, elems);
    add_logits(t, r);
    trial_run(t, route, r);
    memcpy(routes, trial_result(t, ROUTES), (size_t)elems * sizeof *routes);
}

static void route_backward_case(struct trial *t, const struct route *r, const int32_t *routes)
{
    trial_begin(t, "route_backward", r->dt);
    trial_near(t, r->dt, r->rows * r->experts)->size = 0.01;
    trial_read(t, DTYPE_F32, r->rows * r->chosen, 1);
    add_logits(t, r);
    trial_copy(t, DTYPE_I32, routes_elems(r->rows, r->experts, r->chosen), routes);
    if (r->balance != 0)
        trial_copy(t, DTYPE_F64, 1, &(double){4});
    else
        trial_none(t);
    int32_t *target = trial_tokens(t, r->normed ? r->rows : 0, 5)->values;
    for (int64_t row = 0; row < r->rows && r->normed; row++)
        target[row] -= 2;
    trial_run(t, route_backward, r);
}

static void route_load(struct trial_side *side, void *const *at, const void *args)
{
    struct route r = *(const struct route *)args;
    r.targets = at[2];
    side->d->ops->route_load(side->d, &r, at[0], at[1]);
}

static void route_load_case(struct trial *t, const struct route *r, const int32_t *routes)
{
    trial_begin(t, "route_load", DTYPE_F64);
    trial_changed(t, DTYPE_F64, r->experts, 1);
    trial_copy(t, DTYPE_I32, routes_elems(r->rows, r->experts, r->chosen), routes);
    int32_t *target = trial_tokens(t, r->normed ? r->rows : 0, 5)->values;
    for (int64_t row = 0; row < r->rows && r->normed; row++)
        target[row] -= 2;
    trial_run(t, route_load, r);
}

/* ---- their rows ---- */

static void dispatch(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->dispatch(side->d, args, at[0], at[1], at[2]);
}

static void combine(struct trial_side *side, void *const *at, const void *args)
{
    side->d->ops->combine(side->d, args, at[0], at[1], at[3], at[2]);
}

static void rows_case(struct trial *t, const struct route *r, int64_t columns,
                      const int32_t *routes)
{
    const struct experts_rows rows = {.dt = r->dt,
                                      .dt_sum = r->normed ? r->dt : DTYPE_F32,
                                      .rows = r->rows,
                                      .columns = columns,
                                      .experts = r->experts,
                                      .chosen = r->chosen};
    const int64_t elems = r->rows * columns;
    const int64_t of_routes = routes_elems(r->rows, r->experts, r->chosen);
    trial_begin(t, "dispatch", r->dt);
    trial_exact(t, r->dt, elems * r->chosen);
    trial_read(t, r->dt, elems, 1);
    trial_copy(t, DTYPE_I32, of_routes, routes);
    trial_run(t, dispatch, &rows);
    trial_begin(t, "combine", r->dt);
    trial_near(t, rows.dt_sum, elems);
    trial_read(t, r->dt, elems * r->chosen, 1);
    trial_copy(t, DTYPE_I32, of_routes, routes);
    trial_read(t, rows.dt_sum, r->experts < 10 ? 0 : elems, 1);
    trial_run(t, combine, &rows);
}

/* More rows than a span of the sort has; more experts than lanes. */
void self_check_routes(struct trial *t, const struct self_check_family *family)
{
    static const struct {
        struct route r;
        int64_t columns;
    } routers[] = {
        {{.rows = 21, .experts = 5, .chosen = 2, .seq = 7, .normed = 1, .balance = 0.5f}, 33},
        {{.rows = 150, .experts = 70, .chosen = 9, .seq = 150}, 24},
        {{.rows = 16, .experts = 40, .chosen = 3, .seq = 8, .normed = 1}, 136},
    };
    int32_t routes[MOST_ROUTES];
    for (int i = 0; i < TRIAL_FORMATS * 3; i++) {
        struct route r = routers[i % 3].r;
        r.dt = trial_formats[i / 3];
        route_case(t, &r, routes);
        route_backward_case(t, &r, routes);
        route_load_case(t, &r, routes);
        rows_case(t, &r, routers[i % 3].columns, routes);
    }
}

/* ---- products ---- */

static void multiply(struct trial_side *side, void *const *at, const void *args)
{
    const struct experts_gemm *g = args;
    struct device *d = side->d;
    void *scratch = trial_scratch(side, d->ops->experts_gemm_scratch(d, g));
    if (!side->failed)
        side->failed =
            d->ops->experts_gemm(d, g, at[0], at[1], at[2], at[3], scratch, &side->err) != 0;
}

static void product_case(struct trial *t, const struct experts_gemm *g, const int32_t *first)
{
    const int64_t weights = g->experts * g->out * g->in;
    const int is_grad = g->pass == EXPERTS_WEIGHT_GRAD, is_forward = g->pass == EXPERTS_FORWARD;
    trial_begin(t, "experts_gemm", g->dt);
    if (is_grad)
        trial_gradient(t, weights, g->accumulate);
    else
        trial_near(t, g->dt, g->slots * (is_forward ? g->out : g->in));
    trial_read(t, g->dt, g->slots * (is_forward ? g->in : g->out), 1);
    trial_read(t, g->dt, is_grad ? g->slots * g->in : weights, 1);
    trial_copy(t, DTYPE_I32, g->experts + 1, first);
    trial_run(t, multiply, g);
}

/* Experts with more rows than a tile has, with few and with none; odd sizes, and those that tensor
 * cores take. */
void self_check_experts(struct trial *t, const struct self_check_family *family)
{
    enum { EXPERTS = 3 };
    static const int32_t first[EXPERTS + 1] = {0, 131, 131, 160};
    for (int i = 0; i < TRIAL_FORMATS * 2; i++)
        for (int pass = 0; pass < 4; pass++) {
            const int is_odd = i % 2;
            struct experts_gemm g = {.pass = (enum experts_pass)(pass < 3 ? pass : 2),
                                     .dt = trial_formats[i / 2],
                                     .slots = first[EXPERTS],
                                     .experts = EXPERTS,
                                     .out = is_odd ? 33 : 136,
                                     .in = is_odd ? 17 : 72,
                                     .accumulate = pass == 3};
            product_case(t, &g, first);
        }
}
