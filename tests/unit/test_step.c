/* test_step.c - where things lie: ranges in a slab, tensors in a flat parameter, values in a
 * segment's spaces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/philox.h"
#include "segment/flat.h"
#include "program/memory.h"
#include "segment/place.h"
#include "program/ranges.h"
#include "tests/unit/rig.h"
#include "train/weights.h"

enum { STEPS = 40 };

static int below(uint64_t key, int index, int limit)
{
    return (int)(philox_u64(key, (uint64_t)index) % (uint64_t)limit);
}

static size_t aligned(size_t bytes)
{
    return (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

/* The most that is alive at any one time: no placement needs less. */
static size_t most_alive(const struct place *items, int count)
{
    size_t most = 0;
    for (int t = 0; t < STEPS; t++) {
        size_t bytes = 0;
        for (int i = 0; i < count; i++)
            if (items[i].first <= t && t <= items[i].last)
                bytes += aligned(items[i].bytes);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void check_placed(const struct place *items, int count, size_t bytes)
{
    for (int i = 0; i < count; i++) {
        const struct place *a = &items[i];
        assert_int_equal(a->offset % PLACE_ALIGN, 0);
        assert_true(a->offset + a->bytes <= bytes);
        for (int k = 0; k < i; k++) {
            const struct place *b = &items[k];
            int together = a->first <= b->last && b->first <= a->last;
            int apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            assert_true(!together || apart || !a->bytes || !b->bytes);
        }
    }
}

static void test_places(void **state)
{
    enum { CASES = 200, MOST = 60 };
    double waste = 0, cases = 0;
    for (int c = 0; c < CASES; c++) {
        struct place items[MOST] = {0}, again[MOST];
        uint64_t key = philox_key((uint64_t)c, "places");
        int count = below(key, 0, MOST + 1), lifetime = 1 + below(key, 1, STEPS);
        for (int i = 0; i < count; i++) {
            items[i].bytes = (size_t)below(key, 10 + 3 * i, c % 2 ? 5 : 5000);
            items[i].first = below(key, 11 + 3 * i, STEPS);
            items[i].last = items[i].first + below(key, 12 + 3 * i, lifetime);
            items[i].last = items[i].last < STEPS ? items[i].last : STEPS - 1;
        }
        memcpy(again, items, sizeof items);
        size_t bytes = place_items(items, count), alive = most_alive(items, count);
        check_placed(items, count, bytes);
        assert_true(bytes >= alive);
        assert_int_equal(place_items(again, count), bytes);
        assert_memory_equal(again, items, sizeof items);
        if (alive) {
            waste += (double)bytes / (double)alive;
            cases++;
        }
    }
    print_message("placed in %.3f times the most that is alive, on average\n", waste / cases);
    assert_true(waste / cases < 1.02);
}

/* Nothing lives together: one place serves all.  All live together: no place serves two. */
static void test_places_at_the_extremes(void **state)
{
    struct place items[7] = {0};
    size_t sum = 0;
    for (int i = 0; i < 7; i++)
        items[i] = (struct place){.bytes = (size_t)(100 * i + 1), .first = i, .last = i};
    assert_int_equal(place_items(items, 7), aligned(601));
    for (int i = 0; i < 7; i++) {
        items[i].first = 0;
        sum += aligned(items[i].bytes);
    }
    for (int i = 0; i < 7; i++)
        items[i].last = 6;
    assert_int_equal(place_items(items, 7), sum);
    assert_int_equal(place_items(items, 0), 0);
}

/* Work of a backward segment, in MiB: the 16 of steps 7 to 8 come after those of steps 7 to 13, and
 * find no gap below them beside the 32 of step 8.  Another order needs what lives at once. */
static void test_places_in_another_order(void **state)
{
    static const struct place work[] = {
        {.bytes = 16 << 20, .first = 0, .last = 1},   {.bytes = 32 << 20, .first = 1, .last = 2},
        {.bytes = 32 << 20, .first = 5, .last = 6},   {.bytes = 16 << 20, .first = 6, .last = 7},
        {.bytes = 16 << 20, .first = 7, .last = 8},   {.bytes = 16 << 20, .first = 7, .last = 13},
        {.bytes = 32 << 20, .first = 8, .last = 9},   {.bytes = 32 << 20, .first = 11, .last = 12},
        {.bytes = 16 << 20, .first = 12, .last = 13},
    };
    enum { COUNT = sizeof work / sizeof work[0] };
    struct place items[COUNT];
    memcpy(items, work, sizeof work);
    assert_int_equal(place_items(items, COUNT), 64 << 20);
    check_placed(items, COUNT, 64 << 20);
}

/* Whoever had a byte last is told when it is given away, and nobody else. */
static void test_ranges(void **state)
{
    enum { BYTES = 50, TURNS = 400 };
    for (int c = 0; c < 20; c++) {
        struct ranges *ranges = ranges_create();
        int owner[BYTES];
        uint64_t key = philox_key((uint64_t)c, "ranges");
        memset(owner, -1, sizeof owner);
        for (int i = 0; i < TURNS; i++) {
            int from = below(key, 2 * i, BYTES), bytes = below(key, 2 * i + 1, BYTES - from);
            const int *had;
            int count = ranges_give(ranges, (size_t)from, (size_t)bytes, i, &had), told = 0;
            for (int k = 0; k < count; k++)
                told += !k || had[k] != had[k - 1];
            for (int at = from; at < from + bytes; at++) {
                int known = owner[at] < 0;
                for (int k = 0; k < count; k++)
                    known |= had[k] == owner[at];
                assert_true(known);
                told -= owner[at] >= 0 && (at == from || owner[at] != owner[at - 1]);
            }
            assert_int_equal(told, 0);
            for (int at = from; at < from + bytes; at++)
                owner[at] = i;
        }
        ranges_destroy(ranges);
    }
}

/* Every element of the flat parameter belongs to exactly one tensor or one pad. */
static void check_flat(const struct flat *flat, int shards)
{
    char *owner = calloc((size_t)flat->padded, 1);
    int64_t elems = 0;
    for (int t = 0; t < flat->tensors; t++) {
        const struct flat_tensor *tensor = &flat->tensor[t];
        int64_t product = 1;
        for (int i = 0; i < tensor->box.dims; i++)
            product *= tensor->box.whole[i];
        assert_int_equal(product, tensor->elems);
        elems += product;
        for (int64_t i = 0; i < tensor->elems; i++)
            owner[tensor->offset + i]++;
    }
    for (int p = 0; p < flat->pads; p++)
        for (int64_t i = 0; i < flat->pad[p].count; i++)
            owner[flat->pad[p].start + i]++;
    for (int64_t i = 0; i < flat->padded; i++)
        assert_int_equal(owner[i], 1);
    free(owner);
    assert_int_equal(elems, flat->elems);
    assert_int_equal(flat->padded, flat->shard_elems * shards);
    assert_int_equal(flat->shard_elems % FLAT_ALIGN, 0);
    assert_true(flat->padded - elems < (int64_t)FLAT_ALIGN * (shards + flat->tensors));
}

static void test_flat_parameters(void **state)
{
    static const int64_t sizes[][4] = {
        {1, 1, 1, 2}, {3, 1, 5, 2}, {7, 2, 3, 6}, {31, 3, 33, 2}, {32, 2, 64, 16}};
    struct error err = {0};
    for (int i = 0; i < 5; i++)
        for (int shards = 1; shards <= 7; shards++)
            for (int tied = 0; tied < 2; tied++) {
                struct config_model config = {.family = "llama",
                                              .layers = 1,
                                              .hidden = sizes[i][0],
                                              .heads = sizes[i][1],
                                              .kv_heads = 1,
                                              .head_dim = sizes[i][3],
                                              .ffn = sizes[i][2],
                                              .vocab = 11,
                                              .tie_embeddings = tied};
                struct model *model;
                int64_t elems = 0;
                assert_int_equal(model_create(&model, &config, &err), 0);
                for (int u = 0; u < model->units; u++) {
                    struct flat flat;
                    const struct model_graph form = {
                        .batch = 1, .seq = {3, 3}, .dtype = DTYPE_F32, .loss_factor = 1};
                    struct graph *graph = model_unit_graph(model, u, &form, &err);
                    assert_non_null(graph);
                    flat_create(&flat, "unit", u, graph, &model->unit[u], NULL, shards, 1);
                    check_flat(&flat, shards);
                    elems += flat.elems;
                    flat_destroy(&flat);
                    graph_destroy(graph);
                }
                assert_int_equal(elems, model_params(model));
                model_destroy(model);
            }
}

/* Parameters stacked for one product lie directly behind one another. */
static void test_stacked_tensors(void **state)
{
    struct mem mem = {0};
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=3");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    static const char *const stacks[][4] = {
        {"layers.1.attn.q", "layers.1.attn.k", "layers.1.attn.v"},
        {"layers.0.mlp.gate", "layers.0.mlp.up"}};
    for (int i = 0; i < 2; i++)
        for (int k = 1; stacks[i][k]; k++) {
            int flat;
            const struct flat_tensor *before = rig_tensor(s, stacks[i][k - 1], &flat);
            const struct flat_tensor *next = rig_tensor(s, stacks[i][k], &flat);
            assert_int_equal(before->offset + before->elems, next->offset);
        }
    session_close(s);
    assert_int_equal(mem.blocks, 0);
}

static int load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct session *s = user;
    int32_t *tokens = batch->tokens[0], *targets = batch->targets;
    int64_t rows = s->layout.micro_batch * s->config.data.seq_len;
    for (int64_t i = 0; i < rows; i++) {
        uint64_t index = (uint64_t)(batch->micro * rows + i);
        tokens[i] = (int32_t)(philox_u64(5, index) % (uint64_t)s->config.model.vocab);
        targets[i] = (int32_t)(philox_u64(6, index) % (uint64_t)s->config.model.vocab);
        targets[i] = i % 5 ? targets[i] : -1;
    }
    return 0;
}

