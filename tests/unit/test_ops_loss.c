/* test_ops_loss.c - softmax cross-entropy, its gradient, and the sum of losses. */
#include "ops_check.h"

#include "base/philox.h"

/* Loss of one row, and its derivative by each logit. */
static double loss_reference(double *dlogits, const double *logits, int64_t vocab, int32_t target)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        top = fmax(top, logits[i]);
    for (int64_t i = 0; i < vocab; i++)
        sum += exp(logits[i] - top);
    for (int64_t i = 0; i < vocab; i++)
        dlogits[i] = exp(logits[i] - top) / sum - (i == target);
    return log(sum) + top - logits[target];
}

static void the_reference_is_the_difference_quotient(void **state)
{
    enum { VOCAB = 11 };
    const double h = 1e-6;
    double x[VOCAB], dx[VOCAB], unused[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        x[i] = philox_normal(1, (uint64_t)i);
    loss_reference(dx, x, VOCAB, 4);
    for (int i = 0; i < VOCAB; i++) {
        double saved = x[i];
        x[i] = saved + h;
        double up = loss_reference(unused, x, VOCAB, 4);
        x[i] = saved - h;
        double down = loss_reference(unused, x, VOCAB, 4);
        x[i] = saved;
        assert_true(fabs((up - down) / (2 * h) - dx[i]) < 1e-8);
    }
}

/* One problem: logits with padding columns, some rows masked, some targets at the ends. */
struct problem {
    int64_t rows, vocab, ld;
    struct tensor logits;
    int32_t *targets;
    double *loss, *dlogits; /* expected; dlogits [rows, vocab] */
};

static const float scale = 0.125f;

static struct problem make_problem(enum dtype dt_x, int64_t rows, int64_t vocab, int64_t ld,
                                   double spread, double offset)
{
    struct problem p = {rows, vocab, ld, tensor_random(dt_x, rows * ld, 2, spread)};
    double *x = malloc((size_t)vocab * sizeof *x);
    p.targets = malloc((size_t)rows * sizeof *p.targets);
    p.loss = calloc((size_t)rows, sizeof *p.loss);
    p.dlogits = calloc((size_t)(rows * vocab), sizeof *p.dlogits);
    for (int64_t row = 0; row < rows; row++) {
        const int32_t picks[] = {0, (int32_t)vocab - 1, -100, (int32_t)(row * 7 % vocab), -1};
        p.targets[row] = picks[row % 5];
        for (int64_t i = 0; i < ld; i++)
            tensor_set(&p.logits, row * ld + i, tensor_get(&p.logits, row * ld + i) + offset);
        for (int64_t i = 0; i < vocab; i++)
            x[i] = tensor_get(&p.logits, row * ld + i);
        if (p.targets[row] < 0)
            continue;
        p.loss[row] = loss_reference(p.dlogits + row * vocab, x, vocab, p.targets[row]);
        for (int64_t i = 0; i < vocab; i++)
            p.dlogits[row * vocab + i] *= (double)scale;
    }
    free(x);
    return p;
}

/* Elements of a gradient in place where logits have `ld`. */
static int64_t ld_in_place(const struct problem *p, int64_t ld, enum dtype dt)
{
    return ld * (int64_t)dtype_bytes(p->logits.dt) / (int64_t)dtype_bytes(dt);
}

static void free_problem(struct problem *p)
{
    tensor_free(&p->logits);
    free(p->targets);
    free(p->loss);
    free(p->dlogits);
}

/* Row starts are row * ld_d; elements past vocab, where there are some, keep their poison. */
static void check_gradient(const struct problem *p, const struct tensor *dlogits, int64_t ld_d,
                           int padding_is_poison)
{
    struct tensor dense = tensor_poisoned(dlogits->dt, p->rows * p->vocab);
    for (int64_t row = 0; row < p->rows; row++) {
        for (int64_t i = 0; i < p->vocab; i++)
            tensor_set(&dense, row * p->vocab + i, tensor_get(dlogits, row * ld_d + i));
        for (int64_t i = p->vocab; i < ld_d && padding_is_poison; i++)
            assert_true(isnan(tensor_get(dlogits, row * ld_d + i)));
        for (int64_t i = 0; i < p->vocab && p->targets[row] < 0; i++)
            assert_true(tensor_get(dlogits, row * ld_d + i) == 0);
    }
    check_close("dlogits", &dense, p->dlogits, tolerance_of(dlogits->dt));
    tensor_free(&dense);
}

static uint64_t run_problem(struct device *d, enum dtype dt, const struct problem *p)
{
    int64_t ld_d = p->vocab + 5, ld_in = ld_in_place(p, p->ld, dt);
    enum dtype dt_x = p->logits.dt;
    struct tensor loss = tensor_poisoned(DTYPE_F32, p->rows);
    struct tensor no_gradient = tensor_poisoned(DTYPE_F32, p->rows);
    struct tensor loss_in = tensor_poisoned(DTYPE_F32, p->rows);
    struct tensor dlogits = tensor_poisoned(dt, p->rows * ld_d);
    struct tensor in_place = tensor_copy(&p->logits);
    d->ops->cross_entropy(d, dt, loss.data, dlogits.data, ld_d, dt_x, p->logits.data, p->ld,
                          p->targets, p->rows, p->vocab, scale, NULL);
    d->ops->cross_entropy(d, dt, no_gradient.data, NULL, 0, dt_x, p->logits.data, p->ld, p->targets,
                          p->rows, p->vocab, scale, NULL);
    d->ops->cross_entropy(d, dt, loss_in.data, in_place.data, ld_in, dt_x, in_place.data, p->ld,
                          p->targets, p->rows, p->vocab, scale, NULL);
    check_close("loss", &loss, p->loss, 1e-6);
    check_gradient(p, &dlogits, ld_d, 1);
    assert_int_equal(tensor_hash(&loss), tensor_hash(&no_gradient));
    assert_int_equal(tensor_hash(&loss), tensor_hash(&loss_in));
    size_t elem = dtype_bytes(dt);
    for (int64_t row = 0; row < p->rows; row++) {
        assert_memory_equal((char *)in_place.data + (size_t)(row * ld_in) * elem,
                            (char *)dlogits.data + (size_t)(row * ld_d) * elem,
                            (size_t)p->vocab * elem);
        assert_true(p->targets[row] >= 0 || tensor_get(&loss, row) == 0);
    }
    uint64_t hash = tensor_hash(&loss) ^ tensor_hash(&dlogits);
    tensor_free(&loss);
    tensor_free(&no_gradient);
    tensor_free(&loss_in);
    tensor_free(&dlogits);
    tensor_free(&in_place);
    return hash;
}

enum { PARTS = 3 };

/* The first column of a part; of one column, the first two have none. */
static int64_t part_start(const struct problem *p, int part)
{
    return p->vocab * part / PARTS;
}

/* The largest of all parts' tops, and the sums of their terms, as ranks would exchange them. */
static void exchange_parts(struct device *d, const struct problem *p, struct tensor *all_top,
                           struct tensor *all_sums)
{
    struct tensor top[PARTS], sums[PARTS];
    for (int k = 0; k < PARTS; k++) {
        int64_t first = part_start(p, k), columns = part_start(p, k + 1) - first;
        top[k] = tensor_poisoned(DTYPE_F32, p->rows);
        sums[k] = tensor_poisoned(DTYPE_F32, 2 * p->rows);
        const char *own = (char *)p->logits.data + (size_t)first * dtype_bytes(p->logits.dt);
        d->ops->softmax_part(d, top[k].data, sums[k].data, p->logits.dt, own, p->ld, p->targets,
                             p->rows, columns, first);
        for (int64_t row = 0; row < p->rows; row++)
            tensor_set(all_top, row,
                       k ? fmax(tensor_get(all_top, row), tensor_get(&top[k], row))
                         : tensor_get(&top[k], row));
    }
    for (int k = 0; k < PARTS; k++) {
        d->ops->softmax_term(d, sums[k].data, sums[k].data, top[k].data, all_top->data, p->rows);
        for (int64_t i = 0; i < 2 * p->rows; i++)
            tensor_set(all_sums, i, (k ? tensor_get(all_sums, i) : 0) + tensor_get(&sums[k], i));
        tensor_free(&top[k]);
        tensor_free(&sums[k]);
    }
}

/* In three parts, one of which may have no columns, losses and gradients are those of the whole. */
static uint64_t in_parts(struct device *d, enum dtype dt, const struct problem *p)
{
    int64_t ld_in = ld_in_place(p, p->ld, dt), part_ld = p->vocab + 3;
    int64_t part_ld_d = ld_in_place(p, part_ld, dt);
    const double loss_scale = 0.5;
    struct tensor all_top = tensor_poisoned(DTYPE_F32, p->rows);
    struct tensor all_sums = tensor_poisoned(DTYPE_F32, 2 * p->rows);
    struct tensor loss = tensor_poisoned(DTYPE_F32, p->rows);
    struct tensor dlogits = tensor_poisoned(dt, p->rows * ld_in);
    exchange_parts(d, p, &all_top, &all_sums);
    d->ops->softmax_loss(d, loss.data, all_top.data, all_sums.data, p->targets, p->rows);
    for (int k = 0; k < PARTS; k++) {
        int64_t first = part_start(p, k), columns = part_start(p, k + 1) - first;
        struct tensor own = tensor_poisoned(p->logits.dt, p->rows * part_ld);
        for (int64_t i = 0; i < p->rows * columns; i++)
            tensor_set(&own, i / columns * part_ld + i % columns,
                       tensor_get(&p->logits, i / columns * p->ld + first + i % columns));
        struct tensor in_place = {dt, p->rows * part_ld_d, own.data};
        d->ops->softmax_gradient(d, dt, own.data, part_ld_d, p->logits.dt, own.data, part_ld,
                                 p->targets, all_top.data, all_sums.data, p->rows, columns, first,
                                 2 * scale, &loss_scale);
        for (int64_t i = 0; i < p->rows * columns; i++)
            tensor_set(&dlogits, i / columns * ld_in + first + i % columns,
                       tensor_get(&in_place, i / columns * part_ld_d + i % columns));
        tensor_free(&own);
    }
    check_close("loss in parts", &loss, p->loss, 1e-6);
    check_gradient(p, &dlogits, ld_in, 0);
    for (int64_t row = 0; row < p->rows; row++)
        assert_true(p->targets[row] >= 0 || tensor_get(&loss, row) == 0);
    uint64_t hash = tensor_hash(&loss) ^ tensor_hash(&dlogits);
    tensor_free(&all_top);
    tensor_free(&all_sums);
    tensor_free(&loss);
    tensor_free(&dlogits);
    return hash;
}

static uint64_t cross_entropy(struct device *d, enum dtype dt)
{
    static const struct {
        int64_t rows, vocab, ld;
        double spread, offset;
    } cases[] = {{1, 1, 1, 1, 0},       {5, 3, 3, 1, 0},           {7, 17, 20, 1, 0},
                 {6, 64, 64, 1, 0},     {13, 1031, 1040, 3, 0},    {11, 257, 257, 30, 0},
                 {9, 129, 129, 1, 5e3}, {3, 32003, 32003, 2, -700}};
    const enum dtype formats[] = {DTYPE_F32, dt}; /* of logits */
    uint64_t hash = 0;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        size_t k = i / 2;
        struct problem p = make_problem(formats[i % 2], cases[k].rows, cases[k].vocab, cases[k].ld,
                                        cases[k].spread, cases[k].offset);
        hash = hash * 31 + run_problem(d, dt, &p);
        hash = hash * 31 + in_parts(d, dt, &p);
        free_problem(&p);
    }
    return hash;
}

