/* test_wrap.c - which layers form a unit, and which units recompute, changes memory and transfers,
 * and no bit of the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "verify/verify.h"
#include "tests/unit/rig.h"
#include "train/weights.h"

/* Without clipping: the norm is summed unit by unit in double precision. */
#define MODEL                                                                          \
    "model.layers=5 model.hidden=36 model.heads=6 model.kv_heads=2 model.ffn=61 "      \
    "model.vocab=101 data.seq_len=17 train.global_batch=4 train.lr=3e-3 train.clip=0 " \
    "train.steps=6 "

static const char *const settings[] = {
    MODEL "precision=fp32",
    MODEL "precision=fp32 model.tie_embeddings=true train.micro_batch=3 recompute=selective",
    MODEL "precision=bf16 train.micro_batch=1 recompute=full",
    MODEL "precision=fp32 model.family=gpt2 model.kv_heads=6 model.tie_embeddings=true",
};

enum { SETTINGS = sizeof settings / sizeof settings[0], STEPS = 4 };

static struct config config_of(const char *text, const char *more)
{
    char all[1024];
    snprintf(all, sizeof all, "%s %s", text, more);
    return rig_config(all);
}

static int load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct session *s = user;
    int32_t *tokens = batch->tokens[0], *targets = batch->targets;
    int64_t rows = s->layout.micro_batch * s->config.data.seq_len;
    for (int64_t i = 0; i < rows; i++) {
        tokens[i] = (int32_t)(philox_u64(5, (uint64_t)(batch->micro * rows + i)) % 101);
        targets[i] = i % 7 ? (tokens[i] * 3 + 1) % 101 : -1;
    }
    return 0;
}

/* What steps came to: losses, and all tensors of the model in the order of their names. */
struct outcome {
    double loss[STEPS];
    int tensors;
    uint64_t hash;
};

static struct outcome train(const char *text, const char *more)
{
    struct mem mem = {0};
    struct error err = {0};
    struct outcome outcome = {0};
    struct config config = config_of(text, more);
    struct session *s = rig_open(&mem, &config, NULL, 0);
    rig_init(s);
    for (int step = 1; step <= STEPS; step++) {
        struct step_input input = rig_input(s, step);
        struct step_output output;
        input.load = load;
        input.user = s;
        if (executor_run_step(s->executor, s->train, &input, &output, NULL, &err))
            fail_msg("%s", err.text);
        outcome.loss[step - 1] = output.loss;
    }
    for (int u = 0; u < s->units->count; u++)
        for (int t = 0; t < s->units->flat[u].tensors; t++, outcome.tensors++) {
            const struct flat_tensor *tensor = &s->units->flat[u].tensor[t];
            uint64_t key = philox_key(0, tensor->name);
            const float *at = rig_state(s, u, RIG_MASTER) + tensor->offset;
            for (int64_t i = 0; i < tensor->elems; i++) {
                uint32_t bits;
                memcpy(&bits, at + i, sizeof bits);
                outcome.hash += philox_u64(key, (uint64_t)i << 32 ^ bits);
            }
        }
    session_close(s);
    assert_int_equal(mem.blocks, 0);
    return outcome;
}

static void test_same_bits(void **state)
{
    static const char *const wraps[] = {
        "parallel.wrap=layers parallel.layers_per_unit=1",
        "parallel.wrap=layers parallel.layers_per_unit=2",
        "parallel.wrap=layers parallel.layers_per_unit=7",
        "parallel.wrap=none",
        "parallel.wrap=SIZE_BASED_WRAP parallel.min_num_params=30000",
    };
    for (int i = 0; i < SETTINGS; i++) {
        struct outcome blocks = train(settings[i], "");
        assert_true(isfinite(blocks.loss[0]) && blocks.loss[0] != blocks.loss[STEPS - 1]);
        for (size_t w = 0; w < sizeof wraps / sizeof wraps[0]; w++) {
            struct outcome wrapped = train(settings[i], wraps[w]);
            assert_memory_equal(&wrapped, &blocks, sizeof blocks);
        }
    }
}

/* Some units recompute, and some do not. */
static void test_same_bits_of_some(void **state)
{
    static const char *const some[] = {
        "recompute=full recompute_every=2", "recompute=selective recompute_every=3",
        "recompute=full recompute_every=2 parallel.wrap=layers parallel.layers_per_unit=2"};
    for (int i = 0; i < SETTINGS; i++) {
        struct outcome kept = train(settings[i], "recompute=none");
        for (int k = 0; k < 3; k++) {
            struct outcome again = train(settings[i], some[k]);
            assert_memory_equal(&again, &kept, sizeof kept);
        }
    }
}

