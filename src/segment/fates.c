/* fates.c - see fates.h.
 *
 * A tensor's fate is who updates it (the configured optimizer, another, nobody), whether a rank has
 * a part of it (division), whether its gradient is a sum of terms of ranks that divide layers
 * (build_divided()), the number format of its gradient, and, in a pipeline, whether other units use
 * it too, whose stage then has a copy of its flat and of nothing else:
 *
 *   flat of a block       tensors         divided over   gradient summed over
 *   "layers.3"            norms           -              data ranks
 *   "layers.3 summed"     norms           -              data ranks and tensor ranks, each of which
 *                                                        norms its own rows
 *   "layers.3 divided"    matrices        tensor         data ranks
 *   "layers.3 bf16"       matrices        -              data ranks, in bf16: each is made by one
 *                                                        product, to which nothing is added
 *
 *   "layers.3 frozen nf4"                 -              not at all: kept in 4 bits, where that is
 *                                                        asked for
 *
 * Of what is frozen, adapters and modules that lora.modules_to_save names are flats apart: only the
 * rest may be left to the files of model.path by a checkpoint.
 */
#include "segment/fates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "graph/op.h"
#include "model/transformer.h"
#include "segment/optimizer.h"

/* Who updates a tensor. */
enum updater { UPDATER_CONFIGURED, UPDATER_OTHER, UPDATER_NONE, UPDATERS };

static const char *const updater_names[UPDATERS] = {
    [UPDATER_CONFIGURED] = "", [UPDATER_OTHER] = " adamw", [UPDATER_NONE] = " frozen"};

struct fate {
    enum updater updater;
    unsigned divided_axes, term_axes;
    int is_shared;          /* of a pipeline alone */
    int is_adapter, is_nf4; /* of what is frozen alone */
    enum dtype grad_dtype;
};

/* Is the parameter a matrix that activations are multiplied by, but not a router's? */
static int is_matrix(const struct graph *graph, int param)
{
    for (int n = 0; n < graph->node_count; n++) {
        const struct graph_node *node = &graph->nodes[n];
        int matrix = node->op == &op_linear    ? node->in[1]
                     : node->op == &op_adapter ? node->in[2]
                                               : -1;
        const struct graph_value *w = matrix < 0 ? NULL : &graph->values[matrix];
        if (w && w->role == VALUE_PARAM && w->index == param)
            return !op_is_router(graph, n);
    }
    return 0;
}

/* Is the parameter the matrices of experts? */
static int is_of_experts(const struct graph *graph, int param)
{
    for (int n = 0; n < graph->node_count; n++) {
        const struct graph_node *node = &graph->nodes[n];
        const struct graph_value *w = node->op == &op_experts ? &graph->values[node->in[1]] : NULL;
        if (w && w->index == param)
            return 1;
    }
    return 0;
}

/* Is the parameter rows of an embedding, of tokens or of learned positions?  Positions that data
 * gives are looked up as tokens are, and others are added. */
static int is_embedding(const struct graph *graph, int param)
{
    for (int n = 0; n < graph->node_count; n++)
        for (int k = 0; k < NODE_INS; k++) {
            const struct graph_node *node = &graph->nodes[n];
            int v = node->op == &op_embedding || node->op == &op_positions ? node->in[k] : -1;
            const struct graph_value *value = v < 0 ? NULL : &graph->values[v];
            if (value && value->role == VALUE_PARAM && value->index == param)
                return 1;
        }
    return 0;
}

/* Do all tensors of a parameter have at least `least` elements, and whole blocks?  The tensors of
 * its block that other layouts stack with them (transformer_stacks()) are asked too, so that every
 * layout has the same answer. */
static int is_in_blocks(const struct graph *graph, int param, int64_t least, int64_t block)
{
    const struct graph_param *own = &graph->params[param];
    for (int i = 0; i < graph->param_count; i++) {
        const struct graph_param *other = &graph->params[i];
        if (other->block != own->block ||
            !transformer_stacks(own->tensor_name[0], other->tensor_name[0]))
            continue;
        for (int p = 0; p < other->tensors; p++) {
            struct box whole = box_whole(other->box[p].dims, other->box[p].whole);
            int64_t elems = box_elems(&whole);
            if (elems < least || elems % block)
                return 0;
        }
    }
    return 1;
}

