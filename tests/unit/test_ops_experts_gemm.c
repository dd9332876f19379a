/* test_ops_experts_gemm.c - the products of a mixture of experts against double precision: experts
 * with few, many and no rows, and the scratch that is enough for any number of rows. */
#include "ops_check.h"

enum { MOST_EXPERTS = 9 };

/* Rows of each expert. */
static const struct {
    int64_t out, in, experts, rows[MOST_EXPERTS];
} products[] = {
    {1, 1, 1, {1}},
    {5, 7, 3, {0, 9, 0}},
    {33, 64, 4, {64, 1, 0, 65}},
    {64, 65, 2, {130, 15}},
    {130, 129, 3, {17, 16, 1}},
    {96, 128, 6, {0, 0, 3, 63, 0, 32}},
    {67, 80, 3, {700, 0, 47}},
    {64, 72, 2, {0, 1100}},
    {72, 96, 9, {20, 90, 33, 0, 18, 17, 50, 41, 96}},
    {70, 100, 8, {2, 0, 3, 260, 1, 4, 30, 9}},
    {48, 40, 2, {0, 0}},
    {512, 384, 9, {101, 87, 130, 64, 99, 0, 140, 77, 110}},
    {64, 1024, 4, {192, 192, 192, 192}}, /* two threads with AVX2 need all of the scratch */
};
/* The last ones are checked for bits alone. */
enum { PRODUCTS = sizeof products / sizeof products[0], LARGE = PRODUCTS - 2 };

/* Make the operands of a pass, the first slot of each expert, and what c is to be. */
struct product {
    struct experts_gemm g;
    struct tensor a, b, c;
    int32_t first[MOST_EXPERTS + 1];
    double *want; /* NULL: not found, for what is checked for bits alone */
};

static double element_of(const struct product *p, const double *a, const double *b, int64_t e,
                         int64_t i, int64_t j)
{
    const struct experts_gemm *g = &p->g;
    int64_t matrix = g->out * g->in;
    double sum = 0;
    if (g->pass == EXPERTS_WEIGHT_GRAD)
        for (int64_t s = p->first[e]; s < p->first[e + 1]; s++)
            sum += a[s * g->out + i] * b[s * g->in + j];
    for (int64_t k = 0; k < g->in && g->pass == EXPERTS_FORWARD; k++)
        sum += a[i * g->in + k] * b[e * matrix + j * g->in + k];
    for (int64_t k = 0; k < g->out && g->pass == EXPERTS_INPUT_GRAD; k++)
        sum += a[i * g->out + k] * b[e * matrix + k * g->in + j];
    return sum;
}

/* A copy of the elements, to be freed. */
static double *doubles_of(const struct tensor *t)
{
    double *x = malloc((size_t)t->elems * sizeof *x);
    for (int64_t i = 0; i < t->elems; i++)
        x[i] = tensor_get(t, i);
    return x;
}

static void find_wanted(struct product *p)
{
    const struct experts_gemm *g = &p->g;
    int is_grad = g->pass == EXPERTS_WEIGHT_GRAD;
    int64_t columns = g->pass == EXPERTS_FORWARD ? g->out : g->in;
    double *a = doubles_of(&p->a), *b = doubles_of(&p->b);
    p->want = calloc((size_t)p->c.elems, sizeof *p->want);
    for (int64_t e = 0; e < g->experts; e++)
        for (int64_t i = is_grad ? 0 : p->first[e]; i < (is_grad ? g->out : p->first[e + 1]); i++)
            for (int64_t j = 0; j < columns; j++) {
                int64_t at = (is_grad ? e * g->out + i : i) * columns + j;
                p->want[at] =
                    element_of(p, a, b, e, i, j) + (g->accumulate ? tensor_get(&p->c, at) : 0);
            }
    free(a);
    free(b);
}

static struct product make_product(int number, enum dtype dt, enum experts_pass pass,
                                   int accumulate)
{
    struct product p = {.g = {.pass = pass,
                              .dt = dt,
                              .experts = products[number].experts,
                              .out = products[number].out,
                              .in = products[number].in,
                              .accumulate = accumulate}};
    int is_grad = pass == EXPERTS_WEIGHT_GRAD;
    for (int64_t e = 0; e < p.g.experts; e++)
        p.first[e + 1] = (int32_t)(p.g.slots += products[number].rows[e]);
    int64_t weights = p.g.experts * p.g.out * p.g.in;
    int64_t a = p.g.slots * (pass == EXPERTS_FORWARD ? p.g.in : p.g.out);
    int64_t c = p.g.slots * (pass == EXPERTS_FORWARD ? p.g.out : p.g.in);
    p.a = tensor_random(dt, a, 19, 1);
    p.b = tensor_random(dt, is_grad ? p.g.slots * p.g.in : weights, 20, 1);
    p.c = accumulate ? tensor_random(DTYPE_F32, weights, 21, 1)
                     : tensor_poisoned(is_grad ? DTYPE_F32 : dt, is_grad ? weights : c);
    return p;
}

static void free_product(struct product *p)
{
    tensor_free(&p->a);
    tensor_free(&p->b);
    tensor_free(&p->c);
    free(p->want);
}

