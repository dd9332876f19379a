/* segment.c - compile a graph and a phase into steps.
 *
 * Five passes: pick_nodes() chooses the nodes of the phase, and in backward, where forward has not
 * kept a value, the forward nodes that make it again; place_kept() gives what a phase keeps for
 * another a fixed place; cut() divides the steps into pieces and finds the temporaries that live
 * from one to another; plan_work() gives temporaries and scratch offsets by their lifetimes, so
 * that memory is used again within the segment; resolve() makes every operand a space and an
 * offset.
 */
#include "segment/segment.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "comm/mesh.h"
#include "segment/place.h"

/* What lies in a space: values, and in WORK scratch of steps. */
struct items {
    struct place *place;
    int count;
};

/* Scratch of one compilation. */
struct compile {
    struct segment *segment;
    const struct graph *graph;
    const struct param_place *place; /* per parameter */
    struct device *device;
    enum config_recompute recompute;
    char *here;          /* per node: a step of this segment */
    char *input_part;    /* per node: backward's input part needs it */
    char *made;          /* per node: a step of backward's input part, where this is the other */
    char *saved;         /* per value: kept from forward to backward */
    char *deferred;      /* per value: kept from backward's input part to its weight part */
    size_t *kept_offset; /* per value */
    int *step_of;        /* per node: its step */
    int *piece_of;       /* per step */
    char *carried;       /* per value: lives in CARRY, not in WORK */
    int *item;           /* per value: its item, or -1 */
    struct items work, carry;
    int *scratch_item; /* per step: in work, or -1 */
};

const char *segment_phase_name(enum segment_phase phase)
{
    static const char *const names[PHASES] = {
        [PHASE_FORWARD] = "forward",
        [PHASE_BACKWARD] = "backward",
        [PHASE_BACKWARD_INPUT] = "backward input",
        [PHASE_BACKWARD_WEIGHT] = "backward weight",
        [PHASE_BOTH] = "forward+backward",
    };
    return names[phase];
}

static int in_phase(const struct compile *c, int i, enum segment_phase phase)
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

/* Is a result of the node needed in the input part?  A gradient of a parameter is, where a node
 * behind adds to it there: they keep their order. */
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
static void find_input_part(struct compile *c)
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

static void append(struct compile *c, int node)
{
    c->here[node] = 1;
    c->segment->step[c->segment->steps++].node = node;
}

/* Does forward keep its value v, where backward reads it? */
static int is_kept(const struct compile *c, int v)
{
    const struct graph_value *value = &c->graph->values[v];
    if (value->role != VALUE_TEMP || c->recompute == RECOMPUTE_FULL)
        return 0;
    return c->recompute == RECOMPUTE_NONE || c->graph->nodes[value->producer].op->keep;
}

/* Append a node to backward, and in front of it those of forward that make what it reads and is
 * not kept: each once, as late as that allows, down to what is kept or comes from outside.  What
 * the input part has made again is kept for the weight part. */
static void append_with_needs(struct compile *c, int node)
{
    for (int k = 0; k < NODE_INS; k++) {
        int v = c->graph->nodes[node].in[k];
        int producer = v < 0 ? -1 : c->graph->values[v].producer;
        if (producer < 0 || c->graph->nodes[producer].backward)
            continue;
        if (is_kept(c, v))
            c->saved[v] = 1;
        else if (c->recompute != RECOMPUTE_NONE && !c->here[producer] && !c->made[producer])
            append_with_needs(c, producer);
    }
    append(c, node);
}

/* The nodes of backward or a part of it, with what they need. */
static void pick_backward(struct compile *c, enum segment_phase phase)
{
    c->segment->steps = 0;
    memset(c->here, 0, (size_t)c->graph->node_count);
    for (int i = 0; i < c->graph->node_count; i++)
        if (in_phase(c, i, phase))
            append_with_needs(c, i);
}

/* What the weight part reads of what the input part made. */
static void find_deferred(struct compile *c)
{
    pick_backward(c, PHASE_BACKWARD_INPUT);
    memcpy(c->made, c->here, (size_t)c->graph->node_count);
    pick_backward(c, PHASE_BACKWARD_WEIGHT);
    for (int s = 0; s < c->segment->steps; s++)
        for (int k = 0; k < NODE_INS; k++) {
            int v = c->graph->nodes[c->segment->step[s].node].in[k];
            int producer = v < 0 ? -1 : c->graph->values[v].producer;
            if (producer >= 0 && c->made[producer] && !c->saved[v])
                c->deferred[v] = 1;
        }
}

