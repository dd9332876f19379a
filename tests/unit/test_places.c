/* test_places.c - positions and documents that data gives, from LOAD to the ops that read them: in
 * a model whose embedding has learned positions and whose attention rotates, sees documents, or
 * not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "graph/build.h"
#include "model/transformer.h"
#include "program/compile.h"
#include "tests/unit/rig.h"
#include "train/lr_schedule.h"
#include "verify/verify.h"

#define MODEL                                                                     \
    "model.layers=2 model.hidden=24 model.heads=4 model.kv_heads=2 model.ffn=12 " \
    "model.vocab=53 model.max_seq_len=40 train.clip=0 precision=fp32 "

enum { VOCAB = 53, ROWS = 96 };

/* What of a row's place the graphs read from data. */
static struct reads {
    int positions, documents;
} reads;

static int matrix(struct graph *graph, const char *name, int64_t rows, int64_t columns)
{
    return transformer_matrix(graph, &(struct transformer_tensor){name, rows}, 1, columns, 0.1);
}

static void embed(const struct config_model *c, struct graph *graph)
{
    int table = matrix(graph, "embed", c->vocab, c->hidden);
    int learned = matrix(graph, "positions", c->max_seq_len, c->hidden);
    int positions = reads.positions ? build_row_positions(graph) : -1;
    int x = build_embedding(graph, build_tokens(graph), table);
    build_output(graph, build_positions(graph, x, learned, positions));
}

static void block(const struct config_model *c, struct graph *graph)
{
    int64_t d = c->head_dim, q = c->heads * d, kv = c->kv_heads * d;
    struct transformer_tensor stacked[] = {{"q", q}, {"k", kv}, {"v", kv}};
    struct transformer_tensor norm = {"norm", c->hidden};
    int x = build_input(graph, c->hidden), table = build_rope_table(graph, d);
    int w = transformer_vector(graph, &norm, 1, INIT_ONES);
    int wqkv = transformer_matrix(graph, stacked, 3, c->hidden, 0.3);
    int wo = matrix(graph, "o", c->hidden, q);
    int qkv = build_linear(graph, build_rmsnorm(graph, x, w, 1e-5f), wqkv, -1);
    int positions = reads.positions ? build_row_positions(graph) : -1;
    qkv = build_rope(graph, qkv, table, positions, c->heads, c->kv_heads, d);
    int o = build_attention_of(
        graph,
        &(struct build_attention){.q = qkv,
                                  .kv = -1,
                                  .documents = reads.documents ? build_row_documents(graph) : -1,
                                  .heads = c->heads,
                                  .kv_heads = c->kv_heads,
                                  .head_dim = d});
    build_output(graph, build_linear(graph, o, wo, x));
}

static void graph_of(const struct model *model, int kind, enum model_purpose purpose,
                     float loss_factor, struct graph *graph)
{
    if (kind == TRANSFORMER_EMBED)
        embed(&model->config, graph);
    else if (kind == TRANSFORMER_BLOCK)
        block(&model->config, graph);
    else
        model_llama.graph(model, kind, purpose, loss_factor, graph);
}

/* Rows of data: where each is in its document, and where that begins. */
struct rows {
    int64_t batch, seq;
    int32_t token[ROWS], target[ROWS], position[ROWS], document[ROWS];
};

static int load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct rows *r = user;
    size_t bytes = (size_t)(r->batch * r->seq) * sizeof(int32_t);
    int64_t first = batch->micro * r->batch * r->seq;
    memcpy(batch->tokens[0], r->token + first, bytes);
    memcpy(batch->targets, r->target + first, bytes);
    return 0;
}

static int load_positions(void *user, const struct step_batch *batch, struct error *err)
{
    const struct rows *r = user;
    size_t bytes = (size_t)(r->batch * r->seq) * sizeof(int32_t);
    int64_t first = batch->micro * r->batch * r->seq;
    if (batch->positions[0])
        memcpy(batch->positions[0], r->position + first, bytes);
    if (batch->documents[0])
        memcpy(batch->documents[0], r->document + first, bytes);
    return 0;
}

