/* updaters.c - see updaters.h.
 *
 * What an optimizer leaves to adamw follows from how a kind of unit uses a parameter, and is found
 * once for each kind, from who reads it; what is frozen, of each unit by its tensors' names.
 */
#include "verify/updaters.h"

#include <stdio.h>

#include "graph/op.h"
#include "model/adapters.h"
#include "model/transformer.h"

/* How the nodes of a graph read a parameter. */
struct readers {
    int multiply; /* activations by it; of a router, too, as muon is refused where there are some */
    int look_up;  /* rows of it */
};

static struct readers readers_of(const struct graph *graph, int param)
{
    struct readers readers = {0};
    for (int n = 0; n < graph->node_count; n++) {
        const struct graph_node *node = &graph->nodes[n];
        for (int k = 0; k < NODE_INS && !node->backward; k++) {
            const struct graph_value *value = node->in[k] < 0 ? NULL : &graph->values[node->in[k]];
            if (!value || value->role != VALUE_PARAM || value->index != param)
                continue;
            readers.multiply |=
                (node->op == &op_linear && k == 1) || (node->op == &op_adapter && k == 2);
            readers.look_up |= node->op == &op_embedding || node->op == &op_positions;
        }
    }
    return readers;
}

/* Are all tensors that a layout may stack with one of a parameter large enough, and in whole
 * blocks? */
static int is_in_blocks(const struct graph *graph, const struct graph_param *param,
                        const struct optimizer *optimizer)
{
    for (int i = 0; i < graph->param_count; i++) {
        const struct graph_param *other = &graph->params[i];
        for (int p = 0; p < other->tensors; p++) {
            struct box whole = box_whole(other->box[p].dims, other->box[p].whole);
            int64_t elems = box_elems(&whole);
            if (other->block == param->block &&
                transformer_stacks(param->tensor_name[0], other->tensor_name[0]) &&
                (elems < optimizer->least || elems % optimizer->block))
                return 0;
        }
    }
    return 1;
}

/* Whose rule the tensors of a parameter take, if they are trained. */
static enum config_optimizer rule_of(const struct program *program, const struct graph *graph,
                                     int param)
{
    enum config_optimizer configured = program->units->request.optimizer;
    const struct optimizer *row = optimizer_row(configured);
    struct readers readers = readers_of(graph, param);
    int takes = 1;
    if (row->of_matrices)
        takes = readers.multiply;
    else if (row->block)
        takes = !readers.look_up && is_in_blocks(graph, &graph->params[param], row);
    return takes ? configured : OPTIMIZER_ADAMW;
}

/* Does the configuration freeze a tensor? */
static int is_frozen(const struct program *program, const char *name)
{
    const struct model *model = program->units->model;
    return units_is_frozen(program->units->request.freeze, name) ||
           (model->lora.r && !adapters_train(model, name));
}

/* The flat of a unit that has a tensor; NULL: none has. */
static const struct flat *find_flat(const struct program *program, int unit, const char *name)
{
    const struct unit_flats *use = &program->units->use[unit];
    for (int k = 0; k < use->count; k++) {
        const struct flat *flat = &program->units->flat[use->flat[k]];
        if (flat_find(flat, name) >= 0)
            return flat;
    }
    return NULL;
}

static int check_tensor(const struct program *program, int unit, const char *name,
                        enum config_optimizer rule, struct error *err)
{
    const struct flat *flat = find_flat(program, unit, name);
    if (!flat)
        return error_set(err, "verify: wrong update: no flat has %s", name);
    int frozen = is_frozen(program, name);
    if (flat->trained == frozen)
        return error_set(err, "verify: wrong update: %s is %s in %s, and the configuration %s it",
                         name, frozen ? "trained" : "frozen", flat->name,
                         frozen ? "freezes" : "trains");
    if (frozen || flat->optimizer == rule)
        return 0;
    return error_set(err, "verify: wrong update: %s is updated by %s in %s, not by %s", name,
                     optimizer_row(flat->optimizer)->name, flat->name, optimizer_row(rule)->name);
}

/* Check a parameter, which is its own, of all units of a kind. */
static int check_param(const struct program *program, int kind, int param, struct error *err)
{
    const struct units *units = program->units;
    const struct model *model = units->model;
    const struct graph *graph = units->kind[kind].train;
    const struct graph_param *own = &graph->params[param];
    enum config_optimizer rule = rule_of(program, graph, param);
    for (int u = 0; u < units->count; u++)
        for (int p = 0; units->kind_of[u] == kind && p < own->tensors; p++) {
            char name[FLAT_NAME];
            snprintf(name, sizeof name, "%s%s",
                     model->block[model->unit[u].first + own->block].prefix, own->tensor_name[p]);
            if (check_tensor(program, u, name, rule, err))
                return -1;
        }
    return 0;
}

int updaters_check(const struct program *program, struct error *err)
{
    for (int k = 0; k < program->units->kinds; k++) {
        const struct graph *graph = program->units->kind[k].train;
        for (int i = 0; i < graph->param_count; i++)
            if (!graph->params[i].is_borrowed && check_param(program, k, i, err))
                return -1;
    }
    return 0;
}