/* The nodes of the phase.  What is kept is decided by backward, for forward too. */
static void pick_nodes(struct compile *c)
{
    enum segment_phase phase = c->segment->phase;
    size_t nodes = (size_t)c->graph->node_count;
    c->segment->step = array_make(nodes, sizeof *c->segment->step);
    if (phase != PHASE_BOTH)
        pick_backward(c, PHASE_BACKWARD);
    if (phase == PHASE_BACKWARD)
        return;
    if (segment_phase_is_backward(phase)) {
        find_input_part(c);
        find_deferred(c);
        if (phase == PHASE_BACKWARD_WEIGHT)
            return;
        memset(c->made, 0, nodes);
        pick_backward(c, phase);
        return;
    }
    c->segment->steps = 0;
    memset(c->here, 0, nodes);
    for (int i = 0; i < c->graph->node_count; i++)
        if (in_phase(c, i, phase))
            append(c, i);
}

/* What one phase keeps for another has a fixed place; returns the bytes. */
static size_t place_kept(struct compile *c, const char *is_kept_value)
{
    size_t at = 0;
    for (int v = 0; v < c->graph->value_count; v++)
        if (is_kept_value[v]) {
            c->kept_offset[v] = at;
            at += round_up_bytes(graph_bytes(c->graph, v), PLACE_ALIGN);
        }
    return at;
}

/* Is the value a result of this segment?  Then reading it asks nothing of what ran before. */
static int made_here(const struct compile *c, int v)
{
    int producer = v < 0 ? -1 : c->graph->values[v].producer;
    return producer >= 0 && c->here[producer];
}

/* In backward no other unit reads the unit's output: made again there, it is a temporary too. */
static int is_work(const struct compile *c, int v)
{
    if (v < 0 || c->saved[v] || c->deferred[v])
        return 0;
    enum value_role role = c->graph->values[v].role;
    return role == VALUE_TEMP || (role == VALUE_OUTPUT && made_here(c, v) &&
                                  segment_phase_is_backward(c->segment->phase));
}

static int exchanges(const struct compile *c, int step)
{
    return segment_node(c->segment, &c->segment->step[step])->op->transfer != TRANSFER_NONE;
}

/* What a step reads that another piece made, and what it exchanges, is carried. */
static void carry(struct compile *c, int s)
{
    const struct graph_node *node = segment_node(c->segment, &c->segment->step[s]);
    for (int k = 0; k < NODE_INS; k++) {
        int v = node->in[k], made = is_work(c, v) ? c->step_of[c->graph->values[v].producer] : s;
        c->carried[v < 0 ? 0 : v] |= (char)(c->piece_of[made] != c->piece_of[s]);
    }
    if (!exchanges(c, s))
        return;
    c->carried[node->in[0]] |= (char)is_work(c, node->in[0]);
    c->carried[node->out[0]] |= (char)is_work(c, node->out[0]);
}

static void cut(struct compile *c)
{
    struct segment *segment = c->segment;
    segment->piece = array_make((size_t)segment->steps + 1, sizeof *segment->piece);
    segment->pieces = 1;
    for (int s = 0; s < segment->steps; s++) {
        struct segment_piece *piece = &segment->piece[segment->pieces - 1];
        c->step_of[segment->step[s].node] = s;
        c->piece_of[s] = segment->pieces - 1;
        piece->end = s + 1;
        if (exchanges(c, s))
            segment->piece[segment->pieces++] =
                (struct segment_piece){.first = s + 1, .end = s + 1};
    }
    for (int s = 0; s < segment->steps; s++)
        carry(c, s);
}

static int add_item(struct items *items, size_t bytes, int first)
{
    items->place[items->count] = (struct place){.bytes = bytes, .first = first, .last = first};
    return items->count++;
}

static struct items *items_of(struct compile *c, int v)
{
    return c->carried[v] ? &c->carry : &c->work;
}

static int last_use(const struct compile *c, int v, int from)
{
    int last = from;
    for (int s = from; s < c->segment->steps; s++)
        for (int k = 0; k < NODE_INS; k++)
            if (c->graph->nodes[c->segment->step[s].node].in[k] == v)
                last = s;
    return last;
}

