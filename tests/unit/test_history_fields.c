/* test_history_fields.c - the faults in the table of test_history.c that leave every buffer right
 * and put a wrong number in an instruction or in a node of a graph: a format, how many elements,
 * the first of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graph/op.h"
#include "tests/unit/faults.h"
#include "verify/verify.h"

/* Each returns 0 where the instruction has no such fault. */

/* The other format of two bytes, of what is rounded or of a sum over ranks. */
static int other_format(struct instr *instr)
{
    int is_bf16 = instr->dtype == DTYPE_BF16, is_fp16 = instr->dtype == DTYPE_F16;
    if ((!is_bf16 && !is_fp16) || (instr->kind != INSTR_CAST && instr->kind != INSTR_REDUCE))
        return 0;
    enum dtype was = instr->dtype;
    instr->dtype = is_bf16 ? DTYPE_F16 : DTYPE_BF16;
    if (instr->kind == INSTR_REDUCE && instr->result == was)
        instr->result = instr->dtype;
    return 1;
}

/* bf16, of what is fp32. */
static int not_fp32(struct instr *instr)
{
    instr->dtype = DTYPE_BF16;
    return instr->kind == INSTR_ADD || (instr->kind == INSTR_ALLTOALL && instr->flat >= 0);
}

static int one_less(struct instr *instr)
{
    instr->elems--;
    return instr->kind == INSTR_NORM || instr->kind == INSTR_MOMENTUM;
}

static int begins_later(struct instr *instr)
{
    instr->first_elem[SLOT_MATRICES]++;
    return instr->kind == INSTR_ORTHOGONALIZE;
}

/* What ranks exchange within a unit is written, never added to. */
static int adds_exchange(struct instr *instr)
{
    instr->accumulate = 1;
    return instr_is_exchange(instr);
}

static int places_of[INSTR_KINDS];

static int spoil_instrs(struct program *program)
{
    static int (*const faults[])(struct instr *) = {other_format, not_fp32, one_less, begins_later,
                                                    adds_exchange};
    int spoilt = 0;
    char text[128];
    for (int i = 0; i < program->instrs; i++)
        for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
            struct instr *instr = &program->instr[i], was = *instr;
            int is_spoilt = faults[f](instr);
            if (is_spoilt)
                faults_refused(program, instr_text(program, i, text, sizeof text), NULL);
            *instr = was;
            places_of[was.kind] += is_spoilt;
            spoilt += is_spoilt;
        }
    return spoilt;
}

static void test_fields_of_instructions(void **state)
{
    static const struct {
        int ranks;
        const char *settings;
    } layouts[] = {
        {2, FAULTS_SIZES "train.optimizer=muon train.global_batch=2 parallel.strategy=FULL_SHARD"},
        {2, FAULTS_SIZES "precision=fp16 comm.reduce_dtype=bf16 train.global_batch=2 "
                         "parallel.strategy=FULL_SHARD"},
        {2, FAULTS_SIZES "train.optimizer=muon train.global_batch=2 parallel.strategy=NO_SHARD"},
        {2, FAULTS_SIZES "train.optimizer=muon train.global_batch=4 precision=bf16 "
                         "parallel.pipeline=2 model.tie_embeddings=true"},
    };
    static const enum instr_kind kinds[] = {INSTR_CAST,         INSTR_ADD,      INSTR_REDUCE,
                                            INSTR_NORM,         INSTR_MOMENTUM, INSTR_ALLTOALL,
                                            INSTR_ORTHOGONALIZE};
    for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++) {
        struct fleet fleet;
        struct config config = rig_config(layouts[l].settings);
        fleet_open(&fleet, &config, layouts[l].ranks, PROGRAM_TRAIN);
        for (int r = 0; r < fleet.ranks; r++)
            spoil_instrs(fleet.program[r]);
        fleet_close(&fleet);
    }
    faults_everywhere(spoil_instrs, 100);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (!places_of[kinds[k]])
            fail_msg("no place of %s", instr_name(kinds[k]));
}

static int nodes_of_embedding, nodes_of_positions, nodes_of_head;

/* Has the rank own rows of table v? */
static int has_own_rows(const struct graph *graph, int v)
{
    const struct graph_value *table = &graph->values[v];
    return table->role == VALUE_PARAM && graph_axes(graph->params[table->index].division.group);
}

/* Rows of tables, positions and logits that a node takes for those from another one on. */
static int spoil_nodes(struct program *program)
{
    int spoilt = 0;
    for (int u = 0; u < program->units->count && program->layout->shape.degree[MESH_TENSOR] > 1;
         u++) {
        const struct graph *graph = units_kind(program->units, u)->train;
        for (int n = 0; n < graph->node_count && program_owns(program, u); n++) {
            struct graph_node *node = &graph->nodes[n];
            struct error err = {0};
            int *nodes = node->op == &op_embedding   ? &nodes_of_embedding
                         : node->op == &op_positions ? &nodes_of_positions
                         : node->op == &op_head_part ? &nodes_of_head
                                                     : NULL;
            if (!nodes || !has_own_rows(graph, node->in[1]))
                continue;
            node->attrs.first++;
            if (!verify_program(program, &err))
                fail_msg("not noticed: %s from %lld on", node->op->name,
                         (long long)node->attrs.first);
            if (!strstr(err.text, node->op->name))
                fail_msg("not %s: \"%s\"", node->op->name, err.text);
            node->attrs.first--;
            ++*nodes;
            spoilt++;
        }
    }
    return spoilt;
}

