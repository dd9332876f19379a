/* test_graph.c - autodiff: the gradients of whole models against difference quotients of a
 * reference in double precision that shares nothing with the graphs. */
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
#include "tests/unit/reference.h"
#include "train/weights.h"

/* A model, a batch, the gradients trireme finds, and the reference with the same weights. */
struct trial {
    struct mem mem;
    struct config config;
    struct session *s;
    struct reference reference;
    int64_t rows, seq;
    int32_t *tokens, *targets;
    double count; /* of targets */
    struct step_output output;
};

static void make_batch(struct trial *t)
{
    int64_t elems = t->rows * t->seq, vocab = t->config.model.vocab;
    t->tokens = calloc((size_t)elems, sizeof *t->tokens);
    t->targets = calloc((size_t)elems, sizeof *t->targets);
    for (int64_t i = 0; i < elems; i++) {
        t->tokens[i] = (int32_t)(philox_u64(1, (uint64_t)i) % (uint64_t)vocab);
        t->targets[i] = (int32_t)(philox_u64(2, (uint64_t)i) % (uint64_t)vocab);
        t->targets[i] = i % 7 == 5 ? -1 : t->targets[i];
        t->count += t->targets[i] >= 0;
    }
}

/* Norm weights off one, so that what multiplies by them shows. */
static void make_weights(struct trial *t)
{
    rig_init(t->s);
    for (int u = 0; u < t->s->units->count; u++)
        for (int k = 0; k < t->s->units->flat[u].tensors; k++) {
            const struct flat_tensor *tensor = &t->s->units->flat[u].tensor[k];
            float *w = rig_state(t->s, u, RIG_MASTER) + tensor->offset;
            uint64_t key = philox_key(3, tensor->name);
            for (int64_t i = 0; i < tensor->elems && tensor->box.dims == 1; i++)
                w[i] = 1 + 0.2f * philox_normal(key, (uint64_t)i);
        }
    rig_refresh(t->s);
}

static void trial_open(struct trial *t, const char *settings, const char *level)
{
    struct error err = {0};
    char text[512];
    *t = (struct trial){0};
    snprintf(text, sizeof text,
             "model.init_std=0.4 train.clip=0 train.lr=0 train.weight_decay=0 %s", settings);
    t->config = rig_config(text);
    t->s = rig_open(&t->mem, &t->config, level, 0);
    t->rows = t->config.train.global_batch;
    t->seq = t->config.data.seq_len;
    make_batch(t);
    make_weights(t);
    reference_take(&t->reference, t->s);
    struct rig_data data = {t->s->layout.micro_batch, t->seq, t->tokens, t->targets};
    struct step_input input = rig_input(t->s, 1);
    input.load = rig_load;
    input.user = &data;
    if (executor_run_step(t->s->executor, t->s->train, &input, &t->output, NULL, &err))
        fail_msg("%s", err.text);
    assert_true(t->output.targets == t->count);
}

static void trial_close(struct trial *t)
{
    reference_free(&t->reference);
    session_close(t->s);
    free(t->tokens);
    free(t->targets);
    assert_int_equal(t->mem.blocks, 0);
}

static double reference_mean(struct trial *t)
{
    return reference_loss(&t->reference, t->tokens, t->targets, t->rows, t->seq, NULL) / t->count;
}

/* The slope of the reference along a direction in one tensor, as a central difference with one
 * step of extrapolation: its error is of order step^4. */
static double slope(struct trial *t, double *value, const double *direction, int64_t elems)
{
    double quotient[2];
    for (int k = 0; k < 2; k++) {
        double step = 1e-3 / (1 + k), loss[2];
        for (int side = 0; side < 2; side++) {
            double by = side ? -step : step;
            for (int64_t i = 0; i < elems; i++)
                value[i] += by * direction[i];
            loss[side] = reference_mean(t) + t->reference.balance / t->count;
            for (int64_t i = 0; i < elems; i++)
                value[i] -= by * direction[i];
        }
        quotient[k] = (loss[0] - loss[1]) / (2 * step);
    }
    return (4 * quotient[1] - quotient[0]) / 3;
}

