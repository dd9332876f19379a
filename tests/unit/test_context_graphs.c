/* test_context_graphs.c - the units of real models for ranks that share sequences: verify accepts
 * them, and refuses each of them without what it needs of the other ranks, at other positions, and
 * programs of them that do not sum a gradient over these ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "comm/mesh.h"
#include "graph/op.h"
#include "program/compile.h"
#include "tests/unit/rig.h"
#include "verify/division.h"
#include "verify/verify.h"

enum { BATCH = 2, SEQ = 6, CONTEXT = 1 << MESH_CONTEXT, TENSOR = 1 << MESH_TENSOR };

#define SIZES "model.layers=1 model.hidden=24 model.vocab=101 model.ffn=61 data.seq_len=12 "

static const char *const models[] = {
    SIZES "model.family=llama model.heads=4 model.kv_heads=2 model.head_dim=6",
    SIZES "model.family=llama model.heads=5 model.kv_heads=1 model.head_dim=6",
    SIZES "model.family=gpt2 model.heads=6",
};
enum { MODELS = sizeof models / sizeof models[0] };

static struct model *model_of(const char *settings)
{
    struct error err = {0};
    struct config config = rig_config(settings);
    struct model *model;
    if (model_create(&model, &config.model, &err))
        fail_msg("%s", err.text);
    return model;
}

static struct graph *unit_graph(const struct model *model, int unit, struct graph_group tensor,
                                struct graph_group context)
{
    struct error err = {0};
    const struct model_graph form = {.batch = BATCH,
                                     .seq = {SEQ},
                                     .dtype = DTYPE_F32,
                                     .tensor = tensor,
                                     .context = context,
                                     .loss_factor = 1};
    struct graph *graph = model_unit_graph(model, unit, &form, &err);
    if (!graph)
        fail_msg("%s", err.text);
    return graph;
}

static void assert_accepted(const struct graph *graph)
{
    struct error err = {0};
    if (division_check(graph, "unit", CONTEXT | TENSOR, 1, &err))
        fail_msg("%s", err.text);
}

/* A node made otherwise is refused, for a reason; then it is as it was. */
static void refused_otherwise(struct graph *graph, int i, struct graph_node other, const char *why)
{
    struct error err = {0};
    struct graph_node was = graph->nodes[i];
    graph->nodes[i] = other;
    if (!division_check(graph, "unit", CONTEXT | TENSOR, 1, &err))
        fail_msg("%s made otherwise is accepted (\"%s\")", was.op->name, why);
    if (!strstr(err.text, why))
        fail_msg("wanted \"%s\", got \"%s\"", why, err.text);
    graph->nodes[i] = was;
}

/* Positions of another rank, and of whole sequences. */
static void check_positions(struct graph *graph, int i)
{
    struct graph_node other = graph->nodes[i];
    other.attrs.part = (struct sequence_part){0};
    refused_otherwise(graph, i, other, "other positions");
    other = graph->nodes[i];
    other.attrs.part.first[0] += other.attrs.part.chunk;
    refused_otherwise(graph, i, other, "other positions");
}

/* Own keys in place of all ranks', or those of tensor ranks. */
static void check_keys(struct graph *graph, int gather, int order, int attention)
{
    struct graph_node other = graph->nodes[attention];
    other.in[1] = graph->nodes[gather].in[0];
    refused_otherwise(graph, attention, other, "keys and values of all ranks are needed");
    other = graph->nodes[order];
    other.in[0] = graph->nodes[gather].in[0];
    refused_otherwise(graph, order, other, "it needs all ranks' rows");
    other = graph->nodes[gather];
    other.attrs.axes = TENSOR;
    refused_otherwise(graph, gather, other, "");
    other = graph->nodes[gather];
    other.op = &op_all_reduce;
    refused_otherwise(graph, gather, other, "those of different ranks have no sum");
}

static int find(const struct graph *graph, const struct op *op, unsigned axes)
{
    for (int i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].op == op && (!axes || graph->nodes[i].attrs.axes == axes))
            return i;
    return -1;
}

