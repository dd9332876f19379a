/* test_cuda_ops_experts.c - routers and the rows that go to experts and come back: a GPU against
 * the CPU.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "cuda_check.h"

#include <stdio.h>

#include "base/round.h"

/* ---- routes ---- */

/* Logits with ties, among them zeros of both signs; all equal; rows and elements that are NaN or
 * -infinity; and rows that all choose one expert first. */
enum logits { ANY, TIES, EQUAL, NANS, ONE_EXPERT };

/* One row; fewer rows than a span has, and more than 128 such spans; fewer experts than lanes, as
 * many as a lane has at most, and each number between; all of them chosen. */
static const struct choice {
    struct route r;
    enum logits logits;
} choices[] = {
    {{.rows = 1, .experts = 1, .chosen = 1, .seq = 1, .balance = 1}, ANY},
    {{.rows = 1, .experts = 8, .chosen = 8, .seq = 1, .normed = 1}, ANY},
    {{.rows = 6, .experts = 8, .chosen = 2, .seq = 3, .balance = 0.5f}, TIES},
    {{.rows = 70, .experts = 3, .chosen = 3, .seq = 7, .normed = 1, .balance = 2}, NANS},
    {{.rows = 201, .experts = 33, .chosen = 4, .seq = 67, .balance = 0.1f}, NANS},
    {{.rows = 130, .experts = 64, .chosen = 8, .seq = 65, .normed = 1}, NANS},
    {{.rows = 300, .experts = 128, .chosen = 6, .seq = 150, .normed = 1, .balance = 1}, TIES},
    {{.rows = 515, .experts = 7, .chosen = 2, .seq = 515, .balance = 1}, ONE_EXPERT},
    {{.rows = 129, .experts = 200, .chosen = 1, .seq = 129, .balance = 0.01f}, EQUAL},
    {{.rows = 71, .experts = 400, .chosen = 40, .seq = 71, .normed = 1}, TIES},
    {{.rows = 34, .experts = 1024, .chosen = 64, .seq = 17, .normed = 1, .balance = 0.5f}, NANS},
    {{.rows = 2100, .experts = 1023, .chosen = 1, .seq = 1050, .normed = 1, .balance = 3}, ANY},
    {{.rows = 4300, .experts = 5, .chosen = 2, .seq = 4300}, ANY},
};
enum { CHOICES = sizeof choices / sizeof choices[0] };

static struct operand logits_operand(struct check *c, const struct route *r, enum logits kind)
{
    struct operand o = random_operand(c, "logits", DTYPE_F32, r->rows * r->experts, 2);
    float *x = o.before;
    for (int64_t i = 0; i < o.elems; i++) {
        int64_t row = i / r->experts, e = i % r->experts;
        if (kind == TIES)
            x[i] = e % 3 ? roundf(x[i]) : (row + e) % 2 ? 0.0f : -0.0f;
        if (kind == EQUAL)
            x[i] = 0.25f;
        if (kind == NANS && (row % 5 == 2 || (row % 5 == 4 && (row + e) % 3 == 0)))
            x[i] = e % 2 ? NAN : -NAN;
        if (kind == NANS && row % 5 == 4 && (row + e) % 3 == 1)
            x[i] = -INFINITY;
        if (kind == ONE_EXPERT && e == 3)
            x[i] = 20;
    }
    return o;
}

enum { WEIGHTS, ROUTES, LOGITS, ROUTE_OPERANDS };

static void route(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    d->ops->route(d, args, at[WEIGHTS], at[ROUTES], at[LOGITS]);
}

static const char *route_text(char text[128], const char *op, const struct route *r)
{
    snprintf(text, 128, "%s %s, %lld rows, %lld of %lld, normed %d, balance %g", op,
             dtype_name(r->dt), (long long)r->rows, (long long)r->chosen, (long long)r->experts,
             r->normed, r->balance);
    return text;
}

