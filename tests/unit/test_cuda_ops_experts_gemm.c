/* test_cuda_ops_experts_gemm.c - the products of experts: a GPU against the CPU.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "cuda_check.h"

#include <stdio.h>

enum { NAMED = 6 };

/* Rows of each expert: as given, or, where all are 0, some experts have one or two.  With sizes
 * that are multiples of 8 16-bit products are made on tensor cores: below and above a tile of 128
 * in each direction, deeper than all buffers, and more tiles of rows than a band. */
static const struct sizes {
    int64_t out, in, experts, rows[NAMED];
} sizes[] = {
    {1, 1, 1, {1}},
    {5, 7, 3, {0, 9, 0}},
    {33, 65, 4, {64, 1, 0, 65}},
    {130, 12, 2, {0, 131}},
    {8, 8, 1, {1}},
    {136, 72, 3, {130, 0, 15}},
    {72, 136, 6, {0, 0, 3, 63, 0, 129}},
    {264, 328, 2, {0, 257}},
    {328, 40, 2, {128, 64}},
    {136, 8, 3, {1, 2050, 3}},
    {8, 16, 1024, {0}},
    {3, 2, 999, {0}},
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

enum { C, A, B, FIRST, OPERANDS };

static void multiply(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct experts_gemm *g = args;
    const size_t bytes = d->ops->experts_gemm_scratch(d, g);
    struct error err = {0};
    void *scratch = check_scratch(d, mem, bytes);
    if (d->ops->experts_gemm(d, g, at[C], at[A], at[B], at[FIRST], scratch, &err))
        fail_msg("%s", err.text);
    check_scratch_free(d, mem, bytes, scratch);
}

static struct operand first_operand(const struct sizes *s)
{
    struct operand o = output_operand("first", READ, DTYPE_I32, s->experts + 1);
    int32_t *first = o.before, total = 0;
    for (int64_t e = 0; e < s->experts; e++)
        total += e < NAMED ? (int32_t)s->rows[e] : 0;
    const int is_spread = total == 0;
    first[0] = 0;
    for (int64_t e = 0; e < s->experts; e++) {
        int64_t rows = e < NAMED ? s->rows[e] : 0;
        first[e + 1] = first[e] + (int32_t)(is_spread ? (e % 16 == 3) + (e % 48 == 35) : rows);
    }
    return o;
}

static void product_case(struct check *c, const struct sizes *s, struct experts_gemm g,
                         int64_t offset)
{
    char text[160];
    struct operand first = first_operand(s);
    const int is_grad = g.pass == EXPERTS_WEIGHT_GRAD, is_forward = g.pass == EXPERTS_FORWARD;
    g.out = s->out;
    g.in = s->in;
    g.experts = s->experts;
    g.slots = ((int32_t *)first.before)[s->experts];
    const int64_t weights = g.experts * g.out * g.in;
    const int64_t results = is_grad ? weights : g.slots * (is_forward ? g.out : g.in);
    const enum dtype dt_c = is_grad ? DTYPE_F32 : g.dt;
    snprintf(text, sizeof text, "experts_gemm %s pass %d, %lld x %lld, %lld experts, accumulate %d",
             dtype_name(g.dt), g.pass, (long long)g.out, (long long)g.in, (long long)g.experts,
             g.accumulate);
    struct operand o[OPERANDS] = {
        [C] = g.accumulate ? changed_operand(c, "c", WRITTEN, dt_c, results, 1)
                           : output_operand("c", WRITTEN, dt_c, results),
        [A] = random_operand(c, "a", g.dt, g.slots * (is_forward ? g.in : g.out), 1),
        [B] = random_operand(c, "b", g.dt, is_grad ? g.slots * g.in : weights, 1),
        [FIRST] = first,
    };
    o[B].offset = offset;
    o[C].size = 1;
    check_call(c, text, multiply, &g, o, OPERANDS);
}

static void products_agree_with_the_cpu(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < SIZES; i++)
        for (int j = 0; j < TYPES; j++) {
            struct experts_gemm g = {.dt = op_types[j]};
            for (int pass = 0; pass <= EXPERTS_WEIGHT_GRAD; pass++) {
                g.pass = (enum experts_pass)pass;
                product_case(&c, &sizes[i], g, 0);
            }
            g.accumulate = 1;
            product_case(&c, &sizes[i], g, 0);
        }
    check_close_devices(&c);
}

/* Sizes that tensor cores would take, at addresses that they cannot. */
static void operands_may_lie_anywhere(void **state)
{
    struct check c = check_open();
    for (int j = 0; j < TYPES; j++)
        for (int pass = 0; pass <= EXPERTS_WEIGHT_GRAD; pass++)
            product_case(&c, &sizes[4 + pass],
                         (struct experts_gemm){.dt = op_types[j], .pass = (enum experts_pass)pass},
                         1 + pass);
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_the_cpu),
        cmocka_unit_test(operands_may_lie_anywhere),
    };
    return check_main("cuda ops: products of experts", tests);
}
