/* test_history.c - faults of pipelines and of tensor ranks that trainers have shipped, and that
 * nobody noticed for months because the loss went down all the same.  Each is made in real programs
 * as an author's mistake would make it, on every rank, and must be refused by name.
 *
 *   fault                                                      test
 *   only the last micro-batch's gradient kept                  test_only_the_last_micro_batch
 *   all but the last micro-batch's gradient kept               test_all_but_the_last_micro_batch
 *   a micro-batch's gradient added twice                       test_a_micro_batch_twice
 *   keys and values that tensor ranks have alike, norms and
 *   biases on own rows: the gradient not summed over them      test_terms_are_summed
 *   the same, because the flat forgets it, or sums what is
 *   no term                                                    test_flats_say_what_is_summed
 *   the same, because the model forgets it                     test_tensor_graphs.c
 *   a tied embedding's gradients not summed over stages        test_tied_gradients_are_exchanged
 *   a gradient's square counted on two ranks, or on none       test_each_square_counts_once
 *   gradients scaled by another number of tokens               test_gradients_are_of_the_mean
 *   keys and values of another micro-batch, or those of one
 *   rank's rows alone                                          test_what_is_kept
 *   a boundary of another micro-batch sent or received         test_boundaries_of_others
 *   tokens or targets of another micro-batch                   test_data_of_others
 *   a weight part of backward before its input part            test_input_part_comes_first
 *   an update before the last reduction                        test_update_comes_last
 *   parameters that the update leaves stale, or that are not
 *   gathered again                                             test_parameters_are_fresh
 *   another format, fewer elements, or another first row       test_history_fields.c
 *   a sum over the wrong ranks                                 test_verify_values.c
 *   a message left out, or of another order                    test_deadlock.c
 *
 * Boundaries are own rows of each tensor rank (Llama, GPT-2), or whole ("divided"). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graph/op.h"
#include "program/compile.h"
#include "program/schedule.h"
#include "tests/unit/faults.h"
#include "verify/verify.h"

enum { TENSOR = 1 << MESH_TENSOR };

static struct flat *flat_at(const struct program *program, int f)
{
    return &program->units->flat[f];
}

static uint64_t adds_of(int use)
{
    return ((UINT64_C(1) << FLAT_SECTIONS) - 1) * segment_adds(use, 0);
}

/* ---- micro-batches ---- */

/* The last one is written over what there is, or reduced so. */
static int keep_last(struct program *program, int f)
{
    int changed = 0;
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i];
        int use = faults_use_written(program, instr, f);
        uint64_t bits = use >= 0 ? adds_of(use) : instr->kind == INSTR_REDUCE && instr->flat == f;
        if (instr->micro != program->micros - 1)
            continue;
        changed += !!(instr->accumulate & bits);
        instr->accumulate &= ~bits;
    }
    if (changed)
        faults_refused(program, faults_name(program, f), NULL);
    return changed > 0;
}

static int only_the_last(struct program *program)
{
    return faults_each_flat(program, keep_last);
}

static void test_only_the_last_micro_batch(void **state)
{
    faults_everywhere(only_the_last, 60);
}

/* The last one is made somewhere else, or never reduced. */
static int drop_last(struct program *program, int f)
{
    int changed = 0, buffers = program->buffers;
    size_t bytes = (size_t)flat_at(program, f)->padded * sizeof(float);
    int spare = program_add_buffer(program, POOL_UNSHARDED, bytes, 0, "spare");
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i];
        int use = faults_use_written(program, instr, f);
        if (instr->micro != program->micros - 1)
            continue;
        if (use >= 0 && instr->accumulate & adds_of(use)) {
            instr->buffer[SPACE_GRAD + use] = spare;
            instr->accumulate &= ~adds_of(use);
            changed++;
        } else if (instr->kind == INSTR_REDUCE && instr->flat == f && instr->accumulate) {
            faults_leave_out(instr);
            changed++;
        }
    }
    if (changed)
        faults_refused(program, faults_name(program, f), NULL);
    program->buffers = buffers;
    return changed > 0;
}