static enum updater updater_of(const struct units *units, const struct graph *graph, int param)
{
    const struct optimizer *configured = optimizer_row(units->request.optimizer);
    int takes = 1;
    if (graph->params[param].frozen)
        return UPDATER_NONE;
    if (configured->of_matrices)
        takes = is_matrix(graph, param);
    else if (configured->block)
        takes = !is_embedding(graph, param) &&
                is_in_blocks(graph, param, configured->least, configured->block);
    return takes ? UPDATER_CONFIGURED : UPDATER_OTHER;
}

/* Is the parameter frozen matrices, to be kept in 4 bits? */
static int is_nf4(const struct units *units, const struct graph *graph, int param)
{
    const struct graph_param *own = &graph->params[param];
    return units->request.quantize == QUANTIZE_NF4 && own->frozen && !own->frozen_adapter &&
           (is_matrix(graph, param) || is_of_experts(graph, param)) &&
           is_in_blocks(graph, param, NF4_BLOCK, NF4_BLOCK);
}

/* The axes whose ranks each make a term of a parameter's gradient. */
static unsigned term_axes(const struct graph *graph, int param)
{
    unsigned axes = 0;
    for (int v = 0; v < graph->value_count; v++)
        if (graph->values[v].role == VALUE_PARAM && graph->values[v].index == param)
            axes |= graph_axes(graph->values[v].divided);
    return graph->params[param].frozen ? 0 : axes;
}

/* Does another unit share the parameter `name` that `unit` owns? */
static int is_shared(const struct units *units, int unit, const char *name)
{
    for (int u = 0; u < units->count; u++) {
        const struct graph *graph = units_kind(units, u)->train;
        for (int i = 0; i < graph->param_count && units->model->unit[u].lender == unit; i++)
            if (graph->params[i].is_borrowed && !strcmp(graph->params[i].tensor_name[0], name))
                return 1;
    }
    return 0;
}

static struct fate fate_of(const struct units *units, int unit, int param)
{
    const struct graph *graph = units_kind(units, unit)->train;
    return (struct fate){.updater = updater_of(units, graph, param),
                         .is_adapter = graph->params[param].frozen_adapter,
                         .is_nf4 = is_nf4(units, graph, param),
                         .divided_axes = graph_axes(graph->params[param].division.group),
                         .term_axes = term_axes(graph, param),
                         .is_shared = units->request.stages > 1 &&
                                      is_shared(units, unit, graph->params[param].tensor_name[0]),
                         .grad_dtype = graph->params[param].grad_dtype};
}

/* ---- the format of gradients ---- */

/* Does one op_linear alone read a parameter?  Then one product makes its gradient. */
static int is_of_one_product(const struct graph *graph, int param)
{
    int readers = 0, products = 0;
    for (int n = 0; n < graph->node_count; n++)
        for (int k = 0; k < NODE_INS; k++) {
            int v = graph->nodes[n].in[k];
            const struct graph_value *value = v < 0 ? NULL : &graph->values[v];
            int reads = value && value->role == VALUE_PARAM && value->index == param;
            readers += reads;
            products += reads && k == 1 && graph->nodes[n].op == &op_linear;
        }
    return readers == 1 && products == 1;
}

/* Does another unit share the parameter `name` of any unit of a kind? */
static int is_shared_by_kind(const struct units *units, int kind, const char *name)
{
    int shared = 0;
    for (int u = 0; u < units->count; u++)
        shared |= units->kind_of[u] == kind && is_shared(units, u, name);
    return shared;
}

/* Let the matrices whose gradient is one product have it in the format that is asked for: where
 * other units add to it, or other ops of its own, it stays in fp32. */
static int set_grad_formats(struct units *units, struct error *err)
{
    enum dtype dtype = units->request.grad_dtype;
    int found = dtype == DTYPE_F32;
    for (int k = 0; k < units->kinds; k++) {
        struct graph *graph = units->kind[k].train;
        for (int p = 0; p < graph->param_count; p++) {
            struct graph_param *param = &graph->params[p];
            if (param->frozen || param->is_borrowed || !is_of_one_product(graph, p) ||
                is_shared_by_kind(units, k, param->tensor_name[0]))
                continue;
            param->grad_dtype = dtype;
            found = 1;
        }
    }
    return found ? 0
                 : error_set(err,
                             "train.grad_dtype %s is of weights of linear layers, and none of "
                             "those is trained; leave it at fp32",
                             dtype_name(dtype));
}

