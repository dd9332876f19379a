/* test_segment_graphs.c - segments of graphs that no model has: values and parameters used twice,
 * values made again, backward in two parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "graph/autodiff.h"
#include "graph/build.h"
#include "tests/unit/segment_check.h"

/* A unit in which the projections are needed again after their rotation, which may be done in
 * place, two gradients of them meet, and a weight is used twice. */
static struct graph *twice_used(void)
{
    enum { HEADS = 3, KV = 1, DIM = 4, WIDTH = 7, ROWS = (HEADS + 2 * KV) * DIM };
    struct graph *graph = graph_create(2, 5, DTYPE_F32);
    const int64_t shape[3][2] = {{ROWS, WIDTH}, {WIDTH, HEADS * DIM}, {WIDTH, ROWS}};
    int w[3], x = build_input(graph, WIDTH), table = build_rope_table(graph, DIM);
    for (int i = 0; i < 3; i++) {
        struct graph_param param = {.tensors = 1,
                                    .tensor_rows = {shape[i][0]},
                                    .dims = 2,
                                    .dim = {shape[i][0], shape[i][1]}};
        snprintf(param.tensor_name[0], GRAPH_NAME, "w%d", i);
        w[i] = build_param(graph, &param);
    }
    int h = build_linear(graph, x, w[0], -1);
    int turned = build_rope(graph, h, table, -1, HEADS, KV, DIM);
    int mixed = build_attention(graph, turned, HEADS, KV, DIM);
    int o = build_linear(graph, mixed, w[1], -1);
    int y = build_linear(graph, h, w[2], o);
    build_output(graph, build_linear(graph, turned, w[2], y));
    return graph;
}

/* A unit in which every row sees all rows of its sequence: queries of their own product, keys and
 * values of another. */
static struct graph *full_attention(void)
{
    enum { HEADS = 2, KV = 1, DIM = 4, WIDTH = 7 };
    struct graph *graph = graph_create(2, 5, DTYPE_F32);
    const int64_t shape[3][2] = {{HEADS * DIM, WIDTH}, {2 * KV * DIM, WIDTH}, {WIDTH, HEADS * DIM}};
    int w[3], x = build_input(graph, WIDTH);
    for (int i = 0; i < 3; i++) {
        struct graph_param param = {.tensors = 1,
                                    .tensor_rows = {shape[i][0]},
                                    .dims = 2,
                                    .dim = {shape[i][0], shape[i][1]}};
        snprintf(param.tensor_name[0], GRAPH_NAME, "w%d", i);
        w[i] = build_param(graph, &param);
    }
    struct build_attention form = {.q = build_linear(graph, x, w[0], -1),
                                   .kv = build_linear(graph, x, w[1], -1),
                                   .documents = -1,
                                   .mask = BUILD_FULL,
                                   .heads = HEADS,
                                   .kv_heads = KV,
                                   .head_dim = DIM};
    int o = build_attention_of(graph, &form);
    build_output(graph, build_linear(graph, o, w[2], x));
    return graph;
}

/* A unit that ends in a norm, whose statistics backward wants and whose result is handed on. */
static struct graph *ends_in_norm(void)
{
    enum { WIDTH = 7 };
    struct graph *graph = graph_create(2, 5, DTYPE_F32);
    struct graph_param matrix = {
        .tensors = 1, .tensor_rows = {WIDTH}, .dims = 2, .dim = {WIDTH, WIDTH}};
    struct graph_param norm = {.tensors = 1, .tensor_rows = {WIDTH}, .dims = 1, .dim = {WIDTH}};
    snprintf(matrix.tensor_name[0], GRAPH_NAME, "matrix");
    snprintf(norm.tensor_name[0], GRAPH_NAME, "norm");
    int x = build_input(graph, WIDTH);
    int h = build_linear(graph, x, build_param(graph, &matrix), x);
    build_output(graph, build_rmsnorm(graph, h, build_param(graph, &norm), 1e-5f));
    return graph;
}

/* A unit in which a norm's backward, which makes the gradient of the input, adds to that of a
 * parameter, which a bias has begun. */