/* A direction of length 1: random, or (for n above 0) one element alone. */
static void direct(double *direction, int64_t elems, uint64_t key, int n)
{
    double length = 0;
    for (int64_t i = 0; i < elems; i++)
        direction[i] = n ? 0 : philox_normal(key, (uint64_t)i);
    if (n)
        direction[philox_u64(key, (uint64_t)n) % (uint64_t)elems] = 1;
    for (int64_t i = 0; i < elems; i++)
        length += direction[i] * direction[i];
    for (int64_t i = 0; i < elems; i++)
        direction[i] /= sqrt(length);
}

/* The worst difference of gradient and slope, relative to the gradient's length. */
static double check_tensor(struct trial *t, const struct flat_tensor *tensor, int directions)
{
    int flat;
    rig_tensor(t->s, tensor->name, &flat);
    const float *grad = rig_state(t->s, flat, RIG_GRAD) + tensor->offset;
    double factor = (double)(t->rows * t->seq) / t->count, length = 0, worst = 0;
    double *direction = calloc((size_t)tensor->elems, sizeof *direction);
    for (int64_t i = 0; i < tensor->elems; i++)
        length += pow(grad[i] * factor, 2);
    for (int n = 0; n < directions; n++) {
        double along = 0;
        direct(direction, tensor->elems, philox_key(4, tensor->name), n);
        for (int64_t i = 0; i < tensor->elems; i++)
            along += grad[i] * factor * direction[i];
        double off = fabs(along - slope(t, reference_find(&t->reference, tensor->name), direction,
                                        tensor->elems));
        worst = off <= worst ? worst : off;
    }
    free(direction);
    return worst / (sqrt(length) + 1e-6);
}

static const char *const models[] = {
    "model.layers=1 model.hidden=2 model.heads=1 model.head_dim=2 model.ffn=1 model.vocab=3 "
    "data.seq_len=1 train.global_batch=1",
    "model.layers=1 model.hidden=7 model.heads=3 model.kv_heads=1 model.head_dim=2 model.ffn=5 "
    "model.vocab=11 data.seq_len=9 train.global_batch=2",
    "model.layers=2 model.hidden=13 model.heads=2 model.kv_heads=2 model.head_dim=6 model.ffn=17 "
    "model.vocab=23 data.seq_len=19 train.global_batch=3 train.micro_batch=3",
    "model.layers=3 model.hidden=9 model.heads=6 model.kv_heads=3 model.head_dim=4 model.ffn=7 "
    "model.vocab=31 data.seq_len=11 train.global_batch=2 model.tie_embeddings=true",
    "model.layers=2 model.hidden=9 model.heads=2 model.kv_heads=1 model.head_dim=4 model.ffn=7 "
    "model.vocab=13 data.seq_len=12 train.global_batch=2 model.experts=5 model.init_std=0.3",
    "model.layers=2 model.hidden=8 model.heads=2 model.head_dim=4 model.ffn=5 model.vocab=13 "
    "data.seq_len=10 train.global_batch=2 model.experts=3 model.experts_per_token=1 "
    "model.norm_topk_prob=false model.router_aux_loss_coef=0.3 model.init_std=0.3",
    "model.layers=1 model.hidden=6 model.heads=1 model.head_dim=6 model.ffn=3 model.vocab=11 "
    "data.seq_len=7 train.global_batch=3 train.micro_batch=1 model.experts=4 "
    "model.experts_per_token=4 model.router_aux_loss_coef=2 model.init_std=0.3",
};