static uint64_t loss_sum(struct device *d, enum dtype dt)
{
    enum { ROWS = 997 };
    struct tensor loss = tensor_random(DTYPE_F32, ROWS, 3, 1);
    int32_t targets[ROWS];
    double sum = 0, count = 0, out[2] = {10, 20};
    for (int i = 0; i < ROWS; i++) {
        targets[i] = i % 3 ? i : -1;
        if (targets[i] < 0)
            tensor_set(&loss, i, 0);
        sum += tensor_get(&loss, i);
        count += targets[i] >= 0;
    }
    d->ops->loss_sum(d, out, loss.data, targets, ROWS);
    assert_true(fabs(out[0] - 10 - sum) < 1e-10);
    assert_true(out[1] == 20 + count);
    tensor_free(&loss);
    return (uint64_t)(out[0] * 1e12);
}

static void cross_entropy_and_its_gradient(void **state)
{
    for_each_setting(cross_entropy);
}

static void losses_are_summed_in_double(void **state)
{
    for_each_setting(loss_sum);
}

/* Where gradients fall under 2^-14 fp16 has few bits of them, where they fall under 2^-25 none: a
 * scale of the loss brings them back.  A power of 2 changes nothing else. */
static uint64_t loss_scale(struct device *d, enum dtype dt)
{
    static const double powers[] = {1, 0x1p16, 0x1p-8};
    struct problem p = make_problem(DTYPE_F32, 11, 1031, 1031, 1, 0);
    struct tensor plain = tensor_poisoned(dt, p.rows * p.vocab), loss[2];
    uint64_t hash = 0;
    for (int i = 0; i < 2; i++)
        loss[i] = tensor_poisoned(DTYPE_F32, p.rows);
    d->ops->cross_entropy(d, dt, loss[0].data, plain.data, p.vocab, DTYPE_F32, p.logits.data, p.ld,
                          p.targets, p.rows, p.vocab, scale, NULL);
    for (int i = 0; i < 3; i++) {
        struct tensor scaled = tensor_poisoned(dt, p.rows * p.vocab);
        double *want = malloc((size_t)scaled.elems * sizeof *want);
        d->ops->cross_entropy(d, dt, loss[1].data, scaled.data, p.vocab, DTYPE_F32, p.logits.data,
                              p.ld, p.targets, p.rows, p.vocab, scale, &powers[i]);
        assert_int_equal(tensor_hash(&loss[0]), tensor_hash(&loss[1]));
        for (int64_t e = 0; e < scaled.elems; e++) {
            want[e] = p.dlogits[e] * powers[i];
            double got = tensor_get(&scaled, e), size = fabs(want[e]);
            if (dt != DTYPE_F16)
                assert_true(got == tensor_get(&plain, e) * powers[i]);
            else if (size >= 0x1p-14) /* 2^-11 of rounding, and what fp32 is off */
                assert_true(fabs(got - want[e]) <= 0.0005 * size);
        }
        check_close("scaled", &scaled, want, tolerance_of(dt));
        hash = hash * 31 + tensor_hash(&scaled);
        tensor_free(&scaled);
        free(want);
    }
    for (int i = 0; i < 2; i++)
        tensor_free(&loss[i]);
    tensor_free(&plain);
    free_problem(&p);
    return hash;
}