/* ---- flats ---- */

static void lay_out(struct units *units, int unit, struct fate fate, const char *takes, int shards)
{
    const struct units_request *r = &units->request;
    const struct model_unit *u = &units->model->unit[unit];
    struct flat *flat = &units->flat[units->flats];
    char name[sizeof flat->name], own[MODEL_PREFIX];
    int is_wide = fate.grad_dtype == DTYPE_F32;
    snprintf(name, sizeof name, "%s%s%s%s%s%s%s%s%s", model_unit_name(units->model, unit, own),
             updater_names[fate.updater], fate.is_adapter ? " adapter" : "",
             fate.is_nf4 ? " nf4" : "", fate.divided_axes ? " divided" : "",
             fate.term_axes ? " summed" : "", fate.is_shared ? " shared" : "", is_wide ? "" : " ",
             is_wide ? "" : dtype_name(fate.grad_dtype));
    enum config_optimizer rule = optimizer_of(r->optimizer, fate.updater == UPDATER_CONFIGURED);
    int64_t block = fate.is_nf4                    ? NF4_BLOCK
                    : fate.updater == UPDATER_NONE ? 0
                                                   : optimizer_row(rule)->block;
    flat_create(flat, name, unit, units_kind(units, unit)->train, &units->model->block[u->first],
                takes, shards, block ? block : 1);
    flat->trained = fate.updater != UPDATER_NONE;
    flat->is_frozen_adapter = fate.is_adapter;
    flat->is_nf4 = fate.is_nf4;
    flat->grad_dtype = fate.grad_dtype;
    flat->optimizer = rule;
    flat->divided_axes = fate.divided_axes;
    flat->shard_axes = shards > 1 ? r->shard_axes : 0;
    flat->sum_axes = r->data_axes | fate.term_axes;
}

static int use_flat(struct units *units, int unit, int flat, struct error *err)
{
    struct unit_flats *use = &units->use[unit];
    char name[MODEL_PREFIX];
    if (use->count == FLAT_USES)
        return error_set(
            err,
            "%s: a unit has tensors of %d kinds at most (frozen or trained, divided "
            "or whole, in fp32, bf16 or 4 bits, of train.optimizer or left to adamw), and "
            "this one more; use parallel.wrap block or train.optimizer adamw",
            model_unit_name(units->model, unit, name), FLAT_USES);
    use->flat[use->count++] = flat;
    return 0;
}

/* Set the boxes of a flat's tensors in blocks, where it is in blocks. */
static int set_blocks(struct flat *flat, struct error *err)
{
    for (int t = 0; flat->block > 1 && t < flat->tensors; t++)
        if (box_in_blocks(&flat->tensor[t].box, flat->block, &flat->tensor[t].blocks))
            return error_set(err,
                             "%s%s keeps %lld elements of a row of %s together, and "
                             "parallel.tensor would divide them; use %s, or fewer tensor ranks",
                             flat->is_nf4 ? "lora.quantize_base nf4" : "train.optimizer ",
                             flat->is_nf4 ? "" : optimizer_row(flat->optimizer)->name,
                             (long long)flat->block, flat->tensor[t].name,
                             flat->is_nf4 ? "lora.quantize_base=none" : "adamw");
    return 0;
}

/* The flat of a unit's own parameters of one fate.  Small ones are not worth a transfer per use. */
static int add_flat(struct units *units, int unit, struct fate fate, const char *takes,
                    struct error *err)
{
    const struct units_request *r = &units->request;
    struct flat *flat = &units->flat[units->flats];
    if (use_flat(units, unit, units->flats, err))
        return -1;
    lay_out(units, unit, fate, takes,
            fate.updater == UPDATER_NONE && r->frozen_whole ? 1 : r->shards);
    if (flat->elems < r->persist_below) {
        flat_destroy(flat);
        lay_out(units, unit, fate, takes, 1);
    }
    units->flats++;
    if (set_blocks(flat, err))
        return -1;
    if (flat->trained && fate.divided_axes && optimizer_row(flat->optimizer)->of_matrices)
        return error_set(err,
                         "%s is divided among ranks, and train.optimizer %s works on whole "
                         "matrices; use adamw",
                         flat->tensor[0].name, optimizer_row(flat->optimizer)->name);
    return 0;
}

