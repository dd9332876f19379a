/* test_adapters.c - a model with adapters against the same model without them, whose matrices are
 * W + factor * B A: the same loss, and gradients that follow from dW by the product rule:
 * dB = factor * dW A^T and dA = factor * B^T dW.  The two share no op of adapters.
 *
 * With magnitudes (DoRA) each row of that is scaled by c = m / its norm, which is held fixed: then
 * c dW stands in place of dW, and dm is the sum over a row of dW (W + factor * B A) / norm.  The
 * same gradients are compared with difference quotients of a model in double precision, with norms
 * held fixed and with norms that follow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "comm/mesh.h"
#include "graph/autodiff.h"
#include "graph/build.h"
#include "graph/op.h"
#include "model/adapters.h"
#include "model/names.h"
#include "tests/unit/reference.h"
#include "tests/unit/rig.h"
#include "verify/division.h"

enum { BATCH = 3, SEQ = 11, VOCAB = 23 };

#define SIZES                                                                             \
    "model.layers=2 model.hidden=20 model.heads=4 model.head_dim=6 model.ffn=14 "         \
    "model.vocab=23 data.seq_len=11 train.global_batch=3 train.micro_batch=2 train.lr=0 " \
    "train.weight_decay=0 train.clip=0 model.init_std=0.3 run.threads=1 "

/* Settings of the model, and of its adapters. */
static const struct trial {
    const char *model, *lora;
} trials[] = {
    {"model.family=llama model.kv_heads=2", "lora.r=3 lora.alpha=5"},
    {"model.family=llama model.kv_heads=4 model.tie_embeddings=true",
     "lora.r=2 lora.alpha=7 lora.use_rslora=true lora.target_modules=all-linear"},
    {"model.family=llama model.kv_heads=1",
     "lora.r=5 lora.target_modules=k_proj,up_proj,self_attn.o_proj "
     "lora.modules_to_save=lm_head,down_proj"},
    {"model.family=gpt2 model.tie_embeddings=true", "lora.r=3 lora.alpha=5"},
    {"model.family=gpt2", "lora.r=1 lora.target_modules=all-linear"},
    {"model.family=llama model.kv_heads=2", "lora.r=3 lora.alpha=5 lora.use_dora=true"},
    {"model.family=llama model.kv_heads=1 recompute=full",
     "lora.r=5 lora.target_modules=k_proj,up_proj,self_attn.o_proj lora.use_dora=true "
     "lora.modules_to_save=lm_head,down_proj"},
    {"model.family=gpt2 recompute=selective",
     "lora.r=2 lora.target_modules=all-linear lora.use_dora=true"},
};

static int32_t tokens[4 * SEQ], targets[4 * SEQ];

static float *at(const struct session *s, const char *name, enum rig_state which, int64_t *elems)
{
    int flat;
    const struct flat_tensor *tensor = rig_tensor(s, name, &flat);
    if (!tensor)
        return NULL;
    if (elems)
        *elems = tensor->elems;
    return rig_state(s, flat, which) + tensor->offset;
}

static double step(struct session *s)
{
    struct error err = {0};
    struct rig_data data = {s->layout.micro_batch, SEQ, tokens, targets};
    struct step_input input = rig_input(s, 1);
    struct step_output output;
    input.load = rig_load;
    input.user = &data;
    if (executor_run_step(s->executor, s->train, &input, &output, NULL, &err))
        fail_msg("%s", err.text);
    return output.loss;
}

static struct session *open_session(struct mem *mem, const char *settings)
{
    struct config config = rig_config(settings);
    struct session *s = rig_open(mem, &config, NULL, 0);
    rig_init(s);
    return s;
}

/* A tensor and its adapter: W [rows, columns], A [rank, columns], B [rows, rank], and, where it has
 * magnitudes, M [rows]. */
enum { A, B, M, TENSORS };
struct adapted {
    char name[TENSORS][HF_NAME + 32];
    int64_t rows, columns, rank;
};

/* That of a tensor of the plain model; 0: it has none. */
static int find(const struct session *s, const struct flat_tensor *w, struct adapted *found)
{
    char first[HF_NAME];
    snprintf(found->name[B], sizeof found->name[B], "%s.lora_B", w->name);
    if (!at(s, found->name[B], RIG_MASTER, NULL))
        return 0;
    model_hf_first(s->model, w->name, first);
    snprintf(found->name[A], sizeof found->name[A], "%s.lora_A", first);
    snprintf(found->name[M], sizeof found->name[M], "%s.lora_magnitude_vector", w->name);
    assert_non_null(at(s, found->name[A], RIG_MASTER, NULL));
    assert_int_equal(at(s, found->name[M], RIG_MASTER, NULL) != NULL, s->config.lora.use_dora);
    found->rows = w->box.whole[0];
    found->columns = w->box.whole[1];
    found->rank = s->config.lora.r;
    return 1;
}

