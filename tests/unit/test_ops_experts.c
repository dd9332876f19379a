/* test_ops_experts.c - the ops of a mixture of experts against double precision: which experts rows
 * choose and where their slots lie, the router's gradient against difference quotients, and the
 * rows that go to experts and come back. */
#include "ops_check.h"

/* Integers with a guard behind them. */
static struct tensor integers(int64_t elems)
{
    return tensor_poisoned(DTYPE_F32, elems);
}

static void free_all(struct tensor *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tensor_free(all[i]);
}

#define FREE_ALL(...)                                 \
    do {                                              \
        struct tensor *const all_[] = {__VA_ARGS__};  \
        free_all(all_, sizeof all_ / sizeof all_[0]); \
    } while (0)

/* ---- route ---- */

/* Logits with ties, rows and elements that are NaN, and rows that all choose one expert. */
enum logits { ANY, TIES, EQUAL, NANS, ONE_EXPERT };

static const struct {
    struct route r;
    enum logits logits;
} choices[] = {
    {{.rows = 1, .experts = 1, .chosen = 1, .seq = 1}, ANY},
    {{.rows = 1, .experts = 8, .chosen = 8, .seq = 1, .normed = 1}, ANY},
    {{.rows = 6, .experts = 8, .chosen = 2, .seq = 3, .balance = 0.5f}, TIES},
    {{.rows = 14, .experts = 3, .chosen = 3, .seq = 7, .normed = 1, .balance = 2}, ANY},
    {{.rows = 130, .experts = 5, .chosen = 3, .seq = 65, .normed = 1}, TIES},
    {{.rows = 67, .experts = 19, .chosen = 4, .seq = 67}, NANS},
    {{.rows = 66, .experts = 8, .chosen = 2, .seq = 33, .normed = 1, .balance = 1}, NANS},
    {{.rows = 300, .experts = 64, .chosen = 8, .seq = 150, .normed = 1, .balance = 0.1f}, ANY},
    {{.rows = 1030, .experts = 7, .chosen = 2, .seq = 515, .balance = 1}, ONE_EXPERT},
    {{.rows = 129, .experts = 33, .chosen = 1, .seq = 129, .balance = 0.01f}, EQUAL},
    {{.rows = 1201, .experts = 16, .chosen = 1, .seq = 1201, .normed = 1, .balance = 3}, ANY},
    {{.rows = 34, .experts = 1024, .chosen = 64, .seq = 17, .balance = 0.5f}, ANY},
};
enum { CHOICES = sizeof choices / sizeof choices[0] };

static struct tensor make_logits(const struct route *r, enum logits kind)
{
    struct tensor x = tensor_random(DTYPE_F32, r->rows * r->experts, 11, 2);
    for (int64_t i = 0; i < x.elems; i++) {
        int64_t row = i / r->experts, e = i % r->experts;
        if (kind == TIES)
            tensor_set(&x, i, e % 3 ? round(tensor_get(&x, i)) : row % 2 ? 0.0 : -0.0);
        if (kind == EQUAL)
            tensor_set(&x, i, 0.25);
        if (kind == NANS && (row % 5 == 2 || (row % 5 == 4 && (row + e) % 3 == 0)))
            tensor_set(&x, i, NAN);
        if (kind == NANS && row % 5 == 4 && (row + e) % 3 == 1)
            tensor_set(&x, i, -INFINITY);
        if (kind == ONE_EXPERT && e == 3)
            tensor_set(&x, i, 20);
    }
    return x;
}

static int is_before(double a, double b)
{
    return a > b || (isnan(b) && !isnan(a));
}

/* The row's experts, one after the other the best of those that are left. */
static void reference_choice(const struct route *r, int64_t *expert, const struct tensor *x,
                             int64_t row)
{
    for (int64_t j = 0; j < r->chosen; j++) {
        expert[j] = -1;
        for (int64_t e = 0; e < r->experts; e++) {
            int taken = 0;
            for (int64_t i = 0; i < j; i++)
                taken |= expert[i] == e;
            if (!taken && (expert[j] < 0 || is_before(tensor_get(x, row * r->experts + e),
                                                      tensor_get(x, row * r->experts + expert[j]))))
                expert[j] = e;
        }
    }
}

