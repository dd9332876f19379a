/* test_ops_magnitude.c - the ops of DoRA against double precision: squares of the rows of
 * W + factor * B A, which is made here, columns scaled to magnitudes, and the gradient of these. */
#include "ops_check.h"

#include <stdio.h>

static const struct row_squares shapes[] = {
    {.rows = 1, .cols = 1, .rank = 1},   {.rows = 3, .cols = 7, .rank = 2},
    {.rows = 5, .cols = 64, .rank = 16}, {.rows = 17, .cols = 131, .rank = 5},
    {.rows = 2, .cols = 33, .rank = 40}, {.rows = 67, .cols = 2311, .rank = 3},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* x y^T of x [m, k] and y [n, k], in double and rounded to fp32. */
static struct tensor product(const struct tensor *x, const struct tensor *y, int64_t k)
{
    int64_t m = x->elems / k, n = y->elems / k;
    struct tensor xy = tensor_poisoned(DTYPE_F32, m * n);
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 0;
        for (int64_t l = 0; l < k; l++)
            sum += tensor_get(x, i / n * k + l) * tensor_get(y, i % n * k + l);
        tensor_set(&xy, i, sum);
    }
    return xy;
}

/* Of the first row nothing is there; of the last, where there are more, W is -factor B A, all but
 * its rounding. */
static uint64_t squares_case(struct device *d, struct row_squares s)
{
    int64_t elems = s.rows * s.cols, last = s.rows - 1;
    struct tensor w = tensor_random(s.dt, elems, 1, 0.7),
                  a = tensor_random(s.dt, s.rank * s.cols, 2, 0.3);
    struct tensor b = tensor_random(s.dt, s.rows * s.rank, 3, 0.5);
    struct tensor squares = tensor_poisoned(DTYPE_F32, s.rows);
    double *want = calloc((size_t)s.rows, sizeof *want), size = 0;
    for (int64_t i = 0; i < elems; i++) {
        int64_t row = i / s.cols;
        double ba = 0;
        for (int64_t k = 0; k < s.rank; k++)
            ba += tensor_get(&b, row * s.rank + k) * tensor_get(&a, k * s.cols + i % s.cols);
        if (s.rows > 1 && row == 0)
            tensor_set(&w, i, 0);
        if (s.rows > 2 && row == last)
            tensor_set(&w, i, -s.factor * ba);
        double sum = tensor_get(&w, i) + (s.rows > 1 && row == 0 ? 0 : s.factor * ba);
        want[row] += sum * sum;
        size += (pow(tensor_get(&w, i), 2) + pow(s.factor * ba, 2)) / (double)s.rows;
    }
    for (int64_t k = 0; k < s.rank && s.rows > 1; k++)
        tensor_set(&b, k, 0);
    struct tensor wa = product(&w, &a, s.cols), aa = product(&a, &a, s.cols);
    d->ops->row_squares(d, &s, squares.data, w.data, b.data, wa.data, aa.data);
    check_terms("squares", &squares, want, 2e-6, size);
    for (int64_t i = 0; i < s.rows; i++)
        assert_true(tensor_get(&squares, i) >= 0);
    assert_true(s.rows == 1 || tensor_get(&squares, 0) == 0);
    uint64_t hash = tensor_hash(&squares);
    tensor_set(&w, elems - 1, NAN);
    d->ops->row_squares(d, &s, squares.data, w.data, b.data, wa.data, aa.data);
    assert_true(isnan(tensor_get(&squares, last)));
    struct tensor *all[] = {&w, &a, &b, &squares, &wa, &aa};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
    free(want);
    return hash;
}

static uint64_t squares_of_rows(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int i = 0; i < SHAPES; i++) {
        struct row_squares s = shapes[i];
        s.dt = dt;
        s.factor = i % 2 ? 1.5f : 0.25f;
        hash = hash * 31 + squares_case(d, s);
    }
    return hash;
}