/* Numbers of an adapted tensor in double. */
struct numbers {
    double *w, *t[TENSORS];
};

static double *doubles(const struct session *s, const char *name)
{
    int64_t elems = 0;
    const float *from = at(s, name, RIG_MASTER, &elems);
    double *to = from ? calloc((size_t)elems, sizeof *to) : NULL;
    for (int64_t i = 0; from && i < elems; i++)
        to[i] = from[i];
    return to;
}

static struct numbers take(const struct session *s, const char *w, const struct adapted *own)
{
    struct numbers n = {.w = doubles(s, w)};
    for (int t = 0; t < TENSORS; t++)
        n.t[t] = doubles(s, own->name[t]);
    return n;
}

static void release(struct numbers *n)
{
    free(n->w);
    for (int t = 0; t < TENSORS; t++)
        free(n->t[t]);
}

/* Element c of a row of W + factor * B A. */
static double added(const struct session *s, const struct adapted *own, const struct numbers *n,
                    int64_t row, int64_t c)
{
    double sum = 0;
    for (int64_t k = 0; k < own->rank; k++)
        sum += n->t[B][row * own->rank + k] * n->t[A][k * own->columns + c];
    return n->w[row * own->columns + c] + adapters_factor(&s->config.lora) * sum;
}

static double norm_of(const struct session *s, const struct adapted *own, const struct numbers *n,
                      int64_t row)
{
    double squares = 0;
    for (int64_t c = 0; c < own->columns; c++)
        squares += pow(added(s, own, n, row, c), 2);
    return sqrt(squares);
}

/* What a row is multiplied by. */
static double scale_of(const struct session *s, const struct adapted *own, const struct numbers *n,
                       int64_t row)
{
    return n->t[M] ? n->t[M][row] / norm_of(s, own, n, row) : 1;
}

/* Random numbers in place of B's zeros, and of magnitudes that are norms of W's rows. */
static void randomize(const struct session *s, const struct flat_tensor *w,
                      const struct adapted *own)
{
    struct numbers n = take(s, w->name, own);
    float *m = at(s, own->name[M], RIG_MASTER, NULL);
    for (int64_t row = 0; m && row < own->rows; row++) {
        assert_true(fabs(m[row] / norm_of(s, own, &n, row) - 1) < 1e-6);
        m[row] *= 1 + 0.2f * philox_normal(philox_key(6, own->name[M]), (uint64_t)row);
    }
    philox_fill_normal(at(s, own->name[B], RIG_MASTER, NULL), philox_key(5, own->name[B]), 0,
                       own->rows * own->rank, 0.3f);
    release(&n);
}

/* Random adapters; then the merged W in the plain model, for all W. */
static int merge(struct session *s, struct session *plain)
{
    int merged = 0;
    for (int f = 0; f < plain->units->flats; f++)
        for (int t = 0; t < plain->units->flat[f].tensors; t++) {
            const struct flat_tensor *w = &plain->units->flat[f].tensor[t];
            float *to = rig_state(plain, f, RIG_MASTER) + w->offset;
            struct adapted own;
            memcpy(to, at(s, w->name, RIG_MASTER, NULL), (size_t)w->elems * sizeof *to);
            if (!find(s, w, &own))
                continue;
            randomize(s, w, &own);
            struct numbers n = take(s, w->name, &own);
            for (int64_t i = 0; i < w->elems; i++)
                to[i] = (float)(scale_of(s, &own, &n, i / own.columns) *
                                added(s, &own, &n, i / own.columns, i % own.columns));
            release(&n);
            merged++;
        }
    rig_refresh(s);
    rig_refresh(plain);
    return merged;
}

static double distance(const float *got, const double *wanted, int64_t elems)
{
    double most = 0, off = 0;
    for (int64_t i = 0; i < elems; i++) {
        most = fabs(wanted[i]) > most ? fabs(wanted[i]) : most;
        off = fabs(got[i] - wanted[i]) <= off ? off : fabs(got[i] - wanted[i]);
    }
    assert_true(most > 1e-4);
    return off / most;
}

