/* test_cuda_ops.c - ops on a GPU against the CPU's: moves, norms, rotations, gates.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "cuda_check.h"

#include <stdio.h>

/* What a call takes besides tensors, as far as it does. */
struct sizes {
    enum dtype dt, from;
    int64_t rows, cols, vocab;
    int64_t first, own; /* the rows of the table, where tokens are of more */
    int accumulate, in_place;
    struct rope rope;
    struct pack_heads pack;
    struct order_chunks order;
};

static const char *describe(char text[128], const char *op, const struct sizes *s)
{
    snprintf(text, 128, "%s %s [%lld, %lld]%s%s", op, dtype_name(s->dt), (long long)s->rows,
             (long long)s->cols, s->accumulate ? ", accumulate" : "",
             s->in_place ? ", in place" : "");
    return text;
}

/* Odd columns, columns of whole accesses, and all rows of one length in few and many blocks. */
static const int64_t shapes[][2] = {{1, 1},   {3, 7},   {2, 16},  {7, 17},    {5, 33},   {13, 127},
                                    {31, 64}, {4, 521}, {3, 576}, {270, 136}, {2, 2048}, {3, 4104}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* ---- embedding ---- */

enum { EMB_TO, EMB_FROM, EMB_TOKENS, EMB_OPERANDS };

static void embedding(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->embedding(d, s->dt, at[EMB_TO], at[EMB_FROM], at[EMB_TOKENS], s->rows, s->cols,
                      s->first, s->own);
}

static void embedding_backward(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->embedding_backward(d, s->dt, at[EMB_TO], at[EMB_FROM], at[EMB_TOKENS], s->rows, s->cols,
                               s->first, s->own, s->accumulate);
}

static void embedding_case(struct check *c, struct sizes s, int64_t offset)
{
    char text[128];
    struct operand o[EMB_OPERANDS] = {
        [EMB_TO] = output_operand("y", EXACT, s.dt, s.rows * s.cols),
        [EMB_FROM] = random_operand(c, "table", s.dt, s.own * s.cols, 1),
        [EMB_TOKENS] = tokens_operand(c, "tokens", s.rows, s.vocab),
    };
    o[EMB_FROM].offset = offset;
    check_call(c, describe(text, "embedding", &s), embedding, &s, o, EMB_OPERANDS);
}

/* Rows are added in order, as the CPU does it: the same bits.  sorted: equal tokens are neighbours,
 * so that most occur first somewhere in the middle. */
static void embedding_backward_case(struct check *c, struct sizes s, int64_t offset, int sorted)
{
    char text[128];
    struct operand o[EMB_OPERANDS] = {
        [EMB_TO] = changed_operand(c, "dtable", EXACT, DTYPE_F32, s.own * s.cols, 1),
        [EMB_FROM] = random_operand(c, "dy", s.dt, s.rows * s.cols, 1),
        [EMB_TOKENS] = tokens_operand(c, "tokens", s.rows, s.vocab),
    };
    if (!s.accumulate)
        memset(o[EMB_TO].before, 0xff, (size_t)o[EMB_TO].elems * sizeof(float));
    for (int64_t r = 0; r < s.rows && sorted; r++)
        ((int32_t *)o[EMB_TOKENS].before)[r] = (int32_t)(r * s.vocab / s.rows);
    o[EMB_TO].offset = offset;
    check_call(c, describe(text, "embedding backward", &s), embedding_backward, &s, o,
               EMB_OPERANDS);
}

static void rows_of_the_embedding(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < TYPES * SHAPES; i++)
        for (int64_t offset = 0; offset < 2; offset++) {
            const int64_t *shape = shapes[i / TYPES];
            struct sizes s = {.dt = op_types[i % TYPES], .rows = shape[0], .cols = shape[1]};
            s.vocab = shape[0] / 2 + 1 + 3; /* tokens more than once, and some never */
            s.first = offset;
            s.own = s.vocab - 2 * offset;
            embedding_case(&c, s, offset);
            s.accumulate = (int)offset;
            embedding_backward_case(&c, s, offset, 0);
        }
    check_close_devices(&c);
}

