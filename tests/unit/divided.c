/* divided.c - see divided.h.
 *
 *   h = norm(x)                        whole, the same on all
 *   t = swiglu(h gate up) w2           a term: the hidden width is divided
 *   q = norm(swiglu(reduce_scatter(t)))  a rank's own rows: the norm's gradient is a term
 *   z = all_gather(q) w3               own columns; there and back by two all_to_alls
 *   s = all_reduce(z w4)               whole
 *   p = all_reduce_max(positions)     of numbers that differ from rank to rank
 *   out = x + s + rope(norm(x + s), p) w6
 *
 * and at the end the loss of norm(x) head, whose rows are divided.
 */
#include "tests/unit/divided.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "graph/build.h"
#include "graph/op.h"
#include "model/transformer.h"
#include "program/compile.h"

enum { WIDTH = 24, UNEVEN = 22, HEAD_DIM = 4 };

/* Rows of a padded head, by the number of ranks: divided evenly or not, with padding behind the
 * vocabulary or none, and the last of four has nothing but padding. */
static const int64_t head_rows[] = {0, PADDED_VOCAB, PADDED_VOCAB, 56, 72};

static int matrix(struct graph *graph, const char *name, int64_t rows, int64_t columns,
                  struct graph_division division)
{
    return transformer_divided_matrix(graph, &(struct transformer_tensor){name, rows}, 1, columns,
                                      0.1, division);
}

static int norm_weight(struct graph *graph, const char *name, int64_t width)
{
    return transformer_vector(graph, &(struct transformer_tensor){name, width}, 1, INIT_ONES);
}

static void block(const struct config_model *c, struct graph *graph)
{
    const struct graph_group group = graph->tensor;
    const struct graph_division rows = {.group = group, .dim = 0}, whole = {0};
    const struct graph_division columns = {.group = group, .dim = 1};
    const struct transformer_tensor gate_up[] = {{"gate", UNEVEN}, {"up", UNEVEN}};
    int64_t hidden = c->hidden;
    int w1 = norm_weight(graph, "norm1", hidden);
    int wg = transformer_divided_matrix(graph, gate_up, 2, hidden, 0.1, rows);
    int w2 = matrix(graph, "in.w2", 2 * hidden, UNEVEN, columns);
    int w3 = matrix(graph, "out.w3", WIDTH, hidden, rows);
    int w4 = matrix(graph, "in.w4", hidden, WIDTH, columns),
        w5 = norm_weight(graph, "norm2", hidden);
    int w6 = matrix(graph, "w6", hidden, hidden, whole), w7 = norm_weight(graph, "norm3", hidden),
        sum;
    int p = build_exchange(graph, &op_all_reduce_max, build_rope_table(graph, HEAD_DIM), group);
    int x = build_input(graph, hidden), h = build_rmsnorm(graph, x, w1, 1e-5f);
    build_divided(graph, h, group);
    build_divided(graph, w7, group);
    int g = build_swiglu(graph, build_linear(graph, h, wg, -1));
    int t = build_linear(graph, g, w2, -1);
    int q = build_swiglu(graph, build_exchange(graph, &op_reduce_scatter, t, group));
    q = build_exchange(graph, &op_all_gather, build_rmsnorm(graph, q, w7, 1),
                       group); /* small rows stay small */
    int z = build_linear(graph, q, w3, -1);
    z = build_exchange(graph, &op_all_to_all, build_exchange(graph, &op_all_to_all, z, group),
                       group);
    int s = build_exchange(graph, &op_all_reduce, build_linear(graph, z, w4, -1), group);
    int y = build_rmsnorm_residual(graph, x, s, w5, 1e-5f, &sum);
    y = build_rope(graph, y, p, -1, hidden / HEAD_DIM - 2, 1, HEAD_DIM);
    build_output(graph, build_linear(graph, y, w6, sum));
}

