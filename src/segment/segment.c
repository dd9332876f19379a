/* segment.c - compile a graph and a phase into steps.
 *
 * Five passes: segment_pick_nodes() chooses the nodes of the phase, and in backward, where forward
 * has not kept a value, the forward nodes that make it again; segment_divide() makes several steps
 * of those that go in chunks of rows; cut() divides the steps into pieces and finds the temporaries
 * that live from one to another; plan() gives what a phase keeps for another a place of its own,
 * and temporaries and scratch offsets by their lifetimes, so that memory is used again within the
 * segment; resolve() makes every operand a space and an offset.
 */
#include "segment/segment.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "comm/mesh.h"
#include "segment/segment_private.h"

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

/* Is the value a result of this segment?  Then reading it asks nothing of what ran before. */
static int made_here(const struct segment_draft *c, int v)
{
    int producer = v < 0 ? -1 : c->graph->values[v].producer;
    return producer >= 0 && c->here[producer];
}

/* Does a value lie in SPACE_WORK, or, carried, in SPACE_CARRY?  A temporary does; so does the
 * unit's output where backward makes it again, because no other unit reads it there. */
static int is_work(const struct segment_draft *c, int v)
{
    if (v < 0 || c->temp_space[v] == SPACE_SAVED || c->temp_space[v] == SPACE_DEFERRED)
        return 0;
    enum graph_value_role role = c->graph->values[v].role;
    return role == VALUE_TEMP || (role == VALUE_OUTPUT && made_here(c, v) &&
                                  segment_phase_is_backward(c->segment->phase));
}

static int exchanges(const struct segment_draft *c, int step)
{
    return segment_node(c->segment, &c->segment->step[step])->op->transfer != TRANSFER_NONE;
}

/* Does a piece make all of a value of this segment? */
static int is_made_in(const struct segment_draft *c, int v, int piece)
{
    const struct segment_step *maker = &c->segment->step[c->step_of[c->graph->values[v].producer]];
    return maker->row_chunks == 1 && maker->piece == piece;
}

/* Let the values that a step reads from another piece, and those that it exchanges, lie in
 * SPACE_CARRY. */
static void carry(struct segment_draft *c, int s)
{
    const struct segment_step *step = &c->segment->step[s];
    const struct graph_node *node = segment_node(c->segment, step);
    for (int k = 0; k < NODE_INS; k++) {
        int v = node->in[k];
        if (is_work(c, v) && (exchanges(c, s) || !is_made_in(c, v, step->piece)))
            c->temp_space[v] = SPACE_CARRY;
    }
    if (exchanges(c, s) && is_work(c, node->out[0]))
        c->temp_space[node->out[0]] = SPACE_CARRY;
}

static void begin_piece(struct segment *segment, int first)
{
    segment->piece[segment->pieces++] = (struct segment_piece){.first = first, .end = first};
}

/* Divide the steps into pieces: a piece begins after each exchange, and with each chunk of a
 * product but the first. */
static void cut(struct segment_draft *c)
{
    struct segment *segment = c->segment;
    segment->piece = array_make(2 * (size_t)segment->steps + 1, sizeof *segment->piece);
    begin_piece(segment, 0);
    for (int s = 0; s < segment->steps; s++) {
        if (segment->step[s].row_chunk && !exchanges(c, s) &&
            segment->piece[segment->pieces - 1].first < s)
            begin_piece(segment, s);
        c->step_of[segment->step[s].node] = s;
        segment->step[s].piece = segment->pieces - 1;
        segment->piece[segment->pieces - 1].end = s + 1;
        if (exchanges(c, s))
            begin_piece(segment, s + 1);
    }
    for (int s = 0; s < segment->steps; s++)
        carry(c, s);
}

static int add_item(struct segment_draft *c, int space, size_t bytes, int first)
{
    struct segment_items *items = &c->items[space];
    items->place = array_grow(items->place, items->count, &items->capacity, sizeof *items->place);
    items->place[items->count] = (struct place){.bytes = bytes, .first = first, .last = first};
    return items->count++;
}