static void check_model(const char *settings, const char *level, int directions, double *grad_off,
                        double *loss_off)
{
    struct trial t;
    trial_open(&t, settings, level);
    *loss_off = fmax(*loss_off, fabs(t.output.loss / reference_mean(&t) - 1));
    for (int k = 0; k < t.reference.tensors; k++) {
        double off = check_tensor(&t, &t.reference.tensor[k], directions);
        if (!(off <= 2e-5))
            fail_msg("%s: gradient of %s is off by %g of its length", level,
                     t.reference.tensor[k].name, off);
        *grad_off = fmax(*grad_off, off);
    }
    trial_close(&t);
}

/* fp32 through a few layers of some dozen terms: some units of 2^-24 = 6e-8; the slopes are good
 * to 1e-9. */
static void test_gradients_are_slopes(void **state)
{
    for (int level = 0; device_cpu_level(level); level++) {
        double grad_off = 0, loss_off = 0;
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
            check_model(models[i], device_cpu_level(level), 4, &grad_off, &loss_off);
        print_message("%-8s gradients off by %.2g of their length, losses by %.2g\n",
                      device_cpu_level(level), grad_off, loss_off);
        assert_true(loss_off <= 1e-6);
    }
}

/* So many words that the head takes its rows in chunks, of 64, 64 and 3. */
static void test_head_in_chunks(void **state)
{
    double grad_off = 0, loss_off = 0;
    check_model("model.layers=1 model.hidden=2 model.heads=1 model.head_dim=2 model.ffn=2 "
                "model.vocab=33001 data.seq_len=131 train.global_batch=1 model.init_std=0.1",
                NULL, 1, &grad_off, &loss_off);
    print_message("gradients off by %.2g of their length, loss by %.2g\n", grad_off, loss_off);
    assert_true(loss_off <= 1e-6);
}

/* bf16 keeps 8 bits: the loss is near that of the reference, and so is the gradient's norm. */
static void test_bf16_is_near(void **state)
{
    for (int level = 0; device_cpu_level(level); level++)
        for (size_t i = 1; i < sizeof models / sizeof models[0]; i++) {
            struct trial exact, rounded;
            char text[512];
            snprintf(text, sizeof text, "%s precision=bf16", models[i]);
            trial_open(&exact, models[i], device_cpu_level(level));
            trial_open(&rounded, text, device_cpu_level(level));
            double loss_off = rounded.output.loss / exact.output.loss - 1;
            double norm_off = rounded.output.grad_norm / exact.output.grad_norm - 1;
            print_message("%-8s bf16: loss off by %.2g, norm by %.2g\n", device_cpu_level(level),
                          loss_off, norm_off);
            assert_true(loss_off != 0 && fabs(loss_off) <= 0x1p-7);
            assert_true(norm_off != 0 && fabs(norm_off) <= 0x1p-5);
            trial_close(&exact);
            trial_close(&rounded);
        }
}

/* What cannot be a model is refused with its numbers, while it is written down. */
static void test_mistakes(void **state)
{
    struct graph *graph = graph_create(1, 3, DTYPE_F32);
    struct graph_param w = {.tensors = 1, .tensor_rows = {5}, .dims = 2, .dim = {5, 6}};
    int x = build_input(graph, 7);
    build_linear(graph, x, build_param(graph, &w), -1);
    assert_string_equal(graph->err.text, "linear: input has 7 columns, weight 6");
    build_output(graph, x); /* the first mistake is kept */
    assert_string_equal(graph->err.text, "linear: input has 7 columns, weight 6");
    graph_destroy(graph);
    graph = graph_create(1, 3, DTYPE_F32);
    x = build_input(graph, 18);
    build_attention(graph, x, 4, 3, 2);
    assert_non_null(strstr(graph->err.text, "4 heads are not a multiple of 3"));
    struct error err = {0};
    assert_int_equal(autodiff(graph, &err), -1);
    graph_destroy(graph);
    graph = graph_create(1, 3, DTYPE_F32);
    w = (struct graph_param){
        .tensor_name = {"w"}, .tensors = 2, .tensor_rows = {3, 3}, .dims = 1, .dim = {5}};
    build_param(graph, &w);
    assert_string_equal(graph->err.text, "w: its tensors have 6 rows, and it has 5");
    graph_destroy(graph);
    graph = graph_create(1, 0, DTYPE_F32);
    w = (struct graph_param){.tensors = 1, .tensor_rows = {5}, .dims = 2, .dim = {5, 6}};
    x = build_embedding(graph, build_tokens(graph), build_param(graph, &w));
    build_positions(graph, x, build_param(graph, &w), -1);
    assert_string_equal(graph->err.text, "positions: a table of 5 x 6 for sequences of 0 x 6");
    graph_destroy(graph);
}