/* dB and dm of one tensor, and what it adds to the gradient of its A. */
static void check_b(const struct session *s, const struct session *plain,
                    const struct flat_tensor *w, const struct adapted *own, double *da)
{
    const float *dw = at(plain, w->name, RIG_GRAD, NULL);
    struct numbers n = take(s, w->name, own);
    double *db = calloc((size_t)(own->rows * own->rank), sizeof *db);
    double *dm = calloc((size_t)own->rows, sizeof *dm);
    for (int64_t row = 0; row < own->rows; row++) {
        double factor = adapters_factor(&s->config.lora) * scale_of(s, own, &n, row);
        double norm = norm_of(s, own, &n, row);
        for (int64_t c = 0; c < own->columns; c++) {
            double grad = dw[row * own->columns + c];
            dm[row] += grad * added(s, own, &n, row, c) / norm;
            for (int64_t k = 0; k < own->rank; k++) {
                db[row * own->rank + k] += factor * grad * n.t[A][k * own->columns + c];
                da[k * own->columns + c] += factor * grad * n.t[B][row * own->rank + k];
            }
        }
    }
    assert_true(distance(at(s, own->name[B], RIG_GRAD, NULL), db, own->rows * own->rank) < 2e-5);
    if (n.t[M])
        assert_true(distance(at(s, own->name[M], RIG_GRAD, NULL), dm, own->rows) < 2e-5);
    release(&n);
    free(db);
    free(dm);
}

/* The gradients of all adapters; A's is the sum over the tensors that have it. */
static void check_gradients(const struct session *s, const struct session *plain)
{
    struct adapted own, other;
    for (int f = 0; f < plain->units->flats; f++)
        for (int t = 0; t < plain->units->flat[f].tensors; t++) {
            const struct flat *flat = &plain->units->flat[f];
            if (!find(s, &flat->tensor[t], &own) ||
                strncmp(own.name[A], flat->tensor[t].name,
                        strlen(own.name[A]) - strlen(".lora_A")) != 0)
                continue;
            int64_t elems = own.rank * own.columns;
            double *da = calloc((size_t)elems, sizeof *da);
            for (int i = 0; i < flat->tensors; i++)
                if (find(s, &flat->tensor[i], &other) && !strcmp(other.name[A], own.name[A]))
                    check_b(s, plain, &flat->tensor[i], &other, da);
            assert_true(distance(at(s, own.name[A], RIG_GRAD, NULL), da, elems) < 2e-5);
            free(da);
        }
}

/* Everything is frozen but adapters and what modules_to_save names, whose gradients are the plain
 * model's. */
static int check_others(const struct session *s, const struct session *plain)
{
    int saved = 0;
    for (int f = 0; f < s->units->flats; f++) {
        const struct flat *flat = &s->units->flat[f];
        for (int t = 0; t < flat->tensors; t++) {
            const char *name = flat->tensor[t].name;
            assert_int_equal(flat->trained, adapters_train(s->model, name));
            if (!flat->trained || adapters_own(name))
                continue;
            double *wanted = calloc((size_t)flat->tensor[t].elems, sizeof *wanted);
            for (int64_t i = 0; i < flat->tensor[t].elems; i++)
                wanted[i] = at(plain, name, RIG_GRAD, NULL)[i];
            assert_true(distance(at(s, name, RIG_GRAD, NULL), wanted, flat->tensor[t].elems) <
                        2e-5);
            free(wanted);
            saved++;
        }
    }
    return saved;
}

static void merged_models(void **state)
{
    char settings[1024];
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        struct mem mem = {0};
        snprintf(settings, sizeof settings, SIZES "%s %s", trials[i].model, trials[i].lora);
        struct session *s = open_session(&mem, settings);
        double begins = step(s); /* B is 0 */
        snprintf(settings, sizeof settings, SIZES "%s", trials[i].model);
        struct session *plain = open_session(&mem, settings);
        assert_true(fabs(step(plain) / begins - 1) < 1e-6);
        assert_true(merge(s, plain) >= 2);
        double loss = step(s), wanted = step(plain);
        assert_true(fabs(loss / wanted - 1) < 1e-6);
        assert_true(fabs(loss / begins - 1) > 1e-3);
        check_gradients(s, plain);
        assert_int_equal(check_others(s, plain), strstr(trials[i].lora, "down_proj") ? 3 : 0);
        session_close(s);
        session_close(plain);
        assert_int_equal(mem.blocks, 0);
    }
}