static struct graph *norm_and_bias(void)
{
    enum { WIDTH = 7 };
    struct graph *graph = graph_create(2, 5, DTYPE_F32);
    struct graph_param matrix = {
        .tensors = 1, .tensor_rows = {WIDTH}, .dims = 2, .dim = {WIDTH, WIDTH}};
    struct graph_param norm = {.tensors = 1, .tensor_rows = {WIDTH}, .dims = 1, .dim = {WIDTH}};
    snprintf(matrix.tensor_name[0], GRAPH_NAME, "matrix");
    snprintf(norm.tensor_name[0], GRAPH_NAME, "norm");
    int x = build_input(graph, WIDTH), w = build_param(graph, &norm);
    int h = build_linear(graph, build_rmsnorm(graph, x, w, 1e-5f), build_param(graph, &matrix), -1);
    build_output(graph, build_bias(graph, h, w));
    return graph;
}

/* A unit whose last backward node, that of a bias, reads the gradient of the input. */
static struct graph *begins_with_bias(void)
{
    enum { WIDTH = 7 };
    struct graph *graph = graph_create(2, 5, DTYPE_F32);
    struct graph_param matrix = {
        .tensors = 1, .tensor_rows = {WIDTH}, .dims = 2, .dim = {WIDTH, WIDTH}};
    struct graph_param bias = {.tensors = 1, .tensor_rows = {WIDTH}, .dims = 1, .dim = {WIDTH}};
    snprintf(matrix.tensor_name[0], GRAPH_NAME, "matrix");
    snprintf(bias.tensor_name[0], GRAPH_NAME, "bias");
    int h = build_bias(graph, build_input(graph, WIDTH), build_param(graph, &bias));
    build_output(graph, build_linear(graph, h, build_param(graph, &matrix), -1));
    return graph;
}

/* The segments of such a unit in memory of their own. */
struct unit {
    struct graph *graph;
    struct flat flat;
    const struct flat *uses[FLAT_USES];
    struct segment_param_place place[4];
    struct segment forward, backward, input, weight;
    struct device *device;
    int64_t elems; /* of input and output */
    size_t most;   /* bytes of each space */
    void *base[SPACE_COUNT];
};

static void unit_open(struct unit *u, struct graph *graph, enum config_recompute recompute,
                      struct device *device)
{
    struct error err = {0};
    *u = (struct unit){.graph = graph, .device = device, .elems = 2 * 5 * 7};
    assert_int_equal(autodiff(u->graph, &err), 0);
    flat_create(&u->flat, "unit", 0, u->graph, &(struct model_unit){0}, NULL, 1, 1);
    u->uses[0] = &u->flat;
    for (int i = 0; i < u->graph->param_count; i++) {
        u->place[i] = (struct segment_param_place){0, i, u->flat.tensor[i].offset};
        u->flat.tensor[i].section = i;
    }
    assert_int_equal(
        segment_compile(&u->forward, u->graph, PHASE_FORWARD, recompute, u->place, device, &err),
        0);
    assert_int_equal(
        segment_compile(&u->backward, u->graph, PHASE_BACKWARD, recompute, u->place, device, &err),
        0);
    assert_int_equal(segment_compile(&u->input, u->graph, PHASE_BACKWARD_INPUT, recompute, u->place,
                                     device, &err),
                     0);
    assert_int_equal(segment_compile(&u->weight, u->graph, PHASE_BACKWARD_WEIGHT, recompute,
                                     u->place, device, &err),
                     0);
    size_t most = u->backward.work_bytes + u->forward.work_bytes + u->forward.saved_bytes +
                  u->input.work_bytes + u->weight.work_bytes + u->input.deferred_bytes;
    most = u->most = 64 * (most / 64 + (size_t)u->flat.padded + 1);
    for (int k = 0; k < SPACE_COUNT; k++) {
        u->base[k] = aligned_alloc(64, most);
        memset(u->base[k], 0, most);
    }
    philox_fill_normal(u->base[SPACE_PARAM], 1, 0, u->flat.padded, 0.4f);
    philox_fill_normal(u->base[SPACE_INPUT], 2, 0, u->elems, 1);
    philox_fill_normal(u->base[SPACE_OUTPUT_GRAD], 3, 0, u->elems, 1);
    for (int t = 0; t < 5; t++)
        for (int i = 0; i < 2; i++) {
            ((float *)u->base[SPACE_CONST])[t * 4 + i] = cosf((float)t * (i ? 0.1f : 1));
            ((float *)u->base[SPACE_CONST])[t * 4 + 2 + i] = sinf((float)t * (i ? 0.1f : 1));
        }
}