static int declare(struct graph *graph, int64_t rows, int64_t columns)
{
    const struct graph_param w = {.tensors = 1,
                                  .tensor_name = {"w"},
                                  .tensor_rows = {rows},
                                  .dims = 2,
                                  .dim = {rows, columns}};
    return build_param(graph, &w);
}

static int declare_vector(struct graph *graph, int64_t elems)
{
    const struct graph_param w = {
        .tensors = 1, .tensor_name = {"v"}, .tensor_rows = {elems}, .dims = 1, .dim = {elems}};
    return build_param(graph, &w);
}

/* The graph is refused so, while it is built or by autodiff; takes it. */
static void check_refused(struct graph *graph, const char *text)
{
    struct error err = {0};
    int rc = autodiff(graph, &err);
    assert_string_equal(err.text, text);
    assert_int_equal(rc, -1);
    graph_destroy(graph);
}

/* What is not in the format in which an op reads it would be other numbers to it. */
static void test_other_formats_are_refused(void **state)
{
    struct graph *graph = graph_create(1, 4, DTYPE_BF16);
    int x = build_input(graph, 6), y = build_linear_fp32(graph, x, declare(graph, 6, 6));
    build_output(graph, build_bias(graph, y, declare_vector(graph, 6)));
    check_refused(graph, "bias: input 0 is in fp32, where bf16 is read");
    graph = graph_create(1, 4, DTYPE_BF16);
    x = build_input(graph, 6), y = build_linear_fp32(graph, x, declare(graph, 6, 6));
    build_output(graph, build_linear(graph, x, declare(graph, 6, 6), y));
    check_refused(graph, "linear: addend is in fp32, the product in bf16");
}

/* Sums of different numbers of elements would read behind the end of one. */
static void test_sums_of_other_shapes_are_refused(void **state)
{
    int sum;
    struct graph *graph = graph_create(1, 4, DTYPE_F32);
    int x = build_input(graph, 6), y = build_linear(graph, x, declare(graph, 5, 6), -1);
    build_output(graph, build_add(graph, x, y));
    check_refused(graph, "add: 24 and 20 elements");
    graph = graph_create(1, 4, DTYPE_F32);
    x = build_input(graph, 6), y = build_linear(graph, x, declare(graph, 5, 6), -1);
    build_output(graph, build_rmsnorm_residual(graph, x, y, declare_vector(graph, 6), 1e-5f, &sum));
    check_refused(graph, "rmsnorm: what is added has another shape than what it is added to");
}

/* The gradient of an activation would be written as that of the first parameter. */
static void test_weights_are_parameters(void **state)
{
    struct graph *graph = graph_create(1, 4, DTYPE_F32);
    int x = build_input(graph, 6), y = build_linear(graph, x, declare(graph, 6, 6), -1);
    build_output(graph, build_linear(graph, y, x, -1));
    check_refused(graph, "linear_weight_grad: value 0, whose gradient it makes, is no parameter");
    graph = graph_create(1, 4, DTYPE_F32);
    x = build_input(graph, 6);
    build_output(graph, build_positions(graph, x, x, -1));
    check_refused(graph, "positions: the table must be a parameter");
}

/* A sum in front of a norm that nothing reads: the rule that would hand on the sum's gradient is
 * the norm's. */