/* Fill what a step may not read with NaN, or with zeros. */
static void fill_passing(struct session *s, int poison)
{
    const struct program *program = s->train;
    for (int pool = 0; pool < POOL_COUNT; pool++)
        for (int b = 0; b < program->buffers; b++) {
            const struct program_buffer *buffer = &program->buffer[b];
            int passing = !buffer->persistent || b == program->state->work ||
                          b == program->state->sums || buffer->pool == POOL_GRADS;
            if (buffer->pool == (enum mem_pool)pool && passing)
                memset(executor_buffer(s->executor, &program->buffer[b]), poison ? 0xff : 0,
                       buffer->bytes);
        }
}

static uint64_t hash_grads(const struct session *s)
{
    uint64_t hash = 0;
    for (int u = 0; u < s->units->count; u++)
        hash = hash_bytes_seeded(rig_state(s, u, RIG_GRAD),
                                 (size_t)s->units->flat[u].padded * sizeof(float), hash);
    return hash;
}

/* One step from the same state: a hash of its loss, norm, gradients and new state. */
static uint64_t step_hash(struct session *s, int poison)
{
    struct error err = {0};
    struct step_input input = rig_input(s, 1);
    struct step_output output;
    input.load = load;
    input.user = s;
    rig_init(s);
    fill_passing(s, poison);
    if (executor_run_step(s->executor, s->train, &input, &output, NULL, &err))
        fail_msg("%s", err.text);
    assert_true(isfinite(output.grad_norm)); /* the smallest has no target, and so no loss */
    assert_true(output.targets > 0 ? isfinite(output.loss) : isnan(output.loss));
    assert_false(output.skipped);
    uint64_t all[] = {hash_grads(s), rig_hash(s)};
    uint64_t hash = hash_bytes(all, sizeof all);
    hash = hash_bytes_seeded(&output.loss, sizeof output.loss, hash);
    return hash_bytes_seeded(&output.grad_norm, sizeof output.grad_norm, hash);
}

