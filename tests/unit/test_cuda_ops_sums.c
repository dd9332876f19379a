/* test_cuda_ops_sums.c - ops on a GPU against the CPU's: the optimizer, sums of parts.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "cuda_check.h"

#include <stdio.h>

/* ---- the optimizer ---- */

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

static void sumsq(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    d->ops->sumsq(d, at[0], at[1], *(const int64_t *)args);
}

static void sums_of_squares(void **state)
{
    /* the last one gives some blocks two tiles */
    static const int64_t lengths[] = {1, 3, 7, 17, 521, 4096, 4097, 100003, 4200001};
    struct check c = check_open();
    for (int i = 0; i < 2 * 9; i++) {
        int64_t elems = lengths[i / 2];
        struct operand o[] = {
            changed_operand(&c, "sum", WRITTEN, DTYPE_F64, 1, 10),
            random_operand(&c, "x", DTYPE_F32, elems, 1),
        };
        *(double *)o[0].before = fabs(*(double *)o[0].before);
        o[1].offset = i % 2;
        check_call(&c, "sumsq", sumsq, &elems, o, 2);
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
    enum dtype dt_copy;
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
};

static void adamw(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct low *low = args;
    const struct rounding r = {0x1234567890abcdefu, 3, low->first};
    const struct adamw_state s = {low->dt_p,  low->dt_m,  at[ADAM_P],   at[ADAM_M],
                                  at[ADAM_V], at[ADAM_G], low->dt_copy, at[ADAM_COPY]};
    d->ops->adamw(d, &adamw_rule, at[ADAM_FACTOR], &s, &r, low->elems);
}

/* role: EXACT where nothing may be written. */
static void adamw_case(struct check *c, const struct step *t, const int64_t offset[3],
                       double factor)
{
    const int64_t elems = t->elems;
    enum role role = isnan(factor) ? EXACT : WRITTEN;
    struct operand o[ADAM_OPERANDS] = {
        [ADAM_P] = changed_operand(c, "p", role, DTYPE_F32, elems, 1),
        [ADAM_M] = changed_operand(c, "m", role, DTYPE_F32, elems, 0.1),
        [ADAM_V] = changed_operand(c, "v", role, DTYPE_F32, elems, 0.01),
        [ADAM_G] = random_operand(c, "g", DTYPE_F32, elems, 0.1),
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
    const struct low all = {DTYPE_F32, DTYPE_F32, t->dt_copy, elems, 0};
    check_call(c, "adamw", adamw, &all, o, ADAM_OPERANDS);
}

static void adamw_bf16_operands(struct operand o[ADAM_OPERANDS], struct check *c,
                                const struct low *low, int64_t offset, double factor)
{
    enum role role = isnan(factor) ? EXACT : WRITTEN;
    o[ADAM_P] = changed_operand(c, "p", role, low->dt_p, low->elems, 1);
    o[ADAM_M] = changed_operand(c, "m", role, low->dt_m, low->elems, 0.1);
    o[ADAM_V] = changed_operand(c, "v", role, low->dt_m, low->elems, 0.01);
    o[ADAM_G] = random_operand(c, "g", DTYPE_F32, low->elems, 0.1);
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
        struct low low = {format[0], format[1], format[2], sizes[i % 8],
                          (uint64_t)(i / 32 ? i : 2 * i)};
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
        struct low low = {format[0], format[1], format[2], 4099, (uint64_t)(6 + i % 2)};
        adamw_bf16_operands(o, &c, &low, i % 4 < 2 ? 1 : 3, 0.37);
        check_bits_anywhere(&c, "adamw_bf16", adamw, &low, o, ADAM_OPERANDS);
    }
    check_close_devices(&c);
}

enum { SGD_P, SGD_V, SGD_G, SGD_FACTOR, SGD_COPY, SGD_OPERANDS };

static void sgd(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct step *t = args;
    const struct sgd rule = {3e-3f, 0.9f, 0.1f};
    d->ops->sgd(d, &rule, at[SGD_FACTOR], at[SGD_P], at[SGD_V], at[SGD_G], t->dt_copy, at[SGD_COPY],
                t->elems);
}

static void sgd_case(struct check *c, const struct step *t, const int64_t offset[3], double factor)
{
    const int64_t elems = t->elems;
    enum role role = isnan(factor) ? EXACT : WRITTEN;
    struct operand o[SGD_OPERANDS] = {
        [SGD_P] = changed_operand(c, "p", role, DTYPE_F32, elems, 1),
        [SGD_V] = changed_operand(c, "v", role, DTYPE_F32, elems, 0.1),
        [SGD_G] = random_operand(c, "g", DTYPE_F32, elems, 0.1),
        [SGD_FACTOR] = copy_operand("factor", READ, DTYPE_F64, 1, &factor),
    };
    o[SGD_P].size = 1; /* of what is added up: a length of 1 may cancel */
    o[SGD_V].size = 0.1;
    if (t->dt_copy != DTYPE_F32)
        o[SGD_COPY] = output_operand("copy", role, t->dt_copy, elems);
    for (int i = 0; i < SGD_FACTOR; i++)
        o[i].offset = offset[i % 3];
    o[SGD_COPY].offset = offset[0];
    check_call(c, "sgd", sgd, t, o, SGD_OPERANDS);
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

static void muon_case(struct check *c, const struct step *t, const int64_t offset[3], double factor)
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
    check_call(c, "muon", muon, t, o, MUON_OPERANDS);
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
        const struct step step = {flat_lengths[i % FLAT_LENGTHS], op_types[i / 2 % TYPES]};
        const int64_t *offset = flat_offsets[i / FLAT_LENGTHS % 4];
        double factor = i % 5 == 2 ? NAN : 0.37;
        adamw_case(&c, &step, offset, factor);
        sgd_case(&c, &step, offset, factor);
        muon_case(&c, &step, offset, factor);
    }
    check_close_devices(&c);
}