/* The item of a value that has one. */
static struct place *place_of(const struct segment_draft *c, int v)
{
    return &c->items[c->temp_space[v]].place[c->item[v]];
}

static int last_use(const struct segment_draft *c, int v, int from)
{
    int last = from;
    for (int s = from; s < c->segment->steps; s++)
        for (int k = 0; k < NODE_INS; k++)
            if (c->graph->nodes[c->segment->step[s].node].in[k] == v)
                last = s;
    return last;
}

/* The last step during which the exchange of step s may still run: of an exchange in chunks, the
 * last chunk of the step that reads its result; else s.  What the exchange reads must not be
 * overwritten before. */
static int end_beside(const struct segment_draft *c, int s)
{
    const struct segment_step *step = c->segment->step;
    int last = s, y = c->graph->nodes[step[s].node].out[0];
    for (int t = s + 1; exchanges(c, s) && step[s].row_chunks > 1 && t < c->segment->steps; t++)
        if (step[t].row_chunks > 1 && c->graph->nodes[step[t].node].in[0] == y)
            last = t;
    return last;
}

/* Output 0 takes over the memory of an input that dies at this step, where the op allows. */
static int take_over(struct segment_draft *c, const struct graph_node *node, int step, int out)
{
    for (int k = 0; k < NODE_INS; k++) {
        int v = node->in[k];
        if (!(node->op->in_place & 1u << k) || !is_work(c, v) || c->item[v] < 0 ||
            c->temp_space[v] != c->temp_space[out])
            continue;
        if (last_use(c, v, step) == step && place_of(c, v)->last == step &&
            graph_bytes(c->graph, v) == graph_bytes(c->graph, out))
            return c->item[v];
    }
    return -1;
}

/* Give every value an item in its space.  What one phase keeps for another lives as long as the
 * segment; temporaries and scratch live between their steps. */
static void plan(struct segment_draft *c)
{
    const struct segment_items *items = c->items;
    for (int v = 0; v < c->graph->value_count; v++)
        if (c->temp_space[v] == SPACE_SAVED || c->temp_space[v] == SPACE_DEFERRED)
            c->item[v] = add_item(c, c->temp_space[v], graph_bytes(c->graph, v), 0);
    for (int s = 0; s < c->segment->steps; s++) {
        const struct segment_step *step = &c->segment->step[s];
        const struct graph_node node = segment_step_node(c->segment, step);
        for (int k = 0; k < NODE_OUTS; k++) {
            int v = node.out[k];
            if (!is_work(c, v) || step->row_chunk)
                continue;
            c->item[v] = k == 0 ? take_over(c, &node, s, v) : -1;
            if (c->item[v] < 0)
                c->item[v] = add_item(c, c->temp_space[v], graph_bytes(c->graph, v), s);
            place_of(c, v)->last = end_beside(c, last_use(c, v, c->step_of[step->node]));
        }
        size_t scratch = node.op->scratch ? node.op->scratch(c->device, c->graph, &node) : 0;
        c->scratch_item[s] = scratch ? add_item(c, SPACE_WORK, scratch, s) : -1;
    }
    c->segment->saved_bytes = place_items(items[SPACE_SAVED].place, items[SPACE_SAVED].count);
    c->segment->deferred_bytes =
        place_items(items[SPACE_DEFERRED].place, items[SPACE_DEFERRED].count);
    c->segment->carry_bytes = place_items(items[SPACE_CARRY].place, items[SPACE_CARRY].count);
    c->segment->work_bytes = place_items(items[SPACE_WORK].place, items[SPACE_WORK].count);
}

