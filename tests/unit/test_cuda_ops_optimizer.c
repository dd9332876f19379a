/* test_cuda_ops_optimizer.c - ops on a GPU against the CPU's: the norm, the factor of the update,
 * and the steps of AdamW, SGD and Muon.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "base/round.h"
#include "cuda_check.h"

static void set(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    double values[8];
    memcpy(values, args, sizeof values);
    for (int i = 0; i < 8; i++)
        d->ops->set(d, (double *)at[0] + i * (i + 1) / 2, values, i + 1);
    memset(values, 0, sizeof values); /* they were read before */
}

static void values_are_set(void **state)
{
    const double values[8] = {1.5, -2, 1e300, 0, 5e-324, 6, 7, -8.25};
    struct check c = check_open();
    struct operand o = output_operand("y", EXACT, DTYPE_F64, 36);
    check_call(&c, "set", set, values, &o, 1);
    check_close_devices(&c);
}

struct squares {
    enum dtype dt;
    int64_t elems;
};

static void sumsq(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct squares *s = args;
    d->ops->sumsq(d, at[0], s->dt, at[1], s->elems);
}

static void sums_of_squares(void **state)
{
    /* the last one gives some blocks two tiles */
    static const int64_t lengths[] = {1, 3, 7, 17, 521, 4096, 4097, 100003, 4200001};
    struct check c = check_open();
    for (int i = 0; i < 2 * 2 * 9; i++) {
        const struct squares s = {i % 4 < 2 ? DTYPE_F32 : DTYPE_BF16, lengths[i / 4]};
        struct operand o[] = {
            changed_operand(&c, "sum", WRITTEN, DTYPE_F64, 1, 10),
            random_operand(&c, "x", s.dt, s.elems, 1),
        };
        *(double *)o[0].before = fabs(*(double *)o[0].before);
        o[1].offset = i % 2;
        check_call(&c, "sumsq", sumsq, &s, o, 2);
    }
    check_close_devices(&c);
}

struct factor {
    double targets, squares, nominal, clip, loss_scale;
};

static void update_factor(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct factor *f = args;
    d->ops->update_factor(d, at[0], at[1], at[2], at[3], f->nominal, f->clip);
}

static void factors_of_the_update(void **state)
{
    static const struct factor factors[] = {
        {100, 4, 128, 1, 1},        {100, 4, 128, 0, 1},   {100, 1e-4, 128, 1, 1},
        {0, 4, 128, 1, 1},          {3, 0, 1, 0.5, 1},     {100, INFINITY, 128, 1, 1},
        {100, NAN, 128, 1, 1},      {7, 1e200, 7, 1, 1},   {100, 4, 128, 0, 65536},
        {100, 4e10, 128, 1, 65536}, {100, 4, 128, 1, 0.5}, {100, INFINITY, 128, 1, 65536},
    };
    struct check c = check_open();
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        struct operand o[] = {
            output_operand("factor", WRITTEN, DTYPE_F64, 1),
            copy_operand("targets", READ, DTYPE_F64, 1, &factors[i].targets),
            copy_operand("squares", READ, DTYPE_F64, 1, &factors[i].squares),
            copy_operand("loss scale", READ, DTYPE_F64, 1, &factors[i].loss_scale),
        };
        check_call(&c, "update_factor", update_factor, &factors[i], o, 4);
    }
    check_close_devices(&c);
}

enum { ADAM_P, ADAM_M, ADAM_V, ADAM_G, ADAM_FACTOR, ADAM_COPY, ADAM_OPERANDS };

/* What an optimizer's step takes; dt_copy DTYPE_F32: no copy. */
struct step {
    int64_t elems;
    enum dtype dt_copy, dt_g;
};

static const struct adamw adamw_rule = {.lr = 3e-3f,
                                        .beta2 = 0.95f,
                                        .eps = 1e-8f,
                                        .weight_decay = 0.1f,
                                        .one_minus_beta1 = 0.1f,
                                        .one_minus_beta2 = 0.05f,
                                        .bias1 = 0.271f,
                                        .bias2 = 0.142625f};

