/* test_ops_norm.c - RMSNorm and its gradient. */
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
    };
    return cmocka_run_group_tests_name("ops norm", tests, NULL, NULL);
}