/* p = softmax(x), and returns the sum of those of the row's experts. */
static double reference_softmax(const struct route *r, double *p, const double *x,
                                const int64_t *expert)
{
    double top = -INFINITY, sum = 0, chosen = 0;
    for (int64_t e = 0; e < r->experts; e++)
        top = x[e] > top ? x[e] : top;
    for (int64_t e = 0; e < r->experts; e++)
        sum += p[e] = exp(x[e] - top);
    for (int64_t e = 0; e < r->experts; e++)
        p[e] /= sum;
    for (int64_t j = 0; j < r->chosen; j++)
        chosen += p[expert[j]];
    return chosen;
}

static void get_row(double *to, const struct tensor *x, int64_t row, int64_t columns)
{
    for (int64_t i = 0; i < columns; i++)
        to[i] = tensor_get(x, row * columns + i);
}

static void check_weights(const struct route *r, const struct tensor *weights,
                          const struct tensor *x, const struct routes *to, int64_t row)
{
    double logits[ROUTE_MOST_EXPERTS], p[ROUTE_MOST_EXPERTS];
    int64_t expert[ROUTE_MOST_CHOSEN];
    get_row(logits, x, row, r->experts);
    reference_choice(r, expert, x, row);
    double sum = reference_softmax(r, p, logits, expert);
    for (int64_t j = 0; j < r->chosen; j++) {
        assert_int_equal(to->expert[row * r->chosen + j], expert[j]);
        double want = p[expert[j]] / (r->normed ? sum : 1);
        double got = tensor_get(weights, to->slot[row * r->chosen + j]);
        double digits = 1 - log(fmax(want, 1e-37)) / 8; /* lost where logits are subtracted */
        if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= 1e-6 * digits * want + 1e-37))
            fail_msg("weight %lld of row %lld: got %.9g, want %.9g", (long long)j, (long long)row,
                     got, want);
    }
}

/* Slots lie expert by expert, and of each in the order of rows. */
static void check_slots(const struct route *r, const struct routes *to)
{
    int32_t slot = 0;
    for (int64_t e = 0; e < r->experts; e++) {
        assert_int_equal(to->first[e], slot);
        for (int64_t i = 0; i < r->rows * r->chosen; i++)
            if (to->expert[i] == e) {
                assert_int_equal(to->slot[i], slot);
                assert_int_equal(to->row[slot], i / r->chosen);
                slot++;
            }
    }
    assert_int_equal(to->first[r->experts], slot);
    assert_int_equal(slot, r->rows * r->chosen);
}

static uint64_t route_case(struct device *d, const struct route *r, enum logits kind)
{
    struct tensor x = make_logits(r, kind);
    struct tensor weights = tensor_poisoned(DTYPE_F32, r->rows * r->chosen);
    struct tensor routes = integers(routes_elems(r->rows, r->experts, r->chosen));
    d->ops->route(d, r, weights.data, routes.data, x.data);
    const struct routes to = routes_of(routes.data, r->rows, r->experts, r->chosen);
    for (int64_t row = 0; row < r->rows; row++)
        check_weights(r, &weights, &x, &to, row);
    check_slots(r, &to);
    uint64_t hash = tensor_hash(&weights) ^ tensor_hash(&routes) * 3;
    FREE_ALL(&x, &weights, &routes);
    return hash;
}

static uint64_t routes_of_rows(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int i = 0; i < CHOICES && dt == DTYPE_F32; i++)
        for (int normed = 0; normed < 2; normed++) {
            struct route r = choices[i].r;
            r.normed = normed;
            hash = hash * 31 + route_case(d, &r, choices[i].logits);
        }
    return hash;
}

/* ---- its gradient ---- */

/* What a row adds to the loss of which route_backward() has the gradient, its choice being fixed.
 */
struct row_loss {
    const struct route *r;
    int64_t expert[ROUTE_MOST_CHOSEN];
    double dweight[ROUTE_MOST_CHOSEN], load[ROUTE_MOST_EXPERTS];
};

static double loss_of(const struct row_loss *l, const double *x)
{
    double p[ROUTE_MOST_EXPERTS], loss = 0;
    double sum = reference_softmax(l->r, p, x, l->expert);
    for (int64_t j = 0; j < l->r->chosen; j++)
        loss += l->dweight[j] * p[l->expert[j]] / (l->r->normed ? sum : 1);
    for (int64_t e = 0; e < l->r->experts; e++)
        loss += l->load[e] * p[e];
    return loss;
}

