/* test_ops_norm.c - RMSNorm and its gradient, of rows and of the heads of packed projections. */
#include "ops_check.h"

static const float eps = 1e-5f;

/* 1 / sqrt(mean(x^2) + eps) of one row */
static double rstd_of(const double *x, int64_t hidden)
{
    double square = 0;
    for (int64_t i = 0; i < hidden; i++)
        square += x[i] * x[i];
    return 1 / sqrt(square / (double)hidden + (double)eps);
}

/* dx and dw of one row of y = x rstd w, given dy */
static void backward_reference(double *dx, double *dw, const double *dy, const double *x,
                               const double *w, int64_t hidden)
{
    double rstd = rstd_of(x, hidden), dot = 0;
    for (int64_t i = 0; i < hidden; i++)
        dot += dy[i] * w[i] * x[i];
    for (int64_t i = 0; i < hidden; i++) {
        dx[i] = rstd * dy[i] * w[i] - rstd * rstd * rstd * x[i] * dot / (double)hidden;
        dw[i] = dy[i] * x[i] * rstd;
    }
}

static double weighted_output(const double *dy, const double *x, const double *w, int64_t hidden)
{
    double rstd = rstd_of(x, hidden), sum = 0;
    for (int64_t i = 0; i < hidden; i++)
        sum += dy[i] * x[i] * rstd * w[i];
    return sum;
}

static double *values(const struct tensor *t)
{
    double *v = malloc((size_t)t->elems * sizeof *v);
    for (int64_t i = 0; i < t->elems; i++)
        v[i] = tensor_get(t, i);
    return v;
}

static void the_reference_is_the_difference_quotient(void **state)
{
    enum { HIDDEN = 13 };
    const double h = 1e-6;
    struct tensor tx = tensor_random(DTYPE_F32, HIDDEN, 1, 1);
    struct tensor tw = tensor_random(DTYPE_F32, HIDDEN, 2, 1);
    struct tensor tdy = tensor_random(DTYPE_F32, HIDDEN, 3, 1);
    double *x = values(&tx), *w = values(&tw), *dy = values(&tdy), dx[HIDDEN], dw[HIDDEN];
    backward_reference(dx, dw, dy, x, w, HIDDEN);
    for (int i = 0; i < HIDDEN; i++) {
        double *const at[] = {&x[i], &w[i]}, want[] = {dx[i], dw[i]};
        for (int j = 0; j < 2; j++) {
            double saved = *at[j];
            *at[j] = saved + h;
            double up = weighted_output(dy, x, w, HIDDEN);
            *at[j] = saved - h;
            double down = weighted_output(dy, x, w, HIDDEN);
            *at[j] = saved;
            assert_true(fabs((up - down) / (2 * h) - want[j]) < 1e-8);
        }
    }
    tensor_free(&tx);
    tensor_free(&tw);
    tensor_free(&tdy);
    free(x);
    free(w);
    free(dy);
}

static uint64_t forward_case(struct device *d, enum dtype dt, int64_t rows, int64_t hidden,
                             int with_delta)
{
    int64_t elems = rows * hidden;
    struct tensor x = tensor_random(dt, elems, 1, 1.5), delta = tensor_random(dt, elems, 2, 0.5);
    struct tensor w = tensor_random(dt, hidden, 3, 1), y = tensor_poisoned(dt, elems);
    struct tensor sum = tensor_poisoned(dt, elems), rstd = tensor_poisoned(DTYPE_F32, rows);
    double *v = values(&x), *want = malloc((size_t)elems * sizeof *want);
    double *want_rstd = malloc((size_t)rows * sizeof *want);
    d->ops->rmsnorm(d, dt, y.data, with_delta ? sum.data : NULL, rstd.data, x.data,
                    with_delta ? delta.data : NULL, w.data, rows, hidden, eps);
    for (int64_t i = 0; i < elems && with_delta; i++) {
        v[i] = rounded(dt, (float)v[i] + (float)tensor_get(&delta, i));
        assert_true(tensor_get(&sum, i) == v[i]);
    }
    for (int64_t row = 0; row < rows; row++) {
        want_rstd[row] = rstd_of(v + row * hidden, hidden);
        for (int64_t i = 0; i < hidden; i++)
            want[row * hidden + i] = v[row * hidden + i] * want_rstd[row] * tensor_get(&w, i);
    }
    check_close("y", &y, want, tolerance_of(dt));
    check_close("rstd", &rstd, want_rstd, 1e-6);
    uint64_t hash = tensor_hash(&y) ^ tensor_hash(&rstd);
    tensor_free(&x);
    tensor_free(&delta);
    tensor_free(&w);
    tensor_free(&y);
    tensor_free(&sum);
    tensor_free(&rstd);
    free(v);
    free(want);
    free(want_rstd);
    return hash;
}