static void routes_agree_with_the_cpu(void **state)
{
    struct check c = check_open();
    char text[128];
    for (int i = 0; i < 2 * CHOICES; i++) {
        struct route r = choices[i / 2].r;
        const int64_t slots = r.rows * r.chosen;
        r.normed ^= i % 2;
        if (slots > 1500 && i % 2)
            continue;
        struct operand o[ROUTE_OPERANDS] = {
            [WEIGHTS] = output_operand("weights", WRITTEN, DTYPE_F32, slots),
            [ROUTES] = output_operand("routes", EXACT, DTYPE_I32,
                                      routes_elems(r.rows, r.experts, r.chosen)),
            [LOGITS] = logits_operand(&c, &r, choices[i / 2].logits),
        };
        check_call(&c, route_text(text, "route", &r), route, &r, o, ROUTE_OPERANDS);
    }
    check_close_devices(&c);
}

/* Routes of random logits, of the CPU. */
static struct operand routes_operand(struct check *c, const struct route *r,
                                     const struct operand *logits)
{
    struct operand o =
        output_operand("routes", READ, DTYPE_I32, routes_elems(r->rows, r->experts, r->chosen));
    float *weights = malloc((size_t)(r->rows * r->chosen) * sizeof *weights);
    assert_non_null(weights);
    c->cpu->ops->route(c->cpu, r, weights, o.before, logits->before);
    free(weights);
    return o;
}

enum { DLOGITS, DWEIGHTS, BACK_LOGITS, BACK_ROUTES, LOSS_SCALE, TARGETS, BACK_OPERANDS };

static void route_backward(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    struct route r = *(const struct route *)args;
    r.targets = at[TARGETS];
    d->ops->route_backward(d, &r, at[DLOGITS], at[DWEIGHTS], at[BACK_LOGITS], at[BACK_ROUTES],
                           at[LOSS_SCALE]);
}

/* Targets of which every third and all of the last sequence are below 0. */
static struct operand targets_operand(struct check *c, const struct route *r)
{
    struct operand o = tokens_operand(c, "targets", r->rows, 7);
    for (int64_t row = 0; row < r->rows; row++)
        if (row % 3 == 1 || row >= max_i64(r->rows - r->seq, r->seq))
            ((int32_t *)o.before)[row] = row % 2 ? -1 : -100;
    return o;
}

static void backward_case(struct check *c, const struct route *r, enum logits kind, int is_scaled)
{
    char text[128];
    const double scale = 8;
    struct operand o[BACK_OPERANDS] = {
        [DLOGITS] = output_operand("dlogits", WRITTEN, r->dt, r->rows * r->experts),
        [DWEIGHTS] = random_operand(c, "dweights", DTYPE_F32, r->rows * r->chosen, 1),
        [BACK_LOGITS] = logits_operand(c, r, kind),
        [LOSS_SCALE] = copy_operand("loss_scale", READ, DTYPE_F64, is_scaled, &scale),
        [TARGETS] = targets_operand(c, r),
    };
    o[BACK_ROUTES] = routes_operand(c, r, &o[BACK_LOGITS]);
    o[DLOGITS].offset = is_scaled;
    if (!is_scaled)
        o[TARGETS].elems = 0;
    /* Where one expert has all of the weight, or all experts the same load, the terms cancel, and
     * what is left is the rounding of terms in fp32: up to 4 steps of the largest were seen in 40
     * seeds, and 8 are allowed.  dweights lie within 5. */
    const double loads = r->balance * (is_scaled ? scale : 1) * (double)r->experts;
    const double rounding = 8 * 0x1p-23 * (5 + loads);
    o[DLOGITS].size =
        r->dt == DTYPE_F32 ? 0.02 * (1 + loads) : rounding / (r->dt == DTYPE_F16 ? 1.25e-3 : 1e-2);
    check_call(c, route_text(text, "route_backward", r), route_backward, r, o, BACK_OPERANDS);
}

enum { LOAD, LOAD_ROUTES, LOAD_TARGETS, LOAD_OPERANDS };

static void route_load(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    struct route r = *(const struct route *)args;
    r.targets = at[LOAD_TARGETS];
    d->ops->route_load(d, &r, at[LOAD], at[LOAD_ROUTES]);
}

