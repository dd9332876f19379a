/* test_segment.c - a segment by itself: it reads what it declares to read, writes what it declares
 * to write, all of it, and not a byte beside. */
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
#include "tests/unit/rig.h"

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
    int shared = units_shared(units, unit);
    size_t size = dtype_bytes(units->request.dtype);
    size_t rows = (size_t)(units->request.batch * units->request.seq);
    switch (space) {
    case SPACE_PARAM: return (size_t)units->flat[unit].padded * size;
    case SPACE_GRAD: return (size_t)units->flat[unit].padded * sizeof(float);
    case SPACE_SHARED: return shared < 0 ? 0 : (size_t)units->flat[shared].padded * size;
    case SPACE_SHARED_GRAD:
        return shared < 0 ? 0 : (size_t)units->flat[shared].padded * sizeof(float);
    case SPACE_SAVED: return units_kind(units, unit)->forward.saved_bytes;
    case SPACE_TOKENS:
    case SPACE_TARGETS: return rows * sizeof(int32_t);
    case SPACE_CONST: return (size_t)(units->request.seq * s->model->const_width) * sizeof(float);
    case SPACE_LOSS: return 2 * sizeof(double);
    case SPACE_WORK: return segment->work_bytes;
    default: return units->boundary_bytes;
    }
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
    if (space == SPACE_LOSS || space == SPACE_GRAD || space == SPACE_SHARED_GRAD) {
        memset(data, 0, bytes);
        return;
    }
    if (space == SPACE_CONST || size == sizeof(float)) {
        philox_fill_normal(data, key, 0, (int64_t)(bytes / sizeof(float)), 0, 0.3f);
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
    unsigned touched = segment->reads | segment->writes;
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

static uint64_t hash_of(const struct spaces *spaces, unsigned which)
{
    uint64_t hash = 0;
    for (int k = 0; k < SPACE_COUNT; k++)
        if (which >> k & 1)
            hash = hash_bytes_seeded(spaces->base[k], spaces->bytes[k], hash);
    return hash;
}

static void run(const struct segment *segment, struct spaces *spaces, unsigned accumulate)
{
    struct error err = {0};
    if (segment_run(segment, spaces->s->device, spaces->base, accumulate, NULL, &err))
        fail_msg("%s", err.text);
}

/* A saved tensor may leave a gap behind it in SAVED, which nobody writes. */
static void check_segment(const struct session *s, int unit, const struct segment *segment)
{
    unsigned results = segment->writes & ~(1u << SPACE_WORK | 1u << SPACE_SAVED);
    unsigned inputs = segment->reads & ~segment->writes;
    struct spaces clean, poisoned;
    spaces_make(&clean, s, unit, segment, 0);
    spaces_make(&poisoned, s, unit, segment, 0xff);
    uint64_t before = hash_of(&clean, inputs);
    run(segment, &clean, 0);
    run(segment, &poisoned, 0);
    check_guards(&clean);
    check_guards(&poisoned);
    assert_true(hash_of(&clean, inputs) == before);
    assert_true(hash_of(&poisoned, inputs) == before);
    for (int k = 0; k < SPACE_COUNT; k++)
        if (results >> k & 1 && memcmp(clean.base[k], poisoned.base[k], clean.bytes[k]))
            fail_msg("unit %d %s: space %d depends on what it held before", unit,
                     segment_phase_name(segment->phase), k);
    spaces_free(&clean);
    spaces_free(&poisoned);
}

/* Written twice, and written then added to: the second gradient is twice the first. */
static void check_accumulation(const struct session *s, int unit, const struct segment *segment)
{
    unsigned grads = segment->writes & (1u << SPACE_GRAD | 1u << SPACE_SHARED_GRAD);
    struct spaces once, twice;
    spaces_make(&once, s, unit, segment, 0xff);
    spaces_make(&twice, s, unit, segment, 0xff);
    run(segment, &once, 0);
    run(segment, &twice, 0);
    run(segment, &twice, 0);
    assert_true(hash_of(&once, grads) == hash_of(&twice, grads));
    run(segment, &twice, grads);
    double most = 0, size = 0;
    for (int k = SPACE_GRAD; k <= SPACE_SHARED_GRAD; k++)
        for (size_t i = 0; grads >> k & 1 && i < once.bytes[k] / sizeof(float); i++) {
            double one = ((float *)once.base[k])[i], two = ((float *)twice.base[k])[i];
            double off = fabs(two - 2 * one);
            most = off <= most ? most : off;
            size = fmax(size, fabs(one));
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
        if (kind->ends_in_loss) {
            check_segment(s, u, &kind->both);
            check_accumulation(s, u, &kind->both);
            continue;
        }
        check_segment(s, u, &kind->forward);
        check_segment(s, u, &kind->backward);
        check_accumulation(s, u, &kind->backward);
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
};

static void test_segments_keep_to_themselves(void **state)
{
    const char *const *levels = device_cpu_levels();
    for (int level = 0; levels[level]; level++)
        for (int i = 0; i < 8; i++) {
            char text[512];
            struct mem mem = {0};
            snprintf(text, sizeof text, "model.layers=1 %s precision=%s", models[i / 2],
                     i % 2 ? "bf16" : "fp32");
            struct config config = rig_config(text);
            struct session *s = rig_open(&mem, &config, levels[level], 0);
            check_units(s);
            session_close(s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_segments_keep_to_themselves)};
    return cmocka_run_group_tests_name("segment", tests, NULL, NULL);
}