/* Inputs of a backward pass and what it must give. */
struct backward {
    int64_t rows, hidden;
    struct tensor x, w, dy, dsum, rstd;
    double *dx, *dw;
};

static struct backward make_backward(enum dtype dt, int64_t rows, int64_t hidden, int with_dsum)
{
    int64_t elems = rows * hidden;
    struct backward b = {rows,
                         hidden,
                         .x = tensor_random(dt, elems, 4, 1.5),
                         .w = tensor_random(dt, hidden, 5, 1),
                         .dy = tensor_random(dt, elems, 6, 1),
                         .dsum = tensor_random(dt, elems, 7, 1),
                         .rstd = tensor_poisoned(DTYPE_F32, rows)};
    double *x = values(&b.x), *w = values(&b.w), *dy = values(&b.dy);
    double *row_dw = malloc((size_t)hidden * sizeof *row_dw);
    b.dx = malloc((size_t)elems * sizeof *b.dx);
    b.dw = calloc((size_t)hidden, sizeof *b.dw);
    for (int64_t row = 0; row < rows; row++) {
        int64_t first = row * hidden;
        tensor_set(&b.rstd, row, rstd_of(x + first, hidden));
        backward_reference(b.dx + first, row_dw, dy + first, x + first, w, hidden);
        for (int64_t i = 0; i < hidden; i++) {
            b.dw[i] += row_dw[i];
            b.dx[first + i] += with_dsum ? tensor_get(&b.dsum, first + i) : 0;
        }
    }
    free(x);
    free(w);
    free(dy);
    free(row_dw);
    return b;
}

static void free_backward(struct backward *b)
{
    tensor_free(&b->x);
    tensor_free(&b->w);
    tensor_free(&b->dy);
    tensor_free(&b->dsum);
    tensor_free(&b->rstd);
    free(b->dx);
    free(b->dw);
}

/* Run into dx, which may be one of the inputs.  Returns dw, to be freed. */
static struct tensor run_backward(struct device *d, const struct backward *b, struct tensor *dx,
                                  const void *dy, const void *dsum, int accumulate)
{
    struct tensor dw = accumulate ? tensor_random(DTYPE_F32, b->hidden, 8, 1)
                                  : tensor_poisoned(DTYPE_F32, b->hidden);
    size_t bytes = d->ops->norm_backward_scratch(d, b->rows, b->hidden, 1);
    struct tensor scratch = tensor_poisoned(DTYPE_F32, (int64_t)(bytes / sizeof(float)));
    d->ops->rmsnorm_backward(d, dx->dt, dx->data, dw.data, dy, dsum, b->x.data, b->w.data,
                             b->rstd.data, b->rows, b->hidden, accumulate, scratch.data);
    tensor_free(&scratch);
    return dw;
}

static uint64_t backward_case(struct device *d, enum dtype dt, int64_t rows, int64_t hidden,
                              int with_dsum)
{
    struct backward b = make_backward(dt, rows, hidden, with_dsum);
    const void *dsum = with_dsum ? b.dsum.data : NULL;
    struct tensor dx = tensor_poisoned(dt, rows * hidden);
    struct tensor dw = run_backward(d, &b, &dx, b.dy.data, dsum, 0);
    /* in a short row the two terms of dx nearly cancel */
    if (dt == DTYPE_F32)
        check_terms("dx", &dx, b.dx, 1e-6, 1);
    else
        check_terms("dx", &dx, b.dx, tolerance_of(dt), 1e-6 / tolerance_of(dt));
    check_close("dw", &dw, b.dw, 1e-5);

    struct tensor onto_dy = tensor_copy(&b.dy), onto_dsum = tensor_copy(&b.dsum);
    struct tensor dw2 = run_backward(d, &b, &onto_dy, onto_dy.data, dsum, 1);
    assert_int_equal(tensor_hash(&onto_dy), tensor_hash(&dx));
    struct tensor before = tensor_random(DTYPE_F32, hidden, 8, 1);
    for (int64_t i = 0; i < hidden; i++)
        b.dw[i] += tensor_get(&before, i);
    check_close("dw added", &dw2, b.dw, 1e-5);
    if (with_dsum) {
        struct tensor dw3 = run_backward(d, &b, &onto_dsum, b.dy.data, onto_dsum.data, 0);
        assert_int_equal(tensor_hash(&onto_dsum), tensor_hash(&dx));
        assert_int_equal(tensor_hash(&dw3), tensor_hash(&dw));
        tensor_free(&dw3);
    }
    uint64_t hash = tensor_hash(&dx) ^ tensor_hash(&dw) ^ tensor_hash(&dw2);
    tensor_free(&dx);
    tensor_free(&dw);
    tensor_free(&dw2);
    tensor_free(&onto_dy);
    tensor_free(&onto_dsum);
    tensor_free(&before);
    free_backward(&b);
    return hash;
}