struct low {
    enum dtype dt_p, dt_m, dt_copy;
    int64_t elems;
    uint64_t first;
    enum dtype dt_g;
};

static void adamw(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct low *low = args;
    const struct rounding r = {0x1234567890abcdefu, 3, low->first};
    const struct adamw_state s = {.dt_p = low->dt_p,
                                  .dt_m = low->dt_m,
                                  .p = at[ADAM_P],
                                  .m = at[ADAM_M],
                                  .v = at[ADAM_V],
                                  .g = at[ADAM_G],
                                  .dt_copy = low->dt_copy,
                                  .copy = at[ADAM_COPY],
                                  .dt_g = low->dt_g};
    d->ops->adamw(d, &adamw_rule, at[ADAM_FACTOR], &s, &r, low->elems);
}

/* check_call() or check_bits_anywhere(). */
typedef void check_function(struct check *c, const char *what, op_call *call, const void *args,
                            struct operand *operands, int count);

/* role: EXACT where nothing may be written. */
static void adamw_case(struct check *c, check_function *check, const struct step *t,
                       const int64_t offset[3], double factor)
{
    const int64_t elems = t->elems;
    enum role role = isnan(factor) ? EXACT : WRITTEN;
    struct operand o[ADAM_OPERANDS] = {
        [ADAM_P] = changed_operand(c, "p", role, DTYPE_F32, elems, 1),
        [ADAM_M] = changed_operand(c, "m", role, DTYPE_F32, elems, 0.1),
        [ADAM_V] = changed_operand(c, "v", role, DTYPE_F32, elems, 0.01),
        [ADAM_G] = random_operand(c, "g", t->dt_g, elems, 0.1),
        [ADAM_FACTOR] = copy_operand("factor", READ, DTYPE_F64, 1, &factor),
    };
    o[ADAM_P].size = 1; /* of what is added up: a length of 1 may cancel */
    o[ADAM_M].size = 0.1;
    for (int64_t i = 0; i < elems; i++)
        ((float *)o[ADAM_V].before)[i] = fabsf(((float *)o[ADAM_V].before)[i]);
    if (t->dt_copy != DTYPE_F32)
        o[ADAM_COPY] = output_operand("copy", role, t->dt_copy, elems);
    for (int i = 0; i < ADAM_OPERANDS; i++)
        o[i].offset = offset[i % 3];
    const struct low all = {DTYPE_F32, DTYPE_F32, t->dt_copy, elems, 0, t->dt_g};
    check(c, "adamw", adamw, &all, o, ADAM_OPERANDS);
}

static void adamw_bf16_operands(struct operand o[ADAM_OPERANDS], struct check *c,
                                const struct low *low, int64_t offset, double factor)
{
    enum role role = isnan(factor) ? EXACT : WRITTEN;
    o[ADAM_P] = changed_operand(c, "p", role, low->dt_p, low->elems, 1);
    o[ADAM_M] = changed_operand(c, "m", role, low->dt_m, low->elems, 0.1);
    o[ADAM_V] = changed_operand(c, "v", role, low->dt_m, low->elems, 0.01);
    o[ADAM_G] = random_operand(c, "g", low->dt_g, low->elems, 0.1);
    o[ADAM_FACTOR] = copy_operand("factor", READ, DTYPE_F64, 1, &factor);
    o[ADAM_COPY] = low->dt_p == DTYPE_F32 ? output_operand("copy", role, low->dt_copy, low->elems)
                                          : (struct operand){0};
    for (int64_t i = 0; i < low->elems; i++)
        if (low->dt_m == DTYPE_F32)
            ((float *)o[ADAM_V].before)[i] = fabsf(((float *)o[ADAM_V].before)[i]);
        else
            ((bf16 *)o[ADAM_V].before)[i] &= 0x7fff;
    for (int i = 0; i < ADAM_OPERANDS; i++)
        o[i].offset = offset;
}