/* A model of one rank, with its program. */
struct run {
    struct model_family family;
    struct config config;
    struct layout layout;
    struct device *device;
    struct model *model;
    struct units *units;
    struct state *state;
    struct program *program;
    struct executor *x;
    struct mem mem;
    double loss;
};

/* Gradients are those of the sum over tokens, whatever the batch: verify does not accept that. */
static void take_sums(struct units *units)
{
    for (int k = 0; k < units->kinds; k++)
        for (int n = 0; n < units->kind[k].train->node_count; n++) {
            struct graph_node *node = &units->kind[k].train->nodes[n];
            if (node->op == &op_head_loss_train)
                node->attrs.scale = 1;
        }
}

static void open_run(struct run *r, const char *settings, struct reads what)
{
    struct error err = {0};
    struct device_request device = {.kind = DEVICE_CPU, .threads = 1};
    *r = (struct run){.family = model_llama, .config = rig_config(settings)};
    reads = what;
    r->family.graph = graph_of;
    assert_int_equal(layout_resolve(&r->layout, &r->config, 1, 1, device.kind, &err), 0);
    assert_int_equal(device_open(&r->device, &device, &err), 0);
    assert_int_equal(layout_model(&r->model, &r->config, &err), 0);
    r->model->family = &r->family;
    struct units_request request = layout_units(&r->layout, &r->config);
    if (units_create(&r->units, r->model, &request, r->device, &err))
        fail_msg("%s", err.text);
    r->state = state_create(r->units, &r->layout, 1, 0);
    r->program = program_create(r->state, PROGRAM_TRAIN);
    const struct program *program = r->program;
    if (verify_program(r->program, &err) ||
        executor_create(&r->x, r->device, NULL, &r->mem, &program, 1, NULL, "", &err))
        fail_msg("%s", err.text);
    take_sums(r->units);
    for (int b = 0; b < r->state->buffers; b++)
        memset(executor_buffer(r->x, &program->buffer[b]), 0, program->buffer[b].bytes);
    for (int f = 0; f < r->units->flats; f++)
        for (int t = 0; t < r->units->flat[f].tensors; t++) {
            const struct flat_tensor *tensor = &r->units->flat[f].tensor[t];
            float *to = executor_buffer(r->x, &r->state->buffer[r->state->flat[f].param]);
            philox_fill_normal(to + tensor->offset, philox_key(3, tensor->name), 0, tensor->elems,
                               0.3f);
            for (int64_t e = 0; tensor->box.dims == 1 && e < tensor->elems; e++)
                to[tensor->offset + e] += 1;
        }
    r->family.table(r->model, request.seq[0],
                    executor_buffer(r->x, &r->state->buffer[r->state->constants]));
}

static void close_run(struct run *r)
{
    executor_destroy(r->x);
    program_destroy(r->program);
    state_destroy(r->state);
    units_destroy(r->units);
    model_destroy(r->model);
    layout_release(&r->layout);
    device_close(r->device);
    assert_int_equal(r->mem.blocks, 0);
}

static int step(struct run *r, const struct rows *rows, struct error *err)
{
    struct step_output output = {0};
    struct step_input input = {.load = load,
                               .load_positions = load_positions,
                               .user = (void *)rows,
                               .rule = lr_schedule_rule(&r->config.train, 1),
                               .step = 1,
                               .nominal_targets = 10};
    int rc = executor_run_step(r->x, r->program, &input, &output, NULL, err);
    r->loss = output.loss;
    return rc;
}

/* Sequences whose documents have these lengths, one behind the other; the last token of each has no
 * target. */
static void fill(struct rows *rows, int64_t batch, int64_t seq, const int *lengths)
{
    *rows = (struct rows){.batch = batch, .seq = seq};
    for (int64_t at = 0; *lengths; at += *lengths++)
        for (int64_t i = 0; i < *lengths; i++) {
            rows->token[at + i] = (int32_t)(philox_u64(5, (uint64_t)(at + i)) % VOCAB);
            rows->target[at + i] = i + 1 < *lengths ? (rows->token[at + i] * 3 + 1) % VOCAB : -1;
            rows->position[at + i] = (int32_t)i;
            rows->document[at + i] = (int32_t)(at % seq);
        }
}

