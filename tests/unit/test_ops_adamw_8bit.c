/* test_ops_adamw_8bit.c - moments of 8 bits: the shares are bitsandbytes' and the nearest, and a
 * step is the step in fp32 on what the codes stand for. */
#include "ops_check.h"

#include "base/dynamic8.h"

enum { BLOCK = DYNAMIC8_BLOCK };

/* ---- the shares ---- */

/* The table as its authors make it: the middles of equal parts of each decade. */
static void make_shares(double shares[256], int items)
{
    int count = 0;
    for (int decade = 0; decade < 7; decade++)
        for (int k = 0, levels = items << decade; k < levels; k++)
            shares[count++] = pow(10, decade - 6) * (0.1 + 0.9 * (k + 0.5) / levels);
    if (items == 1) { /* signed: those below 0, and 0 */
        for (int k = 0; k < 127; k++)
            shares[128 + k] = shares[k];
        for (int k = 0; k < 127; k++)
            shares[k] = -shares[128 + 126 - k];
        shares[127] = 0;
    } else {
        memmove(shares + 1, shares, 254 * sizeof *shares);
        shares[0] = 0;
    }
    shares[255] = 1;
}

static void codes_stand_for_the_published_shares(void **state)
{
    double shares[2][256];
    make_shares(shares[0], 1);
    make_shares(shares[1], 2);
    for (int c = 0; c < 256; c++) {
        assert_true(fabs(dynamic8_signed((uint8_t)c) - shares[0][c]) <= 2e-7 * fabs(shares[0][c]));
        assert_true(fabs(dynamic8_unsigned((uint8_t)c) - shares[1][c]) <= 2e-7 * shares[1][c]);
        assert_int_equal(dynamic8_signed_code((float)shares[0][c]), c);
        assert_int_equal(dynamic8_unsigned_code((float)shares[1][c]), c);
    }
}

/* Is a code that of the nearest share, to within rounding where two are as near? */
static int is_nearest(const double shares[256], int code, double share)
{
    double least = 2;
    for (int c = 0; c < 256; c++)
        least = fmin(least, fabs(shares[c] - share));
    return fabs(shares[code] - share) <= least * (1 + 1e-4) + 1e-12;
}

static void a_share_becomes_the_nearest_level(void **state)
{
    double shares[2][256];
    make_shares(shares[0], 1);
    make_shares(shares[1], 2);
    for (int i = 0; i <= 20000; i++) {
        float share = powf(10, -8.5f * (float)i / 20000);
        assert_true(is_nearest(shares[0], dynamic8_signed_code(share), share));
        int plain = dynamic8_unsigned_code(share);
        assert_true(plain > 0); /* nor does what is positive become 0 */
        assert_true(plain == 1 || is_nearest(shares[1], plain, share));
        assert_true(plain > 1 || share < 5.6e-7);
        int below = dynamic8_signed_code(-share);
        assert_true(below < 127); /* what is negative stays so */
        assert_true(below == 126 || is_nearest(shares[0], below, -share));
    }
    assert_int_equal(dynamic8_signed_code(0), 127);
    assert_int_equal(dynamic8_unsigned_code(0), 0);
}

/* ---- a step ---- */

static const struct adamw rule = {.lr = 3e-3f,
                                  .beta2 = 0.95f,
                                  .eps = 1e-8f,
                                  .weight_decay = 0.1f,
                                  .one_minus_beta1 = 0.1f,
                                  .one_minus_beta2 = 0.05f,
                                  .bias1 = 0.271f,
                                  .bias2 = 0.142625f};

struct case_state {
    struct tensor p, m, v, g, copy;
    float *m_largest, *v_largest;
};

static struct case_state make_state(enum dtype dt_p, enum dtype dt_g, enum dtype dt_copy,
                                    int64_t elems)
{
    int64_t blocks = (elems + BLOCK - 1) / BLOCK;
    struct case_state s = {
        tensor_random(dt_p, elems, 1, 1),      tensor_poisoned(DTYPE_U8, elems),
        tensor_poisoned(DTYPE_U8, elems),      tensor_random(dt_g, elems, 4, 0.1),
        tensor_poisoned(dt_copy, elems),       malloc((size_t)blocks * sizeof(float)),
        malloc((size_t)blocks * sizeof(float))};
    for (int64_t i = 0; i < elems; i++) {
        ((uint8_t *)s.m.data)[i] = (uint8_t)(i * 73 % 251);
        ((uint8_t *)s.v.data)[i] = (uint8_t)(i * 59 % 253);
    }
    for (int64_t b = 0; b < blocks; b++) {
        s.m_largest[b] = b % 5 == 4 ? 0 : 0.1f * (float)(b + 1);
        s.v_largest[b] = b % 5 == 4 ? 0 : 0.01f / (float)(b + 1);
    }
    return s;
}

