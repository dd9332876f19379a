/* test_cuda_ops_cached.c - attention over a cache of keys and values: a GPU against the CPU.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "cuda_check.h"

#include <stdio.h>
#include <string.h>

#include "base/philox.h"

/* Heads of all widths, windows, one row and several, positions that differ between sequences; few
 * positions, more than all warps of a block look at together, and more than a block's span. */
static const struct attention_cached shapes[] = {
    {.batch = 1, .seq = 1, .capacity = 1, .heads = 1, .kv_heads = 1, .head_dim = 2},
    {.batch = 3, .seq = 1, .capacity = 70, .heads = 4, .kv_heads = 2, .head_dim = 34},
    {.batch = 2, .seq = 4, .capacity = 33, .heads = 3, .kv_heads = 1, .head_dim = 64},
    {.batch = 2,
     .seq = 1,
     .capacity = 90,
     .heads = 2,
     .kv_heads = 2,
     .head_dim = 128,
     .window = 17},
    {.batch = 1, .seq = 6, .capacity = 20, .heads = 2, .kv_heads = 1, .head_dim = 256, .window = 3},
    {.batch = 3, .seq = 1, .capacity = 900, .heads = 2, .kv_heads = 1, .head_dim = 80},
    {.batch = 2, .seq = 2, .capacity = 200, .heads = 4, .kv_heads = 2, .head_dim = 32},
    {.batch = 2,
     .seq = 1,
     .capacity = 300,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 136,
     .window = 290},
    {.batch = 6, .seq = 1, .capacity = 1300, .heads = 4, .kv_heads = 2, .head_dim = 64},
    {.batch = 6,
     .seq = 1,
     .capacity = 1600,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 128,
     .window = 700},
    {.batch = 2, .seq = 1, .capacity = 9000, .heads = 1, .kv_heads = 1, .head_dim = 8},
    {.batch = 64, .seq = 1, .capacity = 20, .heads = 18, .kv_heads = 3, .head_dim = 80},
    {.batch = 64, .seq = 1, .capacity = 520, .heads = 32, .kv_heads = 8, .head_dim = 8},
    {.batch = 2, .seq = 70, .capacity = 300, .heads = 4, .kv_heads = 2, .head_dim = 64},
    {.batch = 1,
     .seq = 150,
     .capacity = 400,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 128,
     .window = 100},
    {.batch = 3, .seq = 16, .capacity = 90, .heads = 3, .kv_heads = 1, .head_dim = 80},
    {.batch = 1, .seq = 34, .capacity = 34, .heads = 2, .kv_heads = 2, .head_dim = 256},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

enum { O, CACHE, QKV, POSITIONS, OPERANDS };

static void call_op(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct attention_cached *a = args;
    size_t bytes = d->ops->attention_cached_scratch(d, a);
    void *scratch = check_scratch(d, mem, bytes);
    d->ops->attention_cached(d, a, at[O], at[CACHE], at[QKV], at[POSITIONS], scratch);
    check_scratch_free(d, mem, bytes, scratch);
}

/* Of a sequence's first row: the first ones at the borders of what a block takes, others anywhere.
 */
static int32_t position_of(struct check *c, const struct attention_cached *a, int64_t b)
{
    static const int32_t borders[] = {511, 512, 1023, 1024};
    const int64_t last = a->capacity - a->seq;
    if (a->seq == 1 && b < (int64_t)(sizeof borders / sizeof borders[0]) && borders[b] <= last)
        return borders[b];
    return (int32_t)(check_draw(c) % (uint64_t)(last + 1));
}

static void one_case(struct check *c, const struct attention_cached *a, int64_t offset)
{
    char text[128];
    int64_t rows = a->batch * a->seq, kept = 2 * a->kv_heads * a->head_dim;
    struct operand o[OPERANDS] = {
        [O] = output_operand("o", WRITTEN, a->dt, rows * a->heads * a->head_dim),
        [CACHE] = changed_operand(c, "cache", WRITTEN, a->dt, a->batch * a->capacity * kept, 1),
        [QKV] = random_operand(c, "qkv", a->dt, rows * (a->heads * a->head_dim + kept), 1),
        [POSITIONS] = tokens_operand(c, "positions", rows, 1),
    };
    for (int64_t row = 0; row < rows; row++)
        ((int32_t *)o[POSITIONS].before)[row] = row % a->seq ? -1 : position_of(c, a, row / a->seq);
    for (int64_t b = 0; b < a->batch; b++) { /* no numbers behind the last row's position */
        const int64_t end = ((int32_t *)o[POSITIONS].before)[b * a->seq] + a->seq;
        const size_t bytes = (size_t)kept * dtype_bytes(a->dt);
        memset((char *)o[CACHE].before + (size_t)(b * a->capacity + end) * bytes, 0xff,
               (size_t)(a->capacity - end) * bytes);
    }
    o[QKV].offset = offset;
    snprintf(text, sizeof text,
             "attention_cached %s %lld x %lld of %lld, %lld + 2 x %lld heads of %lld",
             dtype_name(a->dt), (long long)a->batch, (long long)a->seq, (long long)a->capacity,
             (long long)a->heads, (long long)a->kv_heads, (long long)a->head_dim);
    check_call(c, text, call_op, a, o, OPERANDS);
}

static void rows_agree_with_the_cpu(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < SHAPES; i++)
        for (int j = 0; j < TYPES; j++) {
            struct attention_cached a = shapes[i];
            a.dt = op_types[j];
            a.scale = 1.0f / sqrtf((float)a.head_dim);
            for (int offset = a.seq > 1 ? 0 : i % 2; offset <= (a.seq > 1 || i % 2); offset++)
                one_case(&c, &a, offset);
        }
    check_close_devices(&c);
}