static void make_loss(struct row_loss *l, const struct route *r, const struct routes *from,
                      const struct tensor *dweights, double loss_scale, int64_t row)
{
    int64_t begin = row / r->seq * r->seq;
    double count = 0;
    l->r = r;
    memset(l->load, 0, sizeof l->load);
    for (int64_t j = 0; j < r->chosen; j++) {
        l->expert[j] = from->expert[row * r->chosen + j];
        l->dweight[j] = tensor_get(dweights, from->slot[row * r->chosen + j]);
    }
    for (int64_t i = begin; i < begin + r->seq; i++)
        count += !r->targets || r->targets[i] >= 0;
    for (int64_t i = begin * r->chosen; i < (begin + r->seq) * r->chosen; i++)
        if (!r->targets || (r->targets[i / r->chosen] >= 0 && r->targets[row] >= 0))
            l->load[from->expert[i]] +=
                (double)r->balance * loss_scale * (double)r->experts / count;
}

static int has_nan(const double *x, int64_t count)
{
    int found = 0;
    for (int64_t i = 0; i < count; i++)
        found |= isnan(x[i]);
    return found;
}

/* Some of a row's elements; all of those of a short row. */
static void check_row_gradient(const struct row_loss *l, const struct tensor *got,
                               const struct tensor *x, int64_t row)
{
    const double h = 1e-5;
    double at[ROUTE_MOST_EXPERTS], size = 0;
    int64_t experts = l->r->experts, step = experts > 100 ? 41 : 1;
    get_row(at, x, row, experts);
    if (has_nan(at, experts))
        return;
    for (int64_t j = 0; j < l->r->chosen; j++)
        size = fmax(size, fabs(l->dweight[j]));
    for (int64_t e = 0; e < experts; e++)
        size = fmax(size, fabs(l->load[e]));
    for (int64_t e = row % step; e < experts; e += step) {
        double saved = at[e];
        at[e] = saved + h;
        double above = loss_of(l, at);
        at[e] = saved - h;
        double want = (above - loss_of(l, at)) / (2 * h), is = tensor_get(got, row * experts + e);
        at[e] = saved;
        double rounding = fabs(want) * tolerance_of(got->dt) + 1e-6 * size;
        if (!(fabs(is - want) <= rounding + (got->dt == DTYPE_F16 ? 0x1p-25 : 0)))
            fail_msg("dlogits[%lld,%lld] (%s): got %.9g, want %.9g", (long long)row, (long long)e,
                     dtype_name(got->dt), is, want);
    }
}

/* The load is added to what is there, of rows that count alone. */
static void check_load(struct device *d, const struct route *r, const struct routes *from)
{
    double *load = malloc((size_t)r->experts * sizeof *load);
    assert_non_null(load);
    for (int64_t e = 0; e < r->experts; e++)
        load[e] = (double)e;
    d->ops->route_load(d, r, load, from->first);
    for (int64_t i = 0; i < r->rows * r->chosen; i++)
        load[from->expert[i]] -= !r->targets || r->targets[i / r->chosen] >= 0;
    for (int64_t e = 0; e < r->experts; e++)
        if (load[e] != (double)e)
            fail_msg("load of expert %lld is off by %g", (long long)e, load[e] - (double)e);
    free(load);
}

static uint64_t gradient_case(struct device *d, const struct route *r, enum logits kind,
                              const double *loss_scale)
{
    struct tensor x = make_logits(r, kind);
    struct tensor weights = tensor_poisoned(DTYPE_F32, r->rows * r->chosen);
    struct tensor dweights = tensor_random(DTYPE_F32, r->rows * r->chosen, 12, 1);
    struct tensor routes = integers(routes_elems(r->rows, r->experts, r->chosen));
    struct tensor dlogits = tensor_poisoned(r->dt, r->rows * r->experts);
    d->ops->route(d, r, weights.data, routes.data, x.data);
    d->ops->route_backward(d, r, dlogits.data, dweights.data, x.data, routes.data, loss_scale);
    const struct routes from = routes_of(routes.data, r->rows, r->experts, r->chosen);
    check_load(d, r, &from);
    for (int64_t row = 0; row < r->rows && d->threads == 1; row++) {
        struct row_loss l;
        make_loss(&l, r, &from, &dweights, loss_scale ? *loss_scale : 1, row);
        check_row_gradient(&l, &dlogits, &x, row);
    }
    uint64_t hash = tensor_hash(&dlogits);
    FREE_ALL(&x, &weights, &dweights, &routes, &dlogits);
    return hash;
}