static void a_loss_scale_multiplies_gradients_alone(void **state)
{
    for_each_setting(loss_scale);
}

/* Too large a scale is seen: the gradient at the target becomes infinite, the loss does not. */
static void too_large_a_scale_overflows(void **state)
{
    for (int level = 0; device_cpu_level(level); level++) {
        struct device *d = open_device(device_cpu_level(level), 1);
        struct tensor logits = tensor_random(DTYPE_F32, 37, 4, 1);
        struct tensor dlogits = tensor_poisoned(DTYPE_F16, 37);
        const double large = 0x1p20;
        float loss;
        d->ops->cross_entropy(d, DTYPE_F16, &loss, dlogits.data, 37, DTYPE_F32, logits.data, 37,
                              &(int32_t){3}, 1, 37, 1, &large);
        assert_true(isfinite(loss));
        assert_true(tensor_get(&dlogits, 3) == -INFINITY);
        for (int64_t i = 0; i < 37; i++)
            assert_false(isnan(tensor_get(&dlogits, i)));
        tensor_free(&logits);
        tensor_free(&dlogits);
        device_close(d);
    }
}

static void a_nan_logit_is_not_hidden(void **state)
{
    struct device *d = open_device(NULL, 1);
    for (int64_t at = 0; at < TYPES * 37; at++) {
        enum dtype dt_x = op_types[at / 37];
        struct tensor logits = tensor_random(dt_x, 37, 4, 1);
        float loss;
        tensor_set(&logits, at % 37, NAN);
        d->ops->cross_entropy(d, dt_x, &loss, NULL, 0, dt_x, logits.data, 37, &(int32_t){3}, 1, 37,
                              1, NULL);
        assert_true(isnan(loss));
        tensor_free(&logits);
    }
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_is_the_difference_quotient),
        cmocka_unit_test(cross_entropy_and_its_gradient),
        cmocka_unit_test(a_loss_scale_multiplies_gradients_alone),
        cmocka_unit_test(too_large_a_scale_overflows),
        cmocka_unit_test(a_nan_logit_is_not_hidden),
        cmocka_unit_test(losses_are_summed_in_double),
    };
    return cmocka_run_group_tests_name("ops loss", tests, NULL, NULL);
}
