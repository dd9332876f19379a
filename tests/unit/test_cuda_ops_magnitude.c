/* test_cuda_ops_magnitude.c - the ops of adapters, DoRA's magnitudes and weights of 4 bits: a GPU
 * against the CPU.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "base/nf4.h"
#include "cuda_check.h"

#include <stdio.h>

/* Rows of whole pieces and others, and ranks below, at and above a warp. */
static const struct row_squares squared[] = {
    {.rows = 1, .cols = 1, .rank = 1},    {.rows = 3, .cols = 7, .rank = 2},
    {.rows = 9, .cols = 64, .rank = 16},  {.rows = 17, .cols = 131, .rank = 32},
    {.rows = 4, .cols = 4096, .rank = 8}, {.rows = 10, .cols = 40, .rank = 70},
};
enum { SQUARED = sizeof squared / sizeof squared[0] };

struct squares_call {
    struct row_squares s;
};

enum { SQUARES, W, B, WA, AA, SQUARES_OPERANDS };

static void square_rows(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct squares_call *call = args;
    d->ops->row_squares(d, &call->s, at[SQUARES], at[W], at[B], at[WA], at[AA]);
}

/* A A^T of random numbers is symmetric. */
static void make_symmetric(struct operand *aa, int64_t rank)
{
    float *a = aa->before;
    for (int64_t i = 0; i < rank; i++)
        for (int64_t k = 0; k < i; k++)
            a[i * rank + k] = a[k * rank + i];
}

static void squares_case(struct check *c, const struct squares_call *call, int64_t offset)
{
    char text[128];
    const struct row_squares *s = &call->s;
    snprintf(text, sizeof text, "row_squares %s %lld x %lld, rank %lld", dtype_name(s->dt),
             (long long)s->rows, (long long)s->cols, (long long)s->rank);
    struct operand o[SQUARES_OPERANDS] = {
        [SQUARES] = output_operand("squares", WRITTEN, DTYPE_F32, s->rows),
        [W] = random_operand(c, "w", s->dt, s->rows * s->cols, 2),
        [B] = random_operand(c, "b", s->dt, s->rows * s->rank, 0.1),
        [WA] = random_operand(c, "wa", DTYPE_F32, s->rows * s->rank, 1),
        [AA] = random_operand(c, "aa", DTYPE_F32, s->rank * s->rank, 0.1),
    };
    make_symmetric(&o[AA], s->rank);
    o[SQUARES].size = 4 * (double)s->cols;
    o[W].offset = offset;
    o[B].offset = offset / 2;
    check_call(c, text, square_rows, call, o, SQUARES_OPERANDS);
}

static void squares_agree_with_the_cpu(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < SQUARED; i++)
        for (int j = 0; j < TYPES; j++) {
            struct squares_call call = {squared[i]};
            call.s.dt = op_types[j];
            call.s.factor = 1.25f;
            squares_case(&c, &call, 0);
            squares_case(&c, &call, 3);
        }
    check_close_devices(&c);
}

/* Some columns from `first` on, whole pieces and others, and more rows than a block of backward. */
static const struct columns_call {
    struct column_scale s;
    int64_t first;
    int accumulate, in_place, is_plain;
} scaled[] = {
    {{.rows = 1, .cols = 1, .ld = 1}, 0, 0, 0, 0},
    {{.rows = 3, .cols = 7, .ld = 11}, 2, 1, 1, 0},
    {{.rows = 9, .cols = 64, .ld = 96}, 32, 0, 1, 0},
    {{.rows = 300, .cols = 48, .ld = 48}, 0, 1, 0, 0},
    {{.rows = 70, .cols = 530, .ld = 535}, 5, 0, 1, 0},
    {{.rows = 600, .cols = 64, .ld = 128}, 64, 1, 0, 1},
};
enum { SCALED = sizeof scaled / sizeof scaled[0] };

static void *from(const struct columns_call *call, void *base)
{
    return (char *)base + (size_t)call->first * dtype_bytes(call->s.dt);
}

enum { Y, X, M, NORMS, SCALE_OPERANDS };

static void scale(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct columns_call *call = args;
    void *x = from(call, at[X]), *y = call->in_place ? x : from(call, at[Y]);
    d->ops->scale_columns(d, &call->s, y, x, call->is_plain ? NULL : at[M],
                          call->is_plain ? NULL : at[NORMS]);
}

enum { DM, DY, BACK_X, BACK_NORMS, BACK_OPERANDS };