/* A token in many rows, further apart than a block looks at a time; and many tokens in a block. */
static void gradients_of_frequent_tokens(void **state)
{
    static const int64_t vocab[] = {5, 1, 1500};
    struct check c = check_open();
    for (int i = 0; i < 6 * TYPES; i++) {
        struct sizes s = {.dt = op_types[i / 6], .rows = 4500, .cols = i / 3 % 2 ? 8 : 3};
        s.accumulate = i & 1;
        s.vocab = s.own = vocab[i % 3];
        embedding_backward_case(&c, s, 0, 0);
        embedding_backward_case(&c, s, 0, 1);
    }
    check_close_devices(&c);
}

/* ---- norms ---- */

enum { NORM_Y, NORM_SUM, NORM_RSTD, NORM_X, NORM_DELTA, NORM_W, NORM_OPERANDS };

static void rmsnorm(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->rmsnorm(d, s->dt, at[NORM_Y], at[NORM_SUM], at[NORM_RSTD], at[NORM_X], at[NORM_DELTA],
                    at[NORM_W], s->rows, s->cols, 1e-5f);
}

static void rmsnorm_case(struct check *c, struct sizes s, int delta, int64_t offset)
{
    char text[128];
    int64_t elems = s.rows * s.cols;
    struct operand o[NORM_OPERANDS] = {
        [NORM_Y] = output_operand("y", WRITTEN, s.dt, elems),
        [NORM_RSTD] = output_operand("rstd", WRITTEN, DTYPE_F32, s.rows),
        [NORM_X] = random_operand(c, "x", s.dt, elems, 2),
        [NORM_W] = random_operand(c, "w", s.dt, s.cols, 1),
    };
    if (delta) {
        o[NORM_SUM] = output_operand("sum", EXACT, s.dt, elems);
        o[NORM_DELTA] = random_operand(c, "delta", s.dt, elems, 1);
    }
    o[NORM_W].offset = offset;
    check_call(c, describe(text, "rmsnorm", &s), rmsnorm, &s, o, NORM_OPERANDS);
}

/* Rows kept in 1, 2 and 4 accesses per thread, and too long to be kept. */
static const int64_t long_rows[] = {4096, 8192, 20000, 32768, 40000};
enum { LONG_ROWS = sizeof long_rows / sizeof long_rows[0] };

static void norms_of_rows(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < 2 * TYPES * SHAPES; i++) {
        const int64_t *shape = shapes[i / (2 * TYPES)];
        struct sizes s = {.dt = op_types[i % TYPES], .rows = shape[0], .cols = shape[1]};
        rmsnorm_case(&c, s, i / TYPES % 2, 0);
        rmsnorm_case(&c, s, i / TYPES % 2, 3);
    }
    for (int i = 0; i < TYPES * LONG_ROWS; i++)
        rmsnorm_case(
            &c, (struct sizes){.dt = op_types[i % TYPES], .rows = 2, .cols = long_rows[i / TYPES]},
            1, i / TYPES % 3);
    check_close_devices(&c);
}

enum { BACK_DX, BACK_DW, BACK_DY, BACK_DSUM, BACK_X, BACK_W, BACK_RSTD, BACK_OPERANDS };
enum place { APART, ONTO_DSUM, ONTO_DY, WITHOUT_DSUM, PLACES };

static void rmsnorm_backward(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    size_t bytes = d->ops->norm_backward_scratch(d, s->rows, s->cols, 1);
    void *scratch = check_scratch(d, mem, bytes);
    void *dx = s->in_place == ONTO_DSUM ? at[BACK_DSUM]
               : s->in_place == ONTO_DY ? at[BACK_DY]
                                        : at[BACK_DX];
    d->ops->rmsnorm_backward(d, s->dt, dx, at[BACK_DW], at[BACK_DY], at[BACK_DSUM], at[BACK_X],
                             at[BACK_W], at[BACK_RSTD], s->rows, s->cols, s->accumulate, scratch);
    check_scratch_free(d, mem, bytes, scratch);
}

