/* test_cuda_ops_dropout.c - numbers dropped at random: a GPU drops those that the CPU drops.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "cuda_check.h"

#include <stdio.h>

enum { BATCH = 3, SEQ = 6, SAMPLES = 2 * BATCH };

struct call {
    struct dropout p;
    int in_place;
};

enum { Y, X, ADDEND, NUMBERS, OPERANDS };

static void drop(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct call *call = args;
    struct dropout p = call->p;
    p.mask.samples = at[NUMBERS];
    d->ops->dropout(d, &p, call->in_place ? at[X] : at[Y], at[X], at[ADDEND]);
}

/* Widths that 16 bytes divide and others, first columns inside a block of words, all rows, those of
 * one rank of several, and a part of each sequence. */
static struct call call_of(int i)
{
    static const int64_t cols[] = {1, 3, 8, 40, 129, 512};
    struct call call = {.p = {.rows = BATCH * SEQ,
                              .cols = cols[i % 6],
                              .first = i % 4 == 3 ? i : 4 * (i % 3),
                              .batch = BATCH,
                              .seq = SEQ,
                              .ranks = 1,
                              .row_chunks = 1,
                              .mask = dropout_mask_of(i % 2 ? 0.1 : 0.5)},
                        .in_place = i % 5 == 4};
    call.p.mask.key = 0x123456789abcdefu * (uint64_t)(i + 1);
    if (i % 3 == 1) {
        call.p.ranks = 3, call.p.rank = i % 2, call.p.row_chunks = 1 + i % 2;
        call.p.rows /= 3;
    }
    if (i % 3 == 2)
        call.p.part = (struct sequence_part){.chunk = SEQ / 2, .first = {SEQ, 3 * SEQ}};
    return call;
}

/* y is compared to the bit where nothing is added: it shows the mask. */
static void dropout_case(struct check *c, struct call *call, enum dtype dt, int i)
{
    char text[96];
    int32_t numbers[SAMPLES];
    int adds = i % 4 > 1;
    int64_t elems = call->p.rows * call->p.cols;
    call->p.dt = dt;
    for (int k = 0; k < SAMPLES; k++)
        numbers[k] = (int32_t)(check_draw(c) >> (k % 2 ? 48 : 32));
    struct operand o[OPERANDS] = {
        [Y] = output_operand("y", adds ? WRITTEN : EXACT, dt, call->in_place ? 0 : elems),
        [X] = random_operand(c, "x", dt, elems, 1),
        [ADDEND] = random_operand(c, "addend", dt, adds ? elems : 0, 1),
        [NUMBERS] = copy_operand("samples", READ, DTYPE_I32, SAMPLES, numbers),
    };
    if (call->in_place)
        o[X].role = adds ? WRITTEN : EXACT;
    o[X].offset = i % 7 == 6;
    snprintf(text, sizeof text, "dropout %s %lld x %lld from %lld%s", dtype_name(dt),
             (long long)call->p.rows, (long long)call->p.cols, (long long)call->p.first,
             adds ? ", added" : "");
    check_call(c, text, drop, call, o, OPERANDS);
}

static void test_dropout(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < 24; i++)
        for (int type = 0; type < TYPES; type++) {
            struct call call = call_of(i);
            dropout_case(&c, &call, op_types[type], i);
        }
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dropout)};
    return check_main("CUDA dropout", tests);
}
