/* test_boundaries.c - boundaries that several units read, and two sequences: an encoder-decoder cut
 * into units computes what it computes as one, and only what has several readers is added to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/array.h"
#include "graph/build.h"
#include "graph/op.h"
#include "program/compile.h"
#include "tests/unit/translator.h"
#include "train/batches.h"
#include "verify/verify.h"

#define MODEL                                                                              \
    "model.layers=3 model.hidden=20 model.heads=2 model.head_dim=6 model.ffn=12 "          \
    "model.vocab=37 data.seq_len=7 train.global_batch=6 train.micro_batch=2 train.clip=0 " \
    "train.lr=1e-2 train.warmup_steps=1 train.steps=9 precision=fp32 data.valid=none.h5 "

static const char *const settings[] = {
    MODEL,
    MODEL "recompute=full",
    MODEL "recompute=selective train.micro_batch=3",
    MODEL "recompute=full recompute_every=2",
    MODEL "parallel.wrap=layers parallel.layers_per_unit=2",
    MODEL "parallel.wrap=none recompute=full",
    MODEL "parallel.schedule=gpipe",
    MODEL "parallel.schedule=gpipe recompute=selective train.micro_batch=1",
    MODEL "parallel.schedule=zb_h1",
    MODEL "parallel.schedule=zb_h1 recompute=full parallel.wrap=layers parallel.layers_per_unit=2",
    MODEL "parallel.schedule=zb_h1 recompute=selective train.freeze=decoder.1.*",
    MODEL "train.freeze=encoder.*",
    MODEL "train.freeze=encoder.0.*,embed recompute=full",
    MODEL "train.freeze=embed,encoder.*",
    MODEL "train.freeze=embed,encoder.*,decoder.0.* parallel.schedule=zb_h1",
    MODEL "train.freeze=decoder.*",
    MODEL "train.freeze=embed,decoder.0.*",
    MODEL "train.freeze=embed,encoder.*,decoder.1.*",
    MODEL "train.optimizer=sgd offload.gradients=host offload.optimizer=host",
};

enum { SETTINGS = sizeof settings / sizeof settings[0] };

static struct session *open_form(struct mem *mem, const char *text, enum translator_form form)
{
    struct config config = rig_config(text);
    return rig_open_model(mem, &config, translator_model(&config, form), NULL, NULL, 0);
}

static void must(int rc, const struct error *err)
{
    if (rc)
        fail_msg("%s", err->text);
}

/* What the state holds of the gradient of a tensor. */
static const float *gradient(const struct session *s, const char *name)
{
    int flat;
    const struct flat_tensor *tensor = rig_tensor(s, name, &flat);
    return rig_state(s, flat, RIG_GRAD) + tensor->offset;
}

/* Both have the same tensors; gradients of the trained ones differ by this, relative to the largest
 * of a tensor. */
static double gradient_distance(const struct session *a, const struct session *b)
{
    double worst = 0;
    int tensors[2] = {0, 0};
    for (int f = 0; f < b->units->flats; f++)
        tensors[1] += b->units->flat[f].tensors;
    for (int f = 0; f < a->units->flats; f++) {
        const struct flat *flat = &a->units->flat[f];
        tensors[0] += flat->tensors;
        for (int t = 0; t < flat->tensors && flat->trained; t++) {
            const float *one = gradient(a, flat->tensor[t].name);
            const float *other = gradient(b, flat->tensor[t].name);
            double largest = 0, difference = 0;
            for (int64_t i = 0; i < flat->tensor[t].elems; i++) {
                largest = fmax(largest, fabs((double)other[i]));
                difference = fmax(difference, fabs((double)one[i] - (double)other[i]));
            }
            worst = fmax(worst, largest > 0 ? difference / largest : 1);
        }
    }
    assert_int_equal(tensors[0], tensors[1]);
    return worst;
}

static double distance(const double *a, const double *b, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++) {
        double off = fabs(a[i] / b[i] - 1);
        most = off <= most ? most : off;
    }
    return most;
}