static void head(const struct config_model *c, struct graph *graph, float loss_factor)
{
    int64_t padded = c->vocab == PADDED_VOCAB ? head_rows[graph->tensor.size] : c->vocab;
    struct transformer_tensor head = {"head", padded};
    struct graph_division division = {.group = graph->tensor};
    int x = build_input(graph, c->hidden);
    int h = build_rmsnorm(graph, x, norm_weight(graph, "norm", c->hidden), 1e-5f);
    int w = transformer_divided_matrix(graph, &head, 1, c->hidden, 0.1, division);
    build_head_loss_divided(graph, h, w, build_targets(graph), c->vocab, loss_factor);
}

/* Boundaries here are whole: not Llama's embedding, which puts out own rows. */
static void embed(const struct config_model *c, struct graph *graph)
{
    int table = matrix(graph, "embed", c->vocab, c->hidden, (struct graph_division){0});
    build_output(graph, build_embedding(graph, build_tokens(graph), table));
}

static void graph_of(const struct model *model, int kind, enum model_purpose purpose,
                     float loss_factor, struct graph *graph)
{
    if (kind == TRANSFORMER_BLOCK)
        block(&model->config, graph);
    else if (kind == TRANSFORMER_HEAD)
        head(&model->config, graph, loss_factor);
    else
        embed(&model->config, graph);
}

static void no_table(const struct model *model, int64_t seq, float *table)
{
}

static const struct model_family family = {
    .name = "divided", .units = transformer_units, .graph = graph_of, .table = no_table};

static void must(int rc, const struct error *err)
{
    if (!rc)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

/* The units of a place of the tensor axis. */
static struct units *units_of(const struct divided *d, const struct config *config, int place)
{
    struct error err = {0};
    struct units *units = NULL;
    struct units_request request = layout_units(&d->layout, config);
    request.tensor.rank = place;
    must(units_create(&units, d->model, &request, d->device, &err), &err);
    return units;
}

void divided_open(struct divided *d, const char *settings, int tensors)
{
    struct error err = {0};
    struct config config = rig_config(settings);
    struct device_request device = {.threads = 1};
    device.kind = config.device == CONFIG_DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU;
    int shards = config.parallel.shard > 1 ? (int)config.parallel.shard : 1;
    int data = config.parallel.replicate > 1 ? shards * (int)config.parallel.replicate : shards;
    *d = (struct divided){.ranks = data * tensors, .tensors = tensors};
    must(layout_resolve(&d->layout, &config, data, 1, device.kind, &err), &err);
    d->layout.shape.degree[MESH_TENSOR] = tensors;
    must(device_open(&d->device, &device, &err), &err);
    d->device->logits_bytes = d->device->logits_most = 1; /* chunks of the fewest rows */
    must(layout_model(&d->model, &config, &err), &err);
    d->model->family = &family;
    d->model->const_width = HEAD_DIM;
    d->units = array_make((size_t)d->ranks, sizeof *d->units);
    d->state = array_make((size_t)d->ranks, sizeof *d->state);
    d->program = array_make((size_t)d->ranks, sizeof *d->program);
    d->evaluate = array_make((size_t)d->ranks, sizeof *d->evaluate);
    for (int r = 0; r < d->ranks; r++) {
        d->units[r] = r < tensors ? units_of(d, &config, r) : d->units[r % tensors];
        d->state[r] = state_create(d->units[r], &d->layout, 1, r);
        d->program[r] = program_create(d->state[r], PROGRAM_TRAIN);
        d->evaluate[r] = program_create(d->state[r], PROGRAM_EVALUATE);
    }
}

void divided_close(struct divided *d)
{
    for (int r = 0; r < d->ranks; r++) {
        program_destroy(d->program[r]);
        program_destroy(d->evaluate[r]);
        state_destroy(d->state[r]);
        if (r < d->tensors)
            units_destroy(d->units[r]);
    }
    free(d->program);
    free(d->evaluate);
    free(d->state);
    free(d->units);
    model_destroy(d->model);
    device_close(d->device);
    layout_release(&d->layout);
}

void divided_table(const struct divided *d, int rank, float *table)
{
    for (int64_t i = 0; i < d->units[0]->request.seq[0] * HEAD_DIM; i++) {
        float largest = (float)(i % 17) / 8 - 1;
        table[i] = i % d->tensors == rank % d->tensors ? largest
                                                       : largest - 1 - (float)(rank % d->tensors);
    }
}
