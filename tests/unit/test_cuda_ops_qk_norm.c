/* test_cuda_ops_qk_norm.c - norms over heads of queries and keys: a GPU against the CPU.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "cuda_check.h"

#include <stdio.h>

/* Odd and even heads, those of a warp and wider ones, values without and with a turn of their own,
 * and more rows than blocks of backward. */
static const struct qk_norm shapes[] = {
    {.rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 2},
    {.rows = 3, .heads = 3, .kv_heads = 1, .head_dim = 6},
    {.rows = 5, .heads = 4, .kv_heads = 2, .head_dim = 34},
    {.rows = 7, .heads = 8, .kv_heads = 8, .head_dim = 64},
    {.rows = 13, .heads = 16, .kv_heads = 2, .head_dim = 128},
    {.rows = 2, .heads = 3, .kv_heads = 3, .head_dim = 256},
    {.rows = 270, .heads = 5, .kv_heads = 1, .head_dim = 16},
    {.rows = 3, .heads = 2, .kv_heads = 1, .head_dim = 4096},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

struct call {
    struct qk_norm n;
    int accumulate, in_place;
};

static const char *describe(char text[128], const char *op, const struct call *call)
{
    const struct qk_norm *n = &call->n;
    snprintf(text, 128, "%s %s %lld rows, %lld + 2 x %lld heads of %lld%s%s", op, dtype_name(n->dt),
             (long long)n->rows, (long long)n->heads, (long long)n->kv_heads,
             (long long)n->head_dim, call->accumulate ? ", accumulate" : "",
             call->in_place ? ", in place" : "");
    return text;
}

enum { Y, RSTD, X, WQ, WK, OPERANDS };

static void forward(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct call *call = args;
    d->ops->qk_norm(d, &call->n, at[Y], at[RSTD], at[X], at[WQ], at[WK]);
}

enum { DX, DWQ, DWK, DY, BACK_X, BACK_WQ, BACK_WK, BACK_RSTD, BACK_OPERANDS };

static void backward(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct call *call = args;
    size_t bytes = d->ops->norm_backward_scratch(d, call->n.rows, call->n.head_dim, 2);
    void *scratch = check_scratch(d, mem, bytes);
    d->ops->qk_norm_backward(d, &call->n, call->in_place ? at[DY] : at[DX], at[DWQ], at[DWK],
                             at[DY], at[BACK_X], at[BACK_WQ], at[BACK_WK], at[BACK_RSTD],
                             call->accumulate, scratch);
    check_scratch_free(d, mem, bytes, scratch);
}

static void forward_case(struct check *c, const struct call *call, int64_t offset)
{
    char text[128];
    const struct qk_norm *n = &call->n;
    int64_t elems = n->rows * (n->heads + 2 * n->kv_heads) * n->head_dim;
    struct operand o[OPERANDS] = {
        [Y] = output_operand("y", WRITTEN, n->dt, elems),
        [RSTD] = output_operand("rstd", WRITTEN, DTYPE_F32, n->rows * (n->heads + n->kv_heads)),
        [X] = random_operand(c, "x", n->dt, elems, 2),
        [WQ] = random_operand(c, "wq", n->dt, n->head_dim, 1),
        [WK] = random_operand(c, "wk", n->dt, n->head_dim, 1),
    };
    o[WQ].offset = offset;
    o[WK].offset = offset / 2;
    o[X].offset = offset / 3;
    check_call(c, describe(text, "qk_norm", call), forward, call, o, OPERANDS);
}

static void backward_case(struct check *c, const struct call *call, int64_t offset)
{
    char text[128];
    const struct qk_norm *n = &call->n;
    int64_t elems = n->rows * (n->heads + 2 * n->kv_heads) * n->head_dim;
    int64_t normed = n->rows * (n->heads + n->kv_heads);
    struct operand o[BACK_OPERANDS] = {
        [DX] = output_operand("dx", call->in_place ? READ : WRITTEN, n->dt, elems),
        [DWQ] = changed_operand(c, "dwq", WRITTEN, DTYPE_F32, n->head_dim, 1),
        [DWK] = changed_operand(c, "dwk", WRITTEN, DTYPE_F32, n->head_dim, 1),
        [DY] = random_operand(c, "dy", n->dt, elems, 1),
        [BACK_X] = random_operand(c, "x", n->dt, elems, 2),
        [BACK_WQ] = random_operand(c, "wq", n->dt, n->head_dim, 1),
        [BACK_WK] = random_operand(c, "wk", n->dt, n->head_dim, 1),
        [BACK_RSTD] = random_operand(c, "rstd", DTYPE_F32, normed, 0.1),
    };
    if (call->in_place)
        o[DY].role = WRITTEN;
    for (int i = DWQ; i <= DWK && !call->accumulate; i++)
        memset(o[i].before, 0xff, (size_t)n->head_dim * sizeof(float));
    for (int64_t i = 0; i < normed; i++) /* about 1 / root of the mean square of x */
        ((float *)o[BACK_RSTD].before)[i] += 0.5f;
    o[BACK_WQ].offset = offset;
    o[DWK].offset = offset;
    check_call(c, describe(text, "qk_norm backward", call), backward, call, o, BACK_OPERANDS);
}

static void heads_agree_with_the_cpu(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < SHAPES; i++)
        for (int j = 0; j < TYPES; j++)
            for (int k = 0; k < 2; k++) {
                struct call call = {.n = shapes[i], .accumulate = k, .in_place = (i + k) % 2};
                call.n.dt = op_types[j];
                call.n.eps = 1e-6f;
                forward_case(&c, &call, 3 * k);
                backward_case(&c, &call, 3 * k);
            }
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(heads_agree_with_the_cpu)};
    return check_main("cuda ops: norms over heads", tests);
}