/* Of p, of m and v, and of the copy. */
static const enum dtype low_formats[4][3] = {{DTYPE_F32, DTYPE_BF16, DTYPE_BF16},
                                             {DTYPE_F32, DTYPE_BF16, DTYPE_F16},
                                             {DTYPE_BF16, DTYPE_F32},
                                             {DTYPE_BF16, DTYPE_BF16}};

/* What is rounded by the same number from fp32 results an ulp apart is a neighbour in bf16 once in
 * 2^16 / 4 times, which the tolerance of bf16 covers. */
static void adamw_on_bf16_state(void **state)
{
    static const int64_t sizes[] = {0, 1, 3, 7, 32, 257, 1031, 4099};
    struct operand o[ADAM_OPERANDS];
    struct check c = check_open();
    for (int i = 0; i < 8 * 4 * 2; i++) {
        const enum dtype *format = low_formats[i / 8 % 4];
        struct low low = {format[0],
                          format[1],
                          format[2],
                          sizes[i % 8],
                          (uint64_t)(i / 32 ? i : 2 * i),
                          i % 3 ? DTYPE_F32 : DTYPE_BF16};
        adamw_bf16_operands(o, &c, &low, i / 32, i % 5 == 4 ? NAN : 0.37);
        check_call(&c, "adamw_bf16", adamw, &low, o, ADAM_OPERANDS);
    }
    check_close_devices(&c);
}

/* Each element has its own random numbers, wherever it lies: a first one with an even number begins
 * a group of four where it is aligned, one with an odd number where it lies one further. */
static void rounding_is_of_the_element(void **state)
{
    struct operand o[ADAM_OPERANDS];
    struct check c = check_open();
    for (int i = 0; i < 4 * 4; i++) {
        const enum dtype *format = low_formats[i / 4];
        struct low low = {format[0],
                          format[1],
                          format[2],
                          4099,
                          (uint64_t)(6 + i % 2),
                          i % 4 ? DTYPE_F32 : DTYPE_BF16};
        adamw_bf16_operands(o, &c, &low, i % 4 < 2 ? 1 : 3, 0.37);
        check_bits_anywhere(&c, "adamw_bf16", adamw, &low, o, ADAM_OPERANDS);
    }
    check_close_devices(&c);
}

/* Columns of a larger matrix, in one call where p is aligned, else row by row. */
struct columns {
    struct low low;
    int64_t run, stride;
};

static void adamw_columns(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct columns *c = args;
    const int64_t elems = c->low.elems, count = (uintptr_t)at[ADAM_P] % 16 ? c->run : elems;
    const size_t p = dtype_bytes(c->low.dt_p), m = dtype_bytes(c->low.dt_m);
    const size_t copy = dtype_bytes(c->low.dt_copy), g = dtype_bytes(c->low.dt_g);
    for (int64_t i = 0; i < elems; i += count) {
        const struct rounding r = {.key = 0x1234567890abcdefu,
                                   .step = 3,
                                   .first = c->low.first + (uint64_t)(i / c->run * c->stride),
                                   .run = count == elems ? c->run : 0,
                                   .stride = c->stride};
        const struct adamw_state s = {
            .dt_p = c->low.dt_p,
            .dt_m = c->low.dt_m,
            .p = (char *)at[ADAM_P] + (size_t)i * p,
            .m = (char *)at[ADAM_M] + (size_t)i * m,
            .v = (char *)at[ADAM_V] + (size_t)i * m,
            .g = (char *)at[ADAM_G] + (size_t)i * g,
            .dt_copy = c->low.dt_copy,
            .copy = at[ADAM_COPY] ? (char *)at[ADAM_COPY] + (size_t)i * copy : NULL,
            .dt_g = c->low.dt_g};
        d->ops->adamw(d, &adamw_rule, at[ADAM_FACTOR], &s, &r, min_i64(count, elems - i));
    }
}

