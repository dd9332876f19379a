/* test_tensor_graphs.c - the units of real models, divided among tensor ranks: verify accepts them,
 * and refuses each of them without one of the sums over ranks that its gradients need.
 *
 * What others forgot there, and lost without a message: the gradients of keys and values that
 * several ranks have whole, and those of norms and biases that work on own rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "comm/mesh.h"
#include "graph/build.h"
#include "graph/op.h"
#include "model/model.h"
#include "tests/unit/rig.h"
#include "verify/division.h"

enum { BATCH = 2, SEQ = 5, TENSOR = 1 << MESH_TENSOR };

#define SIZES "model.layers=1 model.hidden=24 model.vocab=101 model.ffn=61 data.seq_len=5 "

static const char *const models[] = {
    SIZES "model.family=llama model.heads=4 model.kv_heads=2 model.head_dim=6",
    SIZES "model.family=llama model.heads=8 model.kv_heads=2 model.head_dim=6",
    SIZES "model.family=llama model.heads=5 model.kv_heads=1 model.head_dim=6",
    SIZES "model.family=gpt2 model.heads=6",
};
enum { MODELS = sizeof models / sizeof models[0] };

static struct graph *unit_graph(const struct model *model, int unit, struct graph_group tensor)
{
    struct error err = {0};
    const struct model_graph form = {
        .batch = BATCH, .seq = {SEQ}, .dtype = DTYPE_F32, .tensor = tensor, .loss_factor = 1};
    struct graph *graph = model_unit_graph(model, unit, &form, &err);
    if (!graph)
        fail_msg("%s", err.text);
    return graph;
}

/* The first logical tensor of parameter value v, or "". */
static const char *param_name(const struct graph *graph, int v)
{
    const struct graph_value *value = &graph->values[v];
    return value->role == VALUE_PARAM ? graph->params[value->index].tensor_name[0] : "";
}

/* Take away, one at a time, each sum of terms; returns how many there are. */
static int sums_are_needed(struct graph *graph, char *names, size_t bytes)
{
    int sums = 0;
    for (int v = 0; v < graph->value_count; v++) {
        struct graph_group group = graph->values[v].divided;
        struct error err = {0};
        if (group.size < 2)
            continue;
        graph->values[v].divided = (struct graph_group){0};
        if (!division_check(graph, "unit", TENSOR, 1, &err))
            fail_msg("without the sum of the gradient of %s it is accepted", param_name(graph, v));
        assert_non_null(strstr(err.text, "the gradient of "));
        graph->values[v].divided = group;
        size_t used = strlen(names);
        snprintf(names + used, bytes - used, " %s", param_name(graph, v));
        sums++;
    }
    return sums;
}

static void check_model(const char *settings, struct graph_group tensor, char *names, size_t bytes)
{
    struct error err = {0};
    struct config config = rig_config(settings);
    struct model *model;
    if (model_create(&model, &config.model, &err))
        fail_msg("%s", err.text);
    names[0] = 0;
    for (int u = 0; u < model->units; u++) {
        struct graph *graph = unit_graph(model, u, tensor);
        if (division_check(graph, "unit", TENSOR, 1, &err))
            fail_msg("%d ranks, unit %d of %s: %s", tensor.size, u, settings, err.text);
        sums_are_needed(graph, names, bytes);
        graph_destroy(graph);
    }
    model_destroy(model);
}

static void test_models_need_their_sums(void **state)
{
    for (int m = 0; m < MODELS; m++)
        for (int size = 2; size <= 5; size++)
            for (int rank = 0; rank < size; rank++) {
                char names[512];
                struct config config = rig_config(models[m]);
                if (size > config.model.heads)
                    continue;
                check_model(models[m], (struct graph_group){TENSOR, size, rank}, names,
                            sizeof names);
                int has_whole_keys =
                    config.model.kv_heads < config.model.heads && config.model.kv_heads % size;
                assert_int_equal(has_whole_keys, !!strstr(names, " attn.k"));
                assert_non_null(strstr(names, " norm1"));
                assert_int_equal(m == MODELS - 1, !!strstr(names, " mlp.down.bias"));
            }
}

/* Keys of heads that the rank's queries do not read. */
static void test_other_heads_are_refused(void **state)
{
    struct error err = {0};
    struct config config = rig_config(models[1]);
    struct model *model;
    assert_int_equal(model_create(&model, &config.model, &err), 0);
    struct graph *graph = unit_graph(model, 1, (struct graph_group){TENSOR, 3, 1});
    for (int i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].op == &op_pack_heads)
            graph->nodes[i].attrs.first++;
    assert_int_equal(division_check(graph, "unit", TENSOR, 1, &err), -1);
    assert_non_null(strstr(err.text, "it needs whole heads of one tensor"));
    graph_destroy(graph);
    model_destroy(model);
}

/* The key heads of a packed row, where own query heads `first` to first + heads - 1 are packed. */
static int64_t packed_of(int64_t kv_heads, int64_t group, int64_t first, int64_t heads)
{
    enum { DIM = 2 };
    int64_t packed;
    struct graph *graph = graph_create(1, 3, DTYPE_F32);
    int q = graph_value(graph, VALUE_TEMP, DTYPE_F32, 2, (int64_t[]){3, heads * DIM});
    int kv = graph_value(graph, VALUE_TEMP, DTYPE_F32, 2, (int64_t[]){3, 2 * kv_heads * DIM});
    build_pack_heads(graph, q, kv, first, kv_heads * group, kv_heads, DIM, &packed);
    assert_string_equal(graph->err.text, "");
    graph_destroy(graph);
    return packed;
}

/* Does every own query head find its key head among `packed` of equal share? */
static int finds_keys(int64_t group, int64_t first, int64_t heads, int64_t packed)
{
    const struct pack_heads p = {.heads = heads, .first = first, .group = group, .packed = packed};
    int found = heads % packed == 0;
    for (int64_t own = 0; found && own < heads; own++)
        found = pack_heads_source(&p, own / (heads / packed)) == (first + own) / group;
    return found;
}

static void test_packed_keys_are_fewest(void **state)
{
    for (int64_t kv_heads = 1; kv_heads <= 4; kv_heads++)
        for (int64_t group = 1; group <= 6; group++)
            for (int64_t first = 0; first < kv_heads * group; first++)
                for (int64_t heads = 1; first + heads <= kv_heads * group; heads++) {
                    int64_t fewest = 1;
                    while (!finds_keys(group, first, heads, fewest))
                        fewest++;
                    assert_int_equal(packed_of(kv_heads, group, first, heads), fewest);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_need_their_sums),
        cmocka_unit_test(test_other_heads_are_refused),
        cmocka_unit_test(test_packed_keys_are_fewest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