/* What a step reads it has written before: with NaN everywhere else it gives the same bits, on
 * sizes that leave padding, in all types, whether gradients are written or added to. */
static void test_no_garbage_is_read(void **state)
{
    static const char *const models[] = {
        "model.layers=1 model.hidden=7 model.heads=1 model.head_dim=2 model.ffn=3 model.vocab=5 "
        "data.seq_len=1 train.global_batch=1",
        "model.layers=3 model.hidden=36 model.heads=6 model.kv_heads=2 model.ffn=61 "
        "model.vocab=101 data.seq_len=37 train.global_batch=3",
        "model.layers=2 model.hidden=33 model.heads=3 model.kv_heads=3 model.head_dim=10 "
        "model.ffn=17 model.vocab=67 data.seq_len=23 train.global_batch=4 train.micro_batch=2 "
        "model.tie_embeddings=true",
    };
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    for (int level = 0; device_cpu_level(level); level++)
        for (int i = 0; i < 9; i++) {
            struct mem mem = {0};
            char text[512];
            snprintf(text, sizeof text, "%s precision=%s", models[i / 3], precisions[i % 3]);
            struct config config = rig_config(text);
            struct session *s = rig_open(&mem, &config, device_cpu_level(level), 0);
            uint64_t clean = step_hash(s, 0), poisoned = step_hash(s, 1);
            assert_true(clean == poisoned);
            assert_true(clean == step_hash(s, 0));
            session_close(s);
            assert_int_equal(mem.blocks, 0);
        }
}