static void free_state(struct case_state *s)
{
    tensor_free(&s->p);
    tensor_free(&s->m);
    tensor_free(&s->v);
    tensor_free(&s->g);
    tensor_free(&s->copy);
    free(s->m_largest);
    free(s->v_largest);
}

/* Elements [from, to) by one call; from is the first of a block. */
static void step(struct device *d, struct case_state *s, double factor, int64_t from, int64_t to)
{
    const struct rounding numbers = {0x1234567890abcdefu, 7, 1 + (uint64_t)from};
    const struct adamw_state part = {
        .dt_p = s->p.dt,
        .dt_m = DTYPE_U8,
        .p = (char *)s->p.data + (size_t)from * dtype_bytes(s->p.dt),
        .m = (char *)s->m.data + from,
        .v = (char *)s->v.data + from,
        .dt_g = s->g.dt,
        .g = (char *)s->g.data + (size_t)from * dtype_bytes(s->g.dt),
        .dt_copy = s->copy.dt,
        .copy = s->p.dt == DTYPE_F32 ? (char *)s->copy.data + (size_t)from * dtype_bytes(s->copy.dt)
                                     : NULL,
        .m_largest = s->m_largest + from / BLOCK,
        .v_largest = s->v_largest + from / BLOCK,
    };
    d->ops->adamw(d, &rule, &factor, &part, &numbers, to - from);
}

/* Compare one element's step with the rule in double precision.  Returns its moments. */
static void check_element(const struct case_state *before, const struct case_state *s, int64_t i,
                          double *m, double *v)
{
    const struct case_state *b = before;
    double g = tensor_get(&b->g, i) * 0.37, p = tensor_get(&b->p, i), new1 = rule.one_minus_beta1;
    *m = dynamic8_signed(((uint8_t *)b->m.data)[i]) * (double)b->m_largest[i / BLOCK];
    *v = dynamic8_unsigned(((uint8_t *)b->v.data)[i]) * (double)b->v_largest[i / BLOCK];
    *m += (g - *m) * new1;
    *v = *v * rule.beta2 + g * g * rule.one_minus_beta2;
    p *= 1 - (double)rule.lr * rule.weight_decay;
    double moved = rule.lr / rule.bias1 * (*m / (sqrt(*v) / sqrt(rule.bias2) + rule.eps));
    p -= moved;
    double got = tensor_get(&s->p, i);
    double within = s->p.dt == DTYPE_F32 ? 1e-6 : 1.0 / 128;
    assert_true(fabs(got - p) <= within * (fabs(p) + fabs(moved) + 1e-3));
    if (s->p.dt == DTYPE_F32)
        assert_true(tensor_get(&s->copy, i) == rounded(s->copy.dt, got));
}

static void check_step(const struct case_state *before, const struct case_state *s, int64_t elems)
{
    double shares[2][256], m[BLOCK], v[BLOCK];
    make_shares(shares[0], 1);
    make_shares(shares[1], 2);
    for (int64_t at = 0; at < elems; at += BLOCK) {
        double most_m = 0, most_v = 0;
        for (int64_t i = at; i < elems && i < at + BLOCK; i++) {
            check_element(before, s, i, &m[i - at], &v[i - at]);
            most_m = fmax(most_m, fabs(m[i - at]));
            most_v = fmax(most_v, v[i - at]);
        }
        assert_true(fabs(s->m_largest[at / BLOCK] - most_m) <= 1e-6 * most_m);
        assert_true(fabs(s->v_largest[at / BLOCK] - most_v) <= 1e-6 * most_v);
        for (int64_t i = at; i < elems && i < at + BLOCK; i++) {
            int code = ((uint8_t *)s->m.data)[i];
            assert_true(is_nearest(shares[0], code, m[i - at] / most_m) || code == 126);
            code = ((uint8_t *)s->v.data)[i];
            assert_true(is_nearest(shares[1], code, v[i - at] / most_v) || code == 1);
        }
    }
}

