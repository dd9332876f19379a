/* test_ops_adamw_bf16.c - a step on state in bf16 is the step in fp32, rounded up or down by a
 * number that belongs to the element, and right on average. */
#include "ops_check.h"

#include "base/philox.h"

static const struct adamw rule = {.lr = 3e-3f,
                                  .beta2 = 0.95f,
                                  .eps = 1e-8f,
                                  .weight_decay = 0.1f,
                                  .one_minus_beta1 = 0.1f,
                                  .one_minus_beta2 = 0.05f,
                                  .bias1 = 0.271f,
                                  .bias2 = 0.142625f};
static const struct rounding numbers = {0x1234567890abcdefu, 7, 0};

/* p, m and v of a case, as the types say. */
struct state {
    struct tensor p, m, v, g, copy;
};

static struct state make_state(enum dtype dt_p, enum dtype dt_m, enum dtype dt_copy, int64_t elems)
{
    struct state s = {
        tensor_random(dt_p, elems, 1, 1),    tensor_random(dt_m, elems, 2, 0.1),
        tensor_random(dt_m, elems, 3, 0.01), tensor_random(DTYPE_F32, elems, 4, 0.1),
        tensor_poisoned(dt_copy, elems),
    };
    for (int64_t i = 0; i < elems; i++)
        tensor_set(&s.v, i, fabs(tensor_get(&s.v, i)));
    return s;
}

static void free_state(struct state *s)
{
    tensor_free(&s->p);
    tensor_free(&s->m);
    tensor_free(&s->v);
    tensor_free(&s->g);
    tensor_free(&s->copy);
}

static void *at(const struct tensor *t, int64_t i)
{
    return (char *)t->data + (size_t)i * dtype_bytes(t->dt);
}

/* Elements [from, to) by one call. */
static void step(struct device *d, struct state *s, const struct rounding *r, int64_t from,
                 int64_t to, int copies)
{
    const double factor = 0.5;
    const struct adamw_state part = {
        s->p.dt,         s->m.dt,         at(&s->p, from), at(&s->m, from),
        at(&s->v, from), at(&s->g, from), s->copy.dt,      copies ? at(&s->copy, from) : NULL,
    };
    struct rounding mine = *r;
    mine.first += (uint64_t)from;
    d->ops->adamw(d, &rule, &factor, &part, &mine, to - from);
}

/* The 16 random bits of the k-th tensor of p, m, v, from the published generator. */
static uint32_t noise(const struct rounding *r, int64_t i, int k)
{
    uint64_t index = r->first + (uint64_t)i, pair = index / 2;
    struct philox4 c = {
        {(uint32_t)pair, (uint32_t)(pair >> 32), (uint32_t)r->step, (uint32_t)(r->step >> 32)}};
    c = philox(c, (uint32_t)r->key, (uint32_t)(r->key >> 32));
    uint32_t word = c.v[index % 2 * 2 + (uint64_t)(k / 2)];
    return k % 2 ? word >> 16 : word & 0xffff;
}

/* fp32 operations may be contracted or not: an ulp of fp32 moves what is rounded by 2^-16 of the
 * distance of neighbours in bf16, so that noise within 4 of the threshold may fall either way. */
static void check_rounded(const struct tensor *got, const struct tensor *want,
                          const struct rounding *r, int k)
{
    for (int64_t i = 0; i < got->elems; i++) {
        float exact = ((const float *)want->data)[i];
        uint32_t bits;
        memcpy(&bits, &exact, sizeof bits);
        if (got->dt == DTYPE_F32) {
            assert_true(fabsf(((float *)got->data)[i] - exact) <= 4e-7f * fabsf(exact) + 1e-9f);
            continue;
        }
        uint32_t sum = bits + noise(r, i, k), have = ((bf16 *)got->data)[i];
        assert_true(have == sum >> 16 || have == (sum + 64) >> 16 || have == (sum - 64) >> 16);
    }
}