/* Blocks of each unit between embedding and head, and its name. */
struct wrapping {
    const char *setting;
    int blocks[6];
    const char *name[6];
};

static void test_units(void **state)
{
    static const struct wrapping wrappings[] = {
        {"", {1, 1, 1, 1, 1}, {"layers.0.", "layers.1.", "layers.2.", "layers.3.", "layers.4."}},
        {"parallel.wrap=layers parallel.layers_per_unit=2",
         {2, 2, 1},
         {"layers.0-1.", "layers.2-3.", "layers.4."}},
        {"parallel.wrap=layers parallel.layers_per_unit=4", {4, 1}, {"layers.0-3.", "layers.4."}},
        {"parallel.wrap=layers parallel.layers_per_unit=99", {5}, {"layers.0-4."}},
        {"parallel.wrap=NO_WRAP", {5}, {"layers.0-4."}},
        /* 36 * 60 + 36 * 36 + 3 * 36 * 61 + 2 * 36 = 10116 */
        {"parallel.wrap=size parallel.min_num_params=10116", {1, 1, 1, 1, 1}, {"layers.0."}},
        {"parallel.wrap=size parallel.min_num_params=10117", {2, 2, 1}, {"layers.0-1."}},
        {"parallel.wrap=size parallel.min_num_params=20233",
         {3, 2},
         {"layers.0-2.", "layers.3-4."}},
    };
    for (size_t w = 0; w < sizeof wrappings / sizeof wrappings[0]; w++) {
        struct fleet fleet;
        struct config config = config_of(MODEL "model.tie_embeddings=true", wrappings[w].setting);
        int units = 0;
        fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
        const struct model *model = fleet.model;
        for (; units < 6 && wrappings[w].blocks[units]; units++) {
            const struct model_unit *unit = &model->unit[1 + units];
            assert_int_equal(unit->blocks, wrappings[w].blocks[units]);
            assert_int_equal(model_unit_params(model, 1 + units), 10116 * unit->blocks);
            assert_int_equal(fleet.units->flat[1 + units].elems, 10116 * unit->blocks);
            if (wrappings[w].name[units])
                assert_string_equal(unit->prefix, wrappings[w].name[units]);
        }
        assert_int_equal(model->units, units + 2);
        assert_int_equal(model->unit[units + 1].lender, 0);
        assert_int_equal(model_params(model), 5 * 10116 + 101 * 36 + 36);
        fleet_close(&fleet);
    }
}

/* A kind per number of blocks and policy is compiled, whatever the number of layers. */
static void test_kinds(void **state)
{
    static const struct {
        const char *setting;
        int kinds;
    } rows[] = {
        {"", 3},
        {"recompute=full", 3},
        {"recompute=full recompute_every=2", 4},
        {"parallel.wrap=layers parallel.layers_per_unit=2", 4},
        {"parallel.wrap=layers parallel.layers_per_unit=2 recompute=full recompute_every=2", 5},
        {"parallel.wrap=layers parallel.layers_per_unit=5 recompute=full recompute_every=2", 3},
    };
    for (int i = 0; i < 6; i++) {
        struct fleet fleet;
        struct config config = config_of(MODEL, rows[i].setting);
        fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
        assert_int_equal(fleet.units->kinds, rows[i].kinds);
        fleet_close(&fleet);
    }
}

/* Every n-th unit recomputes, from the first: its bytes are not kept and its work is done twice. */
static void test_every_nth(void **state)
{
    for (int every = 1; every <= 6; every++) {
        struct fleet fleet, none;
        char text[64];
        snprintf(text, sizeof text, "recompute=full recompute_every=%d", every);
        struct config config = config_of(MODEL, text), kept = config_of(MODEL, "");
        fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
        fleet_open(&none, &kept, 1, PROGRAM_TRAIN);
        const struct segment *all = &units_kind(none.units, 1)->segment[PHASE_BACKWARD];
        size_t saved = 0;
        for (int u = 1; u <= 5; u++) {
            const struct unit_kind *kind = units_kind(fleet.units, u);
            int recomputes = (u - 1) % every == 0;
            assert_int_equal(kind->segment[PHASE_FORWARD].saved_bytes,
                             recomputes ? 0 : all->saved_bytes);
            assert_int_equal(kind->segment[PHASE_BACKWARD].saved_bytes,
                             recomputes ? 0 : all->saved_bytes);
            double flops = rig_flops(&kind->segment[PHASE_BACKWARD]), once = rig_flops(all);
            assert_true(recomputes ? flops > 1.3 * once : flops == once);
            saved += kind->segment[PHASE_FORWARD].saved_bytes;
        }
        assert_int_equal(saved, all->saved_bytes * (size_t)(5 - (5 + every - 1) / every));
        size_t some = fleet.program[0]->pool_bytes[POOL_ACTIVATIONS];
        size_t most = none.program[0]->pool_bytes[POOL_ACTIVATIONS];
        assert_true(some < most && some + (5 * all->saved_bytes - saved) >= most);
        fleet_close(&fleet);
        fleet_close(&none);
    }
}