static uint64_t hash_of(const struct case_state *s, int64_t elems)
{
    uint64_t hash = tensor_hash(&s->p) * 31 + tensor_hash(&s->m) * 17 + tensor_hash(&s->v);
    for (int64_t b = 0; b < (elems + BLOCK - 1) / BLOCK; b++) {
        uint32_t bits[2];
        memcpy(&bits[0], &s->m_largest[b], sizeof bits[0]);
        memcpy(&bits[1], &s->v_largest[b], sizeof bits[1]);
        hash = hash * 31 + bits[0] + 7ull * bits[1];
    }
    return hash;
}

static uint64_t step_case(struct device *d, enum dtype dt_p, enum dtype dt_g, enum dtype dt_copy,
                          int64_t elems)
{
    struct case_state before = make_state(dt_p, dt_g, dt_copy, elems);
    struct case_state s = make_state(dt_p, dt_g, dt_copy, elems);
    struct case_state parts = make_state(dt_p, dt_g, dt_copy, elems);
    step(d, &s, 0.37, 0, elems);
    check_step(&before, &s, elems);
    for (int64_t at = 0; at < elems; at += 3 * BLOCK)
        step(d, &parts, 0.37, at, at + 3 * BLOCK < elems ? at + 3 * BLOCK : elems);
    uint64_t hash = hash_of(&s, elems);
    assert_true(hash == hash_of(&parts, elems)); /* blocks stand alone */
    step(d, &parts, NAN, 0, elems);
    assert_true(hash == hash_of(&parts, elems));
    free_state(&before);
    free_state(&s);
    free_state(&parts);
    return hash;
}

static uint64_t steps(struct device *d, enum dtype dt)
{
    static const int64_t sizes[] = {1, 255, 256, 257, 1024, 5000, 40960};
    enum dtype copy = dt == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16;
    uint64_t hash = 0;
    for (int i = 0; i < 7; i++) {
        hash = hash * 31 + step_case(d, DTYPE_F32, DTYPE_F32, copy, sizes[i]);
        hash = hash * 31 + step_case(d, DTYPE_F32, DTYPE_BF16, copy, sizes[i]);
        hash = hash * 31 + step_case(d, DTYPE_BF16, DTYPE_F32, copy, sizes[i]);
        hash = hash * 31 + step_case(d, DTYPE_BF16, DTYPE_BF16, copy, sizes[i]);
    }
    return hash;
}

static void a_step_is_that_of_fp32_coded(void **state)
{
    for_each_setting(steps);
}

/* Moments of parameters without gradients stay 0, and those of nothing but zeros are numbers. */
static void zeros_stay_zeros(void **state)
{
    struct device *d = open_device("generic", 1);
    struct case_state s = make_state(DTYPE_F32, DTYPE_F32, DTYPE_BF16, BLOCK);
    memset(s.g.data, 0, BLOCK * sizeof(float));
    s.m_largest[0] = s.v_largest[0] = 0;
    for (int i = 0; i < 3; i++)
        step(d, &s, 1, 0, BLOCK);
    assert_true(s.m_largest[0] == 0 && s.v_largest[0] == 0);
    for (int i = 0; i < BLOCK; i++)
        assert_true(isfinite(tensor_get(&s.p, i)));
    free_state(&s);
    device_close(d);
}

/* A gradient that is small beside its block's largest, and then ends, moves its parameter by no
 * more than AdamW's steps of about a learning rate. */
static void a_small_gradient_that_ends_is_no_large_step(void **state)
{
    struct device *d = open_device("generic", 1);
    struct case_state s = make_state(DTYPE_F32, DTYPE_F32, DTYPE_BF16, BLOCK);
    s.m_largest[0] = s.v_largest[0] = 0;
    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < BLOCK; k++) {
            tensor_set(&s.p, k, 0);
            tensor_set(&s.g, k, k < 100 ? 1e-2 : i < 20 ? 1e-2 * (k - 99) * 5e-6 : 0);
        }
        step(d, &s, 1, 0, BLOCK);
        for (int k = 0; k < BLOCK; k++)
            assert_true(i < 10 || fabs(tensor_get(&s.p, k)) < 10 * rule.lr);
    }
    free_state(&s);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_stand_for_the_published_shares),
        cmocka_unit_test(a_share_becomes_the_nearest_level),
        cmocka_unit_test(a_step_is_that_of_fp32_coded),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(a_small_gradient_that_ends_is_no_large_step),
    };
    return cmocka_run_group_tests_name("ops adamw_8bit", tests, NULL, NULL);
}
