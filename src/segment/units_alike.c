/* units_alike.c - are two variants of a model's units the same work on other numbers?
 *
 * Ranks that have other parts of layers or of sequences compile units of their own.  Where the
 * parts are of equal sizes, all that programs are made from is the same: flats, values, nodes and
 * steps. What may differ is which part it is: the starts of boxes, and the attributes of ops that
 * say so (the first row of a table, the positions of a rank's rows).
 */
#include <string.h>

#include "segment/units.h"

static int tensors_alike(const struct flat_tensor *a, const struct flat_tensor *b)
{
    return !strcmp(a->name, b->name) && a->offset == b->offset && a->elems == b->elems &&
           a->section == b->section;
}

static int flats_alike(const struct flat *a, const struct flat *b)
{
    if (a->unit != b->unit || a->trained != b->trained || a->is_nf4 != b->is_nf4 ||
        a->optimizer != b->optimizer || a->grad_dtype != b->grad_dtype ||
        a->divided_axes != b->divided_axes || a->shard_axes != b->shard_axes ||
        a->sum_axes != b->sum_axes || a->sections != b->sections || a->tensors != b->tensors ||
        a->padded != b->padded || a->shard_elems != b->shard_elems || a->pads != b->pads)
        return 0;
    for (int t = 0; t < a->tensors; t++)
        if (!tensors_alike(&a->tensor[t], &b->tensor[t]))
            return 0;
    return 1;
}

static int values_alike(const struct graph_value *a, const struct graph_value *b)
{
    return a->role == b->role && a->dtype == b->dtype && a->dims == b->dims &&
           !memcmp(a->dim, b->dim, (size_t)a->dims * sizeof a->dim[0]);
}

static int nodes_alike(const struct graph_node *a, const struct graph_node *b)
{
    return a->op == b->op && !memcmp(a->in, b->in, sizeof a->in) &&
           !memcmp(a->out, b->out, sizeof a->out) && a->attrs.axes == b->attrs.axes &&
           a->attrs.members == b->attrs.members && a->attrs.row_chunks == b->attrs.row_chunks &&
           a->unused == b->unused && a->accumulate == b->accumulate;
}

static int graphs_alike(const struct graph *a, const struct graph *b)
{
    if (!a || !b)
        return a == b;
    if (a->value_count != b->value_count || a->node_count != b->node_count)
        return 0;
    for (int v = 0; v < a->value_count; v++)
        if (!values_alike(&a->values[v], &b->values[v]))
            return 0;
    for (int n = 0; n < a->node_count; n++)
        if (!nodes_alike(&a->nodes[n], &b->nodes[n]))
            return 0;
    return 1;
}

static int refs_alike(const struct segment_ref *a, const struct segment_ref *b)
{
    return a->space == b->space && (a->space < 0 || a->offset == b->offset);
}

static int steps_alike(const struct segment_step *a, const struct segment_step *b)
{
    for (int k = 0; k < NODE_INS; k++)
        if (!refs_alike(&a->in[k], &b->in[k]))
            return 0;
    for (int k = 0; k < NODE_OUTS; k++)
        if (!refs_alike(&a->out[k], &b->out[k]))
            return 0;
    return a->node == b->node && a->piece == b->piece && a->row_chunk == b->row_chunk &&
           a->row_chunks == b->row_chunks && a->grad_use == b->grad_use &&
           refs_alike(&a->scratch, &b->scratch);
}

static int segments_alike(const struct segment *a, const struct segment *b)
{
    if (a->steps != b->steps || a->pieces != b->pieces || a->work_bytes != b->work_bytes ||
        a->saved_bytes != b->saved_bytes || a->deferred_bytes != b->deferred_bytes ||
        a->carry_bytes != b->carry_bytes || a->reads != b->reads || a->writes != b->writes)
        return 0;
    for (int s = 0; s < a->steps; s++)
        if (!steps_alike(&a->step[s], &b->step[s]))
            return 0;
    return 1;
}

static int kinds_alike(const struct unit_kind *a, const struct unit_kind *b)
{
    for (int phase = 0; phase < PHASES; phase++)
        if (!segments_alike(&a->segment[phase], &b->segment[phase]))
            return 0;
    return graphs_alike(a->train, b->train) && graphs_alike(a->evaluate, b->evaluate) &&
           graphs_alike(a->generate[GENERATE_PROMPT], b->generate[GENERATE_PROMPT]) &&
           graphs_alike(a->generate[GENERATE_TOKEN], b->generate[GENERATE_TOKEN]);
}

int units_are_alike(const struct units *a, const struct units *b)
{
    if (a->count != b->count || a->flats != b->flats || a->kinds != b->kinds ||
        memcmp(a->kind_of, b->kind_of, (size_t)a->count * sizeof *a->kind_of))
        return 0;
    for (int f = 0; f < a->flats; f++)
        if (!flats_alike(&a->flat[f], &b->flat[f]))
            return 0;
    for (int k = 0; k < a->kinds; k++)
        if (!kinds_alike(&a->kind[k], &b->kind[k]))
            return 0;
    return 1;
}