static void test_lost_gradients_are_refused(void **state)
{
    int sum;
    struct graph *graph = graph_create(1, 4, DTYPE_F32);
    int x = build_embedding(graph, build_tokens(graph), declare(graph, 5, 6));
    int y = build_linear(graph, x, declare(graph, 6, 6), -1);
    build_rmsnorm_residual(graph, x, y, declare_vector(graph, 6), 1e-5f, &sum);
    build_output(graph, sum);
    check_refused(graph, "rmsnorm: output 1 has a gradient, which is lost, as output 0 has none: "
                         "nothing reads it");
}

/* Two norms by one weight, and by one bias or by two. */
static struct graph *two_norms(int biases, int frozen)
{
    struct graph *graph = graph_create(1, 4, DTYPE_F32);
    int x = build_input(graph, 6), w = declare_vector(graph, 6), b = declare_vector(graph, 6);
    graph->params[graph->values[w].index].frozen = frozen;
    x = build_layernorm(graph, x, w, b, 1e-5f);
    b = biases > 1 ? declare_vector(graph, 6) : b;
    build_output(graph, build_layernorm(graph, x, w, b, 1e-5f));
    return graph;
}

/* An op writes both gradients or adds to both; one of a frozen parameter has no say in that. */
static void test_two_gradients_of_a_node(void **state)
{
    for (int frozen = 0; frozen < 2; frozen++) {
        struct error err = {0};
        struct graph *graph = two_norms(1, frozen);
        if (autodiff(graph, &err))
            fail_msg("%s", err.text);
        const struct graph_node *last = &graph->nodes[graph->node_count - 1];
        assert_true(last->op == &op_layernorm_backward && last->accumulate);
        assert_true(last[-1].op == &op_layernorm_backward && !last[-1].accumulate);
        graph_destroy(graph);
    }
    struct error err = {0};
    struct graph *graph = two_norms(2, 1);
    assert_int_equal(autodiff(graph, &err), 0);
    graph_destroy(graph);
    check_refused(two_norms(2, 0), "layernorm_backward: of the parameters whose gradients it makes "
                                   "one is used twice, another once");
}

/* The operations of a node that runs products are those of its products: of a head too, whose words
 * are fewer than the rows of its matrix. */
static void test_flops_are_of_products(void **state)
{
    int heads = 0;
    struct error err = {0};
    struct device *device;
    const struct device_request request = {.kind = DEVICE_CPU, .threads = 1};
    assert_int_equal(device_open(&device, &request, &err), 0);
    for (int64_t words = 5; words <= 8; words += 3) {
        struct graph *graph = graph_create(2, 67, DTYPE_F32);
        int x = build_linear(graph, build_input(graph, 6), declare(graph, 6, 6), -1);
        graph->logits_rows = 10;
        build_head_loss_divided(graph, x, declare(graph, 8, 6), build_targets(graph), words, 1);
        assert_int_equal(autodiff(graph, &err), 0);
        for (int i = 0; i < graph->node_count; i++) {
            struct op_product product[OP_PRODUCTS];
            double flops = 0;
            int products = op_products(device, graph, &graph->nodes[i], product);
            for (int k = 0; k < products; k++)
                flops += 2.0 * (double)product[k].times * (double)product[k].gemm.m *
                         (double)product[k].gemm.n * (double)product[k].gemm.k;
            assert_true(!products || flops == op_flops(graph, &graph->nodes[i]));
            heads += products > 1;
        }
        graph_destroy(graph);
    }
    assert_int_equal(heads, 4); /* evaluation's and training's, of each */
    device_close(device);
}

/* Adapted tensors that no adapter of [6, 8] has; of a slice without one, backward would write no
 * gradient. */
