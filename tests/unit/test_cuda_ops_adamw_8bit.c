/* test_cuda_ops_adamw_8bit.c - AdamW with moments of 8 bits on a GPU: against the CPU, and to the
 * bit against the step on moments in fp32 that are what the codes stand for.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#define DYNAMIC8_FMA fmaf /* as on a GPU */
#include "base/dynamic8.h"
#include "base/philox.h"
#include "base/round.h"
#include "cuda_check.h"

#include <stdio.h>

enum { P, M, V, M_LARGEST, V_LARGEST, G, FACTOR, COPY, OPERANDS };
enum { WIDE_P = OPERANDS, WIDE_M, WIDE_V, WIDE_COPY, ALL_OPERANDS };
enum { BLOCK = DYNAMIC8_BLOCK, MOST = 9000, CALLS = 3 };

static const struct adamw usual = {.lr = 3e-3f,
                                   .beta2 = 0.95f,
                                   .eps = 1e-8f,
                                   .weight_decay = 0.1f,
                                   .one_minus_beta1 = 0.1f,
                                   .one_minus_beta2 = 0.05f,
                                   .bias1 = 0.271f,
                                   .bias2 = 0.142625f};

/* New moments are the gradient and its square: their shares are the test's. */
static const struct adamw forgetful = {.lr = 1e-3f,
                                       .beta2 = 0,
                                       .eps = 1e-8f,
                                       .one_minus_beta1 = 1,
                                       .one_minus_beta2 = 1,
                                       .bias1 = 1,
                                       .bias2 = 1};

/* What calls left of m and v. */
struct seen {
    int calls;
    uint8_t m[CALLS][MOST], v[CALLS][MOST];
};

struct coded {
    enum dtype dt_p, dt_g, dt_copy; /* dt_copy DTYPE_F32: no copy */
    int64_t elems;
    uint64_t first;
    int64_t run, stride;
    const struct adamw *rule;
    struct seen *seen; /* or NULL */
};