/* ---- parts of a reduction ---- */

struct parts {
    enum dtype dt;
    int count, accumulate;
    int64_t stride, elems;
};

static float part_of(const struct parts *p, const void *parts, int m, int64_t i)
{
    int64_t at = m * p->stride + i;
    return p->dt == DTYPE_BF16 ? bf16_to_f32(((const bf16 *)parts)[at])
                               : ((const float *)parts)[at];
}

/* The CPU's answer is the definition. */
static void sum_parts(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct parts *p = args;
    float *recv = at[0];
    if (d->kind == DEVICE_CUDA) {
        device_sum_parts(d, DEVICE_COMPUTE, recv, p->dt, at[1], p->count, p->stride, p->elems,
                         p->accumulate);
        return;
    }
    for (int64_t i = 0; i < p->elems; i++) {
        float sum = p->accumulate ? recv[i] : 0.0f;
        for (int m = 0; m < p->count; m++)
            sum += part_of(p, at[1], m, i);
        recv[i] = sum;
    }
}

static void sums_of_parts(void **state)
{
    static const int counts[] = {1, 2, 3, 4, 9};
    struct check c = check_open();
    for (int i = 0; i < 2 * FLAT_LENGTHS * 5 * 3; i++) {
        struct parts p = {i % 2 ? DTYPE_BF16 : DTYPE_F32, counts[i / 2 % 5], i % 3 == 0};
        const int64_t *offset = flat_offsets[i / (10 * FLAT_LENGTHS) + 1];
        p.elems = flat_lengths[i / 10 % FLAT_LENGTHS];
        p.stride = i % 7 < 4 ? (p.elems + 7) / 8 * 8 : p.elems;
        struct operand o[] = {
            changed_operand(&c, "recv", EXACT, DTYPE_F32, p.elems, 1),
            random_operand(&c, "parts", p.dt, (p.count - 1) * p.stride + p.elems, 1),
        };
        if (!p.accumulate)
            memset(o[0].before, 0xff, (size_t)p.elems * sizeof(float));
        o[0].offset = offset[0];
        o[1].offset = offset[1];
        check_call(&c, "sum_parts", sum_parts, &p, o, 2);
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
        cmocka_unit_test(matrices_between_products),
        cmocka_unit_test(adamw_on_bf16_state),
        cmocka_unit_test(rounding_is_of_the_element),
        cmocka_unit_test(sums_of_parts),
    };
    return check_main("cuda ops: sums", tests);
}