static void test_first_rows(void **state)
{
    faults_everywhere(spoil_nodes, 10);
    assert_true(nodes_of_embedding && nodes_of_positions && nodes_of_head);
}

/* ---- tables and parts, whatever divides them ---- */

static const struct {
    int ranks;
    const char *settings;
} tables[] = {
    {1, FAULTS_SIZES "train.global_batch=2"},
    {1, FAULTS_SIZES "model.family=gpt2 train.global_batch=2"},
    {2, FAULTS_SIZES "train.global_batch=2 model.kv_heads=1 parallel.tensor=2"},
    {2, FAULTS_SIZES "model.family=gpt2 train.global_batch=2 parallel.tensor=2"},
};

static void tables_everywhere(int (*spoil)(struct program *program), int least)
{
    int spoilt = 0;
    for (size_t l = 0; l < sizeof tables / sizeof tables[0]; l++) {
        struct fleet fleet;
        struct error err = {0};
        struct config config = rig_config(tables[l].settings);
        fleet_open(&fleet, &config, tables[l].ranks, PROGRAM_TRAIN);
        for (int r = 0; r < fleet.ranks; r++) {
            spoilt += spoil(fleet.program[r]);
            if (verify_program(fleet.program[r], &err))
                fail_msg("%s", err.text);
        }
        fleet_close(&fleet);
    }
    assert_true(spoilt >= least);
}

static int refused(const struct program *program, const char *what)
{
    struct error err = {0};
    if (!verify_program(program, &err))
        fail_msg("not noticed: %s", what);
    return 1;
}

/* Another first row, or other sizes of the whole, of nodes of forward and backward. */
static int spoil_tables(struct program *program)
{
    int spoilt = 0;
    for (int k = 0; k < program->units->kinds; k++) {
        const struct graph *graph = program->units->kind[k].train;
        for (int n = 0; n < graph->node_count; n++) {
            struct graph_node *node = &graph->nodes[n];
            const struct op *op = node->op;
            const struct op_attrs was = node->attrs;
            int is_positions = op == &op_positions || op == &op_positions_backward;
            int is_head = op == &op_head_part || op == &op_head_part_train;
            if (op != &op_embedding && op != &op_embedding_backward && !is_positions && !is_head)
                continue;
            node->attrs.first++;
            spoilt += refused(program, "another first row");
            node->attrs = was;
            node->attrs.rows += is_positions;
            node->attrs.columns -= is_head;
            if (is_positions || is_head)
                spoilt += refused(program, "a table of another size");
            node->attrs = was;
        }
    }
    return spoilt;
}

static void test_tables(void **state)
{
    tables_everywhere(spoil_tables, 20);
}

/* The rank's part of each tensor, in its graph and flat alike, where the fault would be made. */
static void shift_boxes(const struct program *program, int param, int kind, int64_t start,
                        int64_t count)
{
    struct unit_kind *own = &program->units->kind[kind];
    struct graph_param *of = &own->train->params[param];
    for (int u = 0; u < program->units->count; u++) {
        if (program->units->kind_of[u] != kind || own->place[param].use < 0)
            continue;
        struct flat *flat =
            &program->units->flat[program->units->use[u].flat[own->place[param].use]];
        for (int p = 0; p < of->tensors; p++) {
            struct box *box = &flat->tensor[own->place[param].tensor + p].box;
            box->start[of->division.dim] += start;
            box->count[of->division.dim] += count;
        }
    }
    for (int p = 0; p < of->tensors; p++) {
        of->box[p].start[of->division.dim] += start;
        of->box[p].count[of->division.dim] += count;
    }
}

/* A parameter whose value in the graph has another row. */
static int spoil_rows(const struct program *program, struct graph *graph, int param)
{
    int v = 0;
    struct error err = {0};
    while (graph->values[v].role != VALUE_PARAM || graph->values[v].index != param)
        v++;
    graph->values[v].dim[0]++;
    assert_int_equal(verify_program(program, &err), -1);
    assert_non_null(strstr(err.text, "is not its part of it"));
    graph->values[v].dim[0]--;
    return 1;
}

static int spoil_boxes(struct program *program)
{
    int spoilt = 0;
    for (int k = 0; k < program->units->kinds; k++)
        for (int i = 0; i < program->units->kind[k].train->param_count; i++) {
            spoilt += spoil_rows(program, program->units->kind[k].train, i);
            shift_boxes(program, i, k, 1, 0);
            spoilt += refused(program, "another part of a tensor");
            shift_boxes(program, i, k, -1, -1);
            spoilt += refused(program, "a smaller part of a tensor");
            shift_boxes(program, i, k, 0, 1);
            struct graph_group *group = &program->units->kind[k].train->params[i].division.group;
            if (!graph_axes(*group))
                continue;
            group->rank = !group->rank;
            spoilt += refused(program, "another rank's part of a tensor");
            group->rank = !group->rank;
            group->size++;
            spoilt += refused(program, "a part of other ranks");
            group->size--;
        }
    return spoilt;
}

static void test_parts_of_tensors(void **state)
{
    tables_everywhere(spoil_boxes, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_of_instructions),
        cmocka_unit_test(test_first_rows),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_parts_of_tensors),
    };
    return cmocka_run_group_tests_name("history fields", tests, NULL, NULL);
}