static void columns_are_rounded_as_row_by_row(void **state)
{
    static const int64_t runs[] = {1, 5, 8, 64}, strides[] = {3, 10, 16, 65};
    struct operand o[ADAM_OPERANDS];
    struct check c = check_open();
    for (int i = 0; i < 4 * 4; i++) {
        const enum dtype *format = low_formats[i / 4];
        struct columns columns = {
            {format[0], format[1], format[2], 2043, (uint64_t)(i % 3), DTYPE_F32},
            runs[i % 4],
            strides[i % 4]};
        adamw_bf16_operands(o, &c, &columns.low, 1, 0.37);
        check_bits_anywhere(&c, "adamw_bf16 of columns", adamw_columns, &columns, o, ADAM_OPERANDS);
    }
    check_close_devices(&c);
}

enum { SGD_P, SGD_V, SGD_G, SGD_FACTOR, SGD_COPY, SGD_OPERANDS };

static void sgd(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct step *t = args;
    const struct sgd rule = {3e-3f, 0.9f, 0.1f};
    d->ops->sgd(d, &rule, at[SGD_FACTOR], at[SGD_P], at[SGD_V], t->dt_g, at[SGD_G], t->dt_copy,
                at[SGD_COPY], t->elems);
}

static void sgd_case(struct check *c, check_function *check, const struct step *t,
                     const int64_t offset[3], double factor)
{
    const int64_t elems = t->elems;
    enum role role = isnan(factor) ? EXACT : WRITTEN;
    struct operand o[SGD_OPERANDS] = {
        [SGD_P] = changed_operand(c, "p", role, DTYPE_F32, elems, 1),
        [SGD_V] = changed_operand(c, "v", role, DTYPE_F32, elems, 0.1),
        [SGD_G] = random_operand(c, "g", t->dt_g, elems, 0.1),
        [SGD_FACTOR] = copy_operand("factor", READ, DTYPE_F64, 1, &factor),
    };
    o[SGD_P].size = 1; /* of what is added up: a length of 1 may cancel */
    o[SGD_V].size = 0.1;
    if (t->dt_copy != DTYPE_F32)
        o[SGD_COPY] = output_operand("copy", role, t->dt_copy, elems);
    for (int i = 0; i < SGD_FACTOR; i++)
        o[i].offset = offset[i % 3];
    o[SGD_COPY].offset = offset[0];
    check(c, "sgd", sgd, t, o, SGD_OPERANDS);
}

enum { MUON_P, MUON_M, MUON_G, MUON_FACTOR, MUON_COPY, MUON_OPERANDS };

/* Both passes: the mean and what looks ahead, which then is the step. */
static void muon(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct step *t = args;
    const struct momentum mean = {.one_minus_momentum = 0.05f, .nesterov = t->elems % 2};
    const struct muon rule = {.lr = 3e-3f, .weight_decay = 0.1f, .adjusted_lr = 5e-3f};
    d->ops->momentum(d, &mean, at[MUON_FACTOR], at[MUON_M], at[MUON_G], t->elems);
    d->ops->muon(d, &rule, at[MUON_FACTOR], at[MUON_P], at[MUON_G], t->dt_copy, at[MUON_COPY],
                 t->elems);
}

static void muon_case(struct check *c, check_function *check, const struct step *t,
                      const int64_t offset[3], double factor)
{
    const int64_t elems = t->elems;
    enum role role = isnan(factor) ? EXACT : WRITTEN;
    struct operand o[MUON_OPERANDS] = {
        [MUON_P] = changed_operand(c, "p", role, DTYPE_F32, elems, 1),
        [MUON_M] = changed_operand(c, "m", role, DTYPE_F32, elems, 0.1),
        [MUON_G] = changed_operand(c, "g", role, DTYPE_F32, elems, 0.1),
        [MUON_FACTOR] = copy_operand("factor", READ, DTYPE_F64, 1, &factor),
    };
    o[MUON_P].size = 1; /* of what is added up: a length of 1 may cancel */
    o[MUON_M].size = o[MUON_G].size = 0.1;
    if (t->dt_copy != DTYPE_F32)
        o[MUON_COPY] = output_operand("copy", role, t->dt_copy, elems);
    for (int i = 0; i < MUON_FACTOR; i++)
        o[i].offset = offset[i % 3];
    o[MUON_COPY].offset = offset[0];
    check(c, "muon", muon, t, o, MUON_OPERANDS);
}

