/* test_ops_layernorm.c - LayerNorm, biases and GELU, and their gradients. */
#include "ops_check.h"

static const float eps = 1e-5f;

static double *values(const struct tensor *t)
{
    double *v = malloc((size_t)t->elems * sizeof *v);
    for (int64_t i = 0; i < t->elems; i++)
        v[i] = tensor_get(t, i);
    return v;
}

/* Mean and 1 / sqrt(variance + eps) of one row. */
struct stats {
    double mean, rstd;
};

static struct stats stats_of(const double *x, int64_t hidden)
{
    double sum = 0, square = 0;
    for (int64_t i = 0; i < hidden; i++)
        sum += x[i];
    double mean = sum / (double)hidden;
    for (int64_t i = 0; i < hidden; i++)
        square += (x[i] - mean) * (x[i] - mean);
    return (struct stats){mean, 1 / sqrt(square / (double)hidden + (double)eps)};
}

/* dx and dw of one row of y = (x - mean) rstd w + b, given dy; db is dy. */
static void row_gradient(double *dx, double *dw, const double *dy, const double *x, const double *w,
                         int64_t hidden)
{
    struct stats s = stats_of(x, hidden);
    double sum = 0, dot = 0, n = (double)hidden;
    for (int64_t i = 0; i < hidden; i++) {
        sum += dy[i] * w[i];
        dot += dy[i] * w[i] * (x[i] - s.mean) * s.rstd;
    }
    for (int64_t i = 0; i < hidden; i++) {
        double normal = (x[i] - s.mean) * s.rstd;
        dx[i] = s.rstd * (dy[i] * w[i] - sum / n - normal * dot / n);
        dw[i] = dy[i] * normal;
    }
}

static double weighted_norm(const double *dy, const double *x, const double *w, int64_t hidden)
{
    struct stats s = stats_of(x, hidden);
    double sum = 0;
    for (int64_t i = 0; i < hidden; i++)
        sum += dy[i] * (x[i] - s.mean) * s.rstd * w[i];
    return sum;
}

static double gelu_of(double v)
{
    return 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
}

static double gelu_slope(double v)
{
    double u = sqrt(2 / M_PI) * (v + 0.044715 * v * v * v), t = tanh(u);
    double du = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * v * v);
    return 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * du;
}

static void references_are_difference_quotients(void **state)
{
    enum { HIDDEN = 13 };
    const double h = 1e-6;
    struct tensor tx = tensor_random(DTYPE_F32, HIDDEN, 1, 1);
    struct tensor tw = tensor_random(DTYPE_F32, HIDDEN, 2, 1);
    struct tensor tdy = tensor_random(DTYPE_F32, HIDDEN, 3, 1);
    double *x = values(&tx), *w = values(&tw), *dy = values(&tdy), dx[HIDDEN], dw[HIDDEN];
    row_gradient(dx, dw, dy, x, w, HIDDEN);
    for (int i = 0; i < HIDDEN; i++) {
        double *const at[] = {&x[i], &w[i]}, want[] = {dx[i], dw[i]};
        for (int j = 0; j < 2; j++) {
            double saved = *at[j];
            *at[j] = saved + h;
            double up = weighted_norm(dy, x, w, HIDDEN);
            *at[j] = saved - h;
            double down = weighted_norm(dy, x, w, HIDDEN);
            *at[j] = saved;
            assert_true(fabs((up - down) / (2 * h) - want[j]) < 1e-8);
        }
        double quotient = (gelu_of(3 * x[i] + h) - gelu_of(3 * x[i] - h)) / (2 * h);
        assert_true(fabs(quotient - gelu_slope(3 * x[i])) < 1e-8);
    }
    tensor_free(&tx);
    tensor_free(&tw);
    tensor_free(&tdy);
    free(x);
    free(w);
    free(dy);
}

