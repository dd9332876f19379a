/* test_cuda_ops_layernorm.c - ops on a GPU against the CPU's: LayerNorm, biases, GELU.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "cuda_check.h"

#include <stdio.h>

struct sizes {
    enum dtype dt;
    int64_t rows, cols;
    int accumulate, in_place;
};

static const char *describe(char text[128], const char *op, const struct sizes *s)
{
    snprintf(text, 128, "%s %s [%lld, %lld]%s, place %d", op, dtype_name(s->dt), (long long)s->rows,
             (long long)s->cols, s->accumulate ? ", accumulate" : "", s->in_place);
    return text;
}

/* Odd columns, columns of whole accesses, and all rows of one length in few and many blocks. */
static const int64_t shapes[][2] = {{1, 1},   {3, 7},   {2, 16},  {7, 17},    {5, 33},   {13, 127},
                                    {31, 64}, {4, 521}, {3, 576}, {270, 136}, {2, 2048}, {3, 4104}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Rows kept in 1, 2 and 4 accesses per thread, and too long to be kept. */
static const int64_t long_rows[] = {4096, 8192, 20000, 32768, 40000};
enum { LONG_ROWS = sizeof long_rows / sizeof long_rows[0] };

enum { NORM_Y, NORM_STATS, NORM_X, NORM_W, NORM_B, NORM_OPERANDS };

static void layernorm(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->layernorm(d, s->dt, at[NORM_Y], at[NORM_STATS], at[NORM_X], at[NORM_W], at[NORM_B],
                      s->rows, s->cols, 1e-5f);
}

static void layernorm_case(struct check *c, struct sizes s, int64_t offset)
{
    char text[128];
    int64_t elems = s.rows * s.cols;
    struct operand o[NORM_OPERANDS] = {
        [NORM_Y] = output_operand("y", WRITTEN, s.dt, elems),
        [NORM_STATS] = output_operand("stats", WRITTEN, DTYPE_F32, 2 * s.rows),
        [NORM_X] = random_operand(c, "x", s.dt, elems, 2),
        [NORM_W] = random_operand(c, "w", s.dt, s.cols, 1),
        [NORM_B] = random_operand(c, "b", s.dt, s.cols, 1),
    };
    o[NORM_W].offset = offset;
    o[NORM_B].offset = offset / 3;
    check_call(c, describe(text, "layernorm", &s), layernorm, &s, o, NORM_OPERANDS);
}

static void norms_of_rows(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < TYPES * SHAPES; i++) {
        const int64_t *shape = shapes[i / TYPES];
        struct sizes s = {.dt = op_types[i % TYPES], .rows = shape[0], .cols = shape[1]};
        layernorm_case(&c, s, 0);
        layernorm_case(&c, s, 3);
    }
    for (int i = 0; i < TYPES * LONG_ROWS; i++)
        layernorm_case(
            &c, (struct sizes){.dt = op_types[i % TYPES], .rows = 2, .cols = long_rows[i / TYPES]},
            i % 4);
    check_close_devices(&c);
}

enum { DX, DW, DB, DY, DSUM, X, W, STATS, BACK_OPERANDS };
enum place { APART, ONTO_DSUM, ONTO_DY, WITHOUT_DSUM, PLACES };

static void layernorm_backward(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    size_t bytes = d->ops->norm_backward_scratch(d, s->rows, s->cols, 2);
    void *scratch = check_scratch(d, mem, bytes);
    void *dx = s->in_place == ONTO_DSUM ? at[DSUM] : s->in_place == ONTO_DY ? at[DY] : at[DX];
    d->ops->layernorm_backward(d, s->dt, dx, at[DW], at[DB], at[DY], at[DSUM], at[X], at[W],
                               at[STATS], s->rows, s->cols, s->accumulate, scratch);
    check_scratch_free(d, mem, bytes, scratch);
}

static void layernorm_backward_case(struct check *c, struct sizes s, int64_t offset)
{
    char text[128];
    int64_t elems = s.rows * s.cols;
    struct operand o[BACK_OPERANDS] = {
        [DX] = output_operand("dx", WRITTEN, s.dt, elems),
        [DW] = changed_operand(c, "dw", WRITTEN, DTYPE_F32, s.cols, 1),
        [DB] = changed_operand(c, "db", WRITTEN, DTYPE_F32, s.cols, 1),
        [DY] = random_operand(c, "dy", s.dt, elems, 1),
        [DSUM] = random_operand(c, "dsum", s.dt, elems, 1),
        [X] = random_operand(c, "x", s.dt, elems, 2),
        [W] = random_operand(c, "w", s.dt, s.cols, 1),
        [STATS] = random_operand(c, "stats", DTYPE_F32, 2 * s.rows, 0.1),
    };
    if (s.in_place == ONTO_DSUM)
        o[DSUM].role = WRITTEN;
    if (s.in_place == ONTO_DY)
        o[DY].role = WRITTEN;
    if (s.in_place == WITHOUT_DSUM) {
        free(o[DSUM].before);
        o[DSUM] = (struct operand){"no dsum"};
    }
    for (int i = DW; i <= DB && !s.accumulate; i++)
        memset(o[i].before, 0xff, (size_t)s.cols * sizeof(float));
    for (int64_t r = 0; r < s.rows; r++) /* about 1 / deviation of x */
        ((float *)o[STATS].before)[2 * r + 1] += 0.5f;
    o[W].offset = offset;
    o[DB].offset = offset;
    check_call(c, describe(text, "layernorm backward", &s), layernorm_backward, &s, o,
               BACK_OPERANDS);
}