static void test_wrong_adapters_are_refused(void **state)
{
    static const struct {
        struct graph_adapter adapted;
        int64_t rows;
        const char *text;
    } cases[] = {
        {.adapted = {.rank = 2,
                     .slices = 2,
                     .tensors = 2,
                     .tensor = {{.columns = 3}, {.first = 5, .columns = 3, .slice = 1}}},
         .rows = 6,
         .text = ""},
        {.adapted = {.rank = 2, .slices = 2, .tensors = 1, .tensor = {{.columns = 6, .slice = 1}}},
         .rows = 6,
         .text = "adapter: no tensor is of slice 0"},
        {.adapted = {.rank = 2, .slices = 2, .tensors = 1, .tensor = {{.columns = 6, .slice = 2}}},
         .rows = 6,
         .text = "adapter: tensor 0 is of slice 2, of 2"},
        {.adapted = {.rank = 2,
                     .slices = 2,
                     .tensors = 2,
                     .tensor = {{.columns = 3}, {.first = 2, .columns = 3, .slice = 1}}},
         .rows = 6,
         .text = "adapter: tensor 1 lies outside of 8 columns, or before others"},
        {.adapted = {.rank = 2,
                     .slices = 2,
                     .tensors = 2,
                     .tensor = {{.columns = 3}, {.first = 3, .columns = 3, .slice = 1}}},
         .rows = 5,
         .text = "adapter: 5 rows are added to 6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct graph *graph = graph_create(2, 3, DTYPE_F32);
        int y = graph_value(graph, VALUE_TEMP, DTYPE_F32, 2, (int64_t[]){6, 8});
        int u = graph_value(graph, VALUE_TEMP, DTYPE_F32, 2, (int64_t[]){cases[i].rows, 4});
        int b = graph_value(graph, VALUE_PARAM, DTYPE_F32, 2, (int64_t[]){6, 2});
        build_adapter(graph, y, u, b, &cases[i].adapted);
        assert_string_equal(graph->err.text, cases[i].text);
        graph_destroy(graph);
    }
}

/* Own rows of one sequence, while another is worked on, of which there are fewer: the rest would be
 * cut off, and of which there are more: zeros would be put behind. */
static void test_rows_of_another_sequence_are_refused(void **state)
{
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int64_t other = 3; other <= 9; other += 6) {
            char text[96];
            struct graph *graph = graph_create(2, 5, DTYPE_F32);
            const struct graph_group group = {.axes = 1, .size = ranks, .row_chunks = 1};
            graph->length[1] = other;
            build_divide_boundaries(graph, group);
            build_gather_rows(graph, build_boundary(graph, "own", 0, 6), group);
            assert_string_equal(graph->err.text, "");
            build_gather_rows(graph, build_boundary(graph, "other", 1, 6), group);
            snprintf(text, sizeof text,
                     "gather_rows: %d own rows, not %d of the sequence worked on",
                     2 * (int)other / ranks, 2 * 5 / ranks);
            assert_string_equal(graph->err.text, text);
            graph_destroy(graph);
        }
}

/* Positions are numbers of rows in the sequence worked on, and would be others in another. */
static void test_positions_of_another_sequence_are_refused(void **state)
{
    for (int is_table = 0; is_table < 2; is_table++)
        for (int sequence = 0; sequence < 2; sequence++) {
            struct graph *graph = graph_create(2, 5, DTYPE_F32);
            graph->length[1] = 7;
            int x = build_boundary(graph, "x", sequence, 6);
            if (is_table)
                build_positions(graph, x, declare(graph, 8, 6), -1);
            else
                build_rope(graph, x, build_rope_table(graph, 2), -1, 1, 1, 2);
            assert_string_equal(graph->err.text, !sequence ? ""
                                                 : is_table
                                                     ? "positions: 14 rows are not 2 sequences of 5"
                                                     : "rope: 14 rows are not 2 sequences of 5");
            graph_destroy(graph);
        }
}

/* Rows that ranks gather, whose gradient one op makes in fp32 and another in bf16. */
static struct graph *gathered(int *all)
{
    struct graph *graph = graph_create(1, 4, DTYPE_BF16);
    graph->tensor = (struct graph_group){.axes = 1, .size = 2, .row_chunks = 1, .fp32 = 1};
    build_divide_boundaries(graph, graph->tensor);
    *all = build_gather_rows(graph, build_input(graph, 6), graph->tensor);
    return graph;
}

