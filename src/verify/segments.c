/* segments.c - see segments.h.
 *
 * The steps of each phase are gone through in order, with a map of which bytes of which space hold
 * which value (value_map.h):
 *
 *   step            reads                  writes               WORK holds
 *   norm            INPUT x                WORK 0-63: h         h h h h . . . .
 *   linear          WORK 0-63, PARAM w     WORK 64-127: y       h h h h y y y y
 *   swiglu          WORK 64-127            WORK 0-31: s         s s h h y y y y
 *
 * WORK is forgotten with each piece, CARRY with each phase; SAVED and DEFERRED stay for backward.
 * What other units or the program make (boundaries, parameters, tokens) is in no map: it has one
 * place.  A kind of unit is gone through once; where its parameters lie is checked of each unit.
 */
#include "verify/segments.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "verify/value_map.h"

struct checked {
    const struct program *program;
    int unit; /* the rank's first one of the kind */
    const struct graph *graph;
    const struct segment *segment;
    enum segment_phase phase;
    struct value_map *map;
    int *ran; /* per node: steps that have run it or a chunk of its rows, where counts() says so */
    int *chunks;  /* per node: the chunks of its rows for which it runs one by one; 1: all rows */
    int *made_in; /* per value: the piece of this phase that has made all of it; -1: none */
    unsigned *wrote; /* per parameter: the phases that have written its gradient, a bit each */
    struct error *err;
};