static void test_chain_is_the_whole(void **state)
{
    for (int i = 0; i < SETTINGS; i++) {
        struct mem mem = {0};
        struct error err = {0};
        struct translator_outcome chain, whole;
        char one[600];
        snprintf(one, sizeof one, "%s parallel.schedule=naive recompute_every=1", settings[i]);
        struct session *a = open_form(&mem, settings[i], TRANSLATOR_CHAIN);
        struct session *b = open_form(&mem, one, TRANSLATOR_WHOLE);
        must(verify_program(a->train, &err), &err);
        must(verify_program(a->evaluate, &err), &err);
        must(translator_train(a, 1, &chain, &err), &err);
        must(translator_train(b, 1, &whole, &err), &err);
        if (!strstr(settings[i], "offload.gradients"))
            assert_true(gradient_distance(a, b) < 1e-5);
        must(translator_train(a, 0, &chain, &err), &err);
        must(translator_train(b, 0, &whole, &err), &err);
        assert_true(distance(chain.loss, whole.loss, TRANSLATOR_STEPS) < 2e-6);
        assert_true(distance(chain.norm, whole.norm, TRANSLATOR_STEPS) < 1e-4);
        assert_true(distance(&chain.valid, &whole.valid, 1) < 2e-6);
        assert_true(chain.loss[TRANSLATOR_STEPS - 1] < chain.loss[0]);
        assert_true(chain.targets == whole.targets && chain.targets < 42);
        session_close(a);
        session_close(b);
        assert_int_equal(mem.blocks, 0);
    }
}

/* The loss of what the state holds, by EVALUATE over the first micro-batch. */
static double loss_of(struct session *s)
{
    struct error err = {0};
    struct translator_data data = {s->units, 1, 0};
    struct step_input input = {.load = translator_load, .user = &data};
    struct step_output output;
    must(executor_run_step(s->executor, s->evaluate, &input, &output, NULL, &err), &err);
    return output.loss;
}

/* Along the gradient of each tensor the loss rises by its length.  In the host's pool gradients
 * outlive the step, and with it the evaluation behind it. */
static void test_gradients_are_slopes(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    struct translator_outcome outcome;
    struct session *s =
        open_form(&mem, MODEL "train.micro_batch=6 train.weight_decay=0 offload.gradients=host",
                  TRANSLATOR_CHAIN);
    for (int f = 0; f < s->units->flats; f++)
        for (int t = 0; t < s->units->flat[f].tensors; t++) {
            const struct flat_tensor *tensor = &s->units->flat[f].tensor[t];
            must(translator_train(s, 1, &outcome, &err), &err);
            rig_init(s);
            const float *grad = rig_state(s, f, RIG_GRAD) + tensor->offset;
            float *value = rig_state(s, f, RIG_MASTER) + tensor->offset;
            double mean = (double)(s->layout.global_batch * s->config.data.seq_len), length = 0;
            for (int64_t i = 0; i < tensor->elems; i++)
                length += (double)grad[i] * (double)grad[i];
            length = sqrt(length);
            double far = fmin(0.02 / (length + 1e-9), 0.05), loss[2];
            for (int side = 0; side < 2; side++) {
                for (int64_t i = 0; i < tensor->elems; i++)
                    value[i] += (float)((side ? 2 : -1) * far / length * (double)grad[i]);
                rig_refresh(s);
                loss[side] = loss_of(s);
            }
            double slope = (loss[1] - loss[0]) / (2 * far), want = length * mean / outcome.targets;
            if (fabs(slope / want - 1) > 0.02)
                fail_msg("%s: slope %g, gradient %g", tensor->name, slope, want);
        }
    session_close(s);
    assert_int_equal(mem.blocks, 0);
}

static int count_nodes(const struct graph *graph, const struct op *op)
{
    int count = 0;
    for (int i = 0; i < graph->node_count; i++)
        count += graph->nodes[i].op == op;
    return count;
}

static int is_decoder(const struct units *units, int unit)
{
    return units->boundary[unit].inputs == 2;
}