static void load_case(struct check *c, const struct route *r, enum logits kind, int has_targets)
{
    char text[128];
    struct operand logits = logits_operand(c, r, kind);
    struct operand o[LOAD_OPERANDS] = {
        [LOAD] = output_operand("load", EXACT, DTYPE_F64, r->experts),
        [LOAD_ROUTES] = routes_operand(c, r, &logits),
        [LOAD_TARGETS] = targets_operand(c, r),
    };
    for (int64_t e = 0; e < r->experts; e++)
        ((double *)o[LOAD].before)[e] = (double)(e % 7);
    if (!has_targets)
        o[LOAD_TARGETS].elems = 0;
    free(logits.before);
    check_call(c, route_text(text, "route_load", r), route_load, r, o, LOAD_OPERANDS);
}

static void gradients_agree_with_the_cpu(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < CHOICES; i++)
        for (int j = 0; j < TYPES; j++) {
            struct route r = choices[i].r;
            if (j != i % TYPES && r.rows * r.experts > 20000)
                continue;
            r.dt = op_types[j];
            load_case(&c, &r, choices[i].logits, j % 2);
            backward_case(&c, &r, choices[i].logits, j % 2);
            r.normed = !r.normed;
            r.balance = r.balance != 0 ? 0 : 1.5f;
            backward_case(&c, &r, choices[i].logits, 1 - j % 2);
        }
    check_close_devices(&c);
}

/* ---- rows ---- */

/* Rows of whole pieces and others; more pieces than a block takes at once; more slots than a thread
 * loads at once. */
static const struct experts_rows moves[] = {
    {.rows = 1, .columns = 1, .experts = 1, .chosen = 1},
    {.rows = 5, .columns = 7, .experts = 3, .chosen = 3},
    {.rows = 40, .columns = 64, .experts = 8, .chosen = 2},
    {.rows = 9, .columns = 331, .experts = 40, .chosen = 9},
    {.rows = 3, .columns = 4616, .experts = 30, .chosen = 17},
    {.rows = 200, .columns = 8, .experts = 4, .chosen = 1},
};
enum { MOVES = sizeof moves / sizeof moves[0] };

struct move {
    struct experts_rows r;
    int in_place;
};

enum { Y, X, ADDEND, MOVE_ROUTES, MOVE_OPERANDS };

static void dispatch(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct move *m = args;
    d->ops->dispatch(d, &m->r, at[Y], at[X], at[MOVE_ROUTES]);
}

static void combine(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct move *m = args;
    const void *addend = m->in_place ? at[Y] : at[ADDEND];
    d->ops->combine(d, &m->r, at[Y], at[X], addend, at[MOVE_ROUTES]);
}

/* Sums are in the order of slots, so that bits are compared. */
static void move_case(struct check *c, const struct move *m, int back, int64_t offset,
                      int has_addend)
{
    const struct experts_rows *r = &m->r;
    const struct route route = {
        .rows = r->rows, .experts = r->experts, .chosen = r->chosen, .seq = r->rows};
    const int64_t rows = r->rows * r->columns, slots = rows * r->chosen;
    const enum dtype dt_y = back ? r->dt_sum : r->dt;
    char text[128];
    snprintf(text, sizeof text, "%s %s %lld x %lld of %lld, in place %d",
             back ? "combine" : "dispatch", dtype_name(r->dt), (long long)r->rows,
             (long long)r->columns, (long long)r->chosen, m->in_place);
    struct operand logits = logits_operand(c, &route, ANY);
    struct operand o[MOVE_OPERANDS] = {
        [Y] = m->in_place ? changed_operand(c, "y", EXACT, dt_y, rows, 1)
                          : output_operand("y", EXACT, dt_y, back ? rows : slots),
        [X] = random_operand(c, "x", r->dt, back ? slots : rows, 1),
        [ADDEND] = random_operand(c, "addend", dt_y, has_addend ? rows : 0, 1),
        [MOVE_ROUTES] = routes_operand(c, &route, &logits),
    };
    o[X].offset = offset;
    o[Y].offset = offset / 2;
    check_call(c, text, back ? combine : dispatch, m, o, MOVE_OPERANDS);
    free(logits.before);
}