/* Some below 0; of the second sequence all of them. */
static struct tensor make_targets(const struct route *r)
{
    struct tensor targets = integers(r->rows);
    for (int64_t i = 0; i < r->rows; i++)
        ((int32_t *)targets.data)[i] = i % 5 == 3 || i / r->seq == 1 ? -1 : (int32_t)i;
    return targets;
}

static uint64_t gradients(struct device *d, enum dtype dt)
{
    const double scale = 8;
    uint64_t hash = 0;
    for (int i = 0; i < CHOICES; i++) {
        struct route r = choices[i].r;
        r.dt = dt;
        hash = hash * 31 + gradient_case(d, &r, choices[i].logits, i % 2 ? &scale : NULL);
        r.normed = !r.normed;
        r.balance = r.balance ? 0 : 1.5f;
        hash = hash * 31 + gradient_case(d, &r, choices[i].logits, i % 2 ? NULL : &scale);
        struct tensor targets = make_targets(&r);
        r.targets = targets.data;
        hash = hash * 31 + gradient_case(d, &r, choices[i].logits, i % 2 ? NULL : &scale);
        FREE_ALL(&targets);
    }
    return hash;
}

/* ---- rows ---- */

static const struct experts_rows moves[] = {
    {.rows = 1, .columns = 1, .experts = 1, .chosen = 1},
    {.rows = 5, .columns = 7, .experts = 3, .chosen = 3},
    {.rows = 67, .columns = 64, .experts = 8, .chosen = 2},
    {.rows = 30, .columns = 331, .experts = 40, .chosen = 9},
    {.rows = 601, .columns = 48, .experts = 4, .chosen = 1},
};
enum { MOVES = sizeof moves / sizeof moves[0] };

static struct tensor some_routes(struct device *d, const struct experts_rows *m)
{
    const struct route r = {
        .rows = m->rows, .experts = m->experts, .chosen = m->chosen, .seq = m->rows};
    struct tensor x = make_logits(&r, ANY);
    struct tensor weights = tensor_poisoned(DTYPE_F32, m->rows * m->chosen);
    struct tensor routes = integers(routes_elems(m->rows, m->experts, m->chosen));
    d->ops->route(d, &r, weights.data, routes.data, x.data);
    FREE_ALL(&x, &weights);
    return routes;
}

static uint64_t dispatch_case(struct device *d, const struct experts_rows *m)
{
    const int64_t slots = m->rows * m->chosen;
    struct tensor routes = some_routes(d, m);
    struct tensor x = tensor_random(m->dt, m->rows * m->columns, 13, 1);
    struct tensor y = tensor_poisoned(m->dt, slots * m->columns);
    const struct routes by = routes_of(routes.data, m->rows, m->experts, m->chosen);
    d->ops->dispatch(d, m, y.data, x.data, routes.data);
    for (int64_t i = 0; i < y.elems; i++)
        assert_true(tensor_get(&y, i) ==
                    tensor_get(&x, by.row[i / m->columns] * m->columns + i % m->columns));
    uint64_t hash = tensor_hash(&y);
    FREE_ALL(&routes, &x, &y);
    return hash;
}

static uint64_t combine_case(struct device *d, const struct experts_rows *m)
{
    struct tensor routes = some_routes(d, m);
    struct tensor x = tensor_random(m->dt, m->rows * m->chosen * m->columns, 14, 1);
    struct tensor addend = tensor_random(m->dt_sum, m->rows * m->columns, 15, 1);
    struct tensor y = tensor_poisoned(m->dt_sum, addend.elems), sum = tensor_copy(&y);
    double *want = calloc((size_t)y.elems, sizeof *want);
    const struct routes by = routes_of(routes.data, m->rows, m->experts, m->chosen);
    for (int64_t i = 0; i < y.elems; i++)
        for (int64_t j = 0; j < m->chosen; j++)
            want[i] += tensor_get(&x, by.slot[i / m->columns * m->chosen + j] * m->columns +
                                          i % m->columns);
    d->ops->combine(d, m, y.data, x.data, NULL, routes.data);
    check_close("combined", &y, want, tolerance_of(m->dt_sum));
    for (int64_t i = 0; i < y.elems; i++)
        want[i] += tensor_get(&addend, i);
    d->ops->combine(d, m, sum.data, x.data, addend.data, routes.data);
    check_close("combined with an addend", &sum, want, tolerance_of(m->dt_sum));
    d->ops->combine(d, m, addend.data, x.data, addend.data, routes.data);
    assert_memory_equal(sum.data, addend.data, (size_t)sum.elems * dtype_bytes(m->dt_sum));
    uint64_t hash = tensor_hash(&y) ^ tensor_hash(&sum) * 3;
    FREE_ALL(&routes, &x, &addend, &y, &sum);
    free(want);
    return hash;
}