/* What one unit reads has the ops, and the memory, that it had without names; what several read is
 * added to by all but the first of them. */
static void test_only_what_is_shared_is_added_to(void **state)
{
    for (int i = 0; i < SETTINGS; i++) {
        struct mem mem = {0};
        struct session *s = open_form(&mem, settings[i], TRANSLATOR_CHAIN);
        const struct units *units = s->units;
        int frozen = strstr(settings[i], "embed,encoder.*") != NULL, readers = 0, adds = 0;
        int encoders = (units->count - 4) / 2, end = encoders + 1;
        for (int u = 0; u < units->count; u++) {
            int is_shared = is_decoder(units, u) && units->boundary[end].readers > 1 && !frozen;
            readers += is_decoder(units, u);
            assert_int_equal(count_nodes(units_kind(units, u)->train, &op_accumulate), is_shared);
        }
        assert_int_equal(readers, units->boundary[end].readers);
        for (int k = 0; k < s->train->instrs; k++)
            for (int n = 0; n < BOUNDARY_USES; n++)
                adds += s->train->instr[k].kind == INSTR_RUN &&
                        s->train->instr[k].accumulate & segment_adds_input(n);
        assert_int_equal(adds, frozen ? 0 : (readers - 1) * s->train->micros);
        session_close(s);
    }
    struct mem mem = {0};
    struct config config = rig_config(MODEL);
    struct session *s = rig_open(&mem, &config, NULL, 0);
    for (int k = 0; k < s->units->kinds; k++)
        assert_int_equal(count_nodes(s->units->kind[k].train, &op_accumulate), 0);
    session_close(s);
}

/* A frozen encoder has no backward; the words before it are trained, and it has, but of its
 * weights.
 */
static void test_frozen_inputs_need_no_gradient(void **state)
{
    static const struct {
        const char *freeze;
        int encoder_runs;
    } rows[] = {{"train.freeze=embed,encoder.*", 0}, {"train.freeze=encoder.*", 1}};
    for (int r = 0; r < 2; r++) {
        char text[600];
        struct mem mem = {0};
        int runs = 0;
        snprintf(text, sizeof text, "%s%s", MODEL, rows[r].freeze);
        struct session *s = open_form(&mem, text, TRANSLATOR_CHAIN);
        for (int k = 0; k < s->train->instrs; k++)
            runs += s->train->instr[k].kind == INSTR_RUN && s->train->instr[k].unit <= 4 &&
                    segment_phase_is_backward(s->train->instr[k].phase);
        assert_int_equal(runs > 0, rows[r].encoder_runs);
        session_close(s);
    }
}

/* The executor allocates what the plan says. */
static void test_planned_is_allocated(void **state)
{
    for (int i = 0; i < SETTINGS; i++) {
        struct mem mem = {0};
        struct session *s = open_form(&mem, settings[i], TRANSLATOR_CHAIN);
        struct memory_need need;
        memory_slabs(&need, (const struct program *[]){s->train, s->evaluate}, 2);
        for (int pool = 0; pool < POOL_COUNT; pool++)
            assert_int_equal(mem.now_bytes[pool], need.slab_bytes[pool]);
        session_close(s);
    }
}

/* Boundaries and words of each sequence have their own sizes, and no smaller ones. */
static void test_sizes_count(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    struct session *s = open_form(&mem, MODEL "parallel.schedule=zb_h1", TRANSLATOR_CHAIN);
    struct program *p = s->train;
    int spoilt = 0;
    for (int i = 0; i < p->instrs; i++)
        for (int slot = 0; slot < SLOTS; slot++) {
            const struct instr *instr = &p->instr[i];
            int is_boundary = instr->kind == INSTR_RUN && slot >= SPACE_INPUT && slot < SPACE_SAVED;
            if (instr->buffer[slot] < 0 || (instr->kind != INSTR_LOAD && !is_boundary))
                continue;
            p->buffer[instr->buffer[slot]].bytes -= sizeof(int32_t);
            assert_int_equal(verify_values(p, &err), -1);
            assert_non_null(strstr(err.text, "wrong size"));
            p->buffer[instr->buffer[slot]].bytes += sizeof(int32_t);
            spoilt++;
        }
    assert_true(spoilt > 50);
    must(verify_values(p, &err), &err);
    session_close(s);
}