/* Nothing of the other ranks' keys reaches a reader that takes what is whole for its own. */
static void check_term(struct graph *graph, int gather)
{
    struct error err = {0};
    struct graph_value *kv = &graph->values[graph->nodes[gather].in[0]];
    kv->divided = (struct graph_group){.axes = CONTEXT, .size = 2};
    assert_int_equal(division_check(graph, "unit", CONTEXT | TENSOR, 1, &err), -1);
    assert_non_null(strstr(err.text, "is no term of a sum"));
    kv->divided = (struct graph_group){0};
}

static void check_units(const char *settings, struct graph_group tensor, struct graph_group context)
{
    struct model *model = model_of(settings);
    int gathers = 0;
    for (int u = 0; u < model->units; u++) {
        struct graph *graph = unit_graph(model, u, tensor, context);
        int gather = find(graph, &op_all_gather, CONTEXT);
        assert_accepted(graph);
        for (int i = 0; i < graph->node_count; i++)
            if (graph->nodes[i].op == &op_attention || graph->nodes[i].op == &op_positions)
                check_positions(graph, i);
        if (gather >= 0) {
            check_keys(graph, gather, find(graph, &op_order_chunks, 0),
                       find(graph, &op_attention, 0));
            check_term(graph, gather);
            gathers++;
        }
        assert_accepted(graph);
        graph_destroy(graph);
    }
    assert_int_equal(gathers, 1);
    model_destroy(model);
}

static void test_models_need_all_keys(void **state)
{
    for (int m = 0; m < MODELS; m++)
        for (int size = 2; size <= 4; size++)
            for (int rank = 0; rank < size; rank++) {
                check_units(models[m], (struct graph_group){0},
                            (struct graph_group){CONTEXT, size, rank});
                check_units(models[m], (struct graph_group){TENSOR, 2, rank % 2},
                            (struct graph_group){CONTEXT, size, rank});
            }
}

/* Chunks of all ranks are all positions, once each, and each rank has as many pairs to look at. */
static void test_ranks_share_the_work(void **state)
{
    for (int size = 2; size <= 5; size++) {
        char seen[5 * SEQ] = {0};
        double pairs = 0;
        for (int rank = 0; rank < size; rank++) {
            struct attention a = {.seq = SEQ};
            a.part = graph_sequence_part(SEQ, (struct graph_group){CONTEXT, size, rank});
            for (int64_t r = 0; r < SEQ; r++)
                seen[sequence_position(&a.part, r)]++;
            assert_true(!rank || attention_causal_pairs(&a) == pairs);
            pairs = attention_causal_pairs(&a);
        }
        for (int t = 0; t < size * SEQ; t++)
            assert_int_equal(seen[t], 1);
        assert_true(pairs * size == 0.5 * size * SEQ * (size * SEQ + 1));
    }
}

/* A flat that says nothing of context, as that of a model that is no part would. */
static void test_gradients_are_summed_over_context(void **state)
{
    struct config config =
        rig_config(SIZES "model.heads=4 parallel.strategy=NO_SHARD parallel.context=2");
    struct error err = {0};
    struct fleet fleet;
    fleet_open(&fleet, &config, 2, PROGRAM_TRAIN);
    assert_int_equal(verify_program(fleet.program[0], &err), 0);
    for (int f = 0; f < fleet.units->flats; f++) {
        unsigned was = fleet.units->flat[f].sum_axes;
        assert_int_equal(was, CONTEXT);
        fleet.units->flat[f].sum_axes = 0;
        struct state *other = state_create(fleet.units, &fleet.layout, 1, 0);
        struct program *program = program_create(other, PROGRAM_TRAIN);
        assert_int_equal(verify_program(program, &err), -1);
        assert_non_null(strstr(err.text, "is summed are: none; of its tensor"));
        program_destroy(program);
        state_destroy(other);
        fleet.units->flat[f].sum_axes = was;
    }
    fleet_close(&fleet);
}

/* A rank's program of units for another. */
static void test_units_are_those_of_the_rank(void **state)
{
    struct config config = rig_config(SIZES "model.heads=4 parallel.context=2");
    struct error err = {0};
    struct fleet fleet;
    fleet_open(&fleet, &config, 2, PROGRAM_TRAIN);
    assert_int_equal(verify_program(fleet.program[1], &err), 0);
    struct state *other = state_create(fleet.variant[0], &fleet.layout, 1, 1);
    struct program *program = program_create(other, PROGRAM_TRAIN);
    assert_int_equal(verify_program(program, &err), -1);
    assert_non_null(strstr(err.text, "its rank is at 1"));
    program_destroy(program);
    state_destroy(other);
    fleet_close(&fleet);
}