struct square {
    int64_t rows;
};

static void normalize(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct square *s = args;
    d->ops->normalize(d, at[0], at[1], at[2], 1e-7f, s->rows * s->rows);
}

static void polynomial(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct square *s = args;
    const struct polynomial p = {.a = 3.4445f, .b = -4.7750f, .c = 2.0315f};
    d->ops->polynomial(d, &p, at[0], at[1], s->rows);
}

/* Of matrices that are divided by their norm, one of them too small for that. */
static void matrices_between_products(void **state)
{
    static const int64_t rows[] = {1, 3, 7, 31, 64, 97};
    struct check c = check_open();
    for (int i = 0; i < 6; i++) {
        const struct square s = {rows[i]};
        const double squares = i == 2 ? 0 : 3.7;
        int64_t elems = rows[i] * rows[i];
        struct operand o[] = {output_operand("y", WRITTEN, DTYPE_F32, elems),
                              random_operand(&c, "x", DTYPE_F32, elems, 1),
                              copy_operand("squares", READ, DTYPE_F64, 1, &squares)};
        o[1].offset = i % 4;
        check_call(&c, "normalize", normalize, &s, o, 3);
        struct operand p[] = {changed_operand(&c, "y", WRITTEN, DTYPE_F32, elems, 1),
                              random_operand(&c, "x", DTYPE_F32, elems, 1)};
        check_call(&c, "polynomial", polynomial, &s, p, 2);
    }
    check_close_devices(&c);
}

static const int64_t flat_lengths[] = {1, 3, 7, 17, 521, 4096, 8195};
static const int64_t flat_offsets[][3] = {{0, 0, 0}, {1, 1, 1}, {3, 3, 3}, {0, 1, 2}};
enum { FLAT_LENGTHS = sizeof flat_lengths / sizeof flat_lengths[0] };

static void steps_of_the_optimizer(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < FLAT_LENGTHS * 4 * TYPES * 2; i++) {
        const struct step step = {flat_lengths[i % FLAT_LENGTHS], op_types[i / 2 % TYPES],
                                  i % 3 ? DTYPE_F32 : DTYPE_BF16};
        const int64_t *offset = flat_offsets[i / FLAT_LENGTHS % 4];
        double factor = i % 5 == 2 ? NAN : 0.37;
        adamw_case(&c, check_call, &step, offset, factor);
        sgd_case(&c, check_call, &step, offset, factor);
        muon_case(&c, check_call, &step, offset, factor);
    }
    check_close_devices(&c);
}

/* An element has the same bits alone, at an end and in a group of four: ranks that divide a flat
 * parameter otherwise come to the same numbers. */
static void bits_of_a_step_are_of_the_element(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < 3 * TYPES * 2; i++) {
        const struct step step = {8195, op_types[i / 2 % TYPES], i % 2 ? DTYPE_F32 : DTYPE_BF16};
        const int64_t *offset = flat_offsets[1 + i / (2 * TYPES)];
        adamw_case(&c, check_bits_anywhere, &step, offset, 0.37);
        sgd_case(&c, check_bits_anywhere, &step, offset, 0.37);
        muon_case(&c, check_bits_anywhere, &step, offset, 0.37);
    }
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_set),
        cmocka_unit_test(sums_of_squares),
        cmocka_unit_test(factors_of_the_update),
        cmocka_unit_test(steps_of_the_optimizer),
        cmocka_unit_test(bits_of_a_step_are_of_the_element),
        cmocka_unit_test(matrices_between_products),
        cmocka_unit_test(adamw_on_bf16_state),
        cmocka_unit_test(columns_are_rounded_as_row_by_row),
        cmocka_unit_test(rounding_is_of_the_element),
    };
    return check_main("cuda ops: optimizer", tests);
}
