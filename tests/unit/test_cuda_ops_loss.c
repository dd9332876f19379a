/* test_cuda_ops_loss.c - losses, their gradients and their sum on a GPU against the CPU's, of
 * logits in fp32 and in the 16-bit format of their gradient.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "cuda_check.h"

#include <stdio.h>

/* ---- cross-entropy ---- */

struct loss {
    enum dtype dt;
    int64_t rows, vocab, ld;
    int in_place, scaled, narrow; /* narrow: logits are of type dt; else fp32 */
};

static enum dtype logits_type(const struct loss *l)
{
    return l->narrow ? l->dt : DTYPE_F32;
}

/* Add to all logits. */
static void add_offset(struct operand *logits, float offset)
{
    float *x = malloc((size_t)logits->elems * sizeof *x);
    dtype_widen(x, logits->before, logits->dt, logits->elems);
    for (int64_t i = 0; i < logits->elems; i++)
        x[i] += offset;
    dtype_narrow(logits->before, logits->dt, x, logits->elems);
    free(x);
}

enum { LOSS_ROW, LOSS_GRADIENT, LOSS_REST, LOSS_LOGITS, LOSS_TARGETS, LOSS_SCALE, LOSS_OPERANDS };

static const float mean_factor = 0.125f;

/* In place: the gradient is copied out, and what of each row it must have left alone. */
static void cross_entropy(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct loss *l = args;
    int64_t elem = (int64_t)dtype_bytes(l->dt), row_bytes = l->vocab * elem;
    int64_t ld_bytes = l->ld * (int64_t)dtype_bytes(logits_type(l)),
            rest_bytes = ld_bytes - row_bytes;
    void *gradient = l->in_place ? at[LOSS_LOGITS] : at[LOSS_GRADIENT];
    int64_t ld_d = l->in_place ? ld_bytes / elem : l->ld;
    d->ops->cross_entropy(d, l->dt, at[LOSS_ROW], gradient, ld_d, logits_type(l), at[LOSS_LOGITS],
                          l->ld, at[LOSS_TARGETS], l->rows, l->vocab, mean_factor, at[LOSS_SCALE]);
    for (int64_t r = 0; r < l->rows && l->in_place; r++) {
        char *row = (char *)at[LOSS_LOGITS] + r * ld_bytes;
        d->ops->copy(d, (char *)at[LOSS_GRADIENT] + r * row_bytes, row, (size_t)row_bytes);
        if (rest_bytes)
            d->ops->copy(d, (char *)at[LOSS_REST] + r * rest_bytes, row + row_bytes,
                         (size_t)rest_bytes);
    }
}

static struct operand make_targets(struct check *c, const struct loss *l)
{
    struct operand o = tokens_operand(c, "targets", l->rows, l->vocab);
    int32_t *target = o.before;
    for (int64_t r = 0; r < l->rows; r++) {
        const int32_t picks[] = {0, (int32_t)l->vocab - 1, target[r], -100, -1};
        target[r] = picks[r % 5];
    }
    return o;
}

static void cross_entropy_case(struct check *c, struct loss l, double spread, float offset)
{
    char text[128];
    int64_t elems = l.rows * l.ld, row = l.ld * (int64_t)dtype_bytes(logits_type(&l));
    int64_t rest = row - l.vocab * (int64_t)dtype_bytes(l.dt);
    struct operand o[LOSS_OPERANDS] = {
        [LOSS_ROW] = output_operand("row_loss", WRITTEN, DTYPE_F32, l.rows),
        [LOSS_GRADIENT] =
            output_operand("dlogits", WRITTEN, l.dt, l.in_place ? l.rows * l.vocab : elems),
        [LOSS_LOGITS] =
            changed_operand(c, "logits", l.in_place ? LOST : READ, logits_type(&l), elems, spread),
        [LOSS_TARGETS] = make_targets(c, &l),
    };
    if (l.scaled)
        o[LOSS_SCALE] = copy_operand("loss scale", READ, DTYPE_F64, 1, &(double){1024});
    if (l.in_place && rest)
        o[LOSS_REST] = output_operand("behind the gradient", EXACT, DTYPE_BF16, l.rows * rest / 2);
    add_offset(&o[LOSS_LOGITS], offset);
    snprintf(text, sizeof text, "cross_entropy %s of %s [%lld, %lld of %lld]%s", dtype_name(l.dt),
             dtype_name(logits_type(&l)), (long long)l.rows, (long long)l.vocab, (long long)l.ld,
             l.in_place ? " in place" : "");
    check_call(c, text, cross_entropy, &l, o, LOSS_OPERANDS);
}