static uint64_t all_sizes(struct device *d, enum dtype dt,
                          uint64_t (*test)(struct device *, enum dtype, int64_t, int64_t, int))
{
    static const int64_t sizes[][2] = {{1, 1},   {3, 7},   {7, 16},   {17, 33},
                                       {1, 127}, {131, 5}, {67, 521}, {601, 64}};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int with = 0; with < 2; with++)
            hash = hash * 31 + test(d, dt, sizes[i][0], sizes[i][1], with);
    return hash;
}

static uint64_t forward(struct device *d, enum dtype dt)
{
    return all_sizes(d, dt, forward_case);
}

static uint64_t backward(struct device *d, enum dtype dt)
{
    return all_sizes(d, dt, backward_case);
}

/* ---- over heads: each is a row of its own, with one of two weights, and values stay ---- */

/* Where head h of a packed row begins. */
static int64_t head_at(const struct qk_norm *n, int64_t row, int64_t h)
{
    return (row * (n->heads + 2 * n->kv_heads) + h) * n->head_dim;
}

static uint64_t heads_forward(struct device *d, const struct qk_norm *n)
{
    int64_t normed = n->heads + n->kv_heads, elems = head_at(n, n->rows, 0);
    struct tensor x = tensor_random(n->dt, elems, 1, 1.5), y = tensor_poisoned(n->dt, elems);
    struct tensor w[2] = {tensor_random(n->dt, n->head_dim, 2, 1),
                          tensor_random(n->dt, n->head_dim, 3, 1)};
    struct tensor rstd = tensor_poisoned(DTYPE_F32, n->rows * normed);
    double *v = values(&x), *want = values(&x);
    d->ops->qk_norm(d, n, y.data, rstd.data, x.data, w[0].data, w[1].data);
    for (int64_t row = 0; row < n->rows; row++)
        for (int64_t h = 0; h < normed; h++) {
            int64_t at = head_at(n, row, h);
            double r = rstd_of(v + at, n->head_dim);
            assert_true(fabs(tensor_get(&rstd, row * normed + h) - r) <= 1e-6 * r);
            for (int64_t i = 0; i < n->head_dim; i++)
                want[at + i] = v[at + i] * r * tensor_get(&w[h >= n->heads], i);
        }
    check_close("y", &y, want, tolerance_of(n->dt));
    uint64_t hash = tensor_hash(&y) ^ tensor_hash(&rstd);
    tensor_free(&x);
    tensor_free(&y);
    tensor_free(&w[0]);
    tensor_free(&w[1]);
    tensor_free(&rstd);
    free(v);
    free(want);
    return hash;
}

/* Operands of a backward pass over heads. */
struct heads_backward {
    struct tensor x, dy, w[2], rstd;
    double *dx, *dw[2];
};

static struct heads_backward make_heads(const struct qk_norm *n)
{
    int64_t normed = n->heads + n->kv_heads, elems = head_at(n, n->rows, 0), dim = n->head_dim;
    struct heads_backward b = {
        .x = tensor_random(n->dt, elems, 4, 1.5),
        .dy = tensor_random(n->dt, elems, 5, 1),
        .w = {tensor_random(n->dt, dim, 6, 1), tensor_random(n->dt, dim, 7, 1)},
        .rstd = tensor_poisoned(DTYPE_F32, n->rows * normed)};
    double *x = values(&b.x), *dy = values(&b.dy), *w[2] = {values(&b.w[0]), values(&b.w[1])};
    double *head_dw = malloc((size_t)dim * sizeof *head_dw);
    b.dx = values(&b.dy);
    for (int i = 0; i < 2; i++)
        b.dw[i] = calloc((size_t)dim, sizeof *b.dw[i]);
    for (int64_t row = 0; row < n->rows; row++)
        for (int64_t h = 0; h < normed; h++) {
            int64_t at = head_at(n, row, h);
            tensor_set(&b.rstd, row * normed + h, rstd_of(x + at, dim));
            backward_reference(b.dx + at, head_dw, dy + at, x + at, w[h >= n->heads], dim);
            for (int64_t i = 0; i < dim; i++)
                b.dw[h >= n->heads][i] += head_dw[i];
        }
    free(x);
    free(dy);
    free(w[0]);
    free(w[1]);
    free(head_dw);
    return b;
}