static int load_masked(void *user, const struct step_batch *batch, struct error *err)
{
    struct session *s = user;
    int rc = load(user, batch, err);
    for (int64_t i = 0; i < s->layout.micro_batch * s->config.data.seq_len; i++)
        batch->targets[i] = -1;
    return rc;
}

/* Where nothing is to be told, nothing was: not a loss of 0. */
static void test_without_targets_there_is_no_loss(void **state)
{
    struct error err = {0};
    struct mem mem = {0};
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=23 "
                                      "train.global_batch=3 train.micro_batch=1");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    struct step_input input = rig_input(s, 1);
    struct step_output output;
    input.load = load_masked;
    input.user = s;
    rig_init(s);
    assert_int_equal(executor_run_step(s->executor, s->train, &input, &output, NULL, &err), 0);
    assert_true(isnan(output.loss) && output.targets == 0 && output.grad_norm == 0);
    assert_false(output.skipped);
    session_close(s);
}

/* The parts of a step are there, and together no longer than the step. */
static void test_time_of_a_step_is_divided(void **state)
{
    struct error err = {0};
    struct mem mem = {0};
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=23 "
                                      "train.global_batch=3 train.micro_batch=1");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    struct breakdown parts = {0};
    struct step_output output;
    for (int64_t step = 1; step <= 3; step++) {
        struct step_input input = rig_input(s, step);
        double sum = 0;
        input.load = load;
        input.user = s;
        input.breakdown = &parts;
        int64_t begin_ns = clock_ns();
        assert_int_equal(executor_run_step(s->executor, s->train, &input, &output, NULL, &err), 0);
        double all_ms = (double)(clock_ns() - begin_ns) / 1e6;
        for (int kind = 0; kind < BREAKDOWN_KINDS; kind++)
            sum += parts.ms[kind];
        assert_true(sum <= all_ms * (1 + 1e-9) && sum > 0);
        assert_true(parts.ms[BREAKDOWN_DATA] > 0 && parts.ms[BREAKDOWN_FORWARD] > 0);
        assert_true(parts.ms[BREAKDOWN_BACKWARD] > 0 && parts.ms[BREAKDOWN_UPDATE] > 0);
    }
    breakdown_free(&parts);
    session_close(s);
}