/* offset: a mean far from zero, as large as the deviation or a hundred times. */
static uint64_t forward_case(struct device *d, enum dtype dt, int64_t rows, int64_t hidden,
                             double offset)
{
    int64_t elems = rows * hidden;
    struct tensor x = tensor_random(dt, elems, 1, 1.5), w = tensor_random(dt, hidden, 3, 1);
    struct tensor b = tensor_random(dt, hidden, 4, 1), y = tensor_poisoned(dt, elems);
    struct tensor stats = tensor_poisoned(DTYPE_F32, 2 * rows);
    for (int64_t i = 0; i < elems; i++)
        tensor_set(&x, i, tensor_get(&x, i) + offset);
    double *v = values(&x), *want = malloc((size_t)elems * sizeof *want);
    d->ops->layernorm(d, dt, y.data, stats.data, x.data, w.data, b.data, rows, hidden, eps);
    for (int64_t row = 0; row < rows; row++) {
        struct stats s = stats_of(v + row * hidden, hidden);
        double mean = tensor_get(&stats, 2 * row), rstd = tensor_get(&stats, 2 * row + 1);
        assert_true(fabs(mean - s.mean) <= 1e-6 * (2 + fabs(offset)));
        assert_true(fabs(rstd - s.rstd) <= 2e-5 * s.rstd || hidden == 1);
        for (int64_t i = 0; i < hidden; i++)
            want[row * hidden + i] =
                (v[row * hidden + i] - s.mean) * s.rstd * tensor_get(&w, i) + tensor_get(&b, i);
    }
    /* x - mean loses what the mean is off, of numbers as large as the offset; one alone is 0 times
     * the largest rstd there is */
    double off = hidden == 1 ? 0 : 1e-6 * fabs(offset);
    check_terms("y", &y, want, tolerance_of(dt) + off, 1);
    uint64_t hash = tensor_hash(&y) ^ tensor_hash(&stats);
    tensor_free(&x);
    tensor_free(&w);
    tensor_free(&b);
    tensor_free(&y);
    tensor_free(&stats);
    free(v);
    free(want);
    return hash;
}