static uint64_t against_fp32(struct device *d, enum dtype dt_p, enum dtype dt_m, enum dtype dt_copy,
                             int64_t elems)
{
    struct state s = make_state(dt_p, dt_m, dt_copy, elems);
    struct state w = make_state(dt_p, dt_m, dt_copy, elems);
    struct tensor p = tensor_poisoned(DTYPE_F32, elems), m = tensor_poisoned(DTYPE_F32, elems);
    struct tensor v = tensor_poisoned(DTYPE_F32, elems);
    struct rounding r = numbers;
    const double factor = 0.5;
    r.first = (uint64_t)elems % 3;
    for (int64_t i = 0; i < elems; i++) {
        tensor_set(&p, i, tensor_get(&w.p, i));
        tensor_set(&m, i, tensor_get(&w.m, i));
        tensor_set(&v, i, tensor_get(&w.v, i));
    }
    const struct adamw_state whole = {DTYPE_F32, DTYPE_F32, p.data,     m.data,
                                      v.data,    w.g.data,  DTYPE_BF16, NULL};
    d->ops->adamw(d, &rule, &factor, &whole, NULL, elems);
    step(d, &s, &r, 0, elems, dt_p == DTYPE_F32);
    check_rounded(&s.p, &p, &r, 0);
    check_rounded(&s.m, &m, &r, 1);
    check_rounded(&s.v, &v, &r, 2);
    for (int64_t i = 0; i < elems && dt_p == DTYPE_F32; i++)
        assert_true(tensor_get(&s.copy, i) == rounded(dt_copy, tensor_get(&s.p, i)));
    uint64_t hash = tensor_hash(&s.p) ^ tensor_hash(&s.m) ^ tensor_hash(&s.v);
    tensor_free(&p);
    tensor_free(&m);
    tensor_free(&v);
    free_state(&s);
    free_state(&w);
    return hash;
}

static const enum dtype formats[3][2] = {
    {DTYPE_F32, DTYPE_BF16}, {DTYPE_BF16, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16}};

static uint64_t rounded_steps(struct device *d, enum dtype dt)
{
    static const int64_t sizes[] = {1, 3, 7, 16, 127, 257, 1031, 20011};
    uint64_t hash = 0;
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 3; k++)
            hash = hash * 31 + against_fp32(d, formats[k][0], formats[k][1],
                                            dt == DTYPE_F16 ? dt : DTYPE_BF16, sizes[i]);
    return hash;
}

static void results_are_those_of_fp32_rounded_by_number(void **state)
{
    for_each_setting(rounded_steps);
}

/* However a tensor is cut, its elements get the same bits. */
static uint64_t in_parts(struct device *d, enum dtype dt)
{
    enum { ELEMS = 9001 };
    static const int64_t cuts[] = {0, 1, 4, 36, 301, 8192, 8999, ELEMS};
    uint64_t hash = 0;
    for (int k = 0; k < 3; k++) {
        struct state whole = make_state(formats[k][0], formats[k][1], DTYPE_BF16, ELEMS);
        struct state parts = make_state(formats[k][0], formats[k][1], DTYPE_BF16, ELEMS);
        step(d, &whole, &numbers, 0, ELEMS, 0);
        for (int i = 0; i < 7; i++)
            step(d, &parts, &numbers, cuts[i], cuts[i + 1], 0);
        assert_true(tensor_hash(&whole.p) == tensor_hash(&parts.p));
        assert_true(tensor_hash(&whole.m) == tensor_hash(&parts.m));
        assert_true(tensor_hash(&whole.v) == tensor_hash(&parts.v));
        hash = hash * 31 + tensor_hash(&whole.p);
        free_state(&whole);
        free_state(&parts);
    }
    return hash;
}

static void bits_do_not_depend_on_parts(void **state)
{
    for_each_setting(in_parts);
}