static void gradients_of_norms(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < TYPES * SHAPES * PLACES; i++) {
        const int64_t *shape = shapes[i / (TYPES * PLACES)];
        struct sizes s = {.dt = op_types[i % TYPES], .rows = shape[0], .cols = shape[1]};
        s.in_place = i / TYPES % PLACES;
        s.accumulate = i / (2 * TYPES) % 2;
        layernorm_backward_case(&c, s, i / TYPES % 3);
    }
    for (int i = 0; i < TYPES * LONG_ROWS; i++)
        layernorm_backward_case(
            &c, (struct sizes){.dt = op_types[i % TYPES], .rows = 2, .cols = long_rows[i / TYPES]},
            0);
    /* blocks with several short rows at a time, more than once, and not all of them at last */
    layernorm_backward_case(&c, (struct sizes){.dt = DTYPE_BF16, .rows = 1400, .cols = 768}, 0);
    layernorm_backward_case(&c, (struct sizes){.dt = DTYPE_F32, .rows = 1060, .cols = 1000}, 0);
    /* a block with several rows of two accesses per thread */
    layernorm_backward_case(&c, (struct sizes){.dt = DTYPE_BF16, .rows = 266, .cols = 4160}, 0);
    check_close_devices(&c);
}

static void bias(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->bias(d, s->dt, s->in_place ? at[1] : at[0], at[1], at[2], s->rows, s->cols);
}

static void bias_backward(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    size_t bytes = d->ops->bias_backward_scratch(d, s->rows, s->cols);
    void *scratch = check_scratch(d, mem, bytes);
    d->ops->bias_backward(d, s->dt, at[0], at[1], s->rows, s->cols, s->accumulate, scratch);
    check_scratch_free(d, mem, bytes, scratch);
}

static void bias_case(struct check *c, struct sizes s, int64_t offset)
{
    char text[128];
    int64_t elems = s.rows * s.cols;
    struct operand o[] = {
        output_operand("y", EXACT, s.dt, elems),
        random_operand(c, "x", s.dt, elems, 1),
        random_operand(c, "b", s.dt, s.cols, 1),
    };
    if (s.in_place)
        o[1].role = EXACT;
    o[2].offset = offset;
    check_call(c, describe(text, "bias", &s), bias, &s, o, 3);
    struct operand back[] = {
        changed_operand(c, "db", WRITTEN, DTYPE_F32, s.cols, 1),
        random_operand(c, "dy", s.dt, elems, 1),
    };
    if (!s.accumulate)
        memset(back[0].before, 0xff, (size_t)s.cols * sizeof(float));
    back[0].offset = offset;
    back[0].size = sqrt((double)s.rows);
    back[1].offset = offset % 2;
    check_call(c, describe(text, "bias backward", &s), bias_backward, &s, back, 2);
}

/* One group of rows and several, the last one shorter. */
static const int64_t tall[][2] = {{64, 8}, {65, 24}, {129, 256}, {1000, 7}, {4500, 16}, {9001, 3}};
enum { TALL = sizeof tall / sizeof tall[0] };

static void biases_and_their_gradients(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < 2 * TYPES * (SHAPES + TALL); i++) {
        int which = i / (2 * TYPES);
        const int64_t *shape = which < SHAPES ? shapes[which] : tall[which - SHAPES];
        struct sizes s = {.dt = op_types[i % TYPES], .rows = shape[0], .cols = shape[1]};
        s.in_place = s.accumulate = i / TYPES % 2;
        bias_case(&c, s, i / TYPES % 3);
    }
    /* more rows than a grid has in its second dimension */
    bias_case(&c, (struct sizes){.dt = DTYPE_BF16, .rows = 262150, .cols = 1}, 0);
    check_close_devices(&c);
}

static void gelu(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->gelu(d, s->dt, at[0], at[1], at[2], s->rows, s->cols);
}

static void gelu_backward(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->gelu_backward(d, s->dt, at[s->in_place], at[1], at[2], at[3], s->rows, s->cols);
}

static void gelu_case(struct check *c, struct sizes s, int64_t offset, double scale)
{
    char text[128];
    int64_t elems = s.rows * s.cols;
    struct operand o[] = {
        output_operand("y", WRITTEN, s.dt, elems),
        random_operand(c, "x", s.dt, elems, scale),
        random_operand(c, "b", s.dt, s.cols, 1),
    };
    o[2].offset = offset;
    check_call(c, describe(text, "gelu", &s), gelu, &s, o, 3);
    struct operand back[] = {
        output_operand("dx", WRITTEN, s.dt, elems),
        random_operand(c, "dy", s.dt, elems, 1),
        random_operand(c, "x", s.dt, elems, scale),
        random_operand(c, "b", s.dt, s.cols, 1),
    };
    back[s.in_place].role = WRITTEN;
    back[3].offset = offset;
    check_call(c, describe(text, "gelu backward", &s), gelu_backward, &s, back, 4);
}

static void gelus_and_their_gradients(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < 3 * TYPES * SHAPES; i++) {
        const int64_t *shape = shapes[i / (3 * TYPES)];
        struct sizes s = {.dt = op_types[i % TYPES], .rows = shape[0], .cols = shape[1]};
        s.in_place = i / TYPES % 3;
        gelu_case(&c, s, i % 4, check_draw(&c) % 3 ? 2 : 60);
    }
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_of_rows),
        cmocka_unit_test(gradients_of_norms),
        cmocka_unit_test(biases_and_their_gradients),
        cmocka_unit_test(gelus_and_their_gradients),
    };
    return check_main("cuda ops: layernorm", tests);
}