static void moved_rows_agree_with_the_cpu(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < MOVES; i++)
        for (int j = 0; j < TYPES; j++)
            for (int64_t offset = 0; offset < 4; offset += 3) {
                struct move m = {.r = moves[i]};
                m.r.dt = m.r.dt_sum = op_types[j];
                move_case(&c, &m, 0, offset, 0);
                move_case(&c, &m, 1, offset, 0);
                move_case(&c, &m, 1, offset, 1);
                m.in_place = 1;
                move_case(&c, &m, 1, offset, 0);
                m.r.dt_sum = DTYPE_F32;
                move_case(&c, &m, 1, offset, 0);
                m.in_place = 0;
                move_case(&c, &m, 1, offset, 1);
            }
    check_close_devices(&c);
}

/* ---- gates ---- */

struct gates {
    enum dtype dt;
    int64_t rows, ffn;
    int in_place;
};

enum { GATED, GATE_UP, FACTORS, GATED_OPERANDS };

static void gate(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct gates *g = args;
    d->ops->swiglu_scaled(d, g->dt, at[GATED], at[GATE_UP], at[FACTORS], g->rows, g->ffn);
}

enum { DGATE_UP, DFACTORS, DY, BACK_GATE_UP, BACK_FACTORS, DGATE_OPERANDS };

static void gate_backward(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct gates *g = args;
    void *to = g->in_place ? at[BACK_GATE_UP] : at[DGATE_UP];
    d->ops->swiglu_scaled_backward(d, g->dt, to, at[DFACTORS], at[DY], at[BACK_GATE_UP],
                                   at[BACK_FACTORS], g->rows, g->ffn);
}

static void gates_case(struct check *c, const struct gates *g, int64_t offset)
{
    const int64_t elems = g->rows * g->ffn;
    char text[128];
    snprintf(text, sizeof text, "swiglu_scaled %s %lld x %lld", dtype_name(g->dt),
             (long long)g->rows, (long long)g->ffn);
    struct operand o[GATED_OPERANDS] = {
        [GATED] = output_operand("y", WRITTEN, g->dt, elems),
        [GATE_UP] = random_operand(c, "gate_up", g->dt, 2 * elems, 1.5),
        [FACTORS] = random_operand(c, "factors", DTYPE_F32, g->rows, 1),
    };
    o[GATE_UP].offset = offset;
    o[FACTORS].offset = offset;
    check_call(c, text, gate, g, o, GATED_OPERANDS);
    struct operand b[DGATE_OPERANDS] = {
        [DGATE_UP] = output_operand("dgate_up", WRITTEN, g->dt, g->in_place ? 0 : 2 * elems),
        [DFACTORS] = output_operand("dfactors", WRITTEN, DTYPE_F32, g->rows),
        [DY] = random_operand(c, "dy", g->dt, elems, 1),
        [BACK_GATE_UP] = random_operand(c, "gate_up", g->dt, 2 * elems, 1.5),
        [BACK_FACTORS] = random_operand(c, "factors", DTYPE_F32, g->rows, 1),
    };
    b[BACK_GATE_UP].role = g->in_place ? WRITTEN : READ;
    b[DFACTORS].size = sqrt((double)g->ffn);
    b[DY].offset = offset;
    check_call(c, text, gate_backward, g, b, DGATE_OPERANDS);
}

static void gates_agree_with_the_cpu(void **state)
{
    static const int64_t sizes[][2] = {{1, 1}, {3, 7}, {40, 64}, {9, 131}, {3, 8208}};
    struct check c = check_open();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int j = 0; j < TYPES; j++)
            for (int k = 0; k < 2; k++) {
                const struct gates g = {op_types[j], sizes[i][0], sizes[i][1], k};
                gates_case(&c, &g, k);
            }
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_agree_with_the_cpu),
        cmocka_unit_test(gradients_agree_with_the_cpu),
        cmocka_unit_test(moved_rows_agree_with_the_cpu),
        cmocka_unit_test(gates_agree_with_the_cpu),
    };
    return check_main("cuda ops: experts", tests);
}