/* Columns [first, first + cols) of rows of ld. */
static const struct {
    int64_t first;
    struct column_scale s;
} columns[] = {
    {0, {.rows = 1, .cols = 1, .ld = 1}},      {0, {.rows = 3, .cols = 7, .ld = 7}},
    {5, {.rows = 33, .cols = 19, .ld = 40}},   {32, {.rows = 65, .cols = 64, .ld = 96}},
    {3, {.rows = 70, .cols = 517, .ld = 523}}, {0, {.rows = 257, .cols = 48, .ld = 48}},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

/* Squares with a 0 among them. */
static struct tensor some_squares(int64_t cols)
{
    struct tensor squares = tensor_random(DTYPE_F32, cols, 4, 1);
    for (int64_t i = 0; i < cols; i++)
        tensor_set(&squares, i, i % 5 == 3 ? 0 : pow(tensor_get(&squares, i), 2) + 0.1);
    return squares;
}

static double inverse_norm(const struct tensor *squares, int64_t i)
{
    double square = tensor_get(squares, i);
    return square > 0 ? 1 / sqrt(square) : 0;
}

static void *from(const struct tensor *t, int64_t first)
{
    return (char *)t->data + (size_t)first * dtype_bytes(t->dt);
}

/* Apart, in place, and without magnitudes; other columns stay as they are. */
static uint64_t scale_case(struct device *d, const struct column_scale *s, int64_t first)
{
    int64_t elems = s->rows * s->ld;
    struct tensor x = tensor_random(s->dt, elems, 5, 2), y = tensor_random(s->dt, elems, 6, 1);
    struct tensor in_place = tensor_copy(&x), same = tensor_copy(&y);
    struct tensor m = tensor_random(s->dt, s->cols + 1, 7, 1), squares = some_squares(s->cols);
    double *want = malloc((size_t)elems * sizeof *want),
           *wanted = malloc((size_t)elems * sizeof *wanted);
    for (int64_t i = 0; i < elems; i++) {
        int64_t c = i % s->ld - first;
        int is_scaled = c >= 0 && c < s->cols;
        want[i] = wanted[i] =
            is_scaled ? tensor_get(&x, i) * tensor_get(&m, c + 1) * inverse_norm(&squares, c)
                      : tensor_get(&y, i);
        if (!is_scaled)
            wanted[i] = tensor_get(&x, i);
    }
    d->ops->scale_columns(d, s, from(&y, first), from(&x, first), from(&m, 1), squares.data);
    check_close("y", &y, want, tolerance_of(s->dt));
    d->ops->scale_columns(d, s, from(&in_place, first), from(&in_place, first), from(&m, 1),
                          squares.data);
    check_close("y in place", &in_place, wanted, tolerance_of(s->dt));
    uint64_t hash = tensor_hash(&y) ^ tensor_hash(&in_place) * 3;
    d->ops->scale_columns(d, s, from(&same, first), from(&x, first), NULL, NULL);
    for (int64_t i = 0; i < elems; i++) {
        int64_t c = i % s->ld - first;
        assert_true(tensor_get(&same, i) ==
                    (c >= 0 && c < s->cols ? tensor_get(&x, i) : tensor_get(&y, i)));
    }
    struct tensor *all[] = {&x, &y, &in_place, &same, &m, &squares};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
    free(want);
    free(wanted);
    return hash;
}

static uint64_t gradient_case(struct device *d, const struct column_scale *s, int64_t first)
{
    int64_t elems = s->rows * s->ld;
    struct tensor x = tensor_random(s->dt, elems, 8, 2), dy = tensor_random(s->dt, elems, 9, 1);
    struct tensor squares = some_squares(s->cols);
    size_t bytes = d->ops->bias_backward_scratch(d, s->rows, s->cols);
    uint64_t hash = 0;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        struct tensor dm = accumulate ? tensor_random(DTYPE_F32, s->cols, 10, 1)
                                      : tensor_poisoned(DTYPE_F32, s->cols);
        struct tensor scratch = tensor_poisoned(DTYPE_F32, (int64_t)(bytes / sizeof(float)));
        double *want = calloc((size_t)s->cols, sizeof *want);
        for (int64_t c = 0; c < s->cols; c++) {
            for (int64_t r = 0; r < s->rows; r++)
                want[c] += tensor_get(&x, r * s->ld + first + c) *
                           tensor_get(&dy, r * s->ld + first + c) * inverse_norm(&squares, c);
            want[c] += accumulate ? tensor_get(&dm, c) : 0;
        }
        d->ops->scale_columns_backward(d, s, dm.data, from(&dy, first), from(&x, first),
                                       squares.data, accumulate, scratch.data);
        check_terms("dm", &dm, want, 2e-6, sqrt((double)s->rows) * 4);
        hash = hash * 31 + tensor_hash(&dm);
        tensor_free(&dm);
        tensor_free(&scratch);
        free(want);
    }
    tensor_free(&x);
    tensor_free(&dy);
    tensor_free(&squares);
    return hash;
}

static uint64_t scaled_columns(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int i = 0; i < COLUMNS; i++) {
        struct column_scale s = columns[i].s;
        s.dt = dt;
        hash = hash * 31 + scale_case(d, &s, columns[i].first);
        hash = hash * 31 + gradient_case(d, &s, columns[i].first);
    }
    return hash;
}

static void row_squares(void **state)
{
    for_each_setting(squares_of_rows);
}

static void scale_columns(void **state)
{
    for_each_setting(scaled_columns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_squares),
        cmocka_unit_test(scale_columns),
    };
    return cmocka_run_group_tests_name("ops magnitude", tests, NULL, NULL);
}
