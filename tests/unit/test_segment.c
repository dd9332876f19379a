/* test_segment.c - a segment by itself: it reads what it declares to read, writes what it declares
 * to write, all of it, and not a byte beside; inside, nothing is overwritten that is still needed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/philox.h"
#include "tests/unit/segment_check.h"

enum { GUARD = 4096, PATTERN = 0x5b };

/* One memory per space, of exactly the size it has, between guards. */
struct spaces {
    const struct session *s;
    size_t bytes[SPACE_COUNT];
    char *block[SPACE_COUNT];
    void *base[SPACE_COUNT];
};

static size_t space_bytes(const struct session *s, int unit, const struct segment *segment,
                          enum segment_space space)
{
    const struct units *units = s->units;
    const struct unit_flats *use = &units->use[unit];
    size_t size = dtype_bytes(units->request.dtype);
    size_t rows = (size_t)(units->request.batch * units->request.seq[0]);
    if (space < SPACE_INPUT) {
        int k = space < SPACE_GRAD ? (int)space - SPACE_PARAM : (int)space - SPACE_GRAD;
        size = space < SPACE_GRAD ? size : sizeof(float);
        return k < use->count ? (size_t)units->flat[use->flat[k]].padded * size : 0;
    }
    switch (space) {
    case SPACE_SAVED: return units_kind(units, unit)->segment[PHASE_FORWARD].saved_bytes;
    case SPACE_DEFERRED: return segment->deferred_bytes;
    case SPACE_TOKENS:
    case SPACE_TARGETS: return rows * sizeof(int32_t);
    case SPACE_CONST:
        return (size_t)(units_const_rows(units) * s->model->const_width) * sizeof(float);
    case SPACE_LOSS: return 2 * sizeof(double);
    case SPACE_WORK: return segment->work_bytes;
    default: break;
    }
    int k = segment_input(space) >= 0 ? segment_input(space) : segment_input_grad(space);
    return units->boundary[k < 0 ? unit : units->boundary[unit].producer[k]].bytes;
}

/* Values a segment may find, the same for the same space. */
static void fill(const struct session *s, enum segment_space space, void *data, size_t bytes)
{
    size_t size = dtype_bytes(s->units->request.dtype);
    uint64_t key = philox_key((uint64_t)space, "fill");
    if (space == SPACE_TOKENS || space == SPACE_TARGETS) {
        for (size_t i = 0; i < bytes / sizeof(int32_t); i++)
            ((int32_t *)data)[i] = (int32_t)(philox_u64(key, i) % (uint64_t)s->config.model.vocab);
        return;
    }
    if (space == SPACE_LOSS || (space >= SPACE_GRAD && space < SPACE_INPUT)) {
        memset(data, 0, bytes);
        return;
    }
    if (space == SPACE_CONST || size == sizeof(float)) {
        philox_fill_normal(data, key, 0, (int64_t)(bytes / sizeof(float)), 0.3f);
        return;
    }
    for (size_t i = 0; i < bytes / size; i++)
        ((bf16 *)data)[i] = f32_to_bf16(0.3f * philox_normal(key, i));
}

/* Make the spaces of a segment, and nothing for those it does not declare.  What it only writes is
 * filled with the byte `rest`. */
static void spaces_make(struct spaces *spaces, const struct session *s, int unit,
                        const struct segment *segment, int rest)
{
    uint64_t touched = segment->reads | segment->writes;
    *spaces = (struct spaces){.s = s};
    for (int k = 0; k < SPACE_COUNT; k++) {
        if (!(touched >> k & 1))
            continue;
        spaces->bytes[k] = space_bytes(s, unit, segment, k);
        spaces->block[k] = aligned_alloc(64, (spaces->bytes[k] + 2 * GUARD + 63) / 64 * 64);
        spaces->base[k] = spaces->block[k] + GUARD;
        memset(spaces->block[k], PATTERN, spaces->bytes[k] + 2 * GUARD);
        if ((segment->reads >> k & 1 && k != SPACE_WORK) || k == SPACE_LOSS)
            fill(s, k, spaces->base[k], spaces->bytes[k]);
        else
            memset(spaces->base[k], rest, spaces->bytes[k]);
    }
}