/* Where a parameter or its gradient lies, whichever the value is. */
static struct segment_ref param_ref(const struct segment_draft *c, const struct graph_value *value)
{
    const struct segment_param_place *place = &c->place[value->index];
    int is_grad = value->role == VALUE_PARAM_GRAD;
    enum dtype dtype = is_grad ? c->graph->params[value->index].grad_dtype : c->graph->dtype;
    if (place->use < 0)
        return (struct segment_ref){-1, 0};
    return (struct segment_ref){(is_grad ? SPACE_GRAD : SPACE_PARAM) + place->use,
                                (size_t)place->offset * dtype_bytes(dtype)};
}

static struct segment_ref whole_ref(const struct segment_draft *c, int v)
{
    static const int space[] = {
        [VALUE_INPUT] = SPACE_INPUT,
        [VALUE_OUTPUT] = SPACE_OUTPUT,
        [VALUE_OUTPUT_GRAD] = SPACE_OUTPUT_GRAD,
        [VALUE_INPUT_GRAD] = SPACE_INPUT_GRAD,
        [VALUE_TOKENS] = SPACE_TOKENS,
        [VALUE_TARGETS] = SPACE_TARGETS,
        [VALUE_POSITIONS] = SPACE_POSITIONS,
        [VALUE_DOCUMENTS] = SPACE_DOCUMENTS,
        [VALUE_SAMPLES] = SPACE_SAMPLES,
        [VALUE_CACHE] = SPACE_CACHE,
        [VALUE_CONST] = SPACE_CONST,
        [VALUE_LOSS] = SPACE_LOSS,
        [VALUE_LOSS_SCALE] = SPACE_LOSS_SCALE,
    };
    if (v < 0)
        return (struct segment_ref){-1, 0};
    if (c->item[v] >= 0)
        return (struct segment_ref){c->temp_space[v], place_of(c, v)->offset};
    const struct graph_value *value = &c->graph->values[v];
    switch (value->role) {
    case VALUE_PARAM:
    case VALUE_PARAM_GRAD: return param_ref(c, value);
    case VALUE_CACHE:
        return (struct segment_ref){SPACE_CACHE, (size_t)value->index * graph_bytes(c->graph, v)};
    case VALUE_EXPERT_TOKENS:
        return (struct segment_ref){SPACE_EXPERT_TOKENS, (size_t)value->index * sizeof(double)};
    case VALUE_TARGETS:
    case VALUE_POSITIONS:
    case VALUE_DOCUMENTS:
    case VALUE_SAMPLES: return (struct segment_ref){space[value->role], 0};
    default: return (struct segment_ref){space[value->role] + value->index, 0};
    }
}

/* Where operand k of a step lies; inputs are numbered first.  Of a step for a chunk of the rows,
 * where that chunk lies. */
static struct segment_ref ref(const struct segment_draft *c, const struct segment_step *step, int k)
{
    const struct graph_node *node = segment_node(c->segment, step);
    int v = k < NODE_INS ? node->in[k] : node->out[k - NODE_INS];
    struct segment_ref ref = whole_ref(c, v);
    if (step->row_chunk && v >= 0 && segment_is_by_rows(node, k))
        ref.offset += graph_bytes(c->graph, v) / (size_t)step->row_chunks * (size_t)step->row_chunk;
    return ref;
}

static void note(uint64_t *spaces, struct segment_ref ref)
{
    if (ref.space >= 0)
        *spaces |= space_bit(ref.space);
}

/* Note in the step which gradient its output k is, if it is one. */
static void note_gradient(const struct segment_draft *c, struct segment_step *step, int k)
{
    const struct graph_node *node = &c->graph->nodes[step->node];
    int v = node->out[k];
    step->tensor[k] = -1;
    if (v >= 0 && node->op == &op_accumulate)
        step->adds_input = c->graph->values[v].index;
    if (v < 0 || c->graph->values[v].role != VALUE_PARAM_GRAD)
        return;
    step->tensor[k] = c->place[c->graph->values[v].index].tensor;
    step->grad_use = c->place[c->graph->values[v].index].use;
}

