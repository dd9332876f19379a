/* test_recompute.c - computing activations again changes memory and work, and not one bit of the
 * numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "graph/op.h"
#include "segment/place.h"
#include "verify/verify.h"
#include "tests/unit/rig.h"
#include "train/weights.h"

enum { POLICIES = 3, STEPS = 6 };

static const enum config_recompute policies[POLICIES] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE,
                                                         RECOMPUTE_FULL};

#define MODEL                                                                                  \
    "model.layers=3 model.hidden=36 model.heads=6 model.kv_heads=2 model.ffn=61 "              \
    "model.vocab=101 data.seq_len=37 train.global_batch=5 train.lr=3e-3 train.warmup_steps=2 " \
    "train.steps=6 "

static const char *const settings[] = {
    MODEL "precision=fp32",
    MODEL "precision=bf16",
    MODEL "precision=fp32 model.tie_embeddings=true train.micro_batch=2",
    MODEL "precision=bf16 model.tie_embeddings=true train.micro_batch=1",
    MODEL "precision=bf16 model.family=gpt2 model.kv_heads=6 model.tie_embeddings=true "
          "train.micro_batch=2",
    "model.layers=1 model.hidden=7 model.heads=1 model.head_dim=2 model.ffn=3 model.vocab=5 "
    "data.seq_len=1 train.global_batch=1",
};

enum { SETTINGS = sizeof settings / sizeof settings[0] };

static struct session *open_session(struct mem *mem, const char *text,
                                    enum config_recompute recompute)
{
    struct config config = rig_config(text);
    config.recompute = recompute;
    return rig_open(mem, &config, NULL, 0);
}

static int load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct session *s = user;
    int32_t *tokens = batch->tokens[0], *targets = batch->targets;
    int64_t rows = s->layout.micro_batch * s->config.data.seq_len;
    for (int64_t i = 0; i < rows; i++) {
        uint64_t index = (uint64_t)(batch->micro * rows + i);
        tokens[i] = (int32_t)(philox_u64(5, index) % (uint64_t)s->config.model.vocab);
        targets[i] = i % 5 ? (tokens[i] + 1) % (int32_t)s->config.model.vocab : -1;
        targets[i] = rows == 1 ? 0 : targets[i];
    }
    return 0;
}

/* What steps came to. */
struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t state;
};

/* Memory that a step may not read is NaN in the first. */
static struct outcome train(const char *text, enum config_recompute recompute)
{
    struct mem mem = {0};
    struct error err = {0};
    struct outcome outcome = {0};
    struct session *s = open_session(&mem, text, recompute);
    for (int b = 0; b < s->train->buffers; b++)
        if (s->train->buffer[b].pool == POOL_ACTIVATIONS || b == s->train->state->work)
            memset(executor_buffer(s->executor, &s->train->buffer[b]), 0xff,
                   s->train->buffer[b].bytes);
    rig_init(s);
    for (int step = 1; step <= STEPS; step++) {
        struct step_input input = rig_input(s, step);
        struct step_output output;
        input.load = load;
        input.user = s;
        if (executor_run_step(s->executor, s->train, &input, &output, NULL, &err))
            fail_msg("%s", err.text);
        assert_true(isfinite(output.loss) && !output.skipped);
        outcome.loss[step - 1] = output.loss;
        outcome.norm[step - 1] = output.grad_norm;
    }
    outcome.state = rig_hash(s);
    session_close(s);
    assert_int_equal(mem.blocks, 0);
    return outcome;
}

static void test_same_bits(void **state)
{
    for (int i = 0; i < SETTINGS; i++) {
        struct outcome kept = train(settings[i], RECOMPUTE_NONE);
        assert_true(kept.loss[0] != kept.loss[STEPS - 1]);
        for (int p = 1; p < POLICIES; p++) {
            struct outcome again = train(settings[i], policies[p]);
            assert_memory_equal(&again, &kept, sizeof kept);
        }
    }
}