/* A loss times a power of two has gradients times that, to the bit, and the update takes it out
 * again; where it is too large for fp32, nothing is updated. */
static void test_loss_scale_is_taken_out(void **state)
{
    struct error err = {0};
    struct mem mem = {0};
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=23 train.clip=0.5 "
                                      "train.global_batch=3 train.micro_batch=1");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    const double scales[] = {0, 1, 0x1p16, 0x1p-9, 0x1p140};
    uint64_t hash[5], before;
    double norm[5], loss[5];
    for (int i = 0; i < 5; i++) {
        struct step_input input = rig_input(s, 1);
        struct step_output output;
        input.load = load;
        input.user = s;
        input.loss_scale = scales[i];
        rig_init(s);
        before = rig_hash(s);
        assert_int_equal(executor_run_step(s->executor, s->train, &input, &output, NULL, &err), 0);
        hash[i] = rig_hash(s);
        norm[i] = output.grad_norm;
        loss[i] = output.loss;
        assert_int_equal(output.skipped, i == 4);
    }
    for (int i = 1; i < 4; i++) {
        assert_true(hash[i] == hash[0] && loss[i] == loss[0]);
        assert_true(fabs(norm[i] / norm[0] - 1) < 1e-14);
    }
    assert_true(norm[0] > 0.5 && hash[0] != before);
    assert_true(hash[4] == before && loss[4] == loss[0]);
    session_close(s);
}

/* Every element of the padding is zero after a step: in gradients, moments and parameters. */
static void test_padding_stays_zero(void **state)
{
    struct mem mem = {0};
    struct config config =
        rig_config("model.layers=2 model.hidden=33 model.heads=3 model.head_dim=10 model.ffn=17 "
                   "model.vocab=67 data.seq_len=23 train.global_batch=2 model.tie_embeddings=true");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    int64_t seen = 0;
    step_hash(s, 1);
    for (int u = 0; u < s->units->count; u++)
        for (int p = 0; p < s->units->flat[u].pads; p++) {
            struct flat_range pad = s->units->flat[u].pad[p];
            for (int64_t i = pad.start; i < pad.start + pad.count; i++, seen++)
                for (enum rig_state which = RIG_MASTER; which <= RIG_SECOND; which++)
                    assert_true(rig_state(s, u, which)[i] == 0);
        }
    assert_true(seen > 0);
    session_close(s);
}

/* A program says to the byte what is allocated for it, and all is given back. */
static void test_memory_is_what_was_planned(void **state)
{
    struct mem mem = {0};
    struct config config =
        rig_config("model.layers=2 model.hidden=33 model.heads=3 model.head_dim=10 model.ffn=17 "
                   "model.vocab=67 data.seq_len=23 train.global_batch=3 train.micro_batch=1");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        assert_int_equal(mem.now_bytes[pool], s->train->pool_bytes[pool]);
    session_close(s);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        assert_int_equal(mem.now_bytes[pool], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_places_at_the_extremes),
        cmocka_unit_test(test_places_in_another_order),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_flat_parameters),
        cmocka_unit_test(test_stacked_tensors),
        cmocka_unit_test(test_no_garbage_is_read),
        cmocka_unit_test(test_without_targets_there_is_no_loss),
        cmocka_unit_test(test_time_of_a_step_is_divided),
        cmocka_unit_test(test_loss_scale_is_taken_out),
        cmocka_unit_test(test_padding_stays_zero),
        cmocka_unit_test(test_memory_is_what_was_planned),
    };
    return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