/* Who puts out what a unit reads is found again by names: verify does not believe the passes.  Each
 * input, said to be of another unit with an output of that size, before the program is written; and
 * of any, after. */
static void test_producers_are_found_again(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    struct session *s = open_form(&mem, MODEL, TRANSLATOR_CHAIN);
    struct unit_boundaries *boundary = s->units->boundary;
    int spoilt = 0;
    for (int u = 0; u < s->units->count; u++)
        for (int k = 0; k < boundary[u].inputs; k++) {
            int was = boundary[u].producer[k];
            for (int other = 0; other < u; other++) {
                if (other == was || boundary[other].bytes != boundary[was].bytes)
                    continue;
                boundary[u].producer[k] = other;
                struct program *program = program_create(s->state, PROGRAM_EVALUATE);
                assert_int_equal(verify_values(program, &err), -1);
                assert_non_null(strstr(err.text, "wrong value"));
                program_destroy(program);
                spoilt++;
            }
            boundary[u].producer[k] = 0;
            must(verify_values(s->train, &err), &err);
            boundary[u].producer[k] = was;
        }
    assert_true(spoilt > 10);
    session_close(s);
}

/* Where the ranks of a group divide what reads a boundary, its gradient is summed over them before
 * it is added to those of other readers. */
static void test_divided_readers(void **state)
{
    static const char *const schedules[] = {"naive", "gpipe", "zb_h1 recompute=full",
                                            "zb_h1 recompute=selective"};
    for (int k = 0; k < 4; k++) {
        char text[600];
        struct error err = {0};
        const struct program *program[2];
        struct fleet fleet[2];
        int sums = 0, spoilt = 0;
        snprintf(text, sizeof text, "%s parallel.schedule=%s", MODEL, schedules[k]);
        struct config config = rig_config(text);
        for (int r = 0; r < 2; r++) {
            fleet_open_tensor_rank(&fleet[r], &config, translator_model(&config, TRANSLATOR_CHAIN),
                                   2, r);
            program[r] = fleet[r].program[0];
            must(verify_program(program[r], &err), &err);
        }
        must(verify_ranks(program, 2, &err), &err);
        for (int i = 0; i < program[0]->instrs; i++) {
            struct instr *instr = &fleet[0].program[0]->instr[i], was = *instr;
            sums += instr->kind == INSTR_ALLREDUCE && instr_is_exchange(instr) &&
                    segment_phase_is_backward(instr->phase);
            if (instr->kind != INSTR_RUN || !(was.accumulate >> (FLAT_USES * FLAT_SECTIONS)))
                continue;
            instr->accumulate &= segment_adds_input(0) - 1;
            assert_int_equal(verify_program(program[0], &err), -1);
            *instr = was;
            spoilt++;
        }
        assert_int_equal(spoilt, 2 * program[0]->micros);
        assert_true(sums >= 2 * 3 * program[0]->micros); /* of encoded and of a norm, by block */
        fleet_close(&fleet[0]);
        fleet_close(&fleet[1]);
    }
}

/* ---- stages of a pipeline ---- */

/* Compile the training programs of all ranks, and verify each alone and all together. */
static void open_verified(struct fleet *fleet, const char *text, int ranks)
{
    struct error err = {0};
    struct config config = rig_config(text);
    fleet_open_model(fleet, &config, translator_model(&config, TRANSLATOR_CHAIN), ranks,
                     PROGRAM_TRAIN);
    for (int r = 0; r < ranks; r++)
        if (verify_program(fleet->program[r], &err))
            fail_msg("rank %d of %d, %s: %s", r, ranks, text, err.text);
    if (verify_ranks((const struct program *const *)fleet->program, ranks, &err))
        fail_msg("%d ranks, %s: %s", ranks, text, err.text);
}