/* Must the term of a sum that is taken in place be copied to its place before the exchange? */
static int brings_term(const struct segment_step *step, const struct graph_node *node)
{
    const struct segment_ref *from = &step->in[0], *to = &step->out[0];
    return op_reduces_in_place(node->op) &&
           (from->space != to->space || from->offset != to->offset);
}

/* Note what the piece of step s reads and writes because of it.  Of an exchange that is only the
 * copy of a term to its place. */
static void touch(struct segment_draft *c, int s)
{
    struct segment *segment = c->segment;
    const struct segment_step *step = &segment->step[s];
    const struct graph_node *node = segment_node(segment, step);
    struct segment_piece *piece = &segment->piece[step->piece];
    if (exchanges(c, s) && !brings_term(step, node))
        return;
    piece->runs = 1;
    struct graph_node run = segment_step_node(segment, step);
    piece->flops += op_flops(c->graph, &run);
    for (int k = 0; k < NODE_INS; k++) {
        int v = node->in[k];
        if (!made_here(c, v) || !is_made_in(c, v, step->piece))
            note(&piece->reads, step->in[k]);
    }
    for (int k = 0; k < NODE_OUTS; k++)
        note(&piece->writes, step->out[k]);
    note(&piece->writes, step->scratch);
}

static void resolve(struct segment_draft *c)
{
    struct segment *segment = c->segment;
    for (int s = 0; s < segment->steps; s++) {
        struct segment_step *step = &segment->step[s];
        const struct graph_node *node = &c->graph->nodes[step->node];
        step->grad_use = step->adds_input = -1;
        for (int k = 0; k < NODE_INS; k++) {
            step->in[k] = ref(c, step, k);
            if (!made_here(c, node->in[k]))
                note(&segment->reads, step->in[k]);
        }
        for (int k = 0; k < NODE_OUTS; k++) {
            step->out[k] = ref(c, step, NODE_INS + k);
            note(&segment->writes, step->out[k]);
            note_gradient(c, step, k);
        }
        int item = c->scratch_item[s];
        const struct place *scratch = item < 0 ? NULL : &c->items[SPACE_WORK].place[item];
        step->scratch = scratch ? (struct segment_ref){SPACE_WORK, scratch->offset}
                                : (struct segment_ref){-1, 0};
        step->scratch_bytes = scratch ? scratch->bytes : 0;
        touch(c, s);
    }
    if (segment->work_bytes)
        segment->writes |= space_bit(SPACE_WORK);
}

/* Is the value gone when the phase runs? */
static int is_gone(const struct segment_draft *c, int v)
{
    return v >= 0 && segment_phase_is_backward(c->segment->phase) &&
           c->temp_space[v] != SPACE_DEFERRED && !made_here(c, v) &&
           c->graph->values[v].role == VALUE_OUTPUT;
}

/* Refuse an exchange of anything but a temporary of the unit, a boundary, or what is kept of one.
 */
static int check_exchange(const struct segment_draft *c, int s, struct error *err)
{
    const uint64_t inputs = space_bit(BOUNDARY_USES) - 1;
    const uint64_t spaces = space_bit(SPACE_CARRY) | space_bit(SPACE_SAVED) |
                            space_bit(SPACE_DEFERRED) | inputs << SPACE_INPUT |
                            space_bit(SPACE_OUTPUT) | space_bit(SPACE_OUTPUT_GRAD) |
                            inputs << SPACE_INPUT_GRAD;
    const struct segment_step *step = &c->segment->step[s];
    const struct graph_node *node = segment_node(c->segment, step);
    unsigned axes = node->attrs.axes;
    if (!axes || axes >= MESH_SETS)
        return error_set(err, "op %s: its group is the ranks along no mesh axis", node->op->name);
    if ((brings_term(step, node) || spaces >> step->in[0].space & 1) &&
        spaces >> step->out[0].space & 1)
        return 0;
    return error_set(err, "op %s: parameters, constants and what is loaded cannot be exchanged",
                     node->op->name);
}

/* Refuse ops that the device lacks, and reads of values that no longer exist when the phase runs.
 */