/* The largest difference of gradients, relative to the largest of the tensor. */
static double distance(const struct run *a, const struct run *b)
{
    double worst = 0;
    for (int f = 0; f < a->units->flats; f++)
        for (int t = 0; t < a->units->flat[f].tensors; t++) {
            const struct flat_tensor *tensor = &a->units->flat[f].tensor[t];
            const float *x = executor_buffer(a->x, &a->program->buffer[a->state->flat[f].grad]);
            const float *y = executor_buffer(b->x, &b->program->buffer[b->state->flat[f].grad]);
            double size = 0, off = 0;
            for (int64_t i = tensor->offset; i < tensor->offset + tensor->elems; i++) {
                size = fmax(size, fabs(y[i]));
                off = fmax(off, fabs((double)x[i] - y[i]));
            }
            assert_true(size > 0);
            worst = fmax(worst, off / size);
        }
    return worst;
}

static const struct reads nothing, all = {.positions = 1, .documents = 1};

/* Rows that data says to be where they are: the same bits; where gradients of learned positions are
 * added to over micro-batches, within roundings. */
static void the_usual_places(void **state)
{
    static const int lengths[] = {12, 12, 12, 12, 0};
    static const char *const settings[] = {
        MODEL "data.seq_len=12 train.global_batch=4 train.micro_batch=4",
        MODEL "data.seq_len=12 train.global_batch=4 train.micro_batch=4 recompute=full",
        MODEL "data.seq_len=12 train.global_batch=4 train.micro_batch=2 parallel.wrap=layers "
              "parallel.layers_per_unit=2"};
    for (int s = 0; s < 3; s++) {
        struct error err = {0};
        struct run plain, given;
        struct rows rows;
        fill(&rows, s < 2 ? 4 : 2, 12, lengths);
        open_run(&plain, settings[s], nothing);
        open_run(&given, settings[s], all);
        if (step(&plain, &rows, &err) || step(&given, &rows, &err))
            fail_msg("%s", err.text);
        assert_true(plain.loss == given.loss && isfinite(plain.loss));
        assert_true(distance(&given, &plain) <= (s < 2 ? 0 : 1e-6));
        assert_int_equal(plain.units->positions, 0);
        assert_int_equal(given.units->positions, 12);
        close_run(&plain);
        close_run(&given);
    }
}

/* Two documents packed in one sequence: losses and gradients of two sequences, the shorter of which
 * is followed by rows without targets. */
static void packed_documents(void **state)
{
    static const int packed[] = {5, 7, 0}, apart[] = {5, 2, 7, 0};
    struct error err = {0};
    struct run one, two;
    struct rows rows;
    open_run(&one, MODEL "data.seq_len=12 train.global_batch=1 train.micro_batch=1", all);
    open_run(&two, MODEL "data.seq_len=7 train.global_batch=2 train.micro_batch=2", nothing);
    fill(&rows, 1, 12, packed);
    if (step(&one, &rows, &err))
        fail_msg("%s", err.text);
    struct rows other;
    fill(&other, 2, 7, apart);
    other.target[5] = other.target[6] = -1;
    memcpy(other.token + 7, rows.token + 5, 7 * sizeof *rows.token);
    memcpy(other.target + 7, rows.target + 5, 7 * sizeof *rows.target);
    if (step(&two, &other, &err))
        fail_msg("%s", err.text);
    double off = distance(&one, &two);
    print_message("loss differs by %.1e, gradients by %.1e\n", one.loss / two.loss - 1, off);
    assert_true(fabs(one.loss / two.loss - 1) < 1e-6 && off < 1e-5);
    for (int i = 0; i < 12; i++)
        rows.document[i] = 0;
    double apart_loss = one.loss;
    assert_int_equal(step(&one, &rows, &err), 0);
    assert_true(fabs(one.loss / apart_loss - 1) > 1e-4); /* the test can see a document's end */
    close_run(&one);
    close_run(&two);
}