static uint64_t moved_rows(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int i = 0; i < MOVES; i++) {
        struct experts_rows m = moves[i];
        m.dt = m.dt_sum = dt;
        hash = hash * 31 + dispatch_case(d, &m);
        hash = hash * 31 + combine_case(d, &m);
        m.dt_sum = DTYPE_F32;
        hash = hash * 31 + combine_case(d, &m);
    }
    return hash;
}

/* ---- activation ---- */

static uint64_t swiglu_case(struct device *d, enum dtype dt, int64_t rows, int64_t ffn)
{
    const int64_t elems = rows * ffn;
    struct tensor x = tensor_random(dt, 2 * elems, 16, 1.5), dy = tensor_random(dt, elems, 17, 1);
    struct tensor factors = tensor_random(DTYPE_F32, rows, 18, 1);
    struct tensor y = tensor_poisoned(dt, elems), dx = tensor_poisoned(dt, 2 * elems);
    struct tensor dfactors = tensor_poisoned(DTYPE_F32, rows), again = tensor_copy(&dfactors);
    double *want = calloc((size_t)elems * 3, sizeof *want), *dwant = want + elems;
    double *dfactor = calloc((size_t)rows, sizeof *dfactor);
    for (int64_t i = 0; i < elems; i++) {
        int64_t row = i / ffn, gate = row * 2 * ffn + i % ffn, up = gate + ffn;
        double g = tensor_get(&x, gate), u = tensor_get(&x, up), f = tensor_get(&factors, row);
        double s = 1 / (1 + exp(-g)), grad = tensor_get(&dy, i);
        want[i] = g * s * u * f;
        dwant[gate] = grad * f * u * s * (1 + g * (1 - s));
        dwant[up] = grad * f * g * s;
        dfactor[row] += grad * g * s * u;
    }
    d->ops->swiglu_scaled(d, dt, y.data, x.data, factors.data, rows, ffn);
    check_close("scaled swiglu", &y, want, tolerance_of(dt));
    d->ops->swiglu_scaled_backward(d, dt, dx.data, dfactors.data, dy.data, x.data, factors.data,
                                   rows, ffn);
    check_close("its gradient", &dx, dwant, tolerance_of(dt));
    check_terms("that of factors", &dfactors, dfactor, 2e-6, sqrt((double)ffn));
    d->ops->swiglu_scaled_backward(d, dt, x.data, again.data, dy.data, x.data, factors.data, rows,
                                   ffn);
    assert_memory_equal(x.data, dx.data, (size_t)x.elems * dtype_bytes(dt));
    assert_memory_equal(again.data, dfactors.data, (size_t)rows * sizeof(float));
    uint64_t hash = tensor_hash(&y) ^ tensor_hash(&dx) * 3 ^ tensor_hash(&dfactors) * 5;
    FREE_ALL(&x, &dy, &factors, &y, &dx, &dfactors, &again);
    free(want);
    free(dfactor);
    return hash;
}

static uint64_t activations(struct device *d, enum dtype dt)
{
    static const int64_t sizes[][2] = {{1, 1}, {3, 7}, {5, 64}, {70, 131}, {9, 2311}};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        hash = hash * 31 + swiglu_case(d, dt, sizes[i][0], sizes[i][1]);
    return hash;
}

static void route(void **state)
{
    for_each_setting(routes_of_rows);
}

static void route_backward(void **state)
{
    for_each_setting(gradients);
}

static void dispatch_and_combine(void **state)
{
    for_each_setting(moved_rows);
}

static void swiglu_scaled(void **state)
{
    for_each_setting(activations);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(route),
        cmocka_unit_test(route_backward),
        cmocka_unit_test(dispatch_and_combine),
        cmocka_unit_test(swiglu_scaled),
    };
    return cmocka_run_group_tests_name("ops experts", tests, NULL, NULL);
}