static void test_gradients_in_two_formats_are_refused(void **state)
{
    int x;
    struct graph *graph = gathered(&x);
    int y = build_linear(graph, x, declare(graph, 3, 6), -1);
    y = build_add(graph, y, build_swiglu(graph, x));
    build_output(graph, build_scatter_rows(graph, y, graph->tensor));
    check_refused(graph, "linear_input_grad: addend is in bf16, the product in fp32");
    graph = gathered(&x);
    y = build_rmsnorm(graph, x, declare_vector(graph, 6), 1e-5f);
    y = build_linear(graph, x, declare(graph, 6, 6), y);
    build_output(graph, build_scatter_rows(graph, y, graph->tensor));
    check_refused(graph, "rmsnorm_backward: input 1 is in fp32, where bf16 is read");
}

static void give_to_appended(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_add, (int[]){dy, dy}, 2, &node->attrs);
    autodiff_give(ad, ad->graph->nodes[back].out[0], dy);
}

static void take_from_appended(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_add, (int[]){dy, dy}, 2, &node->attrs);
    autodiff_take(ad, ad->graph->nodes[back].out[0]);
}

static void give_less(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_fit_rows, &dy, 1, &(struct op_attrs){.rows = 2});
    autodiff_give(ad, node->in[0], ad->graph->nodes[back].out[0]);
}

/* A gradient of another size than the value's is that of another value. */
static void test_gradients_have_the_size_of_values(void **state)
{
    const struct op wrong = {.name = "less", .shapes = op_shaped_as_first, .gradient = give_less};
    struct graph *graph = graph_create(1, 3, DTYPE_F32);
    int x = build_input(graph, 7);
    struct op_attrs none = {0};
    int node = graph_node(graph, &wrong, &x, 1, &none);
    build_output(graph, graph->nodes[node].out[0]);
    check_refused(graph, "autodiff: a rule gives value 0, of 21 elements, a gradient of 14");
}

/* A rule that mistakes a value which backward makes for one of the model is refused. */
static void test_rules_of_forward_values(void **state)
{
    const struct op wrong[] = {
        {.name = "gives", .shapes = op_shaped_as_first, .gradient = give_to_appended},
        {.name = "takes", .shapes = op_shaped_as_first, .gradient = take_from_appended},
    };
    for (int i = 0; i < 2; i++) {
        struct graph *graph = graph_create(1, 3, DTYPE_F32);
        int x = build_input(graph, 7);
        struct op_attrs none = {0};
        struct error err = {0};
        int node = graph_node(graph, &wrong[i], &x, 1, &none);
        build_output(graph, graph->nodes[node].out[0]);
        assert_int_equal(autodiff(graph, &err), -1);
        assert_string_equal(err.text, "autodiff: a rule takes or gives the gradient of value 3, "
                                      "but only the first 2 are forward values");
        graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_are_slopes),
        cmocka_unit_test(test_head_in_chunks),
        cmocka_unit_test(test_bf16_is_near),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_gradients_have_the_size_of_values),
        cmocka_unit_test(test_other_formats_are_refused),
        cmocka_unit_test(test_sums_of_other_shapes_are_refused),
        cmocka_unit_test(test_weights_are_parameters),
        cmocka_unit_test(test_lost_gradients_are_refused),
        cmocka_unit_test(test_two_gradients_of_a_node),
        cmocka_unit_test(test_flops_are_of_products),
        cmocka_unit_test(test_wrong_adapters_are_refused),
        cmocka_unit_test(test_rows_of_another_sequence_are_refused),
        cmocka_unit_test(test_positions_of_another_sequence_are_refused),
        cmocka_unit_test(test_gradients_in_two_formats_are_refused),
        cmocka_unit_test(test_rules_of_forward_values),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