static void unit_close(struct unit *u)
{
    for (int k = 0; k < SPACE_COUNT; k++)
        free(u->base[k]);
    segment_destroy(&u->forward);
    segment_destroy(&u->backward);
    segment_destroy(&u->input);
    segment_destroy(&u->weight);
    flat_destroy(&u->flat);
    graph_destroy(u->graph);
}

/* The same without a backward phase, where nothing is kept and more is done in place. */
static void check_alone(struct unit *u, const struct session *s)
{
    struct error err = {0};
    struct segment alone;
    struct graph *graph = twice_used();
    assert_int_equal(
        segment_compile(&alone, graph, PHASE_FORWARD, RECOMPUTE_NONE, u->place, u->device, &err),
        0);
    segment_check_lifetimes(s, &alone);
    float *kept = malloc((size_t)u->elems * sizeof *kept);
    memcpy(kept, u->base[SPACE_OUTPUT], (size_t)u->elems * sizeof *kept);
    assert_true(alone.work_bytes <= u->most);
    assert_int_equal(segment_check_run(&alone, u->uses, u->device, u->base, 0, &err), 0);
    assert_memory_equal(kept, u->base[SPACE_OUTPUT], (size_t)u->elems * sizeof *kept);
    free(kept);
    segment_destroy(&alone);
    graph_destroy(graph);
}

/* The output along the gradient given for it. */
static double along_output(struct unit *u)
{
    struct error err = {0};
    double sum = 0;
    assert_int_equal(segment_check_run(&u->forward, u->uses, u->device, u->base, 0, &err), 0);
    for (int64_t i = 0; i < u->elems; i++)
        sum +=
            (double)((float *)u->base[SPACE_OUTPUT])[i] * ((float *)u->base[SPACE_OUTPUT_GRAD])[i];
    return sum;
}

/* Slope of that in one element, by a central difference: to 1e-3 in fp32. */
static double slope(struct unit *u, float *value)
{
    const float step = 0.03f, was = *value;
    *value = was + step;
    double up = along_output(u);
    *value = was - step;
    double down = along_output(u);
    *value = was;
    return (up - down) / (2 * (double)step);
}

static double worst_slope(struct unit *u, enum segment_space space, const float *grad,
                          int64_t elems)
{
    double most = 0, size = 0;
    for (int64_t i = 0; i < elems; i++) {
        double off = fabs(slope(u, (float *)u->base[space] + i) - grad[i]);
        most = off <= most ? most : off;
        size = fmax(size, fabs(grad[i]));
    }
    return most / size;
}

static void test_a_value_used_twice(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    struct unit u;
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=3");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    unit_open(&u, twice_used(), RECOMPUTE_NONE, s->device);
    segment_check_lifetimes(s, &u.forward);
    segment_check_lifetimes(s, &u.backward);
    along_output(&u);
    check_alone(&u, s);
    assert_int_equal(segment_check_run(&u.backward, u.uses, s->device, u.base, 0, &err), 0);
    double weights = worst_slope(&u, SPACE_PARAM, u.base[SPACE_GRAD], u.flat.padded);
    double input = worst_slope(&u, SPACE_INPUT, u.base[SPACE_INPUT_GRAD], u.elems);
    print_message("off by %.2g of the largest gradient of weights, %.2g of input's\n", weights,
                  input);
    assert_true(weights <= 2e-3 && input <= 2e-3);
    unit_close(&u);
    session_close(s);
}

static void test_full_attention(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    struct unit u;
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=3");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    unit_open(&u, full_attention(), RECOMPUTE_NONE, s->device);
    along_output(&u);
    assert_int_equal(segment_check_run(&u.backward, u.uses, s->device, u.base, 0, &err), 0);
    assert_true(worst_slope(&u, SPACE_PARAM, u.base[SPACE_GRAD], u.flat.padded) <= 2e-3);
    assert_true(worst_slope(&u, SPACE_INPUT, u.base[SPACE_INPUT_GRAD], u.elems) <= 2e-3);
    unit_close(&u);
    session_close(s);
}