/* Rows kept in registers; with a part in shared memory; with a part read again. */
static const int64_t vocabs[][2] = {{1, 1},         {3, 3},         {7, 8},         {17, 17},
                                    {521, 524},     {1000, 1000},   {12291, 12292}, {25000, 25000},
                                    {32003, 32003}, {32001, 32004}, {70001, 70004}, {99996, 99996}};
enum { VOCABS = sizeof vocabs / sizeof vocabs[0], LONG_VOCAB = 10000 };

static void losses_and_their_gradients(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < 4 * TYPES * VOCABS; i++) {
        const int64_t *vocab = vocabs[i / (4 * TYPES)];
        struct loss l = {op_types[i % TYPES], 11, vocab[0], vocab[1]};
        l.in_place = i / TYPES % 2;
        l.narrow = i / (2 * TYPES) % 2;
        l.scaled = i / (4 * TYPES) % 2;
        if (l.narrow && l.dt == DTYPE_F32)
            continue;
        if (l.vocab > LONG_VOCAB)
            l.rows = 2;
        cross_entropy_case(&c, l, i / TYPES % 3 ? 1 : 8, i % 5 ? 0 : 100);
    }
    check_close_devices(&c);
}

/* More columns than can be kept and more than twice as many: the gradient of the last ones lies
 * where others were read again. */
static void the_longest_rows_in_place(void **state)
{
    struct check c = check_open();
    cross_entropy_case(&c, (struct loss){DTYPE_BF16, 1, 256000, 256000, 1}, 1, 0);
    cross_entropy_case(&c, (struct loss){DTYPE_BF16, 1, 151937, 151937, 1}, 1, 0);
    cross_entropy_case(&c, (struct loss){DTYPE_F16, 1, 256000, 256000, 1, 1}, 1, 0);
    cross_entropy_case(&c, (struct loss){DTYPE_BF16, 1, 256000, 256000, 1, 0, 1}, 1, 0);
    cross_entropy_case(&c, (struct loss){DTYPE_BF16, 1, 303873, 303880, 1, 0, 1}, 1, 0);
    check_close_devices(&c);
}

static void only_losses(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct loss *l = args;
    d->ops->cross_entropy(d, l->dt, at[0], NULL, 0, logits_type(l), at[1], l->ld, at[2], l->rows,
                          l->vocab, mean_factor, NULL);
}

static void losses_without_gradients(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < 2 * VOCABS; i++) {
        const int64_t *vocab = vocabs[i / 2];
        struct loss l = {DTYPE_BF16, vocab[0] > LONG_VOCAB ? 1 : 7, vocab[0], vocab[1]};
        l.narrow = i % 2;
        struct operand o[] = {
            output_operand("row_loss", WRITTEN, DTYPE_F32, l.rows),
            random_operand(&c, "logits", logits_type(&l), l.rows * l.ld, 2),
            make_targets(&c, &l),
        };
        check_call(&c, "cross_entropy without gradients", only_losses, &l, o, 3);
    }
    check_close_devices(&c);
}

/* ---- the same in parts ---- */

enum {
    PART_TOP,
    PART_SUMS,
    PART_TERMS,
    PART_LOSS,
    PART_GRADIENT,
    PART_LOGITS,
    PART_TARGETS,
    PART_ALL_TOP,
    PART_OPERANDS
};

struct part {
    struct loss l;
    int64_t first;
};