/* What cannot be cut says what can. */
static void test_lengths_that_cannot_be_cut(void **state)
{
    static const struct {
        const char *settings, *says;
    } cases[] = {
        {"data.seq_len=17 parallel.context=3", "data.seq_len=18 is the nearest"},
        {"data.seq_len=15 parallel.context=2", "data.seq_len=16 is the nearest"},
        {"data.seq_len=13 parallel.context=2", "data.seq_len=12 is the nearest"},
        {"data.seq_len=23 model.max_seq_len=23 parallel.context=3", "data.seq_len=18 is the"},
        {"data.seq_len=3 model.max_seq_len=3 parallel.context=2", "model.max_seq_len 3 has not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        struct layout layout;
        char text[256];
        snprintf(text, sizeof text, SIZES "model.heads=4 %s", cases[i].settings);
        struct config config = rig_config(text);
        assert_int_equal(layout_resolve(&layout, &config, 12, 12, DEVICE_CPU, &err), -1);
        if (!strstr(err.text, cases[i].says))
            fail_msg("wanted \"%s\", got \"%s\"", cases[i].says, err.text);
        assert_int_equal(layout_advise(&config, 12, 12, DEVICE_CPU, &err), -1);
        assert_non_null(strstr(err.text, "; parallel.context=1 would"));
    }
}

static size_t kept_bytes(const char *settings, int ranks)
{
    char text[256];
    struct fleet fleet;
    snprintf(text, sizeof text, SIZES "model.heads=4 model.kv_heads=4 %s", settings);
    struct config config = rig_config(text);
    fleet_open(&fleet, &config, ranks, PROGRAM_TRAIN);
    size_t bytes = units_segment(fleet.units, 1, PHASE_FORWARD)->saved_bytes;
    fleet_close(&fleet);
    return bytes;
}

/* What ranks keep of a block is divided among them: keys and values of all are made again. */
static void test_ranks_keep_their_share(void **state)
{
    enum { ALIGN = 64, VALUES = 16 };
    size_t whole = kept_bytes("data.seq_len=96 recompute=selective", 1);
    for (int size = 2; size <= 4; size++) {
        char text[96];
        snprintf(text, sizeof text, "data.seq_len=96 recompute=selective parallel.context=%d",
                 size);
        assert_true(kept_bytes(text, size) <= whole / (size_t)size + ALIGN * VALUES);
    }
}

/* Of one row there is one rank; and a sequence of an odd length has no two halves. */
static void test_what_needs_whole_sequences(void **state)
{
    struct error err = {0};
    struct units *units;
    struct config config = rig_config(SIZES "model.heads=4 parallel.context=2");
    struct device_request cpu = {.kind = DEVICE_CPU, .threads = 1};
    struct layout layout;
    struct device *device;
    struct model *model = model_of(SIZES "model.heads=4");
    assert_int_equal(device_open(&device, &cpu, &err), 0);
    assert_int_equal(layout_resolve(&layout, &config, 2, 2, DEVICE_CPU, &err), 0);
    struct units_request request = layout_units(&layout, &config);
    request.generate = (struct units_generate){.batch = 1, .prompt = 2, .cache = 8};
    assert_int_equal(units_create(&units, model, &request, device, &err), -1);
    assert_non_null(strstr(err.text, "set parallel.context to 1"));
    request.generate.batch = 0;
    request.seq[0] = 5;
    assert_int_equal(units_create(&units, model, &request, device, &err), -1);
    assert_non_null(strstr(err.text, "5 tokens of each sequence are not two equal chunks"));
    layout_release(&layout);
    model_destroy(model);
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_need_all_keys),
        cmocka_unit_test(test_ranks_share_the_work),
        cmocka_unit_test(test_gradients_are_summed_over_context),
        cmocka_unit_test(test_units_are_those_of_the_rank),
        cmocka_unit_test(test_lengths_that_cannot_be_cut),
        cmocka_unit_test(test_ranks_keep_their_share),
        cmocka_unit_test(test_what_needs_whole_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