static void spaces_free(struct spaces *spaces)
{
    for (int k = 0; k < SPACE_COUNT; k++)
        free(spaces->block[k]);
}

static void check_guards(const struct spaces *spaces)
{
    for (int k = 0; k < SPACE_COUNT; k++)
        for (size_t i = 0; spaces->block[k] && i < GUARD; i++)
            if (spaces->block[k][i] != PATTERN ||
                spaces->block[k][GUARD + spaces->bytes[k] + i] != PATTERN)
                fail_msg("a byte beside space %d was written", k);
}

static uint64_t hash_of(const struct spaces *spaces, uint64_t which)
{
    uint64_t hash = 0;
    for (int k = 0; k < SPACE_COUNT; k++)
        if (which >> k & 1)
            hash = hash_bytes_seeded(spaces->base[k], spaces->bytes[k], hash);
    return hash;
}

static void run(const struct segment *segment, int unit, struct spaces *spaces, uint64_t accumulate)
{
    struct error err = {0};
    const struct flat *flat[FLAT_USES];
    units_flats(spaces->s->units, unit, flat);
    if (segment_check_run(segment, flat, spaces->s->device, spaces->base, accumulate, &err))
        fail_msg("%s", err.text);
}

/* Which elements of the gradient of the use-th flat the segment writes: those of its sections, and
 * with the first one the padding; 1 each.  free() it. */
static char *written_elems(const struct session *s, int unit, const struct segment *segment,
                           int use)
{
    const struct flat *flat = &s->units->flat[s->units->use[unit].flat[use]];
    unsigned sections = segment_sections(segment, use, flat);
    char *written = calloc((size_t)flat->padded, 1);
    for (int t = 0; t < flat->tensors; t++)
        if (sections >> flat->tensor[t].section & 1)
            memset(written + flat->tensor[t].offset, 1, (size_t)flat->tensor[t].elems);
    for (int p = 0; p < flat->pads && sections & 1; p++)
        memset(written + flat->pad[p].start, 1, (size_t)flat->pad[p].count);
    return written;
}

/* Nothing of what a segment writes in a space differs. */
static int are_equal(const struct spaces *a, const struct spaces *b, int unit,
                     const struct segment *segment, int space)
{
    if (space < SPACE_GRAD || space >= SPACE_INPUT)
        return !memcmp(a->base[space], b->base[space], a->bytes[space]);
    char *written = written_elems(a->s, unit, segment, space - SPACE_GRAD);
    const float *one = a->base[space], *two = b->base[space];
    int equal = 1;
    for (size_t i = 0; i < a->bytes[space] / sizeof *one; i++)
        equal &= !written[i] || !memcmp(&one[i], &two[i], sizeof *one);
    free(written);
    return equal;
}

/* Each step has the scratch that its op asks the device for: verify, which knows no device, sees
 * only that nothing else lies there. */
static void check_scratch(const struct session *s, const struct segment *segment)
{
    for (int i = 0; i < segment->steps; i++) {
        const struct segment_step *step = &segment->step[i];
        const struct graph_node node = segment_step_node(segment, step);
        size_t bytes = node.op->scratch ? node.op->scratch(s->device, segment->graph, &node) : 0;
        assert_true(step->scratch_bytes >= bytes);
        assert_true(!bytes || step->scratch.space == SPACE_WORK);
    }
}

/* A tensor that is kept may leave a gap behind it, which nobody writes. */
static void check_segment(const struct session *s, int unit, const struct segment *segment)
{
    uint64_t gaps = space_bit(SPACE_WORK) | space_bit(SPACE_SAVED) | space_bit(SPACE_DEFERRED);
    uint64_t results = segment->writes & ~gaps;
    uint64_t inputs = segment->reads & ~segment->writes;
    struct spaces clean, poisoned;
    spaces_make(&clean, s, unit, segment, 0);
    spaces_make(&poisoned, s, unit, segment, 0xff);
    segment_check_lifetimes(s, segment);
    check_scratch(s, segment);
    uint64_t before = hash_of(&clean, inputs);
    run(segment, unit, &clean, 0);
    run(segment, unit, &poisoned, 0);
    check_guards(&clean);
    check_guards(&poisoned);
    assert_true(hash_of(&clean, inputs) == before);
    assert_true(hash_of(&poisoned, inputs) == before);
    for (int k = 0; k < SPACE_COUNT; k++)
        if (results >> k & 1 && !are_equal(&clean, &poisoned, unit, segment, k))
            fail_msg("unit %d %s: space %d depends on what it held before", unit,
                     segment_phase_name(segment->phase), k);
    spaces_free(&clean);
    spaces_free(&poisoned);
}