static int __attribute__((format(printf, 3, 4)))
wrong(const struct checked *c, int s, const char *fmt, ...)
{
    char name[MODEL_PREFIX], what[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return error_set(c->err, "verify: wrong place: step %d (%s) of %s of %s %s", s,
                     segment_node(c->segment, &c->segment->step[s])->op->name,
                     segment_phase_name(c->phase),
                     model_unit_name(c->program->units->model, c->unit, name), what);
}

static int wrong_steps(const struct checked *c, const char *what, int number)
{
    char name[MODEL_PREFIX];
    return error_set(c->err, "verify: wrong steps: %s of %s: %s %d", segment_phase_name(c->phase),
                     model_unit_name(c->program->units->model, c->unit, name), what, number);
}

static const struct graph_node *node_of(const struct checked *c, int s)
{
    return segment_node(c->segment, &c->segment->step[s]);
}

/* ---- places ---- */

/* Operands of a step have numbers: inputs, then results. */
static int value_of(const struct graph_node *node, int operand)
{
    return operand < NODE_INS ? node->in[operand] : node->out[operand - NODE_INS];
}

static struct segment_ref ref_of(const struct segment_step *step, int operand)
{
    return operand < NODE_INS ? step->in[operand] : step->out[operand - NODE_INS];
}

/* The bytes of its space that a step touches of an operand: all of a value, or one chunk of its
 * rows. */
static struct value_bytes bytes_of(const struct checked *c, int s, int operand)
{
    const struct segment_step *step = &c->segment->step[s];
    const struct graph_node *node = node_of(c, s);
    int v = value_of(node, operand),
        is_matrix = node->op->transfer == TRANSFER_NONE && operand == 1;
    size_t chunks = step->row_chunks > 1 && !is_matrix ? (size_t)step->row_chunks : 1;
    size_t bytes = graph_bytes(c->graph, v) / chunks, at = ref_of(step, operand).offset;
    size_t before = chunks > 1 ? bytes * (size_t)step->row_chunk : 0;
    return (struct value_bytes){.from = at, .to = at + bytes, .base = at - before, .value = v};
}

/* The place of a value that the segment's spaces for temporaries do not have; space -1: none.  The
 * table is not the one of segment.c, by which the steps were made: a mistake there shows here. */
static struct segment_ref place_of(const struct checked *c, int v)
{
    static const int spaces[] = {
        [VALUE_INPUT] = SPACE_INPUT,
        [VALUE_OUTPUT] = SPACE_OUTPUT,
        [VALUE_OUTPUT_GRAD] = SPACE_OUTPUT_GRAD,
        [VALUE_INPUT_GRAD] = SPACE_INPUT_GRAD,
        [VALUE_PARAM] = SPACE_PARAM,
        [VALUE_PARAM_GRAD] = SPACE_GRAD,
        [VALUE_TOKENS] = SPACE_TOKENS,
        [VALUE_TARGETS] = SPACE_TARGETS,
        [VALUE_POSITIONS] = SPACE_POSITIONS,
        [VALUE_DOCUMENTS] = SPACE_DOCUMENTS,
        [VALUE_SAMPLES] = SPACE_SAMPLES,
        [VALUE_CACHE] = SPACE_CACHE,
        [VALUE_CONST] = SPACE_CONST,
        [VALUE_LOSS] = SPACE_LOSS,
        [VALUE_LOSS_SCALE] = SPACE_LOSS_SCALE,
        [VALUE_EXPERT_TOKENS] = SPACE_EXPERT_TOKENS,
    };
    const struct graph_value *value = &c->graph->values[v];
    const struct segment_param_place *place;
    struct segment_ref ref = {spaces[value->role], 0};
    switch (value->role) {
    case VALUE_TEMP: return (struct segment_ref){-1, 0};
    case VALUE_INPUT:
    case VALUE_INPUT_GRAD:
    case VALUE_TOKENS: ref.space += value->index; break;
    case VALUE_PARAM:
    case VALUE_PARAM_GRAD:
        place = &units_kind(c->program->units, c->unit)->place[value->index];
        ref.space = place->use < 0 ? -1 : ref.space + place->use;
        ref.offset = (size_t)place->offset * dtype_bytes(value->dtype);
        break;
    case VALUE_CACHE: ref.offset = (size_t)value->index * graph_bytes(c->graph, v); break;
    case VALUE_EXPERT_TOKENS: ref.offset = (size_t)value->index * sizeof(double); break;
    default: break;
    }
    return ref;
}

/* Has the segment chosen the place of a value?  It has of temporaries, and of the unit's output
 * where backward makes it again. */
static int is_temporary(const struct checked *c, int v)
{
    const struct graph_value *value = &c->graph->values[v];
    return value->role == VALUE_TEMP ||
           (value->role == VALUE_OUTPUT && segment_phase_is_backward(c->phase));
}

/* The size of a space for temporaries; 0: it is none. */
static size_t space_bytes(const struct segment *segment, int space)
{
    return space == SPACE_WORK       ? segment->work_bytes
           : space == SPACE_CARRY    ? segment->carry_bytes
           : space == SPACE_SAVED    ? segment->saved_bytes
           : space == SPACE_DEFERRED ? segment->deferred_bytes
                                     : 0;
}

static int is_at(struct segment_ref ref, struct value_bytes bytes, struct segment_ref place)
{
    return ref.space >= 0 && ref.space == place.space && bytes.base == place.offset;
}

/* ---- steps ---- */

static int check_input(const struct checked *c, int s, int k)
{
    const struct segment_step *step = &c->segment->step[s];
    int v = node_of(c, s)->in[k];
    if (v < 0)
        return step->in[k].space < 0 ? 0 : wrong(c, s, "has a place for input %d, of no value", k);
    struct value_bytes bytes = bytes_of(c, s, k);
    if (c->graph->values[v].producer < 0)
        return is_at(step->in[k], bytes, place_of(c, v))
                   ? 0
                   : wrong(c, s, "looks for input %d where that is not", k);
    if (step->in[k].space >= 0 && value_map_has(c->map, step->in[k].space, bytes))
        return 0;
    return wrong(c, s, "finds something else, or nothing, where it reads input %d", k);
}

static int overlap(struct segment_ref a, struct value_bytes one, struct segment_ref b,
                   struct value_bytes other)
{
    return a.space == b.space && one.from < other.to && other.from < one.to;
}

/* Result k takes no memory of what the step reads, unless the op allows it, nor of another result.
 */
static int check_apart(const struct checked *c, int s, int k)
{
    const struct segment_step *step = &c->segment->step[s];
    const struct graph_node *node = node_of(c, s);
    struct value_bytes own = bytes_of(c, s, NODE_INS + k);
    for (int other = 0; other < NODE_INS + k; other++) {
        int v = value_of(node, other);
        struct value_bytes its = v < 0 ? own : bytes_of(c, s, other);
        if (v < 0 || !overlap(step->out[k], own, ref_of(step, other), its))
            continue;
        int in_place = other < NODE_INS && k == 0 && node->op->in_place >> other & 1 &&
                       own.from == its.from && own.to == its.to;
        int is_cache = c->graph->values[v].role == VALUE_CACHE;
        if (!in_place && !is_cache)
            return wrong(c, s, "writes result %d over its operand %d", k, other);
    }
    return 0;
}

static int check_result(const struct checked *c, int s, int k)
{
    const struct segment_step *step = &c->segment->step[s];
    int v = node_of(c, s)->out[k];
    if (v < 0)
        return step->out[k].space < 0 ? 0
                                      : wrong(c, s, "has a place for result %d, of no value", k);
    struct value_bytes bytes = bytes_of(c, s, NODE_INS + k);
    if (bytes.from == bytes.to)
        return wrong(c, s, "makes result %d, which has no elements", k);
    if (!is_temporary(c, v) && !is_at(step->out[k], bytes, place_of(c, v)))
        return wrong(c, s, "writes result %d to another place than its own", k);
    if (is_temporary(c, v) &&
        (step->out[k].space < 0 || bytes.to > space_bytes(c->segment, step->out[k].space)))
        return wrong(c, s, "writes result %d beyond its space", k);
    if (check_apart(c, s, k))
        return -1;
    c->made_in[v] = step->row_chunks > 1 ? -1 : step->piece;
    value_map_put(c->map, step->out[k].space, bytes);
    return 0;
}

/* Scratch is of the step alone: what lay there is lost. */
static int check_scratch(const struct checked *c, int s)
{
    const struct segment_step *step = &c->segment->step[s];
    struct value_bytes own = {.from = step->scratch.offset,
                              .to = step->scratch.offset + step->scratch_bytes,
                              .value = -1};
    if (step->scratch.space < 0)
        return 0;
    if (step->scratch.space != SPACE_WORK || own.to > c->segment->work_bytes)
        return wrong(c, s, "has scratch beyond its space");
    for (int k = 0; k < NODE_INS + NODE_OUTS; k++)
        if (value_of(node_of(c, s), k) >= 0 &&
            overlap(step->scratch, own, ref_of(step, k), bytes_of(c, s, k)))
            return wrong(c, s, "has scratch in its operand %d", k);
    value_map_put(c->map, SPACE_WORK, own);
    return 0;
}

/* What the step says of gradients that it makes: whose they are, and whether it adds to them. */
static int check_gradients(const struct checked *c, int s)
{
    const struct segment_step *step = &c->segment->step[s];
    const struct graph_node *node = node_of(c, s);
    const struct segment_param_place *place = units_kind(c->program->units, c->unit)->place;
    int use = -1, input = -1;
    for (int k = 0; k < NODE_OUTS; k++) {
        const struct graph_value *value = node->out[k] < 0 ? NULL : &c->graph->values[node->out[k]];
        int is_param = value && value->role == VALUE_PARAM_GRAD;
        if (value && node->op == &op_accumulate)
            input = value->index;
        if (step->tensor[k] != (is_param ? place[value->index].tensor : -1))
            return wrong(c, s, "takes result %d for the gradient of another tensor", k);
        if (!is_param)
            continue;
        if (node->accumulate != !!c->wrote[value->index])
            return wrong(c, s,
                         node->accumulate ? "adds to a gradient that nobody has written"
                                          : "overwrites a gradient");
        use = place[value->index].use;
    }
    if (step->grad_use != use || step->adds_input != input)
        return wrong(c, s, "says that it makes other gradients than it does");
    for (int k = 0; k < NODE_OUTS; k++)
        if (step->tensor[k] >= 0)
            c->wrote[c->graph->values[node->out[k]].index] |= 1u << c->phase;
    return 0;
}

static int check_step(const struct checked *c, int s)
{
    for (int k = 0; k < NODE_INS; k++)
        if (check_input(c, s, k))
            return -1;
    if (check_scratch(c, s))
        return -1;
    for (int k = 0; k < NODE_OUTS; k++)
        if (check_result(c, s, k))
            return -1;
    return check_gradients(c, s);
}

/* ---- pieces ---- */

/* Does a RUN of its piece run a step?  Of an exchange only the copy of a term to where the sum is
 * taken. */
static int runs(const struct checked *c, int s)
{
    const struct segment_ref *from = &c->segment->step[s].in[0], *to = &c->segment->step[s].out[0];
    const struct op *op = node_of(c, s)->op;
    return op->transfer == TRANSFER_NONE ||
           (op_reduces_in_place(op) && (from->space != to->space || from->offset != to->offset));
}

/* Add the spaces that a step reads, but for what its piece has made before, and writes. */
static void add_spaces(const struct checked *c, int s, uint64_t *reads, uint64_t *writes)
{
    const struct segment_step *step = &c->segment->step[s];
    const struct graph_node *node = node_of(c, s);
    for (int k = 0; k < NODE_INS; k++)
        if (node->in[k] >= 0 && c->made_in[node->in[k]] != step->piece)
            *reads |= space_bit(step->in[k].space);
    for (int k = 0; k < NODE_OUTS; k++)
        if (node->out[k] >= 0)
            *writes |= space_bit(step->out[k].space);
    if (step->scratch.space >= 0)
        *writes |= space_bit(step->scratch.space);
}

/* Does it count how often a node runs in this phase?  Backward may make again what forward made. */
static int counts(const struct checked *c, const struct graph_node *node)
{
    return node->backward || !segment_phase_is_backward(c->phase);
}

/* Count the run of a step: of its node, or of a chunk of its rows, those before having run. */
static int count_step(const struct checked *c, int s)
{
    const struct segment_step *step = &c->segment->step[s];
    int chunks = step->row_chunks > 1 ? step->row_chunks : 1;
    if (!counts(c, node_of(c, s)))
        return 0;
    if (step->row_chunk != c->ran[step->node] % chunks)
        return wrong(c, s, "runs chunk %d of its rows out of order", step->row_chunk);
    c->ran[step->node]++;
    c->chunks[step->node] = chunks;
    return 0;
}

static int check_piece(const struct checked *c, int p)
{
    const struct segment_piece *piece = &c->segment->piece[p];
    uint64_t reads = 0, writes = 0;
    int is_run = 0;
    value_map_clear(c->map, SPACE_WORK);
    for (int s = piece->first; s < piece->end; s++) {
        const struct segment_step *step = &c->segment->step[s];
        if (step->piece != p ||
            (s + 1 < piece->end && node_of(c, s)->op->transfer != TRANSFER_NONE))
            return wrong_steps(c, "a step is of another piece than", p);
        if (count_step(c, s))
            return -1;
        if (check_step(c, s))
            return -1;
        if (runs(c, s))
            add_spaces(c, s, &reads, &writes);
        is_run |= runs(c, s);
    }
    if (is_run != piece->runs || reads & ~piece->reads || writes != piece->writes)
        return wrong_steps(c, "other spaces are read or written than is said of piece", p);
    return 0;
}

static int check_phase(struct checked *c)
{
    int at = 0, has_row_chunks = 0;
    for (int s = 0; s < c->segment->steps; s++)
        has_row_chunks |= c->segment->step[s].row_chunks > 1;
    if (has_row_chunks != c->segment->has_row_chunks)
        return wrong_steps(
            c,
            has_row_chunks
                ? "steps are for chunks of rows, and it does not say so; number of pieces:"
                : "it says that steps are for chunks of rows, and none is; number of pieces:",
            c->segment->pieces);
    for (int space = 0; space < SPACE_COUNT; space++)
        if (space != SPACE_SAVED && space != SPACE_DEFERRED)
            value_map_clear(c->map, space);
    for (int v = 0; v < c->graph->value_count; v++)
        c->made_in[v] = -1;
    for (int p = 0; p < c->segment->pieces; p++) {
        if (c->segment->piece[p].first != at || c->segment->piece[p].end < at ||
            c->segment->piece[p].end > c->segment->steps)
            return wrong_steps(c, "steps are left out before piece", p);
        if (check_piece(c, p))
            return -1;
        at = c->segment->piece[p].end;
    }
    return at == c->segment->steps ? 0 : wrong_steps(c, "steps are left out from step", at);
}

/* ---- all phases of a kind ---- */

/* What is needed has run once, and made the gradients of all that is trained. */
static int check_nodes(const struct checked *c, int trains)
{
    for (int n = 0; n < c->graph->node_count; n++) {
        const struct graph_node *node = &c->graph->nodes[n];
        int needed = node->backward ? !node->unused : !node->replaced;
        if (c->ran[n] != needed * c->chunks[n])
            return wrong_steps(
                c, "together with the other phases it runs too often, or too rarely, node", n);
    }
    for (int i = 0; trains && i < c->graph->param_count; i++)
        if (c->graph->params[i].frozen == !!c->wrote[i])
            return wrong_steps(c,
                               "together with the other phases it leaves out the gradient of a "
                               "trained parameter, or writes that of a frozen one, number",
                               i);
    return 0;
}

/* ---- flats ---- */

static int wrong_flat(const struct checked *c, int unit, const char *what, const char *tensor)
{
    char name[MODEL_PREFIX];
    return error_set(c->err, "verify: wrong flat: %s %s %s",
                     model_unit_name(c->program->units->model, unit, name), what, tensor);
}

/* The tensors of a parameter lie in a unit's flats where the segments of its kind look for them. */
static int check_param(const struct checked *c, int unit, int i)
{
    const struct units *units = c->program->units;
    const struct unit_flats *uses = &units->use[unit];
    const struct graph_param *param = &c->graph->params[i];
    const struct model_unit *block =
        &units->model->block[units->model->unit[unit].first + param->block];
    struct segment_param_place place = units_kind(units, unit)->place[i];
    char name[FLAT_NAME];
    for (int p = 0; p < param->tensors; p++) {
        snprintf(name, sizeof name, "%s%s", param->is_borrowed ? "" : block->prefix,
                 param->tensor_name[p]);
        const struct flat *flat =
            place.use >= 0 && place.use < uses->count ? &units->flat[uses->flat[place.use]] : NULL;
        int t = flat ? flat_find(flat, name) : -1;
        if (t < 0 || t != place.tensor + p || flat->tensor[t].offset != place.offset)
            return wrong_flat(c, unit, "does not find in its flats, where it looks for it,", name);
        place.offset += box_elems(&param->box[p]);
    }
    return 0;
}

/* The phases in which a unit writes the gradient of tensor t of its use-th flat, a bit each. */
static unsigned phases_of(const struct checked *c, int unit, int use, int t)
{
    const struct segment_param_place *place = units_kind(c->program->units, unit)->place;
    for (int i = 0; i < c->graph->param_count; i++)
        if (place[i].use == use && t >= place[i].tensor &&
            t < place[i].tensor + c->graph->params[i].tensors)
            return c->wrote[i];
    return 0;
}

/* Gradients of a section, of which runs say as one whether they add to it, are written as one. */
static int check_sections(const struct checked *c, int unit)
{
    const struct units *units = c->program->units;
    for (int k = 0; k < units->use[unit].count; k++) {
        const struct flat *flat = &units->flat[units->use[unit].flat[k]];
        int first[FLAT_SECTIONS];
        for (int t = flat->tensors - 1; t >= 0; t--)
            first[flat->tensor[t].section] = t;
        for (int t = 0; flat->trained && t < flat->tensors; t++)
            if (phases_of(c, unit, k, t) != phases_of(c, unit, k, first[flat->tensor[t].section]))
                return wrong_flat(c, unit, "writes in other phases than others of its section",
                                  flat->tensor[t].name);
    }
    return 0;
}

static int check_units(const struct checked *c, int trains)
{
    const struct units *units = c->program->units;
    for (int u = c->unit; u < units->count; u++) {
        if (units->kind_of[u] != units->kind_of[c->unit] || !program_owns(c->program, u))
            continue;
        const struct unit_kind *kind = units_kind(units, u);
        const struct model_unit *own = &units->model->unit[u];
        if (kind->block_kind != own->kind || kind->blocks != own->blocks)
            return wrong_flat(c, u, "runs the segments of", "another kind of unit");
        for (int i = 0; i < c->graph->param_count; i++)
            if (check_param(c, u, i))
                return -1;
        if (trains && check_sections(c, u))
            return -1;
    }
    return 0;
}

/* ---- all kinds ---- */

static int check_kind(const struct program *program, int unit, struct error *err)
{
    const struct graph *graph = program_graph(program, unit);
    int trains = program->kind == PROGRAM_TRAIN, rc = 0;
    struct checked c = {.program = program, .unit = unit, .graph = graph, .err = err};
    c.map = value_map_create();
    c.ran = array_make((size_t)graph->node_count, sizeof *c.ran);
    c.chunks = array_make((size_t)graph->node_count, sizeof *c.chunks);
    c.made_in = array_make((size_t)graph->value_count, sizeof *c.made_in);
    c.wrote = array_make((size_t)graph->param_count, sizeof *c.wrote);
    for (int n = 0; n < graph->node_count; n++)
        c.chunks[n] = 1;
    for (int phase = 0; !rc && phase < (trains ? (int)PHASES : 1); phase++) {
        c.phase = (enum segment_phase)phase;
        c.segment = program_segment(program, unit, c.phase);
        rc = check_phase(&c);
    }
    if (!rc)
        rc = check_nodes(&c, trains) || check_units(&c, trains) ? -1 : 0;
    value_map_destroy(c.map);
    free(c.ran);
    free(c.chunks);
    free(c.made_in);
    free(c.wrote);
    return rc;
}

int segments_check(const struct program *program, struct error *err)
{
    const struct units *units = program->units;
    char *done = array_make((size_t)units->kinds, 1);
    int rc = 0;
    for (int u = 0; !rc && u < units->count; u++)
        if (program_owns(program, u) && !done[units->kind_of[u]]++)
            rc = check_kind(program, u, err);
    free(done);
    return rc;
}