static void rmsnorm_backward_case(struct check *c, struct sizes s, int64_t offset)
{
    char text[128];
    int64_t elems = s.rows * s.cols;
    struct operand o[BACK_OPERANDS] = {
        [BACK_DX] = output_operand("dx", WRITTEN, s.dt, elems),
        [BACK_DW] = changed_operand(c, "dw", WRITTEN, DTYPE_F32, s.cols, 1),
        [BACK_DY] = random_operand(c, "dy", s.dt, elems, 1),
        [BACK_DSUM] = random_operand(c, "dsum", s.dt, elems, 1),
        [BACK_X] = random_operand(c, "x", s.dt, elems, 2),
        [BACK_W] = random_operand(c, "w", s.dt, s.cols, 1),
        [BACK_RSTD] = random_operand(c, "rstd", DTYPE_F32, s.rows, 0.1),
    };
    if (s.in_place == ONTO_DSUM)
        o[BACK_DSUM].role = WRITTEN;
    if (s.in_place == ONTO_DY)
        o[BACK_DY].role = WRITTEN;
    if (s.in_place == WITHOUT_DSUM) {
        free(o[BACK_DSUM].before);
        o[BACK_DSUM] = (struct operand){"no dsum"};
    }
    if (!s.accumulate)
        memset(o[BACK_DW].before, 0xff, (size_t)s.cols * sizeof(float));
    for (int64_t r = 0; r < s.rows; r++) /* about 1 / rms(x) */
        ((float *)o[BACK_RSTD].before)[r] += 0.5f;
    o[BACK_W].offset = offset;
    check_call(c, describe(text, "rmsnorm backward", &s), rmsnorm_backward, &s, o, BACK_OPERANDS);
}

static void gradients_of_norms(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < TYPES * SHAPES * PLACES; i++) {
        const int64_t *shape = shapes[i / (TYPES * PLACES)];
        struct sizes s = {.dt = op_types[i % TYPES], .rows = shape[0], .cols = shape[1]};
        s.in_place = i / TYPES % PLACES;
        s.accumulate = i / (2 * TYPES) % 2;
        rmsnorm_backward_case(&c, s, i / TYPES % 3);
    }
    for (int i = 0; i < TYPES * LONG_ROWS; i++)
        rmsnorm_backward_case(
            &c, (struct sizes){.dt = op_types[i % TYPES], .rows = 2, .cols = long_rows[i / TYPES]},
            0);
    /* blocks with several short rows at a time, more than once, and not all of them at last */
    rmsnorm_backward_case(&c, (struct sizes){.dt = DTYPE_BF16, .rows = 1400, .cols = 768}, 0);
    rmsnorm_backward_case(&c, (struct sizes){.dt = DTYPE_F32, .rows = 1060, .cols = 1000}, 0);
    /* a block with several long rows */
    rmsnorm_backward_case(&c, (struct sizes){.dt = DTYPE_BF16, .rows = 266, .cols = 8192}, 0);
    check_close_devices(&c);
}

/* ---- rows of ranks that share sequences ---- */

static void order_chunks(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->order_chunks(d, &s->order, at[0], at[1]);
}

/* Chunks of words of each size, and of more than a block copies. */
static void chunks_are_ordered(void **state)
{
    static const int64_t elems[] = {1, 2, 7, 16, 40, 2056, 4100 * 8};
    struct check c = check_open();
    for (int i = 0; i < TYPES * 7 * 4; i++) {
        char text[128];
        struct sizes s = {
            .dt = op_types[i % TYPES], .rows = 1 + i % 2, .cols = elems[i / TYPES % 7]};
        s.order = (struct order_chunks){.batch = s.rows,
                                        .ranks = 2 + i / (7 * TYPES) % 2,
                                        .chunk_bytes = (size_t)s.cols * dtype_bytes(s.dt),
                                        .inverse = i / (14 * TYPES)};
        int64_t all = s.rows * 2 * s.order.ranks * s.cols;
        struct operand o[] = {output_operand("y", EXACT, s.dt, all),
                              random_operand(&c, "x", s.dt, all, 1)};
        check_call(&c, describe(text, "order_chunks", &s), order_chunks, &s, o, 2);
    }
    check_close_devices(&c);
}

/* More chunks than a grid has rows. */
static void many_chunks_are_ordered(void **state)
{
    enum { BATCH = 16411, RANKS = 2, ALL = 2 * RANKS * BATCH };
    _Static_assert(ALL > 65535, "a grid's y");
    struct check c = check_open();
    struct sizes s = {.dt = DTYPE_BF16, .rows = BATCH, .cols = 1};
    s.order = (struct order_chunks){.batch = BATCH, .ranks = RANKS, .chunk_bytes = 2};
    struct operand o[] = {output_operand("y", EXACT, s.dt, ALL),
                          random_operand(&c, "x", s.dt, ALL, 1)};
    check_call(&c, "order_chunks of many", order_chunks, &s, o, 2);
    check_close_devices(&c);
}