/* Inputs of a backward pass and what it must give. */
struct backward {
    int64_t rows, hidden;
    struct tensor x, w, dy, dsum, stats;
    double *dx, *dw, *db;
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
                         .stats = tensor_poisoned(DTYPE_F32, 2 * rows)};
    double *x = values(&b.x), *w = values(&b.w), *dy = values(&b.dy);
    double *row_dw = malloc((size_t)hidden * sizeof *row_dw);
    b.dx = malloc((size_t)elems * sizeof *b.dx);
    b.dw = calloc((size_t)hidden, sizeof *b.dw);
    b.db = calloc((size_t)hidden, sizeof *b.db);
    for (int64_t row = 0; row < rows; row++) {
        int64_t first = row * hidden;
        struct stats s = stats_of(x + first, hidden);
        tensor_set(&b.stats, 2 * row, s.mean);
        tensor_set(&b.stats, 2 * row + 1, s.rstd);
        row_gradient(b.dx + first, row_dw, dy + first, x + first, w, hidden);
        for (int64_t i = 0; i < hidden; i++) {
            b.dw[i] += row_dw[i];
            b.db[i] += dy[first + i];
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
    tensor_free(&b->stats);
    free(b->dx);
    free(b->dw);
    free(b->db);
}

/* Run into dx, which may be one of the inputs.  Returns a hash of all results. */
static uint64_t run_backward(struct device *d, const struct backward *b, struct tensor *dx,
                             const void *dy, const void *dsum, int accumulate)
{
    struct tensor dw = accumulate ? tensor_random(DTYPE_F32, b->hidden, 8, 1)
                                  : tensor_poisoned(DTYPE_F32, b->hidden);
    struct tensor db = tensor_copy(&dw);
    double *want[2] = {calloc((size_t)b->hidden, sizeof(double)),
                       calloc((size_t)b->hidden, sizeof(double))};
    for (int64_t i = 0; i < b->hidden; i++) {
        want[0][i] = b->dw[i] + (accumulate ? tensor_get(&dw, i) : 0);
        want[1][i] = b->db[i] + (accumulate ? tensor_get(&db, i) : 0);
    }
    size_t bytes = d->ops->norm_backward_scratch(d, b->rows, b->hidden, 2);
    struct tensor scratch = tensor_poisoned(DTYPE_F32, (int64_t)(bytes / sizeof(float)));
    d->ops->layernorm_backward(d, dx->dt, dx->data, dw.data, db.data, dy, dsum, b->x.data,
                               b->w.data, b->stats.data, b->rows, b->hidden, accumulate,
                               scratch.data);
    check_terms("dw", &dw, want[0], 1e-5, 1);
    check_terms("db", &db, want[1], 1e-5, 1);
    uint64_t hash = tensor_hash(dx) * 31 + tensor_hash(&dw) * 7 + tensor_hash(&db);
    tensor_free(&scratch);
    tensor_free(&dw);
    tensor_free(&db);
    free(want[0]);
    free(want[1]);
    return hash;
}

static uint64_t backward_case(struct device *d, enum dtype dt, int64_t rows, int64_t hidden,
                              double with_dsum)
{
    struct backward b = make_backward(dt, rows, hidden, with_dsum != 0);
    const void *dsum = with_dsum != 0 ? b.dsum.data : NULL;
    struct tensor dx = tensor_poisoned(dt, rows * hidden);
    uint64_t hash = run_backward(d, &b, &dx, b.dy.data, dsum, 0);
    /* the terms of dx nearly cancel in short rows, where rstd may be large */
    double largest = 0;
    for (int64_t row = 0; row < rows; row++)
        largest = fmax(largest, tensor_get(&b.stats, 2 * row + 1));
    double tolerance = dt == DTYPE_F32 ? 2e-6 : tolerance_of(dt);
    check_terms("dx", &dx, b.dx, tolerance, 2e-6 / tolerance * (1 + largest));

    struct tensor onto_dy = tensor_copy(&b.dy), onto_dsum = tensor_copy(&b.dsum);
    hash = hash * 31 + run_backward(d, &b, &onto_dy, onto_dy.data, dsum, 1);
    assert_int_equal(tensor_hash(&onto_dy), tensor_hash(&dx));
    if (dsum) {
        run_backward(d, &b, &onto_dsum, b.dy.data, onto_dsum.data, 0);
        assert_int_equal(tensor_hash(&onto_dsum), tensor_hash(&dx));
    }
    tensor_free(&dx);
    tensor_free(&onto_dy);
    tensor_free(&onto_dsum);
    free_backward(&b);
    return hash;
}

/* y = x + b, in place too, and b's gradient, written and added. */
static uint64_t bias_case(struct device *d, enum dtype dt, int64_t rows, int64_t cols,
                          double accumulate)
{
    int64_t elems = rows * cols;
    struct tensor x = tensor_random(dt, elems, 1, 1), b = tensor_random(dt, cols, 2, 1);
    struct tensor y = tensor_poisoned(dt, elems), onto = tensor_copy(&x);
    struct tensor db =
        accumulate != 0 ? tensor_random(DTYPE_F32, cols, 3, 1) : tensor_poisoned(DTYPE_F32, cols);
    double *sums = calloc((size_t)cols, sizeof *sums);
    d->ops->bias(d, dt, y.data, x.data, b.data, rows, cols);
    d->ops->bias(d, dt, onto.data, onto.data, b.data, rows, cols);
    assert_int_equal(tensor_hash(&onto), tensor_hash(&y));
    for (int64_t i = 0; i < cols; i++)
        sums[i] = accumulate != 0 ? tensor_get(&db, i) : 0;
    for (int64_t i = 0; i < elems; i++) {
        float sum = (float)tensor_get(&x, i) + (float)tensor_get(&b, i % cols);
        assert_true(tensor_get(&y, i) == rounded(dt, sum));
        sums[i % cols] += tensor_get(&x, i);
    }
    size_t bytes = d->ops->bias_backward_scratch(d, rows, cols);
    struct tensor scratch = tensor_poisoned(DTYPE_F32, (int64_t)(bytes / sizeof(float)));
    d->ops->bias_backward(d, dt, db.data, x.data, rows, cols, accumulate != 0, scratch.data);
    check_terms("db", &db, sums, 1e-6, 1);
    uint64_t hash = tensor_hash(&y) ^ tensor_hash(&db);
    tensor_free(&x);
    tensor_free(&b);
    tensor_free(&y);
    tensor_free(&onto);
    tensor_free(&db);
    tensor_free(&scratch);
    free(sums);
    return hash;
}

/* Of arguments around zero, or so far out that gelu is 0 or its argument. */
static uint64_t gelu_case(struct device *d, enum dtype dt, int64_t rows, int64_t cols, double far)
{
    int64_t elems = rows * cols;
    struct tensor x = tensor_random(dt, elems, 1, far != 0 ? 40 : 1.5);
    struct tensor b = tensor_random(dt, cols, 2, 1), dy = tensor_random(dt, elems, 3, 1);
    struct tensor y = tensor_poisoned(dt, elems), dx = tensor_poisoned(dt, elems);
    struct tensor onto_dy = tensor_copy(&dy), onto_x = tensor_copy(&x);
    double *want = malloc((size_t)elems * sizeof *want), *slope = malloc((size_t)elems * 8);
    for (int64_t i = 0; i < elems; i++) {
        double v = (float)tensor_get(&x, i) + (float)tensor_get(&b, i % cols);
        want[i] = gelu_of(v);
        slope[i] = gelu_slope(v) * tensor_get(&dy, i);
    }
    d->ops->gelu(d, dt, y.data, x.data, b.data, rows, cols);
    check_close("gelu", &y, want, tolerance_of(dt));
    d->ops->gelu_backward(d, dt, dx.data, dy.data, x.data, b.data, rows, cols);
    check_close("dgelu", &dx, slope, tolerance_of(dt));
    d->ops->gelu_backward(d, dt, onto_dy.data, onto_dy.data, x.data, b.data, rows, cols);
    d->ops->gelu_backward(d, dt, onto_x.data, dy.data, onto_x.data, b.data, rows, cols);
    assert_int_equal(tensor_hash(&onto_dy), tensor_hash(&dx));
    assert_int_equal(tensor_hash(&onto_x), tensor_hash(&dx));
    uint64_t hash = tensor_hash(&y) ^ tensor_hash(&dx);
    tensor_free(&x);
    tensor_free(&b);
    tensor_free(&dy);
    tensor_free(&y);
    tensor_free(&dx);
    tensor_free(&onto_dy);
    tensor_free(&onto_x);
    free(want);
    free(slope);
    return hash;
}

typedef uint64_t one_case(struct device *d, enum dtype dt, int64_t rows, int64_t cols, double with);

static uint64_t all_sizes(struct device *d, enum dtype dt, one_case *test, double with)
{
    static const int64_t sizes[][2] = {{1, 1},   {3, 7},    {7, 16},   {17, 33}, {1, 127},
                                       {131, 5}, {67, 521}, {601, 64}, {3, 9001}};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int k = 0; k < 2; k++)
            hash = hash * 31 + test(d, dt, sizes[i][0], sizes[i][1], k * with);
    return hash;
}

static uint64_t norms(struct device *d, enum dtype dt)
{
    return all_sizes(d, dt, forward_case, 100);
}

static uint64_t norm_gradients(struct device *d, enum dtype dt)
{
    return all_sizes(d, dt, backward_case, 1);
}

static uint64_t biases(struct device *d, enum dtype dt)
{
    return all_sizes(d, dt, bias_case, 1);
}

static uint64_t gelus(struct device *d, enum dtype dt)
{
    return all_sizes(d, dt, gelu_case, 1);
}

static void layernorm(void **state)
{
    for_each_setting(norms);
}

static void layernorm_gradient(void **state)
{
    for_each_setting(norm_gradients);
}

static void bias_and_its_gradient(void **state)
{
    for_each_setting(biases);
}

static void gelu_and_its_gradient(void **state)
{
    for_each_setting(gelus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(references_are_difference_quotients),
        cmocka_unit_test(layernorm),
        cmocka_unit_test(layernorm_gradient),
        cmocka_unit_test(bias_and_its_gradient),
        cmocka_unit_test(gelu_and_its_gradient),
    };
    return cmocka_run_group_tests_name("ops layernorm", tests, NULL, NULL);
}