/* In place; the gradient is copied out. */
static void softmax_part(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct part *p = args;
    const struct loss *l = &p->l;
    int64_t elem = (int64_t)dtype_bytes(l->dt), row_bytes = l->vocab * elem;
    int64_t ld_bytes = l->ld * (int64_t)dtype_bytes(logits_type(l));
    d->ops->softmax_part(d, at[PART_TOP], at[PART_SUMS], logits_type(l), at[PART_LOGITS], l->ld,
                         at[PART_TARGETS], l->rows, l->vocab, p->first);
    d->ops->softmax_term(d, at[PART_TERMS], at[PART_SUMS], at[PART_TOP], at[PART_ALL_TOP], l->rows);
    d->ops->softmax_loss(d, at[PART_LOSS], at[PART_ALL_TOP], at[PART_TERMS], at[PART_TARGETS],
                         l->rows);
    d->ops->softmax_gradient(d, l->dt, at[PART_LOGITS], ld_bytes / elem, logits_type(l),
                             at[PART_LOGITS], l->ld, at[PART_TARGETS], at[PART_ALL_TOP],
                             at[PART_TERMS], l->rows, l->vocab, p->first, mean_factor, NULL);
    for (int64_t r = 0; r < l->rows; r++)
        d->ops->copy(d, (char *)at[PART_GRADIENT] + r * row_bytes,
                     (char *)at[PART_LOGITS] + r * ld_bytes, (size_t)row_bytes);
}

static void softmax_parts(void **state)
{
    static const int64_t sizes[][2] = {{1, 1},       {3, 4},         {17, 17},      {524, 524},
                                       {1000, 1004}, {12291, 12292}, {32003, 32004}};
    struct check c = check_open();
    for (int i = 0; i < 2 * TYPES * 7; i++) {
        const int64_t *size = sizes[i / (2 * TYPES)];
        struct part p = {.l = {op_types[i % TYPES], 7, size[0], size[1]}, .first = i % 2 * 5};
        p.l.narrow = i / TYPES % 2;
        if (p.l.narrow && p.l.dt == DTYPE_F32)
            continue;
        char text[128];
        struct operand o[PART_OPERANDS] = {
            [PART_TOP] = output_operand("top", WRITTEN, DTYPE_F32, p.l.rows),
            [PART_SUMS] = output_operand("sums", WRITTEN, DTYPE_F32, 2 * p.l.rows),
            [PART_TERMS] = output_operand("terms", WRITTEN, DTYPE_F32, 2 * p.l.rows),
            [PART_LOSS] = output_operand("row_loss", WRITTEN, DTYPE_F32, p.l.rows),
            [PART_GRADIENT] = output_operand("dlogits", WRITTEN, p.l.dt, p.l.rows * size[0]),
            [PART_LOGITS] =
                changed_operand(&c, "logits", LOST, logits_type(&p.l), p.l.rows * size[1], 2),
            [PART_TARGETS] = tokens_operand(&c, "targets", p.l.rows, size[0] + 10),
            [PART_ALL_TOP] = output_operand("all_top", READ, DTYPE_F32, p.l.rows),
        };
        for (int64_t r = 0; r < p.l.rows; r++) {
            if (r % 3 == 2)
                ((int32_t *)o[PART_TARGETS].before)[r] = -1;
            ((float *)o[PART_ALL_TOP].before)[r] = 9.5f; /* above all of this part */
        }
        snprintf(text, sizeof text, "softmax_part %s [%lld of %lld from %lld]", dtype_name(p.l.dt),
                 (long long)size[0], (long long)size[1], (long long)p.first);
        check_call(&c, text, softmax_part, &p, o, PART_OPERANDS);
    }
    check_close_devices(&c);
}

static void loss_sum(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    d->ops->loss_sum(d, at[0], at[1], at[2], ((const struct loss *)args)->rows);
}

static void sums_of_losses(void **state)
{
    static const int64_t rows[] = {1, 3, 17, 521, 1024, 8191};
    struct check c = check_open();
    for (int i = 0; i < 6; i++) {
        struct loss l = {DTYPE_F32, rows[i], 50, 50};
        struct operand o[] = {
            changed_operand(&c, "sums", WRITTEN, DTYPE_F64, 2, 10),
            random_operand(&c, "row_loss", DTYPE_F32, l.rows, 3),
            make_targets(&c, &l),
        };
        check_call(&c, "loss_sum", loss_sum, &l, o, 3);
    }
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_their_gradients),
        cmocka_unit_test(the_longest_rows_in_place),
        cmocka_unit_test(losses_without_gradients),
        cmocka_unit_test(softmax_parts),
        cmocka_unit_test(sums_of_losses),
    };
    return check_main("cuda ops: loss", tests);
}