/* ---- difference quotients ---- */

/* The merged W in the reference, with `by` times direction added to tensor t of its adapter, and
 * with these norms, or, NULL, those of the rows as they are then. */
static double loss_beside(struct reference *r, const struct session *s, const char *w,
                          const struct adapted *own, const struct numbers *n, int t, double by,
                          const double *direction, int64_t elems, const double *norm)
{
    struct numbers moved = take(s, w, own);
    double *to = reference_find(r, w);
    for (int64_t i = 0; i < elems; i++)
        moved.t[t][i] = n->t[t][i] + by * direction[i];
    for (int64_t i = 0; i < own->rows * own->columns; i++) {
        int64_t row = i / own->columns;
        to[i] = moved.t[M][row] / (norm ? norm[row] : norm_of(s, own, &moved, row)) *
                added(s, own, &moved, row, i % own->columns);
    }
    release(&moved);
    return reference_loss(r, tokens, targets, BATCH, SEQ, NULL);
}

/* How far the gradient along a random direction is from the slope, over the gradient's length. */
static double slope_off(struct reference *r, const struct session *s, const char *w,
                        const struct adapted *own, int t, const double *norm)
{
    int64_t elems = 0;
    struct numbers n = take(s, w, own);
    const float *grad = at(s, own->name[t], RIG_GRAD, &elems);
    double *direction = calloc((size_t)elems, sizeof *direction);
    double along = 0, length = 0, quotient[2];
    for (int64_t i = 0; i < elems; i++) {
        direction[i] =
            philox_normal(philox_key(7, own->name[t]), (uint64_t)i) / sqrt((double)elems);
        along += grad[i] * direction[i];
        length += (double)grad[i] * grad[i];
    }
    for (int k = 0; k < 2; k++) {
        double by = 1e-3 / (1 + k);
        quotient[k] = (loss_beside(r, s, w, own, &n, t, by, direction, elems, norm) -
                       loss_beside(r, s, w, own, &n, t, -by, direction, elems, norm)) /
                      (2 * by);
    }
    loss_beside(r, s, w, own, &n, t, 0, direction, elems, norm);
    release(&n);
    free(direction);
    /* Gradients are of the loss summed over targets, and divided by all tokens. */
    return fabs(along - (4 * quotient[1] - quotient[0]) / 3 / (BATCH * SEQ)) / sqrt(length);
}

/* Magnitudes and matrices have the slopes of a loss in which norms are constants, and not those of
 * one in which they follow. */
static void slopes(void **state)
{
    static const char *const names[] = {"layers.0.attn.q", "layers.0.attn.o", "layers.1.mlp.up",
                                        "layers.1.mlp.down"};
    struct mem mem = {0};
    struct reference r;
    struct session *plain = open_session(&mem, SIZES "train.micro_batch=3");
    struct session *s =
        open_session(&mem, SIZES "train.micro_batch=3 lora.r=3 lora.alpha=5 lora.use_dora=true "
                                 "lora.target_modules=all-linear");
    merge(s, plain);
    step(s);
    reference_take(&r, plain);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct adapted own;
        int flat;
        assert_true(find(s, rig_tensor(plain, names[i], &flat), &own));
        struct numbers n = take(s, names[i], &own);
        double *norm = calloc((size_t)own.rows, sizeof *norm);
        for (int64_t row = 0; row < own.rows; row++)
            norm[row] = norm_of(s, &own, &n, row);
        for (int t = 0; t < TENSORS; t++) {
            double fixed = slope_off(&r, s, names[i], &own, t, norm);
            double moving = slope_off(&r, s, names[i], &own, t, NULL);
            if (fixed > 1e-5 || (t != M && moving < 1e-4))
                fail_msg("%s: off by %g where norms are held, by %g where they follow", own.name[t],
                         fixed, moving);
        }
        release(&n);
        free(norm);
    }
    reference_free(&r);
    session_close(s);
    session_close(plain);
    assert_int_equal(mem.blocks, 0);
}