/* Output 0 takes over the memory of an input that dies at this step, where the op allows. */
static int take_over(struct compile *c, const struct graph_node *node, int step, int out)
{
    for (int k = 0; k < NODE_INS; k++) {
        int v = node->in[k];
        if (!(node->op->in_place & 1u << k) || !is_work(c, v) || c->item[v] < 0 ||
            c->carried[v] != c->carried[out])
            continue;
        if (last_use(c, v, step) == step && items_of(c, v)->place[c->item[v]].last == step &&
            graph_bytes(c->graph, v) == graph_bytes(c->graph, out))
            return c->item[v];
    }
    return -1;
}

static void plan_work(struct compile *c)
{
    for (int s = 0; s < c->segment->steps; s++) {
        const struct graph_node *node = &c->graph->nodes[c->segment->step[s].node];
        for (int k = 0; k < NODE_OUTS; k++) {
            int v = node->out[k];
            if (!is_work(c, v))
                continue;
            c->item[v] = k == 0 ? take_over(c, node, s, v) : -1;
            if (c->item[v] < 0)
                c->item[v] = add_item(items_of(c, v), graph_bytes(c->graph, v), s);
            items_of(c, v)->place[c->item[v]].last = last_use(c, v, s);
        }
        size_t scratch = node->op->scratch ? node->op->scratch(c->device, c->graph, node) : 0;
        c->scratch_item[s] = scratch ? add_item(&c->work, scratch, s) : -1;
    }
    c->segment->work_bytes = place_items(c->work.place, c->work.count);
    c->segment->carry_bytes = place_items(c->carry.place, c->carry.count);
}

static struct segment_ref param_ref(const struct compile *c, int index, int grad)
{
    const struct param_place *place = &c->place[index];
    size_t size = grad ? sizeof(float) : dtype_bytes(c->graph->dtype);
    if (place->use < 0)
        return (struct segment_ref){-1, 0};
    return (struct segment_ref){(grad ? SPACE_GRAD : SPACE_PARAM) + place->use,
                                (size_t)place->offset * size};
}

static struct segment_ref ref(const struct compile *c, int v)
{
    static const int space[] = {
        [VALUE_INPUT] = SPACE_INPUT,
        [VALUE_OUTPUT] = SPACE_OUTPUT,
        [VALUE_OUTPUT_GRAD] = SPACE_OUTPUT_GRAD,
        [VALUE_INPUT_GRAD] = SPACE_INPUT_GRAD,
        [VALUE_TOKENS] = SPACE_TOKENS,
        [VALUE_TARGETS] = SPACE_TARGETS,
        [VALUE_CONST] = SPACE_CONST,
        [VALUE_LOSS] = SPACE_LOSS,
        [VALUE_LOSS_SCALE] = SPACE_LOSS_SCALE,
    };
    if (v < 0)
        return (struct segment_ref){-1, 0};
    if (c->saved[v])
        return (struct segment_ref){SPACE_SAVED, c->kept_offset[v]};
    if (c->deferred[v])
        return (struct segment_ref){SPACE_DEFERRED, c->kept_offset[v]};
    if (is_work(c, v) && c->carried[v])
        return (struct segment_ref){SPACE_CARRY, c->carry.place[c->item[v]].offset};
    if (is_work(c, v))
        return (struct segment_ref){SPACE_WORK, c->work.place[c->item[v]].offset};
    const struct graph_value *value = &c->graph->values[v];
    switch (value->role) {
    case VALUE_PARAM: return param_ref(c, value->index, 0);
    case VALUE_PARAM_GRAD: return param_ref(c, value->index, 1);
    default: return (struct segment_ref){space[value->role], 0};
    }
}

static void note(struct segment *segment, struct segment_ref ref, int write)
{
    if (ref.space < 0)
        return;
    segment->reads |= write ? 0 : 1u << ref.space;
    segment->writes |= write ? 1u << ref.space : 0;
}

/* Output k of the step may be a gradient. */
static void note_gradient(const struct compile *c, struct segment_step *step, int k)
{
    int v = c->graph->nodes[step->node].out[k];
    step->tensor[k] = -1;
    if (v < 0 || c->graph->values[v].role != VALUE_PARAM_GRAD)
        return;
    step->tensor[k] = c->place[c->graph->values[v].index].tensor;
    step->grad_use = c->place[c->graph->values[v].index].use;
}