static int all_but_the_last(struct program *program)
{
    return faults_each_flat(program, drop_last);
}

static void test_all_but_the_last_micro_batch(void **state)
{
    faults_everywhere(all_but_the_last, 60);
}

/* Each RUN and REDUCE that adds to a gradient, once more. */
static int add_twice(struct program *program, int f)
{
    int spoilt = 0;
    for (int i = 0; i < program->instrs; i++) {
        struct instr copy = program->instr[i];
        int use = faults_use_written(program, &copy, f);
        char text[128];
        if (use >= 0 ? !(copy.accumulate & adds_of(use))
                     : copy.kind != INSTR_REDUCE || copy.flat != f || !copy.accumulate)
            continue;
        instr_text(program, i, text, sizeof text);
        struct faults_kept kept = faults_keep(program);
        faults_insert(program, i + 1, copy);
        faults_refused(program, faults_name(program, f), text);
        faults_restore(program, &kept);
        spoilt++;
    }
    return spoilt;
}

static int twice(struct program *program)
{
    return faults_each_flat(program, add_twice);
}

static void test_a_micro_batch_twice(void **state)
{
    faults_everywhere(twice, 60);
}

/* ---- sums over ranks ---- */

static char summed[4096]; /* the tensors whose gradients tensor ranks sum */

/* Whatever sums the gradient of a flat over some axes, left out on all ranks alike. */
static int forget_sum(struct program *program, int f)
{
    int changed = 0, over_tensor = 0;
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i];
        if (!instr->axes || instr_is_exchange(instr) || !faults_makes_gradient(program, instr, f))
            continue;
        over_tensor |= instr->axes == TENSOR;
        faults_leave_out(instr);
        changed++;
    }
    if (changed)
        faults_refused(program, faults_name(program, f), NULL);
    const struct flat *flat = flat_at(program, f);
    for (int t = 0; over_tensor && t < flat->tensors; t++) {
        size_t used = strlen(summed);
        snprintf(summed + used, sizeof summed - used, " %s", flat->tensor[t].name);
    }
    return changed > 0;
}

static int forget_sums(struct program *program)
{
    return faults_each_flat(program, forget_sum);
}

static void test_terms_are_summed(void **state)
{
    static const char *const names[] = {
        " layers.1.attn.k ",
        " layers.1.attn.v ",
        " layers.0.norm1 ",
        " layers.0.norm2 ",
        " norm ",
        " layers.1.attn.o.bias ",
        " layers.1.norm3",
        " layers.0.mlp.down.bias ",
    };
    summed[0] = 0;
    faults_everywhere(forget_sums, 60);
    strcat(summed, " ");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strstr(summed, names[i]))
            fail_msg("\"%s\" is not among those summed over tensor ranks:%s", names[i], summed);
}

/* What is compiled of the same units, which say something else now, as every pass believes them:
 * refused with these words and the flat's name. */
static void refused_anew(const struct program *program, const char *words, const char *name)
{
    struct error err = {0};
    const struct state *own = program->state;
    int rank = mesh_rank(&program->layout->shape, own->coord);
    struct state *state = state_create(program->units, program->layout, 1, rank);
    struct program *anew = program_create(state, PROGRAM_TRAIN);
    if (!verify_program(anew, &err))
        fail_msg("not noticed: %s of %s", words, name);
    if (!strstr(err.text, words) || !strstr(err.text, name))
        fail_msg("not \"%s\" and %s: \"%s\"", words, name, err.text);
    program_destroy(anew);
    state_destroy(state);
}