/* Columns of a larger matrix have the bits that they have row by row. */
static uint64_t in_columns(struct device *d, enum dtype dt)
{
    enum { ROWS = 71 };
    static const int64_t runs[] = {1, 3, 8, 64, 256, 301}, strides[] = {2, 7, 8, 128, 300, 602};
    uint64_t hash = 0;
    for (int i = 0; i < 3 * 6; i++) {
        const enum dtype *format = formats[i % 3];
        const int64_t run = runs[i / 3], elems = ROWS * run - (run > 1);
        struct state whole = make_state(format[0], format[1], DTYPE_BF16, elems);
        struct state rows = make_state(format[0], format[1], DTYPE_BF16, elems);
        struct rounding r = numbers;
        r.first = 5 + (uint64_t)i, r.run = run, r.stride = strides[i / 3];
        step(d, &whole, &r, 0, elems, 0);
        for (int64_t row = 0; row < ROWS; row++) {
            struct rounding mine = numbers; /* step() adds where the row begins */
            mine.first = r.first + (uint64_t)(row * (r.stride - run));
            step(d, &rows, &mine, row * run, row < ROWS - 1 ? (row + 1) * run : elems, 0);
        }
        assert_true(tensor_hash(&whole.p) == tensor_hash(&rows.p));
        assert_true(tensor_hash(&whole.m) == tensor_hash(&rows.m));
        assert_true(tensor_hash(&whole.v) == tensor_hash(&rows.v));
        hash = hash * 31 + tensor_hash(&whole.p);
        free_state(&whole);
        free_state(&rows);
    }
    return hash;
}

static void columns_have_the_numbers_of_their_matrix(void **state)
{
    for_each_setting(in_columns);
}

/* A parameter of 1 that is to fall by a 1000th of the distance to its neighbour, 2^-8, in each of
 * 100 steps falls by a tenth of it on average: of 40000, 4000 have moved, give or take 60; rounded
 * to nearest, none would. */
static void small_steps_add_up(void **state)
{
    enum { ELEMS = 40000, STEPS = 100 };
    struct device *d = open_device(NULL, 1);
    struct tensor p = tensor_poisoned(DTYPE_BF16, ELEMS), m = tensor_poisoned(DTYPE_BF16, ELEMS);
    struct tensor v = tensor_poisoned(DTYPE_BF16, ELEMS), g = tensor_poisoned(DTYPE_F32, ELEMS);
    const double factor = 1;
    double sum = 0, square = 0;
    const float by = 0x1p-8f / 1000;
    for (int64_t i = 0; i < ELEMS; i++) {
        tensor_set(&p, i, 1);
        tensor_set(&m, i, 1);
        tensor_set(&v, i, 1);
        tensor_set(&g, i, 1);
    }
    for (int n = 1; n <= STEPS; n++) {
        struct rounding r = {99, (uint64_t)n, 0};
        struct adamw a = {.lr = by,
                          .beta2 = 0.95f,
                          .one_minus_beta1 = 0.1f,
                          .one_minus_beta2 = 0.05f,
                          .bias1 = 1,
                          .bias2 = 1};
        const struct adamw_state s = {DTYPE_BF16, DTYPE_BF16, p.data,     m.data,
                                      v.data,     g.data,     DTYPE_BF16, NULL};
        d->ops->adamw(d, &a, &factor, &s, &r, ELEMS);
    }
    for (int64_t i = 0; i < ELEMS; i++) {
        sum += (1 - tensor_get(&p, i)) / 0x1p-8;
        square += tensor_get(&v, i);
    }
    assert_true(fabs(sum - 4000) < 4 * 60);
    assert_true(fabs(square / ELEMS - 1) < 1e-3);
    tensor_free(&p);
    tensor_free(&m);
    tensor_free(&v);
    tensor_free(&g);
    device_close(d);
}

static void nothing_is_written_without_a_factor(void **state)
{
    struct device *d = open_device(NULL, 1);
    struct state s = make_state(DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 37);
    const double none = NAN;
    const struct adamw_state all = {DTYPE_BF16, DTYPE_BF16, s.p.data,   s.m.data,
                                    s.v.data,   s.g.data,   DTYPE_BF16, NULL};
    uint64_t before = tensor_hash(&s.p) ^ tensor_hash(&s.m) ^ tensor_hash(&s.v);
    d->ops->adamw(d, &rule, &none, &all, &numbers, 37);
    assert_true(before == (tensor_hash(&s.p) ^ tensor_hash(&s.m) ^ tensor_hash(&s.v)));
    free_state(&s);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_fp32_rounded_by_number),
        cmocka_unit_test(bits_do_not_depend_on_parts),
        cmocka_unit_test(columns_have_the_numbers_of_their_matrix),
        cmocka_unit_test(small_steps_add_up),
        cmocka_unit_test(nothing_is_written_without_a_factor),
    };
    return cmocka_run_group_tests_name("ops adamw_bf16", tests, NULL, NULL);
}