static void note_piece(struct segment_piece *piece, struct segment_ref ref, int write)
{
    if (ref.space >= 0)
        *(write ? &piece->writes : &piece->reads) |= 1u << ref.space;
}

static int is_same_place(struct segment_ref a, struct segment_ref b)
{
    return a.space == b.space && a.offset == b.offset;
}

/* What the piece of step s touches by it.  Of an exchange that is the term of a sum, where it has
 * to be brought to its place. */
static void touch(struct compile *c, int s)
{
    struct segment *segment = c->segment;
    const struct segment_step *step = &segment->step[s];
    const struct graph_node *node = segment_node(segment, step);
    struct segment_piece *piece = &segment->piece[c->piece_of[s]];
    if (exchanges(c, s) &&
        (node->op->transfer != TRANSFER_SUM || is_same_place(step->in[0], step->out[0])))
        return;
    piece->runs = 1;
    piece->flops += op_flops(c->graph, node);
    for (int k = 0; k < NODE_INS; k++) {
        int v = node->in[k];
        if (!made_here(c, v) ||
            c->piece_of[c->step_of[c->graph->values[v].producer]] != c->piece_of[s])
            note_piece(piece, step->in[k], 0);
    }
    for (int k = 0; k < NODE_OUTS; k++)
        note_piece(piece, step->out[k], 1);
    note_piece(piece, step->scratch, 1);
}

static void resolve(struct compile *c)
{
    struct segment *segment = c->segment;
    for (int s = 0; s < segment->steps; s++) {
        struct segment_step *step = &segment->step[s];
        const struct graph_node *node = &c->graph->nodes[step->node];
        step->grad_use = -1;
        for (int k = 0; k < NODE_INS; k++) {
            step->in[k] = ref(c, node->in[k]);
            if (!made_here(c, node->in[k]))
                note(segment, step->in[k], 0);
        }
        for (int k = 0; k < NODE_OUTS; k++) {
            step->out[k] = ref(c, node->out[k]);
            note(segment, step->out[k], 1);
            note_gradient(c, step, k);
        }
        int item = c->scratch_item[s];
        step->scratch = item < 0 ? (struct segment_ref){-1, 0}
                                 : (struct segment_ref){SPACE_WORK, c->work.place[item].offset};
        segment->flops += op_flops(c->graph, node);
        segment->bytes += op_bytes(c->graph, node);
        touch(c, s);
    }
    if (segment->work_bytes)
        note(segment, (struct segment_ref){SPACE_WORK, 0}, 1);
}

/* Is the value gone when the phase runs? */
static int is_gone(const struct compile *c, int v)
{
    if (v < 0 || !segment_phase_is_backward(c->segment->phase) || c->deferred[v] || made_here(c, v))
        return 0;
    enum value_role role = c->graph->values[v].role;
    return role == VALUE_OUTPUT || role == VALUE_INPUT_GRAD;
}

/* What is exchanged is a value of the unit's own, a boundary, or what is kept of one. */
static int check_exchange(const struct compile *c, int s, struct error *err)
{
    const unsigned spaces = 1u << SPACE_CARRY | 1u << SPACE_SAVED | 1u << SPACE_DEFERRED |
                            1u << SPACE_INPUT | 1u << SPACE_OUTPUT | 1u << SPACE_OUTPUT_GRAD |
                            1u << SPACE_INPUT_GRAD;
    const struct segment_step *step = &c->segment->step[s];
    const struct graph_node *node = segment_node(c->segment, step);
    unsigned axes = node->attrs.axes;
    if (axes != (1u << MESH_REPLICATE | 1u << MESH_SHARD) &&
        (!axes || axes & (axes - 1) || axes >> MESH_AXES))
        return error_set(err,
                         "op %s: the ranks of one mesh axis, or of replicate and shard, can be its "
                         "group",
                         node->op->name);
    if (spaces >> step->in[0].space & 1 && spaces >> step->out[0].space & 1)
        return 0;
    return error_set(err, "op %s: parameters, tokens and constants cannot be exchanged",
                     node->op->name);
}