/* A flat that forgets an axis, or has one more. */
static int spoil_axes(const struct program *program, unsigned *axes, unsigned axis, int f)
{
    const struct mesh_shape *shape = &program->layout->shape;
    unsigned was = *axes;
    if (mesh_wide_axes(shape, axis) != axis)
        return 0;
    *axes ^= axis;
    refused_anew(program, "wrong flat", faults_name(program, f));
    *axes = was;
    return 1;
}

static int spoil_flat(struct program *program, int f)
{
    struct flat *flat = flat_at(program, f);
    int spoilt = spoil_axes(program, &flat->sum_axes, TENSOR, f) +
                 spoil_axes(program, &flat->sum_axes, 1u << MESH_SHARD, f) +
                 spoil_axes(program, &flat->sum_axes, 1u << MESH_REPLICATE, f) +
                 spoil_axes(program, &flat->divided_axes, TENSOR, f);
    struct box *box = &flat->tensor[0].box, was = *box;
    box->start[0]++;
    refused_anew(program, "wrong flat", faults_name(program, f));
    *box = was;
    return spoilt + 1;
}

static int spoil_flats(struct program *program)
{
    return faults_each_flat(program, spoil_flat);
}

static void test_flats_say_what_is_summed(void **state)
{
    faults_everywhere(spoil_flats, 100);
}

/* What stages do of a flat that two of them have: all of it left out, and each part alone. */
static int forget_exchange(struct program *program, int f)
{
    static const enum instr_kind kinds[] = {INSTR_SEND, INSTR_RECV, INSTR_ADD};
    int spoilt = 0;
    for (int faults = 1; faults < 8; faults++) {
        struct faults_kept kept = faults_keep(program);
        int changed = 0;
        for (int i = 0; i < program->instrs; i++)
            for (int k = 0; k < 3; k++)
                if (program->instr[i].flat == f && program->instr[i].kind == kinds[k] &&
                    faults >> k & 1) {
                    faults_leave_out(&program->instr[i]);
                    changed++;
                }
        if (changed)
            faults_refused(program, faults_name(program, f), "messages are ");
        faults_restore(program, &kept);
        spoilt += changed > 0;
    }
    return spoilt;
}

/* The own gradient added once more in place of the other stage's. */
static int add_own(struct program *program, int f)
{
    int spoilt = 0;
    for (int i = 0; i < program->instrs; i++)
        if (program->instr[i].kind == INSTR_ADD && program->instr[i].flat == f) {
            program->instr[i].buffer[SLOT_FROM] = program->instr[i].buffer[SLOT_TO];
            faults_refused(program, faults_name(program, f), NULL);
            spoilt++;
        }
    return spoilt + forget_exchange(program, f);
}

static int forget_exchanges(struct program *program)
{
    return faults_each_flat(program, add_own);
}

static void test_tied_gradients_are_exchanged(void **state)
{
    faults_everywhere(forget_exchanges, 8 * (4 + 8));
}

/* ---- norm and factor ---- */

/* A square that another rank counts is counted here too; one that this rank counts, twice, or not.
 */
static int count_again(struct program *program, int f)
{
    int own = faults_find(program, INSTR_NORM, f), scale = faults_find(program, INSTR_SCALE, -1),
        at = scale;
    int sums = program->state->sums;
    while (at > 0 && program->instr[at - 1].kind == INSTR_ALLREDUCE &&
           program->instr[at - 1].dtype == DTYPE_F64)
        at--;
    struct instr norm = *program_add_instr(program, INSTR_NORM, STREAM_COMPUTE);
    program->instrs--;
    norm.flat = f;
    norm.elems = flat_at(program, f)->shard_elems;
    instr_bind(&norm, SLOT_SHARD_GRAD, program->state->flat[f].grad, ACCESS_READ);
    instr_bind(&norm, SLOT_SUMS, sums, ACCESS_BOTH);
    struct faults_kept kept = faults_keep(program);
    faults_insert(program, at, norm);
    faults_refused(program, own < 0 ? faults_name(program, f) : "SCALE", "ALLREDUCE");
    faults_restore(program, &kept);
    if (own < 0)
        return 1;
    faults_leave_out(&program->instr[own]);
    faults_refused(program, "SCALE", NULL);
    return 2;
}

