/* test_dropout_verify.c - does verify see a mask that depends on the rank?  Each place where a
 * program drops numbers, said to be of other columns, rows, positions or ranks, or twice the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graph/op.h"
#include "tests/unit/rig.h"
#include "verify/verify.h"

#define SIZES                                                                    \
    "model.layers=2 model.hidden=24 model.ffn=20 model.vocab=23 data.seq_len=8 " \
    "train.micro_batch=2 train.global_batch=4 "
#define DROPOUT "model.embed_dropout=0.1 model.residual_dropout=0.1 model.attention_dropout=0.1 "

static const char *const models[] = {
    SIZES DROPOUT "model.family=gpt2 model.heads=4 ",
    SIZES "model.heads=4 model.kv_heads=1 model.attention_dropout=0.1 lora.r=2 lora.dropout=0.1 "
          "lora.target_modules=all-linear ",
};

static const struct cell {
    int ranks;
    const char *settings;
} cells[] = {
    {1, ""},
    {2, "parallel.tensor=2"},
    {2, "parallel.context=2"},
    {4, "parallel.tensor=2 parallel.context=2"},
    {2, "parallel.tensor=2 parallel.tensor_overlap=2"},
};

static void refused(const struct program *program, const char *what)
{
    struct error err = {0};
    if (!verify_program(program, &err))
        fail_msg("%s is not noticed", what);
    if (!strstr(err.text, "drops"))
        fail_msg("%s: %s", what, err.text);
}

/* Another place of the same block, if there is one. */
static const struct graph_dropout *other_of(const struct graph *graph,
                                            const struct graph_node *node)
{
    for (int n = 0; n < graph->node_count; n++) {
        const struct graph_dropout *other = &graph->nodes[n].attrs.dropped;
        if (!graph->nodes[n].backward && other->share > 0 &&
            other->block == node->attrs.dropped.block && other->site != node->attrs.dropped.site)
            return other;
    }
    return NULL;
}

static int spoil_node(const struct program *program, const struct graph *graph,
                      struct graph_node *node)
{
    const struct op_attrs was = node->attrs;
    struct graph_dropout *d = &node->attrs.dropped;
    const struct graph_dropout *other = other_of(graph, node);
    int spoilt = 2;
    d->first += 4;
    refused(program, "a mask of other columns");
    node->attrs = was;
    if (d->row_group.size > 1) {
        d->row_group.rank = 1 - d->row_group.rank;
        refused(program, "a mask of another rank's rows");
        node->attrs = was;
        d->row_group.row_chunks = 7;
        refused(program, "a mask of rows in other chunks");
        node->attrs = was;
    }
    d->row_group = d->row_group.size > 1
                       ? (struct graph_group){0}
                       : (struct graph_group){.axes = 1u << MESH_TENSOR, .size = 2};
    refused(program, "a mask of rows of all");
    node->attrs = was;
    if (node->attrs.part.chunk) {
        node->attrs.part.first[0]++;
        refused(program, "a mask of other positions");
        node->attrs = was;
        spoilt++;
    }
    if (other) {
        d->site = other->site;
        refused(program, "a mask that is another's");
        node->attrs = was;
        spoilt++;
    }
    return spoilt;
}

static void masks_follow_the_whole(void **state)
{
    int spoilt = 0;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++)
        for (size_t c = 0; c < sizeof cells / sizeof cells[0]; c++) {
            char text[1024];
            struct fleet fleet;
            struct error err = {0};
            snprintf(text, sizeof text, "%s%s", models[m], cells[c].settings);
            struct config config = rig_config(text);
            fleet_open(&fleet, &config, cells[c].ranks, PROGRAM_TRAIN);
            for (int r = 0; r < fleet.ranks; r++) {
                struct program *program = fleet.program[r];
                const struct units *units = program->units;
                if (verify_program(program, &err))
                    fail_msg("%s: %s", text, err.text);
                for (int k = 0; k < units->kinds; k++) {
                    struct graph *graph = units->kind[k].train;
                    for (int n = 0; n < graph->node_count; n++)
                        if (graph->nodes[n].attrs.dropped.share > 0 && !graph->nodes[n].backward)
                            spoilt += spoil_node(program, graph, &graph->nodes[n]);
                }
                if (verify_program(program, &err))
                    fail_msg("%s: %s", text, err.text);
            }
            fleet_close(&fleet);
        }
    print_message("%d masks spoilt\n", spoilt);
    assert_true(spoilt > 200);
}

/* Programs that evaluate read no samples and drop nothing; one that would is refused. */
static void nothing_else_drops(void **state)
{
    struct fleet fleet;
    struct error err = {0};
    struct config config = rig_config(SIZES DROPOUT "model.family=gpt2 model.heads=4");
    fleet_open(&fleet, &config, 1, PROGRAM_EVALUATE);
    struct program *program = fleet.program[0];
    assert_int_equal(verify_program(program, &err), 0);
    for (int i = 0; i < program->instrs; i++)
        if (program->instr[i].kind == INSTR_LOAD)
            assert_int_equal(program->instr[i].buffer[SLOT_LOAD_SAMPLES], -1);
    for (int k = 0; k < fleet.units->kinds; k++) {
        struct graph *graph = fleet.units->kind[k].evaluate;
        for (int n = 0; n < graph->node_count; n++)
            assert_true(graph->nodes[n].op != &op_dropout && !graph->nodes[n].attrs.dropped.share);
        graph->nodes[0].attrs.dropped.share = 0.1;
        refused(program, "dropout in evaluation");
        graph->nodes[0].attrs.dropped.share = 0;
    }
    fleet_close(&fleet);
}

/* A LOAD without samples, and those of another micro-batch, are noticed. */
static void samples_are_those_of_the_micro_batch(void **state)
{
    struct fleet fleet;
    struct error err = {0};
    int spoilt = 0;
    struct config config = rig_config(SIZES DROPOUT "model.family=gpt2 model.heads=4");
    fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
    struct program *program = fleet.program[0];
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i], was = *instr;
        if (instr->kind != INSTR_LOAD || !instr->micro)
            continue;
        instr->buffer[SLOT_LOAD_SAMPLES] = -1;
        instr->writes &= ~space_bit(SLOT_LOAD_SAMPLES);
        instr->bound &= ~space_bit(SLOT_LOAD_SAMPLES);
        assert_int_equal(verify_program(program, &err), -1);
        *instr = was;
        instr->micro = 0;
        assert_int_equal(verify_program(program, &err), -1);
        *instr = was;
        spoilt++;
    }
    assert_int_equal(verify_program(program, &err), 0);
    assert_int_equal(spoilt, 1);
    fleet_close(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_follow_the_whole),
        cmocka_unit_test(nothing_else_drops),
        cmocka_unit_test(samples_are_those_of_the_micro_batch),
    };
    return cmocka_run_group_tests_name("dropout and verify", tests, NULL, NULL);
}