static int check(const struct segment_draft *c, struct error *err)
{
    for (int s = 0; s < c->segment->steps; s++) {
        const struct graph_node *node = &c->graph->nodes[c->segment->step[s].node];
        if (node->op->offered && node->op->offered(c->device, c->graph, node, err))
            return error_prefix(err, "op %s", node->op->name);
        for (int k = 0; k < NODE_INS; k++) {
            int v = node->in[k];
            if (is_gone(c, v))
                return error_set(err, "op %s reads its unit's output in backward", node->op->name);
            if (v >= 0 && c->segment->step[s].in[k].space < 0)
                return error_set(err, "op %s: parameter \"%s\" is in no flat of the unit",
                                 node->op->name,
                                 c->graph->params[c->graph->values[v].index].tensor_name[0]);
        }
        if (exchanges(c, s) && check_exchange(c, s, err))
            return -1;
    }
    return 0;
}

int segment_compile(struct segment *segment, const struct graph *graph, enum segment_phase phase,
                    enum config_recompute recompute, const struct segment_param_place *place,
                    struct device *device, struct error *err)
{
    *segment = (struct segment){.graph = graph, .phase = phase};
    size_t values = (size_t)graph->value_count;
    struct segment_draft c = {
        .segment = segment,
        .graph = graph,
        .place = place,
        .device = device,
        .recompute = recompute,
        .here = array_make((size_t)graph->node_count, 1),
        .input_part = array_make((size_t)graph->node_count, 1),
        .made = array_make((size_t)graph->node_count, 1),
        .step_of = array_make((size_t)graph->node_count, sizeof(int)),
        .temp_space = array_make(values, sizeof(int)),
        .item = array_make(values, sizeof(int)),
    };
    memset(c.item, -1, values * sizeof(int));
    for (size_t v = 0; v < values; v++)
        c.temp_space[v] = SPACE_WORK;
    segment_pick_nodes(&c);
    segment_divide(&c);
    c.scratch_item = array_make((size_t)segment->steps, sizeof(int));
    cut(&c);
    plan(&c);
    resolve(&c);
    if (segment->has_row_chunks)
        segment_find_touches(segment);
    int rc = check(&c, err);
    free(c.here);
    free(c.input_part);
    free(c.made);
    free(c.step_of);
    free(c.temp_space);
    free(c.item);
    for (int space = 0; space < SPACE_COUNT; space++)
        free(c.items[space].place);
    free(c.scratch_item);
    if (rc)
        segment_destroy(segment);
    return rc;
}

const struct segment_step *segment_exchange(const struct segment *segment, int piece)
{
    if (piece < 0 || piece >= segment->pieces)
        return NULL;
    const struct segment_piece *p = &segment->piece[piece];
    const struct segment_step *last = p->end > p->first ? &segment->step[p->end - 1] : NULL;
    return last && segment_node(segment, last)->op->transfer != TRANSFER_NONE ? last : NULL;
}

unsigned segment_piece_sections(const struct segment *segment, int piece, int use,
                                const struct flat *flat)
{
    const struct segment_piece *p = &segment->piece[piece];
    unsigned sections = 0;
    for (int s = p->first; p->writes >> (SPACE_GRAD + use) & 1 && s < p->end; s++)
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

int segment_piece_can_add(const struct segment *segment, int piece, int k)
{
    for (int s = segment->piece[piece].first; s < segment->piece[piece].end; s++)
        if (segment->step[s].adds_input == k)
            return 1;
    return 0;
}

/* The tensors of one parameter lie end to end. */
static int has_tensor(const struct segment *segment, const struct segment_step *step, int t)
{
    const struct graph *graph = segment->graph;
    for (int k = 0; k < NODE_OUTS; k++) {
        int first = step->tensor[k], v = graph->nodes[step->node].out[k];
        if (first >= 0 && t >= first && t < first + graph->params[graph->values[v].index].tensors)
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
    free(segment->touch);
    *segment = (struct segment){0};
}