/* What a phase cannot do: read a value that no longer exists when it runs. */
static int check(const struct compile *c, struct error *err)
{
    for (int s = 0; s < c->segment->steps; s++) {
        if (exchanges(c, s) && check_exchange(c, s, err))
            return -1;
        const struct graph_node *node = &c->graph->nodes[c->segment->step[s].node];
        for (int k = 0; k < NODE_INS; k++) {
            int v = node->in[k];
            if (is_gone(c, v))
                return error_set(err, "op %s reads its unit's output in backward", node->op->name);
            if (v >= 0 && c->segment->step[s].in[k].space < 0)
                return error_set(err, "op %s: parameter \"%s\" is in no flat of the unit",
                                 node->op->name,
                                 c->graph->params[c->graph->values[v].index].part[0]);
        }
    }
    return 0;
}

int segment_compile(struct segment *segment, const struct graph *graph, enum segment_phase phase,
                    enum config_recompute recompute, const struct param_place *place,
                    struct device *device, struct error *err)
{
    *segment = (struct segment){.graph = graph, .phase = phase};
    size_t values = (size_t)graph->value_count;
    struct compile c = {
        .segment = segment,
        .graph = graph,
        .place = place,
        .device = device,
        .recompute = recompute,
        .here = array_make((size_t)graph->node_count, 1),
        .input_part = array_make((size_t)graph->node_count, 1),
        .made = array_make((size_t)graph->node_count, 1),
        .saved = array_make(values, 1),
        .deferred = array_make(values, 1),
        .kept_offset = array_make(values, sizeof(size_t)),
        .step_of = array_make((size_t)graph->node_count, sizeof(int)),
        .piece_of = array_make((size_t)graph->node_count, sizeof(int)),
        .carried = array_make(values, 1),
        .item = array_make(values, sizeof(int)),
        .work.place = array_make(values + (size_t)graph->node_count, sizeof(struct place)),
        .carry.place = array_make(values, sizeof(struct place)),
        .scratch_item = array_make((size_t)graph->node_count, sizeof(int)),
    };
    memset(c.item, -1, values * sizeof(int));
    pick_nodes(&c);
    segment->saved_bytes = place_kept(&c, c.saved);
    segment->deferred_bytes = place_kept(&c, c.deferred);
    cut(&c);
    plan_work(&c);
    resolve(&c);
    int rc = check(&c, err);
    free(c.here);
    free(c.input_part);
    free(c.made);
    free(c.saved);
    free(c.deferred);
    free(c.kept_offset);
    free(c.step_of);
    free(c.piece_of);
    free(c.carried);
    free(c.item);
    free(c.work.place);
    free(c.carry.place);
    free(c.scratch_item);
    if (rc)
        segment_destroy(segment);
    return rc;
}

const struct segment_step *segment_exchange(const struct segment *segment, int piece)
{
    return piece < segment->pieces - 1 ? &segment->step[segment->piece[piece].end - 1] : NULL;
}

unsigned segment_piece_sections(const struct segment *segment, int piece, int use,
                                const struct flat *flat)
{
    unsigned sections = 0;
    for (int s = segment->piece[piece].first; s < segment->piece[piece].end; s++)
        for (int k = 0; k < NODE_OUTS && segment->step[s].grad_use == use; k++)
            if (segment->step[s].tensor[k] >= 0)
                sections |= 1u << flat->tensor[segment->step[s].tensor[k]].section;
    return sections;
}

unsigned segment_sections(const struct segment *segment, int use, const struct flat *flat)
{
    unsigned sections = 0;
    for (int piece = 0; piece < segment->pieces; piece++)
        sections |= segment_piece_sections(segment, piece, use, flat);
    return sections;
}

/* The tensors of one parameter lie end to end. */
static int has_tensor(const struct segment *segment, const struct segment_step *step, int t)
{
    const struct graph *graph = segment->graph;
    for (int k = 0; k < NODE_OUTS; k++) {
        int first = step->tensor[k], v = graph->nodes[step->node].out[k];
        if (first >= 0 && t >= first && t < first + graph->params[graph->values[v].index].parts)
            return 1;
    }
    return 0;
}

int segment_writes_tensor(const struct segment *segment, int use, int t)
{
    for (int s = 0; s < segment->steps; s++)
        if (segment->step[s].grad_use == use && has_tensor(segment, &segment->step[s], t))
            return 1;
    return 0;
}

void segment_destroy(struct segment *segment)
{
    free(segment->step);
    free(segment->piece);
    *segment = (struct segment){0};
}