static void free_heads(struct heads_backward *b)
{
    tensor_free(&b->x);
    tensor_free(&b->dy);
    tensor_free(&b->rstd);
    for (int i = 0; i < 2; i++) {
        tensor_free(&b->w[i]);
        free(b->dw[i]);
    }
    free(b->dx);
}

/* Written apart, then onto dy with the gradients of weights added to. */
static uint64_t heads_backward(struct device *d, const struct qk_norm *n)
{
    int64_t dim = n->head_dim;
    struct heads_backward b = make_heads(n);
    struct tensor onto_dy = tensor_copy(&b.dy), apart = tensor_poisoned(n->dt, b.dy.elems);
    size_t bytes = d->ops->norm_backward_scratch(d, n->rows, dim, 2);
    uint64_t hash = 0;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        struct tensor dw[2], scratch = tensor_poisoned(DTYPE_F32, (int64_t)(bytes / sizeof(float)));
        struct tensor *dx = accumulate ? &onto_dy : &apart;
        for (int i = 0; i < 2; i++) {
            dw[i] = accumulate ? tensor_random(DTYPE_F32, dim, 8 + i, 1)
                               : tensor_poisoned(DTYPE_F32, dim);
            for (int64_t e = 0; e < dim && accumulate; e++)
                b.dw[i][e] += tensor_get(&dw[i], e);
        }
        d->ops->qk_norm_backward(d, n, dx->data, dw[0].data, dw[1].data,
                                 accumulate ? onto_dy.data : b.dy.data, b.x.data, b.w[0].data,
                                 b.w[1].data, b.rstd.data, accumulate, scratch.data);
        check_close("dwq", &dw[0], b.dw[0], 1e-5);
        check_close("dwk", &dw[1], b.dw[1], 1e-5);
        if (n->dt == DTYPE_F32)
            check_terms("dx", dx, b.dx, 1e-6, 1);
        else
            check_terms("dx", dx, b.dx, tolerance_of(n->dt), 1e-6 / tolerance_of(n->dt));
        hash = hash * 31 + (tensor_hash(dx) ^ tensor_hash(&dw[0]) ^ tensor_hash(&dw[1]));
        tensor_free(&dw[0]);
        tensor_free(&dw[1]);
        tensor_free(&scratch);
    }
    tensor_free(&onto_dy);
    tensor_free(&apart);
    free_heads(&b);
    return hash;
}

static uint64_t heads(struct device *d, enum dtype dt)
{
    static const struct qk_norm sizes[] = {
        {.rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 2},
        {.rows = 3, .heads = 3, .kv_heads = 1, .head_dim = 6},
        {.rows = 17, .heads = 4, .kv_heads = 2, .head_dim = 34},
        {.rows = 131, .heads = 2, .kv_heads = 2, .head_dim = 16},
        {.rows = 70, .heads = 5, .kv_heads = 1, .head_dim = 128},
    };
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct qk_norm n = sizes[i];
        n.dt = dt;
        n.eps = eps;
        hash = hash * 31 + (heads_forward(d, &n) ^ heads_backward(d, &n));
    }
    return hash;
}

static void norms_over_heads(void **state)
{
    for_each_setting(heads);
}

static void rmsnorm_and_residual(void **state)
{
    for_each_setting(forward);
}

static void rmsnorm_gradient(void **state)
{
    for_each_setting(backward);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_and_residual),
        cmocka_unit_test(the_reference_is_the_difference_quotient),
        cmocka_unit_test(rmsnorm_gradient),
        cmocka_unit_test(norms_over_heads),
    };
    return cmocka_run_group_tests_name("ops norm", tests, NULL, NULL);
}