/* A's first numbers: PyTorch's bound, both signs, and no layer like another. */
static void first_numbers(void **state)
{
    struct mem mem = {0};
    struct session *s = open_session(&mem, SIZES "lora.r=4 lora.target_modules=all-linear");
    int64_t elems = 0, others = 0;
    const float *a = at(s, "layers.0.attn.q.lora_A", RIG_MASTER, &elems);
    const float *other = at(s, "layers.1.attn.q.lora_A", RIG_MASTER, &others);
    double bound = 1 / sqrt(20), sum = 0, most = 0;
    assert_int_equal(elems, 4 * 20);
    for (int64_t i = 0; i < elems; i++) {
        assert_true(fabs(a[i]) <= bound && a[i] != other[i]);
        sum += a[i];
        most = fabs(a[i]) > most ? fabs(a[i]) : most;
    }
    assert_true(fabs(sum / (double)elems) < bound / 4 && most > 0.9 * bound);
    const float *b = at(s, "layers.1.mlp.down.lora_B", RIG_MASTER, &elems);
    for (int64_t i = 0; i < elems; i++)
        assert_true(b[i] == 0);
    session_close(s);
}

/* Nothing below the lowest adapter is computed in backward. */
static void frozen_below(void **state)
{
    struct mem mem = {0};
    struct session *s = open_session(&mem, SIZES "lora.r=4 lora.target_modules=all-linear");
    for (int u = 0; u < s->units->count; u++) {
        const struct graph *graph = units_kind(s->units, u)->train;
        for (int k = 0; k < graph->inputs; k++)
            assert_int_equal(graph->input[k].frozen, u < 2);
    }
    const struct segment *embed = units_segment(s->units, 0, PHASE_BACKWARD);
    assert_true(rig_flops(embed) == 0 && embed->steps == 0);
    session_close(s);
}

/* ---- ranks that divide a block ---- */

enum fault { RIGHT, NO_SUM, SUM_TWICE, NO_DIVIDED, DIVIDED_ROWS, OF_OTHERS, OF_KEYS, FAULTS };

/* The node behind `after` that runs an op. */
static struct graph_node *find_node(struct graph *graph, const struct op *op, int after)
{
    for (int i = after + 1; i < graph->node_count; i++)
        if (graph->nodes[i].op == op)
            return &graph->nodes[i];
    fail_msg("no %s", op->name);
    return NULL;
}

/* The first magnitudes are of own rows of queries, keys and values, the second of the sum that
 * follows attention, whose squares are summed. */
static void spoil(struct graph *graph, enum fault fault)
{
    struct graph_node *first = find_node(graph, &op_magnitude, -1);
    struct graph_node *second = find_node(graph, &op_magnitude, (int)(first - graph->nodes));
    struct graph_node *squares = find_node(graph, &op_row_squares, (int)(first - graph->nodes));
    struct graph_value *m = &graph->values[second->in[1]];
    if (fault == NO_SUM)
        second->in[2] = squares->out[0];
    if (fault == SUM_TWICE) /* of what is whole: the magnitudes */
        find_node(graph, &op_all_reduce, (int)(squares - graph->nodes))->in[0] = second->in[1];
    if (fault == NO_DIVIDED)
        m->divided = (struct graph_group){0};
    if (fault == DIVIDED_ROWS)
        graph->params[m->index].division = (struct graph_division){.group = graph->tensor};
    if (fault == OF_OTHERS)
        first->attrs.adapted.tensor[1].first = 0;
    if (fault == OF_KEYS) /* the first tensor, queries, at the place of the second */
        first->attrs.adapted.tensor[0].first = first->attrs.adapted.tensor[1].first;
}