/* Make the flats of a unit's own tensors: by their updater, then in the order of their first
 * tensors. */
static int add_flats(struct units *units, int unit, struct error *err)
{
    const struct graph *graph = units_kind(units, unit)->train;
    size_t params = (size_t)graph->param_count;
    char *takes = array_make(params, 1), *taken = array_make(params, 1);
    int rc = 0;
    for (int i = 0; !rc && i < UPDATERS * graph->param_count; i++) {
        int first = i % graph->param_count;
        struct fate fate = fate_of(units, unit, first);
        if (taken[first] || graph->params[first].is_borrowed ||
            (int)fate.updater != i / graph->param_count)
            continue;
        for (int p = 0; p < graph->param_count; p++) {
            struct fate other = fate_of(units, unit, p);
            takes[p] = !graph->params[p].is_borrowed && !memcmp(&fate, &other, sizeof fate);
            taken[p] |= takes[p];
        }
        rc = add_flat(units, unit, fate, takes, err);
    }
    free(takes);
    free(taken);
    return rc;
}

/* Does a flat hold parameter i of a graph, a borrowed one, in the part that the unit wants, and do
 * both units agree which ranks make terms of its gradient?  Returns 1, 0, or -1 with err set. */
static int holds_shared(const struct units *units, const struct flat *flat,
                        const struct graph *graph, int i, struct error *err)
{
    const struct graph_param *param = &graph->params[i];
    int tensor = param->is_borrowed ? flat_find(flat, param->tensor_name[0]) : -1;
    if (tensor < 0)
        return 0;
    const struct box *box = &flat->tensor[tensor].box, *wanted = &param->box[0];
    char text[2][BOX_TEXT];
    if (!box_equal(box, wanted))
        return error_set(err, "%s: one unit has %s of it, and another that shares it %s",
                         param->tensor_name[0], box_text(box, text[0]), box_text(wanted, text[1]));
    unsigned summed = flat->sum_axes & ~units->request.data_axes;
    if (flat->trained && !param->frozen && term_axes(graph, i) != summed)
        return error_set(err,
                         "%s: one unit says that ranks make terms of its gradient, and another "
                         "that shares it does not",
                         param->tensor_name[0]);
    return 1;
}

/* Add to a unit's flats those of another unit that hold what the two share. */
static int add_shared(struct units *units, int unit, struct error *err)
{
    const struct graph *graph = units_kind(units, unit)->train;
    int other = units->model->unit[unit].lender;
    for (int f = 0; other >= 0 && f < units->flats; f++) {
        int uses = 0;
        for (int i = 0; i < graph->param_count && units->flat[f].unit == other; i++) {
            int holds = holds_shared(units, &units->flat[f], graph, i, err);
            if (holds < 0)
                return -1;
            uses |= holds;
        }
        if (uses && use_flat(units, unit, f, err))
            return -1;
    }
    return 0;
}

/* An optimizer of blocks that none of the tensors takes would be adamw by another name, and weights
 * of 4 bits of which there are none would not be what was asked for. */
static int check_blocks(const struct units *units, struct error *err)
{
    const struct optimizer *optimizer = optimizer_row(units->request.optimizer);
    int found = !optimizer->block, quantized = 0;
    for (int f = 0; f < units->flats; f++) {
        found |= units->flat[f].trained && units->flat[f].block > 1;
        quantized |= units->flat[f].is_nf4;
    }
    if (units->request.quantize == QUANTIZE_NF4 && !quantized)
        return error_set(err,
                         "lora.quantize_base nf4 is of frozen matrices of whole blocks of %d "
                         "elements, and there are none; leave it at none",
                         NF4_BLOCK);
    return found ? 0
                 : error_set(err,
                             "train.optimizer %s is of tensors of at least %lld elements in whole "
                             "blocks of %d that are no embeddings, and none of those is trained; "
                             "use adamw",
                             optimizer->name, (long long)optimizer->least, optimizer->block);
}

int fates_make_flats(struct units *units, struct error *err)
{
    int rc = set_grad_formats(units, err);
    for (int u = 0; !rc && u < units->count; u++)
        rc = add_flats(units, u, err);
    for (int u = 0; !rc && u < units->count; u++)
        rc = add_shared(units, u, err);
    return rc ? rc : check_blocks(units, err);
}