static void backward(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct columns_call *call = args;
    size_t bytes = d->ops->bias_backward_scratch(d, call->s.rows, call->s.cols);
    void *scratch = check_scratch(d, mem, bytes);
    d->ops->scale_columns_backward(d, &call->s, at[DM], from(call, at[DY]), from(call, at[BACK_X]),
                                   at[BACK_NORMS], call->accumulate, scratch);
    check_scratch_free(d, mem, bytes, scratch);
}

/* Squares with a 0 among them. */
static struct operand norms_operand(struct check *c, int64_t cols)
{
    struct operand o = random_operand(c, "squares", DTYPE_F32, cols, 1);
    for (int64_t i = 0; i < cols; i++) {
        float *square = (float *)o.before + i;
        *square = i % 5 == 3 ? 0 : *square * *square + 0.1f;
    }
    return o;
}

static void columns_case(struct check *c, const struct columns_call *call, int64_t offset)
{
    char text[128];
    const struct column_scale *s = &call->s;
    snprintf(text, sizeof text, "scale_columns %s %lld x %lld of %lld", dtype_name(s->dt),
             (long long)s->rows, (long long)s->cols, (long long)s->ld);
    struct operand o[SCALE_OPERANDS] = {
        [Y] = changed_operand(c, "y", call->in_place ? READ : WRITTEN, s->dt, s->rows * s->ld, 1),
        [X] = random_operand(c, "x", s->dt, s->rows * s->ld, 2),
        [M] = random_operand(c, "m", s->dt, s->cols, 1),
        [NORMS] = norms_operand(c, s->cols),
    };
    if (call->in_place)
        o[X].role = WRITTEN;
    o[M].offset = offset;
    o[NORMS].offset = offset / 2;
    o[X].offset = offset / 3;
    check_call(c, text, scale, call, o, SCALE_OPERANDS);
    struct operand b[BACK_OPERANDS] = {
        [DM] = changed_operand(c, "dm", WRITTEN, DTYPE_F32, s->cols, 1),
        [DY] = random_operand(c, "dy", s->dt, s->rows * s->ld, 1),
        [BACK_X] = random_operand(c, "x", s->dt, s->rows * s->ld, 2),
        [BACK_NORMS] = norms_operand(c, s->cols),
    };
    if (!call->accumulate)
        memset(b[DM].before, 0xff, (size_t)s->cols * sizeof(float));
    b[DM].size = 10 * sqrt((double)s->rows);
    b[DM].offset = offset;
    b[BACK_X].offset = offset / 3;
    check_call(c, text, backward, call, b, BACK_OPERANDS);
}

static void columns_agree_with_the_cpu(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < SCALED; i++)
        for (int j = 0; j < TYPES; j++) {
            struct columns_call call = scaled[i];
            call.s.dt = op_types[j];
            columns_case(&c, &call, 0);
            columns_case(&c, &call, 3);
        }
    check_close_devices(&c);
}

/* ---- weights of 4 bits ---- */

struct decoded {
    enum dtype dt;
    int64_t elems;
};

static void decode(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct decoded *call = args;
    d->ops->decode_nf4(d, call->dt, at[0], at[1], call->elems);
}

/* Of fewer blocks than a tile of the kernel has, as many, and more; records anywhere in memory that
 * allows fp32. */
static void weights_of_4_bits_agree_with_the_cpu(void **state)
{
    static const int64_t blocks[] = {1, 3, 127, 128, 129, 700};
    struct check c = check_open();
    for (int i = 0; i < 6 * TYPES; i++) {
        const struct decoded call = {op_types[i % TYPES], blocks[i / TYPES] * NF4_BLOCK};
        struct operand values = random_operand(&c, "values", DTYPE_F32, call.elems, 0.02);
        struct operand o[] = {
            output_operand("y", EXACT, call.dt, call.elems),
            random_operand(&c, "records", DTYPE_F32, (int64_t)nf4_bytes(call.elems) / 4, 1),
        };
        nf4_encode(o[1].before, values.before, call.elems);
        o[1].offset = i % 4;
        free(values.before);
        check_call(&c, "decode_nf4", decode, &call, o, 2);
    }
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares_agree_with_the_cpu),
        cmocka_unit_test(columns_agree_with_the_cpu),
        cmocka_unit_test(weights_of_4_bits_agree_with_the_cpu),
    };
    return check_main("cuda ops: magnitudes", tests);
}