static size_t aligned(int64_t elems, size_t size)
{
    return ((size_t)elems * size + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

/* Full keeps nothing; selective the results of attention (its rows, and of each row and head the
 * logarithm of the sum) and of the three products that backward reads from. */
static void test_what_is_kept(void **state)
{
    for (int i = 0; i < SETTINGS; i++)
        for (int p = 0; p < POLICIES; p++) {
            struct mem mem = {0};
            struct session *s = open_session(&mem, settings[i], policies[p]);
            const struct config_model *m = &s->config.model;
            int64_t rows = s->units->request.batch * s->units->request.seq[0];
            size_t size = dtype_bytes(s->units->request.dtype);
            int64_t into_ffn = strcmp(m->family, "gpt2") ? 2 * m->ffn : m->ffn;
            size_t products = aligned(rows * (m->heads + 2 * m->kv_heads) * m->head_dim, size) +
                              aligned(rows * m->hidden, size) + aligned(rows * into_ffn, size);
            size_t attention = aligned(rows * m->heads * m->head_dim, size) +
                               aligned(rows * m->heads, sizeof(float));
            size_t kept = products + attention;
            const struct unit_kind *block = units_kind(s->units, 1);
            assert_int_equal(block->segment[PHASE_FORWARD].saved_bytes,
                             block->segment[PHASE_BACKWARD].saved_bytes);
            assert_int_equal(units_kind(s->units, 0)->segment[PHASE_FORWARD].saved_bytes, 0);
            if (policies[p] == RECOMPUTE_NONE)
                assert_true(block->segment[PHASE_FORWARD].saved_bytes > kept);
            else
                assert_int_equal(block->segment[PHASE_FORWARD].saved_bytes,
                                 policies[p] == RECOMPUTE_FULL ? 0 : kept);
            uint64_t saved = space_bit(SPACE_SAVED);
            int keeps = policies[p] != RECOMPUTE_FULL;
            assert_int_equal(!!(block->segment[PHASE_FORWARD].writes & saved), keeps);
            assert_int_equal(!!(block->segment[PHASE_BACKWARD].reads & saved), keeps);
            assert_false(block->segment[PHASE_BACKWARD].writes & saved);
            session_close(s);
        }
}

/* What tensor ranks keep of a block. */
static size_t kept_on_ranks(const char *recompute, int ranks)
{
    char text[400];
    struct fleet fleet;
    snprintf(text, sizeof text,
             "model.layers=2 model.hidden=36 model.heads=6 model.kv_heads=6 model.ffn=72 "
             "model.vocab=101 data.seq_len=24 train.global_batch=1 parallel.tensor=%d recompute=%s",
             ranks, recompute);
    struct config config = rig_config(text);
    fleet_open(&fleet, &config, ranks, PROGRAM_TRAIN);
    size_t bytes = units_segment(fleet.units, 1, PHASE_FORWARD)->saved_bytes;
    fleet_close(&fleet);
    return bytes;
}

/* Rows that are gathered again, for the products of attention and of the feed-forward part, are not
 * kept; each rank's own are, and so nothing is kept that ranks do not divide. */
static void test_gathered_rows(void **state)
{
    enum { ROWS = 24, WIDTH = 36, VALUES = 16 };
    size_t whole = kept_on_ranks("none", 1);
    for (int ranks = 2; ranks <= 3; ranks++) {
        size_t none = kept_on_ranks("none", ranks), gathered = kept_on_ranks("gathered", ranks);
        assert_true(kept_on_ranks("selective", ranks) < gathered);
        assert_int_equal(none - gathered, 2 * (aligned(ROWS * WIDTH, sizeof(float)) -
                                               aligned(ROWS * WIDTH / ranks, sizeof(float))));
        assert_true(gathered <= whole / (size_t)ranks + VALUES * PLACE_ALIGN);
    }
}

static size_t bytes_of(const struct session *s)
{
    size_t bytes = 0;
    for (int pool = 0; pool < POOL_COUNT; pool++)
        bytes += s->train->pool_bytes[pool];
    return bytes;
}

/* The less is kept, the less memory a step takes, activations above all. */
static void test_memory(void **state)
{
    for (int i = 0; i < SETTINGS - 1; i++) {
        size_t activations[POLICIES], all[POLICIES];
        for (int p = 0; p < POLICIES; p++) {
            struct mem mem = {0};
            struct session *s = open_session(&mem, settings[i], policies[p]);
            activations[p] = s->train->pool_bytes[POOL_ACTIVATIONS];
            all[p] = bytes_of(s);
            session_close(s);
        }
        assert_true(activations[0] > activations[1] && activations[1] > activations[2]);
        assert_true(all[0] > all[1] && all[1] > all[2]);
    }
}

/* Operations of some ops of a unit's forward. */
static double forward_flops(const struct graph *graph, int kept_too)
{
    double flops = 0;
    for (int i = 0; i < graph->node_count; i++) {
        const struct graph_node *node = &graph->nodes[i];
        int hands_on = graph->values[node->out[0]].role == VALUE_OUTPUT;
        if (!node->backward && !hands_on && (kept_too || !node->op->keep))
            flops += op_flops(graph, node);
    }
    return flops;
}

/* Backward does what it did, and once more what is not kept: not the product that makes the
 * unit's output, which nobody reads there.  The operations of the model stay the same. */
static void test_work(void **state)
{
    double backward[POLICIES], forward[POLICIES], both[POLICIES];
    double again[POLICIES] = {0};
    for (int p = 0; p < POLICIES; p++) {
        struct mem mem = {0};
        struct session *s = open_session(&mem, settings[0], policies[p]);
        const struct unit_kind *block = units_kind(s->units, 1);
        const struct unit_kind *head = units_kind(s->units, s->units->count - 1);
        backward[p] = rig_flops(&block->segment[PHASE_BACKWARD]);
        forward[p] = rig_flops(&block->segment[PHASE_FORWARD]);
        both[p] = rig_flops(&head->segment[PHASE_BOTH]);
        if (p)
            again[p] = forward_flops(block->train, policies[p] == RECOMPUTE_FULL);
        session_close(s);
    }
    assert_true(again[1] > 0 && again[1] < again[2] && again[2] < forward[0]);
    for (int p = 1; p < POLICIES; p++) {
        assert_true(fabs(backward[p] - backward[0] - again[p]) < 1e-9 * backward[0]);
        assert_true(forward[p] == forward[0] && both[p] == both[0]);
    }
}

/* Programs of sharded and copied models pass verification. */
static void test_programs_verify(void **state)
{
    static const char *const parallel[] = {" parallel.strategy=NO_SHARD",
                                           " parallel.strategy=FULL_SHARD",
                                           " parallel.strategy=FULL_SHARD "
                                           "parallel.forward_prefetch=false "
                                           "parallel.backward_prefetch=none"};
    for (int i = 0; i < SETTINGS; i++)
        for (int k = 0; k < 9; k++) {
            char text[1024];
            struct error err = {0};
            struct fleet fleet;
            snprintf(text, sizeof text, "%s%s", settings[i], parallel[k % 3]);
            struct config config = rig_config(text);
            config.recompute = policies[k / 3];
            fleet_open(&fleet, &config, 3, PROGRAM_TRAIN);
            for (int r = 0; r < fleet.ranks; r++)
                if (verify_program(fleet.program[r], &err))
                    fail_msg("%s", err.text);
            if (verify_ranks((const struct program *const *)fleet.program, fleet.ranks, &err))
                fail_msg("%s", err.text);
            fleet_close(&fleet);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),       cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_memory),          cmocka_unit_test(test_work),
        cmocka_unit_test(test_programs_verify), cmocka_unit_test(test_gathered_rows),
    };
    return cmocka_run_group_tests_name("recompute", tests, NULL, NULL);
}