/* The first of so many texts, each of which has the same numbers: what comes out. */
static void first_text(struct check *c, struct attention_cached a, int64_t texts, void *o)
{
    const size_t row = (size_t)((a.heads + 2 * a.kv_heads) * a.head_dim) * dtype_bytes(a.dt);
    const size_t kept = (size_t)(a.capacity * 2 * a.kv_heads * a.head_dim) * dtype_bytes(a.dt);
    const size_t out = (size_t)(a.heads * a.head_dim) * dtype_bytes(a.dt);
    const size_t bytes[OPERANDS] = {[O] = out, [CACHE] = kept, [QKV] = row, [POSITIONS] = 4};
    struct error err = {0};
    void *at[OPERANDS], *numbers = malloc(kept);
    a.batch = texts;
    for (size_t i = 0; i < kept / 2; i++) /* 16 bits each, below 2 in size */
        ((uint16_t *)numbers)[i] = (uint16_t)(philox_u64(7, i) & 0xbfff);
    for (int i = 0; i < OPERANDS; i++) {
        const int32_t position = (int32_t)a.capacity - 1;
        at[i] = device_alloc(c->gpu, &c->mem, POOL_WORKSPACE, bytes[i] * (size_t)texts, &err);
        assert_non_null(at[i]);
        for (int64_t b = 0; b < texts; b++)
            assert_int_equal(device_upload(c->gpu, (char *)at[i] + (size_t)b * bytes[i],
                                           i == POSITIONS ? &position : numbers, bytes[i], &err),
                             0);
    }
    call_op(c->gpu, &c->mem, at, &a);
    assert_int_equal(device_download(c->gpu, o, at[O], out, &err), 0);
    for (int i = 0; i < OPERANDS; i++)
        device_free(c->gpu, &c->mem, POOL_WORKSPACE, bytes[i] * (size_t)texts, at[i]);
    free(numbers);
}

/* Of few texts a block has one head, of more two, and of many four that read the same keys. */
static void a_text_has_the_same_bits_beside_others(void **state)
{
    static const int64_t texts[] = {128, 256};
    struct check c = check_open();
    for (int i = 0; i < 2; i++) {
        const struct attention_cached a = {.dt = i ? DTYPE_F16 : DTYPE_BF16,
                                           .seq = 1,
                                           .capacity = i ? 70 : 90,
                                           .heads = 8,
                                           .kv_heads = 2,
                                           .head_dim = i ? 128 : 64,
                                           .scale = 0.1f};
        uint16_t alone[8 * 128], beside[8 * 128];
        first_text(&c, a, 1, alone);
        for (int j = 0; j < 2; j++) {
            first_text(&c, a, texts[j], beside);
            assert_memory_equal(alone, beside, (size_t)(a.heads * a.head_dim) * sizeof *alone);
        }
    }
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_agree_with_the_cpu),
                                       cmocka_unit_test(a_text_has_the_same_bits_beside_others)};
    return check_main("cuda ops: attention over a cache", tests);
}