/* ---- heads of own queries ---- */

static void pack_heads(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->pack_heads(d, &s->pack, at[0], at[3], at[4]);
    d->ops->pack_heads_backward(d, &s->pack, at[1], at[2], at[5]);
}

static void heads_are_packed(void **state)
{
    static const int64_t dims[] = {2, 7, 64, 128};
    static const struct pack_heads forms[] = {
        {.heads = 3, .kv_heads = 2, .first = 2, .group = 4, .packed = 3},
        {.heads = 2, .kv_heads = 2, .first = 2, .group = 4, .packed = 1},
        {.heads = 4, .kv_heads = 3, .first = 2, .group = 2, .packed = 2},
        {.heads = 16, .kv_heads = 8, .first = 48, .group = 8, .packed = 2},
        {.heads = 6, .kv_heads = 2, .first = 2, .group = 4, .packed = 3},
    };
    enum { FORMS = sizeof forms / sizeof forms[0] };
    struct check c = check_open();
    for (int i = 0; i < TYPES * 4 * FORMS; i++) {
        char text[128];
        struct sizes s = {.dt = op_types[i % TYPES], .rows = 37, .cols = dims[i / TYPES % 4]};
        s.pack = forms[i / (4 * TYPES)];
        s.pack.dt = s.dt;
        s.pack.rows = s.rows;
        s.pack.head_dim = s.cols;
        int64_t q = s.rows * s.pack.heads * s.cols, kv = 2 * s.rows * s.pack.kv_heads * s.cols;
        int64_t y = q + 2 * s.rows * s.pack.packed * s.cols;
        struct operand o[] = {
            output_operand("y", EXACT, s.dt, y),    output_operand("dq", EXACT, s.dt, q),
            output_operand("dkv", EXACT, s.dt, kv), random_operand(&c, "q", s.dt, q, 1),
            random_operand(&c, "kv", s.dt, kv, 1),  random_operand(&c, "dy", s.dt, y, 1),
        };
        check_call(&c, describe(text, "pack_heads", &s), pack_heads, &s, o, 6);
    }
    check_close_devices(&c);
}

/* ---- rotations ---- */

static void rope(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->rope(d, &s->rope, s->in_place ? at[1] : at[0], at[1], at[2], s->vocab ? at[3] : NULL);
}

static void rope_case(struct check *c, struct sizes s)
{
    char text[128];
    const struct rope *r = &s.rope;
    int64_t elems = r->rows * r->row_heads * r->head_dim;
    struct operand o[] = {
        output_operand("y", s.in_place ? EXACT : WRITTEN, r->dt, elems),
        random_operand(c, "x", r->dt, elems, 1),
        random_operand(c, "cos_sin", DTYPE_F32, r->seq * r->head_dim, 0.7),
        tokens_operand(c, "positions", r->rows, r->seq),
    };
    if (s.in_place)
        o[1].role = WRITTEN;
    check_call(c, describe(text, "rope", &s), rope, &s, o, 4);
}

static void heads_rotate(void **state)
{
    static const int64_t dims[] = {2, 6, 34, 64, 128, 254, 600};
    static const int64_t heads[][2] = {{1, 1}, {5, 3}, {48, 40}, {9, 0}}; /* in a row, rotated */
    struct check c = check_open();
    for (int i = 0; i < TYPES * 7 * 4 * 2; i++) {
        const int64_t *h = heads[i / (7 * TYPES) % 4];
        struct sizes s = {.dt = op_types[i % TYPES], .in_place = i / (28 * TYPES)};
        s.rope = (struct rope){s.dt, 21, 7, h[0], h[1], dims[i / TYPES % 7], i / TYPES % 3 == 0};
        s.rows = s.rope.rows;
        s.cols = s.rope.head_dim;
        s.vocab = i / TYPES % 2; /* 1: positions from data */
        rope_case(&c, s);
    }
    check_close_devices(&c);
}

/* ---- gates ---- */

static void swiglu(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->swiglu(d, s->dt, at[0], at[1], s->rows, s->cols);
}

static void swiglu_backward(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->swiglu_backward(d, s->dt, s->in_place ? at[1] : at[0], at[2], at[1], s->rows, s->cols);
}