/* The check of graphs that are divided notices each. */
static void faults_of_magnitudes(void **state)
{
    static const char *const expected[FAULTS] = {
        [NO_SUM] = "magnitude (attn.o.lora_magnitude_vector) reads the result of row_squares "
                   "(attn.o), over tensor a term of a sum: its sum over tensor is missing",
        [SUM_TWICE] = "all_reduce (attn.o.lora_magnitude_vector) reads parameter "
                      "attn.o.lora_magnitude_vector, over tensor whole: summed again",
        [NO_DIVIDED] = "the gradient of parameter attn.o.lora_magnitude_vector is made of a rank's "
                       "own rows, and no sum is taken of it",
        [DIVIDED_ROWS] = "reads parameter attn.o.lora_magnitude_vector, over tensor own elements",
        [OF_OTHERS] = "magnitude (attn.q.lora_magnitude_vector) reads parameter "
                      "attn.q.lora_magnitude_vector, over tensor own elements: the columns that it "
                      "belongs to are divided otherwise",
        [OF_KEYS] = "magnitude (attn.q.lora_magnitude_vector) reads parameter "
                    "attn.q.lora_magnitude_vector, over tensor own elements: the columns that it "
                    "belongs to are divided otherwise",
    };
    const struct graph_group tensor = {.axes = 1u << MESH_TENSOR, .size = 2, .row_chunks = 1};
    const struct model_graph form = {.purpose = MODEL_LOSS,
                                     .batch = 2,
                                     .seq = {SEQ, SEQ},
                                     .dtype = DTYPE_F32,
                                     .tensor = tensor,
                                     .loss_factor = 1};
    struct config config =
        rig_config(SIZES "model.kv_heads=2 model.heads=8 lora.r=3 lora.target_modules=all-linear "
                         "lora.use_dora=true");
    struct error err = {0};
    struct model *model;
    assert_int_equal(model_create(&model, &config.model, &err), 0);
    assert_int_equal(adapters_add(model, &config.lora, &err), 0);
    for (enum fault fault = 0; fault < FAULTS; fault++) {
        struct graph *graph = model_unit_graph(model, 1, &form, &err);
        assert_non_null(graph);
        spoil(graph, fault);
        err.text[0] = 0;
        int rc = division_check(graph, "layers.0", tensor.axes, 1, &err);
        if (rc != (fault ? -1 : 0) || (fault && !strstr(err.text, expected[fault])))
            fail_msg("fault %d: \"%s\"", fault, err.text);
        graph_destroy(graph);
    }
    model_destroy(model);
}

/* W A^T of w [5, 7] and a [2, 7], and A A^T; then W, W A^T and b are read, and squares written. */
static void counts_its_products(const struct graph *graph, const struct graph_node *node)
{
    struct op_product product[OP_PRODUCTS];
    assert_int_equal(op_products(NULL, graph, node, product), 2);
    assert_int_equal(product[0].gemm.m * product[0].gemm.n * product[0].gemm.k, 5 * 2 * 7);
    assert_int_equal(product[1].gemm.m * product[1].gemm.n * product[1].gemm.k, 2 * 2 * 7);
    assert_int_equal(product[0].times + product[1].times, 2);
    assert_int_equal(op_bytes(graph, node), (5 * 7 + 5 * 2 + 5 * 2 + 5) * 4);
}

/* A rule that gave the norm a gradient is refused, and none does. */
static void norms_are_constants(void **state)
{
    for (int fault = 0; fault < 2; fault++) {
        struct graph *graph = graph_create(1, 3, DTYPE_F32);
        struct graph_param w = {
            .tensor_name = {"w"}, .tensors = 1, .tensor_rows = {5}, .dims = 2, .dim = {5, 7}};
        struct graph_param a = {
            .tensor_name = {"a"}, .tensors = 1, .tensor_rows = {2}, .dims = 2, .dim = {2, 7}};
        struct graph_param b = {
            .tensor_name = {"b"}, .tensors = 1, .tensor_rows = {5}, .dims = 2, .dim = {5, 2}};
        struct graph_param m = {
            .tensor_name = {"m"}, .tensors = 1, .tensor_rows = {5}, .dims = 1, .dim = {5}};
        const struct graph_adapter adapted = {
            .rank = 2, .slices = 1, .tensors = 1, .tensor = {{.columns = 5}}};
        struct error err = {0};
        int x = build_input(graph, 7), v = build_param(graph, &w);
        int squares = build_row_squares(graph, v, build_param(graph, &a), build_param(graph, &b), 1,
                                        &adapted);
        int y = build_magnitude(graph, build_linear(graph, x, v, -1), build_param(graph, &m),
                                squares, &adapted);
        build_output(graph, fault ? build_scale(graph, squares, 2) : y);
        counts_its_products(graph, &graph->nodes[graph->values[squares].producer]);
        assert_int_equal(autodiff(graph, &err), fault ? -1 : 0);
        assert_true(!fault || strstr(err.text, "no gradient passes through a norm of rows"));
        graph_destroy(graph);
    }
}

int main(void)
{
    for (int i = 0; i < 4 * SEQ; i++) {
        tokens[i] = (int32_t)(philox_u64(1, (uint64_t)i) % VOCAB);
        targets[i] = i % 7 == 5 ? -1 : (int32_t)(philox_u64(2, (uint64_t)i) % VOCAB);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_models),        cmocka_unit_test(slopes),
        cmocka_unit_test(faults_of_magnitudes), cmocka_unit_test(norms_are_constants),
        cmocka_unit_test(first_numbers),        cmocka_unit_test(frozen_below),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