/* Count the instructions of a kind for a unit; of RUN and messages in this phase alone. */
static int count_instrs(const struct program *program, enum instr_kind kind, int unit,
                        enum segment_phase phase)
{
    int count = 0;
    for (int i = 0; i < program->instrs; i++)
        count += program->instr[i].kind == kind && program->instr[i].unit == unit &&
                 program->instr[i].phase == phase;
    return count;
}

/* The words of the target are looked up in the last unit of the first stage: of its backward all is
 * in the part for weights, and what that reads of the next stage is received before the other
 * units' parts for inputs. */
static void test_weights_alone_read_a_gradient(void **state)
{
    struct fleet fleet;
    const int unit = 5; /* behind words, three blocks and the norm of the source */
    open_verified(&fleet, MODEL "parallel.pipeline=2 parallel.schedule=zb_h1 parallel.stages=6,4",
                  2);
    const struct program *first = fleet.program[0];
    int micros = first->micros;
    assert_int_equal(count_instrs(first, INSTR_RUN, unit, PHASE_BACKWARD_INPUT), 0);
    assert_int_equal(count_instrs(first, INSTR_RUN, unit, PHASE_BACKWARD_WEIGHT), micros);
    assert_int_equal(count_instrs(first, INSTR_RECV, unit, PHASE_BACKWARD), micros);
    fleet_close(&fleet);
}

/* The most outputs of one stage that the next one reads. */
static int most_across(const struct units *units)
{
    int most = 0;
    for (int stage = 0; stage < units->stages; stage++) {
        int across = 0;
        for (int u = 0; u < units->count; u++) {
            int is_read = 0;
            for (int v = u + 1; v < units->count && units->stage[u] == stage; v++)
                for (int k = 0; k < units->boundary[v].inputs; k++)
                    is_read |= units->boundary[v].producer[k] == u && units->stage[v] > stage;
            across += is_read;
        }
        most = across > most ? across : most;
    }
    return most;
}

/* Where a stage reads two boundaries of the one before, and sends two gradients back, no rank waits
 * for ever, whatever it transfers beside them. */
static void test_two_boundaries_between_stages(void **state)
{
    static const struct {
        int stages;
        const char *text;
    } rows[] = {
        {2, "model.layers=5 parallel.schedule=naive"},
        {2, "model.layers=5 parallel.schedule=gpipe"},
        {2, "model.layers=5 parallel.schedule=1f1b"},
        {2, "model.layers=5 parallel.schedule=zb_h1"},
        {2, "train.freeze=encoder.* parallel.stages=8,2"},
        {2, "model.layers=2 parallel.schedule=interleaved_1f1b"},
        {2, "model.layers=2 parallel.schedule=zb_v"},
        {3, "train.freeze=embed parallel.stages=3,4,3 parallel.schedule=1f1b"},  /* one, then two */
        {3, "train.freeze=embed parallel.stages=6,3,1 parallel.schedule=zb_h1"}, /* two, then one */
    };
    for (int i = 0; i < 4 * (int)(sizeof rows / sizeof rows[0]); i++) {
        char text[600];
        struct fleet fleet;
        int stages = rows[i / 4].stages, data = i & 1 ? 2 : 1;
        snprintf(text, sizeof text,
                 "%s parallel.pipeline=%d parallel.strategy=FULL_SHARD train.global_batch=%d %s",
                 MODEL, stages, i & 2 ? 12 : 4, rows[i / 4].text);
        open_verified(&fleet, text, stages * data);
        assert_int_equal(most_across(fleet.units), 2);
        fleet_close(&fleet);
    }
}

/* ---- mistakes of a model ---- */

/* The units of one graph each, of this number; what they do in which. */
static int mistake;

static void odd_units(struct model *model)
{
    model->units = 3;
    model->unit = array_make(3, sizeof *model->unit);
    for (int u = 0; u < 3; u++)
        model->unit[u] = (struct model_unit){.kind = u, .lender = -1};
}