static void swiglu_case(struct check *c, struct sizes s, double scale)
{
    char text[128];
    int64_t elems = s.rows * s.cols;
    struct operand o[] = {
        output_operand("y", WRITTEN, s.dt, elems),
        random_operand(c, "gate_up", s.dt, 2 * elems, scale),
    };
    check_call(c, describe(text, "swiglu", &s), swiglu, &s, o, 2);
    struct operand back[] = {
        output_operand("dgate_up", WRITTEN, s.dt, 2 * elems),
        random_operand(c, "gate_up", s.dt, 2 * elems, scale),
        random_operand(c, "dy", s.dt, elems, 1),
    };
    if (s.in_place)
        back[1].role = WRITTEN;
    check_call(c, describe(text, "swiglu backward", &s), swiglu_backward, &s, back, 3);
}

static void gates_and_their_gradients(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < 2 * TYPES * SHAPES; i++) {
        const int64_t *shape = shapes[i / (2 * TYPES)];
        struct sizes s = {.dt = op_types[i % TYPES], .rows = shape[0], .cols = shape[1]};
        s.in_place = i / TYPES % 2;
        swiglu_case(&c, s, i / TYPES % 3 ? 2 : 60);
    }
    /* more rows than a grid has in its second dimension */
    swiglu_case(&c, (struct sizes){.dt = DTYPE_BF16, .rows = 65537, .cols = 1}, 2);
    check_close_devices(&c);
}

/* ---- flat tensors ---- */

static void add(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->add(d, s->dt, s->in_place ? at[s->in_place] : at[0], at[1], at[2], s->rows);
}

static void scale(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->scale(d, s->dt, s->in_place ? at[1] : at[0], at[1], 1.7f, s->rows);
}

static void cast(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->cast(d, s->dt, at[0], s->from, at[1], s->rows);
}

static void copy_and_clear(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct sizes *s = args;
    d->ops->copy(d, at[0], at[1], (size_t)s->rows);
    d->ops->fill_zero(d, at[2], (size_t)s->rows);
}

static const int64_t lengths[] = {1, 3, 7, 17, 521, 4096, 8195, 20011};
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

/* Where tensors begin, in elements: alike, and each elsewhere. */
static const int64_t offsets[][3] = {{0, 0, 0}, {1, 1, 1}, {7, 7, 7}, {0, 1, 2}};

static void sums_are_rounded_once(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < TYPES * LENGTHS * 4 * 3; i++) {
        struct sizes s = {
            .dt = op_types[i % TYPES], .rows = lengths[i / TYPES % LENGTHS], .cols = 1};
        const int64_t *offset = offsets[i / (TYPES * LENGTHS) % 4];
        char text[128];
        s.in_place = i / (4 * TYPES * LENGTHS);
        struct operand o[] = {
            output_operand("y", EXACT, s.dt, s.rows),
            random_operand(&c, "a", s.dt, s.rows, 1),
            random_operand(&c, "b", s.dt, s.rows, 1),
        };
        for (int j = 0; j < 3; j++)
            o[j].offset = offset[j];
        o[s.in_place].role = EXACT;
        check_call(&c, describe(text, "add", &s), add, &s, o, 3);
    }
    check_close_devices(&c);
}

static void products_with_a_factor_are_rounded_once(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < TYPES * LENGTHS * 4 * 2; i++) {
        struct sizes s = {
            .dt = op_types[i % TYPES], .rows = lengths[i / TYPES % LENGTHS], .cols = 1};
        const int64_t *offset = offsets[i / (TYPES * LENGTHS) % 4];
        char text[128];
        s.in_place = i / (4 * TYPES * LENGTHS);
        struct operand o[] = {
            output_operand("y", EXACT, s.dt, s.rows),
            random_operand(&c, "x", s.dt, s.rows, 1),
        };
        for (int j = 0; j < 2; j++)
            o[j].offset = offset[j + 1];
        o[s.in_place].role = EXACT;
        check_call(&c, describe(text, "scale", &s), scale, &s, o, 2);
    }
    check_close_devices(&c);
}

/* fp32 of these bits but for the exponent, from 2^-26, which fp16 makes 0, to 2^17, infinity. */
static uint32_t fp16_range(uint32_t bits)
{
    return (bits & 0x807fffffu) | (127 - 26 + (bits >> 23) % 44) << 23;
}

