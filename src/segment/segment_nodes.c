/* segment_nodes.c - which nodes of a graph a phase runs, and in what order.
 *
 * Forward runs the forward nodes.  Backward runs the backward nodes; in front of each come the
 * forward nodes that make again what it reads and forward has not kept:
 *
 *     forward    a  b  c            recompute: of a, b and c, only a's result is kept
 *     backward   b' c  c* b*        b' is b once more, for c and for b*
 *
 * Where the rows that a weight's gradient reads are gathered again, that gather is put one product
 * earlier, so that it can run beside that product (append_early()).
 *
 * Backward can be divided: its input part makes the gradient of the unit's input, its weight part
 * the rest.  What the weight part reads of the input part's results is deferred: kept until then.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "segment/segment_private.h"

static int in_phase(const struct segment_draft *c, int i, enum segment_phase phase)
{
    const struct graph_node *node = &c->graph->nodes[i];
    if (node->replaced || node->unused)
        return 0;
    switch (phase) {
    case PHASE_FORWARD: return !node->backward;
    case PHASE_BACKWARD: return node->backward;
    case PHASE_BACKWARD_INPUT: return node->backward && c->input_part[i];
    case PHASE_BACKWARD_WEIGHT: return node->backward && !c->input_part[i];
    default: return 1;
    }
}

/* Is a result of the node needed in the input part?  A gradient of a parameter is, where a
 * later node adds to it there: they keep their order. */
static int is_in_input_part(const struct graph *graph, const struct graph_node *node,
                            const char *wanted, const char *param_written)
{
    for (int k = 0; k < NODE_OUTS; k++) {
        int v = node->out[k];
        if (v >= 0 &&
            (wanted[v] || graph->values[v].role == VALUE_INPUT_GRAD ||
             (graph->values[v].role == VALUE_PARAM_GRAD && param_written[graph->values[v].index])))
            return 1;
    }
    return 0;
}

/* From the end to the start: a node is in the input part if it makes the gradient of the unit's
 * input, or what a node of that part reads. */
static void find_input_part(struct segment_draft *c)
{
    const struct graph *graph = c->graph;
    char *wanted = array_make((size_t)graph->value_count, 1);
    char *param_written = array_make((size_t)graph->param_count, 1);
    for (int i = graph->node_count - 1; i >= 0; i--) {
        const struct graph_node *node = &graph->nodes[i];
        if (!in_phase(c, i, PHASE_BACKWARD) ||
            !is_in_input_part(graph, node, wanted, param_written))
            continue;
        c->input_part[i] = 1;
        for (int k = 0; k < NODE_INS; k++)
            if (node->in[k] >= 0)
                wanted[node->in[k]] = 1;
        for (int k = 0; k < NODE_OUTS; k++)
            if (node->out[k] >= 0 && graph->values[node->out[k]].role == VALUE_PARAM_GRAD)
                param_written[graph->values[node->out[k]].index] = 1;
    }
    free(wanted);
    free(param_written);
}

static void append(struct segment_draft *c, int node)
{
    c->here[node] = 1;
    c->segment->step[c->segment->steps++].node = node;
}

/* Does forward keep its value v, where backward reads it? */
static int is_kept(const struct segment_draft *c, int v)
{
    const struct graph_value *value = &c->graph->values[v];
    if (value->role != VALUE_TEMP)
        return 0;
    const struct graph_node *producer = &c->graph->nodes[value->producer];
    switch (c->recompute) {
    case RECOMPUTE_NONE: return 1;
    case RECOMPUTE_GATHERED: return !producer->attrs.gathered;
    case RECOMPUTE_SELECTIVE: return producer->op->keep && !producer->attrs.gathered;
    default: return 0;
    }
}

/* Append those nodes of forward that make what a node of backward reads and is not kept: each once,
 * down to what is kept or comes from outside.  What the input part has made again is kept for the
 * weight part. */
static void append_needs(struct segment_draft *c, int node)
{
    for (int k = 0; k < NODE_INS; k++) {
        int v = c->graph->nodes[node].in[k];
        int producer = v < 0 ? -1 : c->graph->values[v].producer;
        if (producer < 0 || c->graph->nodes[producer].backward)
            continue;
        if (is_kept(c, v))
            c->temp_space[v] = SPACE_SAVED;
        else if (c->recompute != RECOMPUTE_NONE && !c->here[producer] && !c->made[producer]) {
            append_needs(c, producer);
            append(c, producer);
        }
    }
}

/* Where ranks exchange rows in chunks, the gradient of a product's weight follows that of its input
 * (op_linear.c).  If the rows that the weight's gradient reads must be gathered again, gather them
 * before the gradient of the input, which does not read them and runs meanwhile. */
static void append_early(struct segment_draft *c, int node, enum segment_phase phase)
{
    const struct graph_node *n = &c->graph->nodes[node], *next = n + 1;
    if (node + 1 == c->graph->node_count || n->op != &op_linear_input_grad ||
        next->op != &op_linear_weight_grad || next->in[0] != n->in[0] ||
        !in_phase(c, node + 1, phase))
        return;
    int producer = c->graph->values[next->in[1]].producer;
    if (producer >= 0 && c->graph->nodes[producer].attrs.gathered)
        append_needs(c, node + 1);
}

/* The nodes of a phase; those of backward or a part of it with what they need. */
static void pick(struct segment_draft *c, enum segment_phase phase)
{
    c->segment->steps = 0;
    memset(c->here, 0, (size_t)c->graph->node_count);
    for (int i = 0; i < c->graph->node_count; i++) {
        if (!in_phase(c, i, phase))
            continue;
        if (segment_phase_is_backward(phase)) {
            append_early(c, i, phase);
            append_needs(c, i);
        }
        append(c, i);
    }
}

/* What the weight part reads of what the input part made. */
static void find_deferred(struct segment_draft *c)
{
    pick(c, PHASE_BACKWARD_INPUT);
    memcpy(c->made, c->here, (size_t)c->graph->node_count);
    pick(c, PHASE_BACKWARD_WEIGHT);
    for (int s = 0; s < c->segment->steps; s++)
        for (int k = 0; k < NODE_INS; k++) {
            int v = c->graph->nodes[c->segment->step[s].node].in[k];
            int producer = v < 0 ? -1 : c->graph->values[v].producer;
            if (producer >= 0 && c->made[producer] && c->temp_space[v] != SPACE_SAVED)
                c->temp_space[v] = SPACE_DEFERRED;
        }
}

/* The nodes of the phase.  What is kept is decided by backward, for forward too. */
void segment_pick_nodes(struct segment_draft *c)
{
    enum segment_phase phase = c->segment->phase;
    size_t nodes = (size_t)c->graph->node_count;
    c->segment->step = array_make(nodes, sizeof *c->segment->step);
    /* A whole backward says what is saved; its steps are replaced below. */
    if (phase != PHASE_BOTH)
        pick(c, PHASE_BACKWARD);
    /* Both parts of backward, one after the other, say what is deferred. */
    if (phase == PHASE_BACKWARD_INPUT || phase == PHASE_BACKWARD_WEIGHT) {
        find_input_part(c);
        find_deferred(c);
    }
    /* The steps: of the weight part, with what the input part has made; of all others, with nothing
     * made before. */
    if (phase == PHASE_BACKWARD_INPUT)
        memset(c->made, 0, nodes);
    pick(c, phase);
}