static int odd_matrix(struct graph *graph, const char *name, int64_t rows, int64_t columns)
{
    struct graph_param param = {
        .tensors = 1, .tensor_rows = {rows}, .dims = 2, .dim = {rows, columns}};
    snprintf(param.tensor_name[0], GRAPH_NAME, "%s", name);
    return build_param(graph, &param);
}

static void odd_graph(const struct model *model, int kind, enum model_purpose purpose,
                      float loss_factor, struct graph *graph)
{
    if (kind == 0) {
        build_sequence(graph, mistake == 3 || mistake == 6);
        int read = mistake == 6 ? build_targets(graph) : build_tokens(graph);
        int x = build_embedding(graph, read, odd_matrix(graph, "first", 9, 4));
        build_output_named(graph, mistake == 1 ? "other" : "first", x);
        return;
    }
    if (kind == 1) {
        int width = mistake == 2 ? 6 : 4;
        int x = build_boundary(graph, "first", 0, width);
        build_output(graph, build_linear(graph, x, odd_matrix(graph, "second", 4, width), -1));
        return;
    }
    int x = build_boundary(graph, mistake == 4 ? "first" : "hidden", 0, 4);
    for (int k = 0; mistake == 5 && k < BOUNDARY_USES; k++) {
        char name[BOUNDARY_NAME];
        snprintf(name, sizeof name, "more %d", k);
        build_boundary(graph, name, 0, 4);
    }
    build_head_loss(graph, x, odd_matrix(graph, "head", 9, 4), build_targets(graph), loss_factor);
}

static void test_mistakes_are_named(void **state)
{
    static const struct model_family family = {
        .name = "odd", .units = odd_units, .graph = odd_graph};
    static const char *const texts[] = {
        "",
        "model: unit 1 reads \"first\", which no unit before it puts out",
        "model: unit 1 reads \"first\" as [6, 6], and unit 0 puts out [6, 4]",
        "model: it reads 2 sequences of tokens, and no length is given for the last",
        "model: unit 1 puts out \"hidden\", which no unit reads",
        "model: a unit reads more than 3 boundaries",
        "model: unit 2 reads targets of sequence 0, unit 0 those of sequence 1; all units must "
        "read targets of one sequence",
    };
    struct config config = rig_config(MODEL);
    struct model *model = model_make(&family, &config.model);
    struct device *device;
    struct device_request wanted = {.kind = DEVICE_CPU, .threads = 1};
    struct error err = {0};
    must(device_open(&device, &wanted, &err), &err);
    struct units_request request = {.batch = 2, .seq = {3}, .shards = 1};
    for (mistake = 0; mistake < 7; mistake++) {
        struct units *units = NULL;
        request.seq[1] = mistake == 6 ? 3 : 0;
        int rc = units_create(&units, model, &request, device, &err);
        assert_int_equal(rc, mistake ? -1 : 0);
        if (rc)
            assert_string_equal(err.text, texts[mistake]);
        else
            units_destroy(units);
    }
    device_close(device);
    model_destroy(model);
}

/* A token file has one sequence. */
static void test_loaders_refuse_two_sequences(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    struct batches batches;
    struct session *s = open_form(&mem, MODEL, TRANSLATOR_CHAIN);
    assert_int_equal(batches_open(&batches, s, "none.h5", LOADER_SEQUENTIAL, &err), -1);
    assert_non_null(strstr(err.text, "translator reads 2 sequences"));
    batches_close(&batches);
    session_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_is_the_whole),
        cmocka_unit_test(test_gradients_are_slopes),
        cmocka_unit_test(test_only_what_is_shared_is_added_to),
        cmocka_unit_test(test_frozen_inputs_need_no_gradient),
        cmocka_unit_test(test_planned_is_allocated),
        cmocka_unit_test(test_sizes_count),
        cmocka_unit_test(test_producers_are_found_again),
        cmocka_unit_test(test_divided_readers),
        cmocka_unit_test(test_weights_alone_read_a_gradient),
        cmocka_unit_test(test_two_boundaries_between_stages),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_loaders_refuse_two_sequences),
    };
    return cmocka_run_group_tests_name("boundaries", tests, NULL, NULL);
}