static uint64_t product_case(struct device *d, struct product *p)
{
    size_t bytes = d->ops->experts_gemm_scratch(d, &p->g);
    struct tensor scratch = tensor_poisoned(DTYPE_BF16, (int64_t)(bytes + 1) / 2);
    struct tensor c = tensor_copy(&p->c);
    struct error err = {0};
    if (d->ops->experts_gemm(d, &p->g, c.data, p->a.data, p->b.data, p->first, scratch.data, &err))
        fail_msg("%s", err.text);
    if (p->want)
        check_close(p->g.pass == EXPERTS_FORWARD      ? "forward"
                    : p->g.pass == EXPERTS_INPUT_GRAD ? "input_grad"
                                                      : "weight_grad",
                    &c, p->want, tolerance_of(p->c.dt));
    uint64_t hash = tensor_hash(&c);
    tensor_free(&scratch);
    tensor_free(&c);
    return hash;
}

/* By trireme's own products and by the library's, which one or the other level leaves out.  Returns
 * the hash of the own ones: the library's bits may depend on the number of threads. */
static uint64_t both_cases(struct device *d, int number, enum dtype dt, enum experts_pass pass,
                           int accumulate)
{
    struct product p = make_product(number, dt, pass, accumulate);
    const int packs = d->packs_products;
    uint64_t hash = 0;
    find_wanted(&p);
    for (int own = 0; own < 2; own++) {
        d->packs_products = own;
        uint64_t bits = product_case(d, &p);
        hash = own && level_packs(d->level, dt) ? bits : hash;
    }
    d->packs_products = packs;
    free_product(&p);
    return hash;
}

static uint64_t products_of_experts(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int i = 0; i < LARGE; i++) {
        hash = hash * 31 + both_cases(d, i, dt, EXPERTS_FORWARD, 0);
        hash = hash * 31 + both_cases(d, i, dt, EXPERTS_INPUT_GRAD, 0);
        hash = hash * 31 + both_cases(d, i, dt, EXPERTS_WEIGHT_GRAD, 0);
        hash = hash * 31 + both_cases(d, i, dt, EXPERTS_WEIGHT_GRAD, 1);
    }
    return hash;
}

static void products_are_those_of_each_expert(void **state)
{
    for_each_setting(products_of_experts);
}

/* Threads that make experts side by side do not disturb one another, nor what is behind their
 * scratch. */
static void check_side_by_side(int level, int number, enum experts_pass pass)
{
    enum { TIMES = 3 };
    struct product p = make_product(number, DTYPE_BF16, pass, 0);
    struct device *one = open_device(device_cpu_level(level), 1);
    struct device *two = open_device(device_cpu_level(level), 2);
    one->packs_products = two->packs_products = 1;
    uint64_t hash = product_case(one, &p);
    for (int i = 0; i < TIMES; i++)
        assert_int_equal(product_case(two, &p), hash);
    device_close(one);
    device_close(two);
    free_product(&p);
}

static void experts_side_by_side_have_the_same_bits(void **state)
{
    for (int level = 0; device_cpu_level(level); level++)
        for (int number = LARGE; number < PRODUCTS; number++)
            for (enum experts_pass pass = 0; pass <= EXPERTS_WEIGHT_GRAD; pass++)
                check_side_by_side(level, number, pass);
}

/* The product of one expert with `count` rows, as gemm makes it. */
static struct gemm product_of_rows(const struct experts_gemm *g, int64_t count)
{
    struct gemm p = {.dt = g->dt, .dt_c = g->dt, .m = count, .n = g->out, .k = g->in, .trans_b = 1};
    if (g->pass == EXPERTS_INPUT_GRAD)
        p = (struct gemm){.dt = g->dt, .dt_c = g->dt, .m = count, .n = g->in, .k = g->out};
    if (g->pass == EXPERTS_WEIGHT_GRAD)
        p = (struct gemm){
            .dt = g->dt, .dt_c = DTYPE_F32, .m = g->out, .n = g->in, .k = count, .trans_a = 1};
    return gemm_dense(p);
}

/* Whatever rows the experts have, the product of each finds its scratch; seen where gemm makes it
 * as they do, which it does of many rows. */
static void check_scratch(struct device *d, const struct experts_gemm *g)
{
    size_t bytes = d->ops->experts_gemm_scratch(d, g);
    for (int64_t count = 384; count <= g->slots; count += count < 2000 ? 7 : 391) {
        const struct gemm p = product_of_rows(g, count);
        assert_true(d->ops->gemm_scratch(d, &p) <= bytes);
    }
}

static void scratch_is_enough_for_any_rows(void **state)
{
    static const int64_t sizes[][3] = {
        {5000, 5000, 4100}, {20000, 512, 448}, {9000, 1024, 2048},
        {3000, 400, 9000},  {999, 384, 384},
    };
    for (int level = 0; device_cpu_level(level); level++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (enum experts_pass pass = 0; pass <= EXPERTS_WEIGHT_GRAD; pass++) {
                struct device *d = open_device(device_cpu_level(level), (int)i % 3 * 5 + 1);
                struct experts_gemm g = {.pass = pass,
                                         .dt = DTYPE_BF16,
                                         .slots = sizes[i][0],
                                         .experts = 2,
                                         .out = sizes[i][1],
                                         .in = sizes[i][2]};
                d->packs_products = 1;
                check_scratch(d, &g);
                device_close(d);
            }
}

/* All threads take part, on a busy machine too. */
int main(void)
{
    setenv("OMP_DYNAMIC", "false", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_each_expert),
        cmocka_unit_test(experts_side_by_side_have_the_same_bits),
        cmocka_unit_test(scratch_is_enough_for_any_rows),
    };
    return cmocka_run_group_tests_name("ops experts gemm", tests, NULL, NULL);
}