static int count_squares(struct program *program)
{
    return faults_each_flat(program, count_again);
}

static void test_each_square_counts_once(void **state)
{
    faults_everywhere(count_squares, 100);
}

/* What multiplies the gradients of the loss, by another number of tokens. */
static int spoil_factors(const struct program *program)
{
    int spoilt = 0;
    for (int u = 0; u < program->units->count; u++) {
        const struct graph *graph = units_kind(program->units, u)->train;
        for (int n = 0; n < graph->node_count && program_owns(program, u); n++) {
            struct graph_node *node = &graph->nodes[n];
            float was = node->attrs.scale;
            if (node->op != &op_head_loss_train && node->op != &op_head_part_train)
                continue;
            static const float factors[] = {2, 0.5f, 1 / 3.0f, 7, 0};
            for (int k = 0; k < 5; k++) {
                node->attrs.scale = was * factors[k];
                refused_anew(program, "wrong factor", "head");
                node->attrs.scale = was;
                spoilt++;
            }
        }
    }
    return spoilt;
}

/* The sums of loss and targets, over fewer ranks or, over tensor ranks too, once for each. */
static int spoil_sums(struct program *program)
{
    int spoilt = 0;
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i], was = *instr;
        if (was.kind != INSTR_ALLREDUCE || was.dtype != DTYPE_F64)
            continue;
        faults_leave_out(instr);
        faults_refused(program, "SCALE", NULL);
        *instr = was;
        instr->buffer[SLOT_TO] = program->state->sums;
        instr->elems = SUM_COUNT + program->units->flats;
        if (was.axes == TENSOR)
            faults_refused(program, "ALLREDUCE", NULL);
        *instr = was;
        spoilt++;
    }
    return spoilt;
}

/* A schedule like another, of so many micro-batches. */
static struct schedule *schedule_like(const struct schedule *s, int micros)
{
    int chunks = s->stages / s->ranks;
    struct schedule_request request = {.name = chunks > 1 && s->splits_backward ? "zb_v"
                                               : chunks > 1                     ? "interleaved_1f1b"
                                               : s->splits_backward             ? "zb_h1"
                                                                                : "1f1b",
                                       .ranks = s->ranks,
                                       .chunks = chunks,
                                       .micros = micros};
    struct schedule *like;
    assert_int_equal(schedule_create(&like, &request, NULL), 0);
    return like;
}

/* A micro-batch fewer or more than the global batch takes. */
static int spoil_counts(struct program *program)
{
    struct layout *layout = (struct layout *)program->layout;
    struct schedule *own = layout->schedule;
    int was = layout->micros;
    for (layout->micros = was > 1 ? was - 1 : was + 1; layout->micros <= was + 1;
         layout->micros += 2) {
        layout->schedule = schedule_like(own, layout->micros);
        refused_anew(program, "wrong count", "micro-batches");
        schedule_destroy(layout->schedule);
    }
    layout->micros = was;
    layout->schedule = own;
    return 1 + spoil_factors(program) + spoil_sums(program);
}

static void test_gradients_are_of_the_mean(void **state)
{
    faults_everywhere(spoil_counts, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_last_micro_batch),
        cmocka_unit_test(test_all_but_the_last_micro_batch),
        cmocka_unit_test(test_a_micro_batch_twice),
        cmocka_unit_test(test_terms_are_summed),
        cmocka_unit_test(test_flats_say_what_is_summed),
        cmocka_unit_test(test_tied_gradients_are_exchanged),
        cmocka_unit_test(test_each_square_counts_once),
        cmocka_unit_test(test_gradients_are_of_the_mean),
    };
    return cmocka_run_group_tests_name("history", tests, NULL, NULL);
}