/* Programs of all strategies pass verification; larger units are fewer transfers of as much. */
static void test_programs(void **state)
{
    static const char *const strategies[] = {
        "parallel.strategy=NO_SHARD parallel.reduce_bucket_bytes=0",
        "parallel.strategy=SHARD_OPTIM",
        "parallel.strategy=SHARD_GRAD_OP train.micro_batch=1",
        "parallel.strategy=FULL_SHARD",
        "parallel.strategy=HYBRID_SHARD parallel.shard=2 train.micro_batch=1",
    };
    for (int i = 0; i < 5; i++) {
        int transfers[2] = {0};
        for (int wrapped = 0; wrapped < 2; wrapped++) {
            struct error err = {0};
            struct fleet fleet;
            char more[256];
            snprintf(more, sizeof more, "%s recompute=full recompute_every=2 %s", strategies[i],
                     wrapped ? "parallel.wrap=layers parallel.layers_per_unit=3" : "");
            struct config config = config_of(MODEL, more);
            fleet_open(&fleet, &config, 4, PROGRAM_TRAIN);
            for (int r = 0; r < 4; r++)
                if (verify_program(fleet.program[r], &err))
                    fail_msg("%s", err.text);
            if (verify_ranks((const struct program *const *)fleet.program, 4, &err))
                fail_msg("%s", err.text);
            for (int k = 0; k < fleet.program[0]->instrs; k++)
                transfers[wrapped] += fleet.program[0]->instr[k].axes != 0;
            fleet_close(&fleet);
        }
        assert_true(transfers[1] < transfers[0]);
    }
}

static int transfers_of(const struct program *program, enum instr_kind kind, int flat,
                        unsigned axes)
{
    int count = 0;
    for (int i = 0; i < program->instrs; i++)
        count += program->instr[i].kind == kind && program->instr[i].flat == flat &&
                 program->instr[i].axes == axes;
    return count;
}

/* Small units take one sum over all ranks a step, and no other transfer; their state is whole. */
static void test_small_units(void **state)
{
    static const char *const strategies[] = {
        "parallel.strategy=SHARD_OPTIM",
        "parallel.strategy=SHARD_GRAD_OP train.micro_batch=1",
        "parallel.strategy=FULL_SHARD train.micro_batch=1",
        "parallel.strategy=HYBRID_SHARD parallel.shard=2 parallel.accumulate=local",
    };
    static const int64_t below[] = {36, 37, 3637, 99999}; /* none, norm, embedding, all */
    for (int i = 0; i < 16; i++) {
        struct error err = {0};
        struct fleet fleet;
        char more[256];
        snprintf(more, sizeof more,
                 "%s train.global_batch=8 model.tie_embeddings=true "
                 "parallel.persist_below=%d",
                 strategies[i % 4], (int)below[i / 4]);
        struct config config = config_of(MODEL, more);
        fleet_open(&fleet, &config, 4, PROGRAM_TRAIN);
        for (int r = 0; r < 4; r++)
            if (verify_program(fleet.program[r], &err))
                fail_msg("%s", err.text);
        if (verify_ranks((const struct program *const *)fleet.program, 4, &err))
            fail_msg("%s", err.text);
        for (int u = 0; u < fleet.units->count; u++) {
            const struct program *program = fleet.program[1];
            const struct flat *flat = &fleet.units->flat[u];
            int whole = flat->elems < below[i / 4];
            assert_int_equal(flat_is_sharded(flat), !whole);
            assert_int_equal(transfers_of(program, INSTR_GATHER, u, 1u << MESH_SHARD) == 0, whole);
            assert_int_equal(transfers_of(program, INSTR_REDUCE, u, 1u << MESH_SHARD) == 0, whole);
            assert_int_equal(transfers_of(program, INSTR_ALLREDUCE, u, MESH_DATA), whole);
            assert_int_equal(program->buffer[program->state->flat[u].master].bytes,
                             (size_t)(whole ? flat->padded : flat->shard_elems) * 4);
        }
        fleet_close(&fleet);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),   cmocka_unit_test(test_same_bits_of_some),
        cmocka_unit_test(test_units),       cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_every_nth),   cmocka_unit_test(test_programs),
        cmocka_unit_test(test_small_units),
    };
    return cmocka_run_group_tests_name("wrap", tests, NULL, NULL);
}