/* Places that ops cannot take end the step with a text that says where. */
static void wrong_places(void **state)
{
    static const int lengths[] = {12, 12, 0};
    static const struct {
        int row, position, document;
        const char *text;
    } cases[] = {{.row = 3,
                  .position = 12,
                  .text = "position 12 of row 3, micro-batch 0, is not "
                          "from 0 to 11"},
                 {.row = 5, .position = -1, .text = "position -1 of row 5"},
                 {.row = 14,
                  .document = 3,
                  .text = "document 3 of row 14, micro-batch 0, is not "
                          "from 0 to 2"},
                 {.row = 6,
                  .document = 2,
                  .text = "document 0 of row 7, micro-batch 0, is not "
                          "from 2 to 7"},
                 {.row = 0, .document = -1, .text = "document -1 of row 0"}};
    struct run r;
    open_run(&r, MODEL "data.seq_len=12 train.global_batch=2 train.micro_batch=2", all);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        struct rows rows;
        fill(&rows, 2, 12, lengths);
        rows.position[cases[i].row] = cases[i].position;
        rows.document[cases[i].row] = cases[i].document;
        assert_int_equal(step(&r, &rows, &err), -1);
        assert_non_null(strstr(err.text, cases[i].text));
    }
    struct error err = {0};
    struct step_input input = {.load = load, .step = 1, .nominal_targets = 10};
    struct rows rows;
    fill(&rows, 2, 12, lengths);
    input.user = &rows;
    assert_int_equal(executor_run_step(r.x, r.program, &input, NULL, NULL, &err), -1);
    assert_non_null(strstr(err.text, "the model reads positions of rows"));
    close_run(&r);
}

/* A LOAD without them, and those of another micro-batch, are noticed. */
static void verified(void **state)
{
    struct run r;
    int spoilt = 0;
    open_run(&r, MODEL "data.seq_len=12 train.global_batch=4 train.micro_batch=2", all);
    for (int i = 0; i < r.program->instrs; i++)
        for (int slot = SLOT_LOAD_POSITIONS; slot <= SLOT_LOAD_DOCUMENTS; slot += SEQUENCES) {
            struct instr *instr = &r.program->instr[i], was = *instr;
            struct error err = {0};
            if (instr->kind != INSTR_LOAD)
                continue;
            instr->buffer[slot] = -1;
            instr->writes &= ~space_bit(slot);
            instr->bound &= ~space_bit(slot);
            assert_int_equal(verify_values(r.program, &err), -1);
            *instr = was;
            instr->buffer[slot] = was.buffer[SLOT_LOAD_POSITIONS + SLOT_LOAD_DOCUMENTS - slot];
            assert_int_equal(verify_values(r.program, &err), -1);
            *instr = was;
            spoilt++;
        }
    assert_int_equal(spoilt, 4);
    struct error err = {0};
    assert_int_equal(verify_values(r.program, &err), 0);
    close_run(&r);
}

/* A GPU offers them too. */
static void compiled_for_a_gpu(void **state)
{
    struct error err = {0};
    struct units *units = NULL;
    struct run r;
    struct device *gpu;
    struct device_request device = {.kind = DEVICE_CUDA, .planning = 1};
    open_run(&r, MODEL "data.seq_len=12 train.global_batch=2 train.micro_batch=2", all);
    assert_int_equal(device_open(&gpu, &device, &err), 0);
    assert_int_equal(units_create(&units, r.model, &r.units->request, gpu, &err), 0);
    units_destroy(units);
    device_close(gpu);
    close_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_usual_places),   cmocka_unit_test(packed_documents),
        cmocka_unit_test(wrong_places),       cmocka_unit_test(verified),
        cmocka_unit_test(compiled_for_a_gpu),
    };
    return cmocka_run_group_tests_name("places of rows", tests, NULL, NULL);
}