/* Written twice, and written then added to: the second gradient is twice the first. */
static void check_accumulation(const struct session *s, int unit, const struct segment *segment)
{
    uint64_t grads = segment->writes & (space_bit(SPACE_INPUT) - space_bit(SPACE_GRAD));
    struct spaces once, twice;
    spaces_make(&once, s, unit, segment, 0xff);
    spaces_make(&twice, s, unit, segment, 0xff);
    run(segment, unit, &once, 0);
    run(segment, unit, &twice, 0);
    run(segment, unit, &twice, 0);
    assert_true(hash_of(&once, grads) == hash_of(&twice, grads));
    run(segment, unit, &twice, ~UINT64_C(0));
    double most = 0, size = 0;
    for (int k = SPACE_GRAD; k < SPACE_INPUT; k++) {
        char *written = grads >> k & 1 ? written_elems(s, unit, segment, k - SPACE_GRAD) : NULL;
        for (size_t i = 0; written && i < once.bytes[k] / sizeof(float); i++) {
            double one = ((float *)once.base[k])[i], two = ((float *)twice.base[k])[i];
            double off = written[i] ? fabs(two - 2 * one) : 0;
            most = off <= most ? most : off;
            size = written[i] ? fmax(size, fabs(one)) : size;
        }
        free(written);
    }
    assert_true(most <= 1e-5 * size);
    spaces_free(&once);
    spaces_free(&twice);
}

static void check_units(const struct session *s)
{
    for (int u = 0; u < s->units->count; u++) {
        const struct unit_kind *kind = units_kind(s->units, u);
        check_segment(s, u, &kind->evaluation);
        for (int phase = 0; phase < PHASES; phase++) {
            check_segment(s, u, &kind->segment[phase]);
            check_accumulation(s, u, &kind->segment[phase]);
        }
    }
}

static const char *const models[] = {
    "model.hidden=1 model.heads=1 model.head_dim=2 model.ffn=1 model.vocab=2 data.seq_len=1",
    "model.hidden=7 model.heads=3 model.kv_heads=1 model.head_dim=2 model.ffn=5 model.vocab=11 "
    "data.seq_len=13 train.micro_batch=3 train.global_batch=3",
    "model.hidden=33 model.heads=3 model.head_dim=10 model.ffn=17 model.vocab=67 data.seq_len=23 "
    "model.tie_embeddings=true",
    /* so many words that the head's rows come in chunks: 64, 64 and 3 */
    "model.hidden=3 model.heads=1 model.head_dim=2 model.ffn=3 model.vocab=33000 data.seq_len=131 "
    "train.global_batch=1",
    /* positions that no sequence reaches, beside a table that the head shares */
    "model.family=gpt2 model.hidden=18 model.heads=3 model.ffn=23 model.vocab=67 data.seq_len=5 "
    "model.max_seq_len=9 model.tie_embeddings=true train.micro_batch=3 train.global_batch=3",
};

enum { MODELS = sizeof models / sizeof models[0] };

static void test_segments_keep_to_themselves(void **state)
{
    for (int level = 0; device_cpu_level(level); level++)
        for (int i = 0; i < 18 * MODELS; i++) {
            static const char *const recompute[] = {"none", "selective", "full"};
            static const char *const schedule[] = {"1f1b", "gpipe", "zb_h1"};
            char text[512];
            struct mem mem = {0};
            snprintf(text, sizeof text,
                     "model.layers=1 %s precision=%s recompute=%s parallel.schedule=%s",
                     models[i / 2 % MODELS], i % 2 ? "bf16" : "fp32",
                     recompute[i / (2 * MODELS) % 3], schedule[i / (6 * MODELS)]);
            struct config config = rig_config(text);
            struct session *s = rig_open(&mem, &config, device_cpu_level(level), 0);
            check_units(s);
            session_close(s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments_keep_to_themselves),
    };
    return cmocka_run_group_tests_name("segment", tests, NULL, NULL);
}