/* Shapes and forms that do not go together are refused where the graph is built. */
static void test_refused_forms(void **state)
{
    static const struct {
        int64_t kv_rows, kv_width;
        int mask, documents;
        const char *text;
    } cases[] = {
        {.kv_rows = 6,
         .kv_width = 8,
         .mask = BUILD_CAUSAL,
         .text = "a causal mask needs as many keys as queries, not 3 and 5"},
        {.kv_rows = 7, .kv_width = 8, .mask = BUILD_FULL, .text = "an input of 7 x 8 for 2 seq"},
        {.kv_rows = 6, .kv_width = 12, .mask = BUILD_FULL, .text = "an input of 6 x 12 for 2 seq"},
        {.kv_rows = 10,
         .kv_width = 8,
         .mask = BUILD_FULL,
         .documents = 1,
         .text = "documents need the causal mask"},
        {.kv_rows = 6, .kv_width = 8, .mask = BUILD_FULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct graph *graph = graph_create(2, 5, DTYPE_F32);
        int64_t q[2] = {10, 8}, kv[2] = {cases[i].kv_rows, cases[i].kv_width};
        struct build_attention form = {.q = graph_value(graph, VALUE_CONST, DTYPE_F32, 2, q),
                                       .kv = graph_value(graph, VALUE_CONST, DTYPE_F32, 2, kv),
                                       .documents = -1,
                                       .mask = cases[i].mask,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 4};
        if (cases[i].documents)
            form.documents = build_row_documents(graph);
        build_attention_of(graph, &form);
        if (cases[i].text ? !strstr(graph->err.text, cases[i].text) : graph->err.text[0] != 0)
            fail_msg("case %d: \"%s\"", (int)i, graph->err.text);
        graph_destroy(graph);
    }
}

/* Overwrite what is not handed over. */
static void overwrite(struct unit *u, uint64_t kept)
{
    for (int k = 0; k < SPACE_COUNT; k++)
        if (!(kept >> k & 1) || k == SPACE_WORK)
            memset(u->base[k], 0xff, u->most);
}

/* Backward after forward, with what is not declared to be handed over overwritten in between. */
static void run_both(struct unit *u)
{
    struct error err = {0};
    assert_int_equal(segment_check_run(&u->forward, u->uses, u->device, u->base, 0, &err), 0);
    overwrite(u, u->backward.reads);
    assert_int_equal(segment_check_run(&u->backward, u->uses, u->device, u->base, 0, &err), 0);
}

/* The same with backward in two parts. */
static void run_parts(struct unit *u)
{
    struct error err = {0};
    const uint64_t results = space_bit(SPACE_GRAD) | space_bit(SPACE_INPUT_GRAD);
    uint64_t weight = u->weight.reads, parts = u->input.reads | weight;
    unsigned made = segment_sections(&u->input, 0, &u->flat);
    uint64_t adds = 0;
    for (int s = 0; s < u->graph->param_count; s++)
        adds |= made >> s & 1 ? segment_adds(0, s) : 0;
    assert_int_equal(segment_check_run(&u->forward, u->uses, u->device, u->base, 0, &err), 0);
    overwrite(u, parts & ~space_bit(SPACE_DEFERRED));
    assert_int_equal(segment_check_run(&u->input, u->uses, u->device, u->base, 0, &err), 0);
    overwrite(u, weight | results);
    assert_int_equal(segment_check_run(&u->weight, u->uses, u->device, u->base, adds, &err), 0);
}

/* The gradients are the same bits whatever is kept. */
static void check_recomputed(struct graph *(*make)(void), const struct session *s)
{
    struct unit kept, again;
    unit_open(&kept, make(), RECOMPUTE_NONE, s->device);
    run_both(&kept);
    for (enum config_recompute r = RECOMPUTE_SELECTIVE; r <= RECOMPUTE_FULL; r++) {
        unit_open(&again, make(), r, s->device);
        segment_check_lifetimes(s, &again.forward);
        segment_check_lifetimes(s, &again.backward);
        if (r == RECOMPUTE_SELECTIVE && make == full_attention) /* of products and attention */
            assert_int_equal(again.forward.saved_bytes, kept.forward.saved_bytes);
        else
            assert_true(again.forward.saved_bytes < kept.forward.saved_bytes);
        assert_true(r != RECOMPUTE_FULL || !again.forward.saved_bytes);
        assert_false((again.backward.reads | again.backward.writes) & space_bit(SPACE_OUTPUT));
        run_both(&again);
        assert_memory_equal(again.base[SPACE_GRAD], kept.base[SPACE_GRAD],
                            (size_t)kept.flat.padded * sizeof(float));
        assert_memory_equal(again.base[SPACE_INPUT_GRAD], kept.base[SPACE_INPUT_GRAD],
                            (size_t)kept.elems * sizeof(float));
        unit_close(&again);
    }
    unit_close(&kept);
}

/* Backward in two parts makes the same bits, whatever forward keeps; the first makes the gradient
 * of the input alone, where no op makes both. */
static void check_parts(struct graph *(*make)(void), const struct session *s)
{
    for (enum config_recompute r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) {
        struct unit whole, parts;
        unit_open(&whole, make(), r, s->device);
        unit_open(&parts, make(), r, s->device);
        segment_check_lifetimes(s, &parts.input);
        segment_check_lifetimes(s, &parts.weight);
        assert_true(parts.input.writes >> SPACE_INPUT_GRAD & 1);
        assert_false(parts.weight.writes >> SPACE_INPUT_GRAD & 1);
        assert_true(parts.input.deferred_bytes > 0 || make == norm_and_bias);
        assert_int_equal(parts.weight.deferred_bytes, parts.input.deferred_bytes);
        assert_true(parts.input.steps + parts.weight.steps >= whole.backward.steps);
        run_both(&whole);
        run_parts(&parts);
        assert_memory_equal(parts.base[SPACE_GRAD], whole.base[SPACE_GRAD],
                            (size_t)whole.flat.padded * sizeof(float));
        assert_memory_equal(parts.base[SPACE_INPUT_GRAD], whole.base[SPACE_INPUT_GRAD],
                            (size_t)whole.elems * sizeof(float));
        unit_close(&whole);
        unit_close(&parts);
    }
}

static void test_backward_in_two_parts(void **state)
{
    struct mem mem = {0};
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=3");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    check_parts(twice_used, s);
    check_parts(full_attention, s);
    check_parts(ends_in_norm, s);
    check_parts(norm_and_bias, s);
    check_parts(begins_with_bias, s);
    session_close(s);
}

static void test_made_again(void **state)
{
    struct mem mem = {0};
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=3");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    check_recomputed(twice_used, s);
    check_recomputed(full_attention, s);
    check_recomputed(ends_in_norm, s);
    session_close(s);
}

/* The product that a choice among experts is made of is a router's, also where it gets a bias, and
 * where other nodes stand between the two; no other product is. */
static void test_routers_are_found(void **state)
{
    enum { WIDTH = 6, EXPERTS = 4 };
    for (int has_bias = 0; has_bias < 2; has_bias++) {
        struct graph *graph = graph_create(2, 5, DTYPE_F32);
        const struct op_attrs choice = {.seq = 5, .experts = {.count = EXPERTS, .chosen = 2}};
        int param[3];
        for (int i = 0; i < 3; i++) {
            int64_t rows = i == 0 ? WIDTH : EXPERTS;
            struct graph_param own = {
                .tensors = 1, .tensor_rows = {rows}, .dims = 2 - (i == 2), .dim = {rows, WIDTH}};
            snprintf(own.tensor_name[0], GRAPH_NAME, "param%d", i);
            param[i] = build_param(graph, &own);
        }
        int x = build_input(graph, WIDTH), logits = build_linear(graph, x, param[1], -1);
        build_linear(graph, x, param[0], -1);
        if (has_bias)
            logits = build_bias(graph, logits, param[2]);
        graph_node(graph, &op_route, (int[]){logits, -1}, 2, &choice);
        assert_string_equal(graph->err.text, "");
        assert_true(op_is_router(graph, 0));
        for (int n = 1; n < graph->node_count; n++)
            assert_false(op_is_router(graph, n));
        graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_value_used_twice),    cmocka_unit_test(test_full_attention),
        cmocka_unit_test(test_refused_forms),         cmocka_unit_test(test_made_again),
        cmocka_unit_test(test_backward_in_two_parts), cmocka_unit_test(test_routers_are_found),
    };
    return cmocka_run_group_tests_name("segment graphs", tests, NULL, NULL);
}