/* Any bits at all: a quarter of them NaN, infinity, denormals or zero, some of fp16's size. */
static void make_bits(struct check *c, struct operand *o)
{
    static const uint32_t special[] = {0, 0x7f800000u, 0x7f7fffffu, 0x00000001u, 0x7fc12345u};
    for (int64_t i = 0; i < o->elems; i++) {
        uint64_t bits = check_draw(c);
        uint32_t value = (uint32_t)bits;
        switch (bits >> 32 & 15) {
        case 0: value = special[bits >> 40 & 3] | (value & 0x80000000u); break;
        case 1: value &= 0x807fffffu; break;                        /* denormals */
        case 2: value = (value & 0x80ffffffu) | 0x7f000000u; break; /* large, infinite, NaN */
        case 3: value = (value & 0xffff0000u) | 0x8000u; break;     /* ties */
        case 4:
        case 5: value = fp16_range(value); break;
        case 6: value = (fp16_range(value) & 0xffffe000u) | 0x1000u; break; /* its ties */
        default: break;
        }
        if (o->dt != DTYPE_F32)
            ((uint16_t *)o->before)[i] = (uint16_t)(value >> 16);
        else
            ((uint32_t *)o->before)[i] = value;
    }
}

static void casts_keep_or_round_every_bit(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < TYPES * TYPES * LENGTHS * 4; i++) {
        struct sizes s = {
            .dt = op_types[i % TYPES], .from = op_types[i / TYPES % TYPES], .cols = 1};
        const int64_t *offset = offsets[i / (TYPES * TYPES * LENGTHS)];
        char text[128];
        s.rows = lengths[i / (TYPES * TYPES) % LENGTHS];
        struct operand o[] = {
            output_operand("y", EXACT, s.dt, s.rows),
            random_operand(&c, "x", s.from, s.rows, 1),
        };
        make_bits(&c, &o[1]);
        o[0].offset = offset[0];
        o[1].offset = offset[1];
        check_call(&c, describe(text, "cast", &s), cast, &s, o, 2);
    }
    check_close_devices(&c);
}

static void copies_and_zeros(void **state)
{
    struct check c = check_open();
    for (int i = 0; i < LENGTHS; i++) {
        struct sizes s = {.rows = lengths[i] * 2, .cols = 1};
        struct operand o[] = {
            output_operand("y", EXACT, DTYPE_BF16, lengths[i]),
            random_operand(&c, "x", DTYPE_BF16, lengths[i], 1),
            output_operand("zero", EXACT, DTYPE_BF16, lengths[i]),
        };
        for (int j = 0; j < 3; j++)
            o[j].offset = i % 3;
        check_call(&c, "copy and fill_zero", copy_and_clear, &s, o, 3);
    }
    check_close_devices(&c);
}

static void sum_from_last(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    d->ops->sum_from_last(d, at[0], at[1], *(const int *)args);
}

static void sums_in_a_fixed_order(void **state)
{
    static const int counts[] = {0, 1, 2, 3, 7, 255, 256, 257, 521, 1031};
    struct check c = check_open();
    for (int i = 0; i < 10; i++) {
        struct operand o[] = {
            output_operand("sum", EXACT, DTYPE_F64, 1),
            random_operand(&c, "x", DTYPE_F64, counts[i], 1),
        };
        check_call(&c, "sum_from_last", sum_from_last, &counts[i], o, 2);
    }
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_the_embedding),
        cmocka_unit_test(gradients_of_frequent_tokens),
        cmocka_unit_test(norms_of_rows),
        cmocka_unit_test(gradients_of_norms),
        cmocka_unit_test(chunks_are_ordered),
        cmocka_unit_test(many_chunks_are_ordered),
        cmocka_unit_test(heads_are_packed),
        cmocka_unit_test(heads_rotate),
        cmocka_unit_test(gates_and_their_gradients),
        cmocka_unit_test(sums_are_rounded_once),
        cmocka_unit_test(products_with_a_factor_are_rounded_once),
        cmocka_unit_test(casts_keep_or_round_every_bit),
        cmocka_unit_test(copies_and_zeros),
        cmocka_unit_test(sums_in_a_fixed_order),
    };
    return check_main("cuda ops", tests);
}