/* Of p, of the gradient, and of the copy. */
static const enum dtype formats[][3] = {
    {DTYPE_F32, DTYPE_F32, DTYPE_BF16}, {DTYPE_F32, DTYPE_BF16, DTYPE_BF16},
    {DTYPE_F32, DTYPE_F32, DTYPE_F16},  {DTYPE_F32, DTYPE_BF16, DTYPE_F16},
    {DTYPE_F32, DTYPE_F32, DTYPE_F32},  {DTYPE_F32, DTYPE_BF16, DTYPE_F32},
    {DTYPE_BF16, DTYPE_F32, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16, DTYPE_F32},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static struct coded coded_of(int format, int64_t elems)
{
    return (struct coded){.dt_p = formats[format][0],
                          .dt_g = formats[format][1],
                          .dt_copy = formats[format][2],
                          .elems = elems,
                          .rule = &usual};
}

static void download(struct device *d, void *to, const void *from, size_t bytes)
{
    struct error err = {0};
    if (device_download(d, to, from, bytes, &err))
        fail_msg("%s", err.text);
}

/* ---- calls ---- */

/* Elements [from, to), where from begins a block. */
static void step(struct device *d, void *const *at, const struct coded *c, int64_t from, int64_t to)
{
    const struct rounding r = {.key = 0x1234567890abcdefu,
                               .step = 3,
                               .first = c->first + (uint64_t)from,
                               .run = c->run,
                               .stride = c->stride};
    const struct adamw_state s = {
        .dt_p = c->dt_p,
        .dt_m = DTYPE_U8,
        .p = (char *)at[P] + (size_t)from * dtype_bytes(c->dt_p),
        .m = (uint8_t *)at[M] + from,
        .v = (uint8_t *)at[V] + from,
        .g = (char *)at[G] + (size_t)from * dtype_bytes(c->dt_g),
        .dt_g = c->dt_g,
        .dt_copy = c->dt_copy,
        .copy = at[COPY] ? (char *)at[COPY] + (size_t)from * dtype_bytes(c->dt_copy) : NULL,
        .m_largest = (float *)at[M_LARGEST] + from / BLOCK,
        .v_largest = (float *)at[V_LARGEST] + from / BLOCK,
    };
    d->ops->adamw(d, c->rule, at[FACTOR], &s, &r, to - from);
}

static void whole(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct coded *c = args;
    struct seen *seen = c->seen;
    step(d, at, c, 0, c->elems);
    if (!seen)
        return;
    download(d, seen->m[seen->calls], at[M], (size_t)c->elems);
    download(d, seen->v[seen->calls++], at[V], (size_t)c->elems);
}

/* The first time at once, then three blocks at a time. */
static void in_parts(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct coded *c = args;
    const int64_t count = c->seen->calls++ ? 3 * BLOCK : c->elems;
    for (int64_t from = 0; from < c->elems; from += count)
        step(d, at, c, from, min_i64(from + count, c->elems));
}

/* ---- operands ---- */

static struct operand codes_operand(struct check *c, const char *name, enum role role,
                                    int64_t elems)
{
    struct operand o = output_operand(name, role, DTYPE_U8, elems);
    const uint64_t key = check_draw(c);
    for (int64_t i = 0; i < elems; i++)
        ((uint8_t *)o.before)[i] = (uint8_t)(philox_u64(key, (uint64_t)i) >> 32);
    return o;
}

/* Positive numbers, of which every fifth is 0. */
static struct operand largest_operand(struct check *c, const char *name, enum role role,
                                      int64_t elems, double scale)
{
    struct operand o = changed_operand(c, name, role, DTYPE_F32, ceil_div(elems, BLOCK), scale);
    float *values = o.before;
    for (int64_t i = 0; i < o.elems; i++)
        values[i] = i % 5 == 4 ? 0 : fabsf(values[i]);
    return o;
}

/* role: EXACT where nothing may be written.  Codes are compared by compare_codes(). */
static void make_operands(struct operand o[OPERANDS], struct check *c, const struct coded *coded,
                          int64_t offset, double factor)
{
    const enum role role = isnan(factor) ? EXACT : WRITTEN, lost = isnan(factor) ? EXACT : LOST;
    const int64_t elems = coded->elems;
    o[P] = changed_operand(c, "p", role, coded->dt_p, elems, 1);
    o[M] = codes_operand(c, "m", lost, elems);
    o[V] = codes_operand(c, "v", lost, elems);
    o[M_LARGEST] = largest_operand(c, "largest of m", role, elems, 0.1);
    o[V_LARGEST] = largest_operand(c, "largest of v", role, elems, 0.01);
    o[G] = random_operand(c, "g", coded->dt_g, elems, 0.1);
    o[FACTOR] = copy_operand("factor", READ, DTYPE_F64, 1, &factor);
    o[COPY] = coded->dt_copy == DTYPE_F32 ? (struct operand){0}
                                          : output_operand("copy", role, coded->dt_copy, elems);
    o[P].offset = o[M].offset = o[V].offset = o[G].offset = o[COPY].offset = offset;
}

/* ---- against the CPU ---- */

static int differing(const char *what, const uint8_t *gpu, const uint8_t *cpu, int64_t elems)
{
    int count = 0;
    for (int64_t i = 0; i < elems; i++) {
        if (abs(gpu[i] - cpu[i]) > 1)
            fail_msg("%s[%lld] of %lld: code %d, on the CPU %d", what, (long long)i,
                     (long long)elems, gpu[i], cpu[i]);
        count += gpu[i] != cpu[i];
    }
    return count;
}

/* A share may be an ulp off, as the CPU fuses products and sums where it can: then its code, an
 * index into shares in ascending order, is that of a neighbour where the share lies at their edge.
 * Levels are a hundredth of a share apart and more, or 1e5 ulp. */
static int compare_codes(const struct seen *seen, int64_t elems)
{
    int count = differing("m", seen->m[1], seen->m[0], elems) +
                differing("v", seen->v[1], seen->v[0], elems);
    assert_in_range(count, 0, 1 + elems / 1000);
    assert_memory_equal(seen->m[1], seen->m[2], (size_t)elems);
    assert_memory_equal(seen->v[1], seen->v[2], (size_t)elems);
    return count;
}

static const int64_t sizes[] = {1, 255, 256, 257, 5000, 33 * BLOCK, 8195, 0};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void steps_are_the_cpus(void **state)
{
    struct operand o[OPERANDS];
    struct check c = check_open();
    struct seen *seen = malloc(sizeof *seen);
    int64_t elems = 0, count = 0;
    for (int i = 0; i < SIZES * FORMATS * 2; i++) {
        struct coded coded = coded_of(i / 2 % FORMATS, sizes[i / 2 / FORMATS]);
        const double factor = i % 7 == 6 ? NAN : 0.37;
        coded.first = (uint64_t)(i % 5);
        coded.seen = seen;
        seen->calls = 0;
        make_operands(o, &c, &coded, i % 2, factor);
        check_call(&c, "adamw_8bit", whole, &coded, o, OPERANDS);
        assert_int_equal(seen->calls, CALLS);
        count += compare_codes(seen, coded.elems);
        elems += coded.elems;
    }
    printf("%lld of %lld codes are neighbours of the CPU's\n", (long long)count,
           2 * (long long)elems);
    free(seen);
    check_close_devices(&c);
}

/* A block has the same bits at the beginning of a call and inside it, and with tensors that are
 * aligned and are not. */
static void blocks_stand_alone(void **state)
{
    struct operand o[OPERANDS];
    struct check c = check_open();
    struct seen *seen = malloc(sizeof *seen);
    for (int i = 0; i < FORMATS * 4; i++) {
        struct coded coded = coded_of(i / 4, i % 4 < 2 ? 5000 : 37 * BLOCK);
        coded.first = (uint64_t)(6 + i % 4 / 2);
        coded.seen = seen;
        seen->calls = 0;
        make_operands(o, &c, &coded, i % 2, 0.37);
        check_bits_anywhere(&c, "adamw_8bit", in_parts, &coded, o, OPERANDS);
    }
    free(seen);
    check_close_devices(&c);
}

/* ---- against moments in fp32 ---- */

static void decode(struct operand *wide, const struct operand *codes, const struct operand *largest,
                   float (*share)(uint8_t))
{
    *wide = output_operand("wide", LOST, DTYPE_F32, codes->elems);
    for (int64_t i = 0; i < codes->elems; i++)
        ((float *)wide->before)[i] =
            share(((uint8_t *)codes->before)[i]) * ((float *)largest->before)[i / BLOCK];
}

/* Are codes, and their largest magnitudes, those of these moments? */
static void check_codes(const uint8_t *codes, const float *largest, const float *wide,
                        int64_t elems, uint8_t (*code)(float))
{
    for (int64_t at = 0; at < elems; at += BLOCK) {
        const int64_t end = min_i64(at + BLOCK, elems);
        float most = 0;
        for (int64_t i = at; i < end; i++)
            most = fmaxf(most, fabsf(wide[i]));
        assert_true(largest[at / BLOCK] == most);
        for (int64_t i = at; i < end; i++) {
            const float share = wide[i] * dynamic8_inverse(most);
            if (codes[i] != code(share))
                fail_msg("share %.9g of element %lld: code %d, not %d", share, (long long)i,
                         codes[i], code(share));
        }
    }
}

static void check_equal(struct device *d, const void *a, const void *b, size_t bytes)
{
    char *of_a = malloc(2 * bytes + 1), *of_b = of_a + bytes;
    download(d, of_a, a, bytes);
    download(d, of_b, b, bytes);
    assert_memory_equal(of_a, of_b, bytes);
    free(of_a);
}

static void both(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct coded *c = args;
    const struct rounding r = {0x1234567890abcdefu, 3, c->first, c->run, c->stride};
    const struct adamw_state s = {.dt_p = c->dt_p,
                                  .dt_m = DTYPE_F32,
                                  .p = at[WIDE_P],
                                  .m = at[WIDE_M],
                                  .v = at[WIDE_V],
                                  .g = at[G],
                                  .dt_g = c->dt_g,
                                  .dt_copy = c->dt_copy,
                                  .copy = at[WIDE_COPY]};
    const size_t elems = (size_t)c->elems, blocks = (size_t)ceil_div(c->elems, BLOCK);
    uint8_t *codes = malloc(elems);
    float *wide = malloc(elems * sizeof *wide), *largest = malloc(blocks * sizeof *largest);
    d->ops->adamw(d, c->rule, at[FACTOR], &s, &r, c->elems);
    step(d, at, c, 0, c->elems);
    check_equal(d, at[P], at[WIDE_P], elems * dtype_bytes(c->dt_p));
    if (at[COPY])
        check_equal(d, at[COPY], at[WIDE_COPY], elems * dtype_bytes(c->dt_copy));
    for (int is_v = 0; is_v < 2; is_v++) {
        download(d, codes, at[is_v ? V : M], elems);
        download(d, wide, at[is_v ? WIDE_V : WIDE_M], elems * sizeof *wide);
        download(d, largest, at[is_v ? V_LARGEST : M_LARGEST], blocks * sizeof *largest);
        check_codes(codes, largest, wide, c->elems,
                    is_v ? dynamic8_unsigned_code : dynamic8_signed_code);
    }
    free(codes);
    free(wide);
    free(largest);
}

/* With the operands of the step on codes, which are freed, at two places. */
static void check_both(struct check *c, const struct coded *coded, struct operand o[ALL_OPERANDS])
{
    o[WIDE_P] = copy_operand("wide p", LOST, coded->dt_p, coded->elems, o[P].before);
    o[WIDE_P].offset = o[P].offset;
    decode(&o[WIDE_M], &o[M], &o[M_LARGEST], dynamic8_signed);
    decode(&o[WIDE_V], &o[V], &o[V_LARGEST], dynamic8_unsigned);
    o[WIDE_COPY] = o[COPY].elems ? output_operand("wide copy", LOST, o[COPY].dt, coded->elems)
                                 : (struct operand){0};
    check_bits_anywhere(c, "adamw_8bit", both, coded, o, ALL_OPERANDS);
}

/* p, too, which is rounded by the random numbers of its elements: of a whole tensor, and of columns
 * of a matrix whose rows allow groups of four and do not. */
static void steps_are_those_of_fp32(void **state)
{
    static const int64_t runs[] = {0, 1, 5, 8, 64}, strides[] = {0, 3, 10, 16, 65};
    struct operand o[ALL_OPERANDS];
    struct check c = check_open();
    for (int i = 0; i < FORMATS * 2 * 5; i++) {
        struct coded coded = coded_of(i / 10, i % 2 ? 5000 : 8195);
        coded.first = (uint64_t)(i % 3);
        coded.run = runs[i % 5];
        coded.stride = strides[i % 5];
        make_operands(o, &c, &coded, i % 4, 0.37);
        check_both(&c, &coded, o);
    }
    check_close_devices(&c);
}

/* ---- shares where codes change ---- */

/* Write `count` shares around each that begins a decade of the table of `items`.  Returns how many
 * were written. */
static int64_t put_edges(float *to, float items, int64_t count)
{
    int64_t n = 0;
    for (float share = 1; share > 0;) {
        const float begin = dynamic8_decade_of(share, items).begin;
        for (int64_t i = -count / 2; i < count / 2 && begin > 0; i++)
            to[n++] = begin * (1 + (float)i * 0x1p-23f);
        share = begin > 0 ? nextafterf(begin, 0) : 0;
    }
    return n;
}

/* Gradients that become shares: at the edges of decades and of powers of two, others, and in each
 * block 1 for the largest.  sign: of those with even numbers; others have the opposite one. */
static void put_shares(float *to, int64_t elems, float sign)
{
    const float others[] = {0, 1e-30f, 1e-12f, 0x1p-23f, 0x1p-24f, 0.999999f};
    int64_t n = put_edges(to, 1, 20);
    int64_t squares = put_edges(to + n, 2, 20);
    for (int64_t i = n; i < n + squares; i++)
        to[i] = sqrtf(to[i]);
    n += squares;
    for (int i = 0; i < 6; i++)
        to[n++] = others[i];
    for (int i = 1; i < 26; i++)
        to[n++] = ldexpf(1, -i), to[n++] = nextafterf(ldexpf(1, -i), 0);
    assert_in_range(n, 300, elems);
    for (int64_t i = n; i < elems; i++)
        to[i] = exp2f(-26 * (float)(i - n) / (float)(elems - n));
    for (int64_t i = 0; i < elems; i++)
        to[i] = i % BLOCK == 0 ? 1 : i % 2 ? -sign * to[i] : sign * to[i];
}

static void codes_are_right_at_edges(void **state)
{
    struct operand o[ALL_OPERANDS];
    struct check c = check_open();
    for (int i = 0; i < 4; i++) {
        struct coded coded = coded_of(4, 4000);
        coded.rule = &forgetful;
        make_operands(o, &c, &coded, i / 2, 1);
        put_shares(o[G].before, coded.elems, i % 2 ? -1 : 1);
        memset(o[M_LARGEST].before, 0, (size_t)o[M_LARGEST].elems * sizeof(float));
        memset(o[V_LARGEST].before, 0, (size_t)o[V_LARGEST].elems * sizeof(float));
        check_both(&c, &coded, o);
    }
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_the_cpus),
        cmocka_unit_test(blocks_stand_alone),
        cmocka_unit_test(steps_are_those_of_fp32),
        cmocka_unit_test(codes_are_right_at_edges),
    };
    return check_main("cuda ops: adamw 8bit", tests);
}
