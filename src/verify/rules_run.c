/* rules_run.c - what a RUN must find in its spaces, and what it leaves there; and what ranks
 * exchange between two pieces of a unit, which must be what its graph says there.
 *
 * What forward keeps and what pieces hand on is followed by its writers: each piece, and each
 * exchange, is an addend, so that one left out, doubled or out of order shows.
 */
#include "verify/rules.h"
#include "verify/writers.h"

/* What a space for what data says of rows must hold: of the micro-batch, and of the sequence that
 * the unit's graph names. */
static struct value wanted_rows(const struct values *v, const struct instr *instr,
                                enum graph_value_role role, enum value_meaning meaning)
{
    const struct graph *graph = program_segment(v->program, instr->unit, instr->phase)->graph;
    int value = graph ? graph_find(graph, role) : -1;
    return meant(meaning, value < 0 ? -1 : graph->values[value].index, instr->micro);
}

/* What an instruction of a unit leaves in a space that others read; of the gradient of an input,
 * the unit's own part; meaning MEANS_NOTHING: nothing that is followed. */
static struct value value_written(const struct values *v, const struct instr *instr, int space)
{
    static const enum value_meaning meanings[SPACE_COUNT] = {
        [SPACE_OUTPUT] = MEANS_OUTPUT,
        [SPACE_SAVED] = MEANS_SAVED,
        [SPACE_DEFERRED] = MEANS_DEFERRED,
        [SPACE_CARRY] = MEANS_CARRIED,
    };
    int unit = instr->unit, micro = instr->micro, k = segment_input_grad(space);
    if (k < 0)
        return meanings[space] ? meant(meanings[space], unit, micro) : value_nothing;
    struct value value = meant(MEANS_OUTPUT_GRAD, v->producer[unit][k], micro);
    value.terms[0] = addend(MEANS_OUTPUT_GRAD, micro, unit);
    return value;
}

/* What it finds in a space that other instructions wrote; meaning MEANS_NOTHING: anything. */
static struct value value_wanted(const struct values *v, const struct instr *instr, int space)
{
    int unit = instr->unit, micro = instr->micro;
    if (space < SPACE_GRAD)
        return meant(MEANS_PARAM, v->program->units->use[unit].flat[space - SPACE_PARAM], 0);
    if (segment_input(space) >= 0)
        return meant(MEANS_OUTPUT, v->producer[unit][segment_input(space)], micro);
    if (space >= SPACE_TOKENS && space < SPACE_TARGETS)
        return meant(MEANS_TOKENS, space - SPACE_TOKENS, micro);
    switch (space) {
    case SPACE_OUTPUT_GRAD: return meant(MEANS_OUTPUT_GRAD, unit, micro);
    case SPACE_TARGETS: return wanted_rows(v, instr, VALUE_TARGETS, MEANS_TARGETS);
    case SPACE_POSITIONS: return wanted_rows(v, instr, VALUE_POSITIONS, MEANS_POSITIONS);
    case SPACE_DOCUMENTS: return wanted_rows(v, instr, VALUE_DOCUMENTS, MEANS_DOCUMENTS);
    case SPACE_SAMPLES: return wanted_rows(v, instr, VALUE_SAMPLES, MEANS_SAMPLES);
    case SPACE_CONST: return meant(MEANS_CONSTANTS, -1, -1);
    default: return value_written(v, instr, space);
    }
}

/* Instruction i writes value to a boundary, buffer b.  Where several instructions write it, each
 * some of its rows, the buffer has the addends of those that have written until the last one has:
 * readers find then that rows are missing. */
static int put_rows(struct values *v, int i, int b, int space, struct value value)
{
    const struct instr *instr = &v->program->instr[i];
    struct addends before;
    int after = writers_after(v, instr, space, &before);
    struct value has = values_get(v, b);
    if (before.count && (!value_is(&has, value.meaning, value.of, value.index) ||
                         !addends_equal(has.terms[0], before)))
        return wrong(v, i, b, &has, "all rows that are before it");
    if (after) {
        value.terms[0] = before;
        addends_add(&value.terms[0], writers_addend(instr));
    }
    values_put(v, i, b, value);
    return 0;
}

/* Instruction i writes value to a space, buffer b.  A space that writers fill must hold what the
 * writers before i have written; if i is the first, what is there is lost.  A RUN may not add to
 * values that still lack a sum or a maximum over ranks; an exchange may, as it takes it. */
static int put_in_space(struct values *v, int i, int b, int space, struct value value)
{
    const struct instr *instr = &v->program->instr[i];
    if (!writers_fill(space) &&
        program_segment(v->program, instr->unit, instr->phase)->has_row_chunks)
        return put_rows(v, i, b, space, value);
    if (writers_fill(space)) {
        struct addends before = writers_before(v, instr, space);
        struct value has = values_get(v, b);
        int lacks = !instr_is_exchange(instr) && (has.pending || has.maxima);
        if (before.count && (!value_is(&has, value.meaning, value.of, value.index) || lacks ||
                             !addends_equal(has.terms[0], before)))
            return wrong(v, i, b, &has, "all that is before it");
        value.terms[0] = before;
        addends_add(&value.terms[0], writers_addend(instr));
    }
    values_put(v, i, b, value);
    return 0;
}

/* Check that buffer b, which instruction i of a unit reads in a space, holds `want`: what meaning,
 * of and index say, whole, after the UPDATE of this program or before it
 * (values_is_after_update()), before SCALE, lacking sums over the axes of want.pending and maxima
 * over those of want.maxima, and no others.  What is kept or carried must also have all that was to
 * be written before i, and the gradient of a boundary must be summed over all the units that read
 * it; this last is not asked in a space of the unit's own input gradient, where other readers may
 * add later. */
static int check_read(const struct values *v, int i, int b, int space, struct value want)
{
    struct value has = values_get(v, b);
    char text[VALUE_TEXT];
    want.updated = values_is_after_update(v, &want);
    if (!value_is(&has, want.meaning, want.of, want.index) || has.is_shard || has.coded ||
        has.updated != want.updated || has.pending != want.pending || has.maxima != want.maxima)
        return wrong(v, i, b, &has, "%s", value_text(v, &want, text));
    if (writers_fill(space) &&
        !addends_equal(has.terms[0], writers_before(v, &v->program->instr[i], space)))
        return wrong(v, i, b, &has, "all that is before it");
    if (has.meaning == MEANS_OUTPUT && has.terms[0].count)
        return wrong(v, i, b, &has, "all of its rows");
    if (has.meaning == MEANS_OUTPUT_GRAD && segment_input_grad(space) < 0 &&
        !addends_equal(has.terms[0], values_readers(v, has.of, has.index)))
        return wrong(v, i, b, &has, "the sum over all its readers");
    return 0;
}

/* Does a piece write or add rightly in a section of a gradient that earlier pieces of the same run
 * have begun?  It adds if the section held more than those pieces' terms, as they added too. */
static int continues(struct addends has, struct addends earlier, int adds)
{
    return adds == !addends_equal(has, earlier);
}

/* The run adds to the sections of a gradient whose bits are set, and writes the others that its
 * piece makes: what they hold so far is lost, but for what earlier pieces of the run made. */
static int adds_gradient(struct values *v, int i, int use)
{
    const struct instr *instr = &v->program->instr[i];
    int b = instr->buffer[SPACE_GRAD + use], f = v->program->units->use[instr->unit].flat[use];
    const struct flat *flat = flat_of(v, f);
    unsigned added = segment_added(instr->accumulate, use);
    struct value has = values_get(v, b),
                 value = {.meaning = MEANS_GRAD, .of = f, .pending = values_sum_axes(v, f)};
    struct addends earlier[FLAT_SECTIONS] = {{0}}, made[FLAT_SECTIONS] = {{0}};
    int is_ours = value_is(&has, MEANS_GRAD, f, 0) && !has.is_shard && !has.updated &&
                  has.pending == value.pending;
    for (int piece = 0; piece < instr->piece; piece++)
        values_add_piece(v, earlier, instr->unit, instr->micro, instr->phase, piece, use);
    values_add_piece(v, made, instr->unit, instr->micro, instr->phase, instr->piece, use);
    for (int s = 0; s < FLAT_SECTIONS; s++) {
        int adds = added >> s & 1, begun = made[s].count && earlier[s].count;
        if (((adds || begun) && !is_ours) || (begun && !continues(has.terms[s], earlier[s], adds)))
            return wrong(v, i, b, &has, "to add to %s's gradient of this rank", flat->name);
        if (adds && !has.terms[s].count)
            return wrong(v, i, b, &has, "to add to section %d of %s", s, flat->name);
        if (is_ours && (adds || begun || !made[s].count))
            value.terms[s] = has.terms[s];
        addends_add(&value.terms[s], made[s]);
    }
    if (added && !(instr->reads >> (SPACE_GRAD + use) & 1))
        return wrong_operand(v, i, SPACE_GRAD + use);
    if (added && flat->grad_dtype != DTYPE_F32)
        return wrong(v, i, b, &has, "to write %s's gradient, to which nothing is added",
                     flat->name);
    if (bytes_of(v, b) != (size_t)flat->padded * dtype_bytes(flat->grad_dtype))
        return wrong_size(v, i, b);
    values_put(v, i, b, value);
    return 0;
}

static int adds_loss(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int b = v->program->state->sums;
    struct value sums = values_get(v, b);
    if (instr->buffer[SPACE_LOSS] != v->program->state->over_data)
        return wrong_operand(v, i, SPACE_LOSS);
    if (!rules_are_own_sums(v, &sums))
        return wrong(v, i, b, &sums, "sums of this rank alone");
    addends_add(&sums.terms[0], addend(MEANS_SUMS, instr->micro, -1));
    values_put(v, i, b, sums);
    return 0;
}

static int adds_load(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int b = v->program->state->sums;
    struct value sums = values_get(v, b);
    if (instr->buffer[SPACE_EXPERT_TOKENS] != v->program->state->expert_tokens[instr->unit])
        return wrong_operand(v, i, SPACE_EXPERT_TOKENS);
    if (!rules_are_own_sums(v, &sums))
        return wrong(v, i, b, &sums, "sums of this rank alone");
    addends_add(&sums.terms[1], addend(MEANS_SUMS, instr->micro,
                                       values_place(instr->unit, instr->phase, instr->piece)));
    values_put(v, i, b, sums);
    return 0;
}

/* Set what a piece's results in a space lack until the exchange after it: the axes over which that
 * sums them, or takes their maximum. */
static void lacks_after(const struct values *v, const struct instr *instr, int space,
                        struct value *value)
{
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    const struct segment_step *step = segment_exchange(segment, instr->piece);
    value->pending = value->maxima = 0;
    if (!step || step->out[0].space != space || !(segment->piece[instr->piece].writes >> space & 1))
        return;
    const struct graph_node *node = segment_node(segment, step);
    if (node->op->transfer == TRANSFER_SUM)
        value->pending = node->attrs.axes;
    if (node->op->transfer == TRANSFER_MAXIMUM)
        value->maxima = node->attrs.axes;
}

/* The run writes to a space; to the gradient of an input it may add to what other readers have made
 * of it. */
static int writes_space(struct values *v, int i, int space)
{
    const struct instr *instr = &v->program->instr[i];
    int b = instr->buffer[space], k = segment_input_grad(space);
    struct value value = value_written(v, instr, space), has = values_get(v, b);
    if (space >= SPACE_GRAD && space < SPACE_INPUT)
        return adds_gradient(v, i, space - SPACE_GRAD);
    if (space == SPACE_LOSS)
        return adds_loss(v, i);
    if (space == SPACE_EXPERT_TOKENS)
        return adds_load(v, i);
    if (value.meaning == MEANS_NOTHING)
        return 0;
    lacks_after(v, instr, space, &value);
    if (k >= 0 && instr->accumulate & segment_adds_input(k)) {
        if (!value_is(&has, value.meaning, value.of, value.index) || has.pending ||
            !(instr->reads >> space & 1))
            return wrong(v, i, b, &has, "to add to the gradient of what unit %d puts out",
                         value.of);
        addends_add(&value.terms[0], has.terms[0]);
    }
    return put_in_space(v, i, b, space, value);
}

/* The bits of what the piece can add to: sections of gradients that it writes, and inputs. */
static uint64_t can_add(const struct values *v, const struct instr *instr)
{
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    const struct unit_flats *uses = &v->program->units->use[instr->unit];
    uint64_t bits = 0;
    for (int k = 0; k < uses->count; k++)
        bits |= segment_piece_sections(segment, instr->piece, k, flat_of(v, uses->flat[k])) *
                segment_adds(k, 0);
    for (int k = 0; k < BOUNDARY_USES; k++)
        bits |= segment_piece_can_add(segment, instr->piece, k) ? segment_adds_input(k) : 0;
    return bits;
}

static int sized_space(const struct graph_value *value)
{
    switch (value->role) {
    case VALUE_INPUT: return SPACE_INPUT + value->index;
    case VALUE_INPUT_GRAD: return SPACE_INPUT_GRAD + value->index;
    case VALUE_OUTPUT: return SPACE_OUTPUT;
    case VALUE_OUTPUT_GRAD: return SPACE_OUTPUT_GRAD;
    case VALUE_CONST: return SPACE_CONST;
    default: return -1;
    }
}

/* Boundaries and the model's constants have at least the size that the unit's graph gives them. */
static int check_graph_sizes(const struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    const struct graph *graph = program_segment(v->program, instr->unit, instr->phase)->graph;
    for (int k = 0; k < graph->value_count; k++) {
        int space = sized_space(&graph->values[k]), b = space < 0 ? -1 : instr->buffer[space];
        if (b >= 0 && bytes_of(v, b) < graph_bytes(graph, k))
            return wrong_size(v, i, b);
    }
    return 0;
}

/* What is kept or carried has the size that the segment of the phase that keeps it says; work has
 * at least the segment's own: the largest of all units. */
static int check_sizes(const struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    static const int spaces[] = {SPACE_SAVED, SPACE_DEFERRED, SPACE_CARRY, SPACE_WORK};
    for (int k = 0; k < 4; k++) {
        int space = spaces[k], b = instr->buffer[space],
            keeper = writers_keeper(space, instr->phase);
        const struct segment *segment =
            program_segment(v->program, instr->unit, keeper < 0 ? (int)instr->phase : keeper);
        size_t bytes = space == SPACE_SAVED      ? segment->saved_bytes
                       : space == SPACE_DEFERRED ? segment->deferred_bytes
                       : space == SPACE_CARRY    ? segment->carry_bytes
                                                 : segment->work_bytes;
        if (b >= 0 && (bytes_of(v, b) < bytes || (space != SPACE_WORK && bytes_of(v, b) > bytes)))
            return wrong_size(v, i, b);
    }
    return 0;
}

/* Each space the segment touches has a buffer, said to be read and written as the segment does, and
 * no other has; of those that no graph sizes, each has its size.  Scratch is written before it is
 * read. */
static int check_spaces(const struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    if (instr->piece < 0 || instr->piece >= segment->pieces)
        return wrong_operand(v, i, -1);
    const struct segment_piece *piece = &segment->piece[instr->piece];
    uint64_t scratch = piece->reads & space_bit(SPACE_WORK), writes = piece->writes;
    uint64_t reads = piece->reads & ~scratch;
    uint64_t bound = 0;
    for (int s = 0; s < SPACE_COUNT; s++)
        bound |= instr->buffer[s] >= 0 ? space_bit(s) : 0;
    if (instr->accumulate & ~can_add(v, instr))
        return wrong_operand(v, i, -1);
    if (instr->buffer[SPACE_LOSS_SCALE] >= 0 &&
        instr->buffer[SPACE_LOSS_SCALE] != v->program->state->loss_scale)
        return wrong_operand(v, i, SPACE_LOSS_SCALE);
    uint64_t faults =
        (bound ^ (reads | scratch | writes)) | (reads & ~instr->reads) | (writes ^ instr->writes);
    return faults ? wrong_operand(v, i, __builtin_ctzll(faults)) : check_sizes(v, i);
}

/* What a unit keeps of sequences is its own, with a place for each block's keys and values; whether
 * they are those of the positions before, only the data says. */
static int check_cache(const struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    const struct graph *graph = program_segment(v->program, instr->unit, instr->phase)->graph;
    int b = instr->buffer[SPACE_CACHE];
    size_t bytes = 0;
    if (b < 0)
        return 0;
    if (b != v->program->state->cache[instr->unit] || !v->program->buffer[b].persistent)
        return wrong_operand(v, i, SPACE_CACHE);
    for (int k = 0; k < graph->value_count; k++)
        if (graph->values[k].role == VALUE_CACHE && graph->values[k].producer < 0)
            bytes += graph_bytes(graph, k);
    return bytes_of(v, b) == bytes ? 0 : wrong_size(v, i, b);
}

int rules_run(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    if (check_spaces(v, i) || check_graph_sizes(v, i) || check_cache(v, i))
        return -1;
    for (int s = 0; s < SPACE_COUNT; s++) {
        if (instr->buffer[s] < 0 || !(instr->reads >> s & 1) || instr->writes >> s & 1)
            continue;
        struct value want = value_wanted(v, instr, s);
        if (want.meaning != MEANS_NOTHING && check_read(v, i, instr->buffer[s], s, want))
            return -1;
    }
    for (int s = 0; s < SPACE_COUNT; s++)
        if (instr->buffer[s] >= 0 && instr->writes >> s & 1 && writes_space(v, i, s))
            return -1;
    return 0;
}

/* ---- what ranks exchange after a piece ---- */

/* The instruction is the exchange that follows its piece: of the kind, over the group, of the size
 * that the graph says. */
static int check_exchange(const struct values *v, int i)
{
    static const struct {
        enum instr_kind kind;
        enum group_reduction reduction;
    } kinds[] = {[TRANSFER_SUM] = {INSTR_ALLREDUCE, GROUP_SUM},
                 [TRANSFER_MAXIMUM] = {INSTR_ALLREDUCE, GROUP_MAX},
                 [TRANSFER_GATHER] = {INSTR_GATHER, GROUP_SUM},
                 [TRANSFER_SCATTER] = {INSTR_REDUCE, GROUP_SUM},
                 [TRANSFER_ALL_TO_ALL] = {INSTR_ALLTOALL, GROUP_SUM}};
    const struct instr *instr = &v->program->instr[i];
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    const struct segment_step *step = segment_exchange(segment, instr->piece);
    if (!step || !instr->axes || instr->accumulate)
        return wrong_operand(v, i, -1);
    const struct graph_node *node = segment_node(segment, step);
    int members = mesh_members(&v->program->layout->shape, instr->axes);
    if (kinds[node->op->transfer].kind != instr->kind ||
        kinds[node->op->transfer].reduction != instr->reduction ||
        instr->axes != node->attrs.axes || members != node->attrs.members)
        return wrong_operand(v, i, -1);
    const struct graph_value *value = segment->graph->values;
    int x = node->in[0], y = node->out[0];
    int divisor = instr->kind == INSTR_ALLTOALL ? members : step->row_chunks;
    int64_t elems = graph_elems(segment->graph, instr->kind == INSTR_GATHER ? x : y) / divisor;
    enum dtype result = instr->kind == INSTR_REDUCE ? value[y].dtype : DTYPE_F32;
    return instr->elems == elems && instr->dtype == value[x].dtype && instr->result == result
               ? 0
               : wrong_operand(v, i, -1);
}

/* Parts of all ranks are alike, and in their order. */
static int check_equal_parts(const struct values *v, int i, int members)
{
    const struct instr *instr = &v->program->instr[i];
    const struct comm_part *part = &v->program->part[instr->first_part];
    for (int m = 0; m < members; m++)
        if (part[m].send_elems != instr->elems || part[m].recv_elems != instr->elems ||
            part[m].send_from != m * instr->elems || part[m].recv_from != m * instr->elems)
            return wrong_operand(v, i, -1);
    return 0;
}

/* An operand is the whole of what the unit has in a space, or lies there where the value does. */
static int check_place(const struct values *v, int i, int slot, struct segment_ref ref,
                       size_t bytes)
{
    const struct program_buffer *buffer = &v->program->buffer[v->program->instr[i].buffer[slot]];
    size_t from = buffer->whole < 0 ? 0 : buffer->from;
    if (buffer->bytes == bytes && from == ref.offset)
        return 0;
    return wrong_size(v, i, v->program->instr[i].buffer[slot]);
}

/* The exchange reads a value of the unit, which it may change in place; its result is where the
 * next piece finds it. */
int rules_exchange(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    if (check_exchange(v, i))
        return -1;
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    const struct segment_step *step = segment_exchange(segment, instr->piece);
    const struct graph_node *node = segment_node(segment, step);
    int in_place = instr->kind == INSTR_ALLREDUCE, slot = in_place ? SLOT_TO : SLOT_FROM;
    struct segment_ref to = step->out[0], from = in_place ? to : step->in[0];
    int x = in_place ? node->out[0] : node->in[0];
    struct value want = value_wanted(v, instr, from.space),
                 value = value_written(v, instr, to.space);
    if (in_place)
        lacks_after(v, instr, from.space, &want);
    size_t chunks = (size_t)step->row_chunks;
    if (check_place(v, i, slot, from, graph_bytes(segment->graph, x) / chunks) ||
        check_place(v, i, SLOT_TO, to, graph_bytes(segment->graph, node->out[0]) / chunks) ||
        check_read(v, i, buffer_root(v->program, instr->buffer[slot]), from.space, want) ||
        (instr->kind == INSTR_ALLTOALL && check_equal_parts(v, i, node->attrs.members)))
        return -1;
    if (value.meaning == MEANS_NOTHING)
        return wrong_operand(v, i, SLOT_TO);
    return put_in_space(v, i, buffer_root(v->program, instr->buffer[SLOT_TO]), to.space, value);
}

/* ---- messages between ranks ---- */

/* A flat's gradient, complete on rank `from`, to another that has the flat too. */
static int check_copy(const struct values *v, int i, int from, struct value *brings)
{
    const struct instr *instr = &v->program->instr[i];
    int own = v->program->state->coord.at[MESH_PIPELINE], f = instr->flat;
    int b = instr->buffer[instr->kind == INSTR_SEND ? SLOT_FROM : SLOT_TO];
    if (f >= v->program->units->flats || instr->axes != 1u << MESH_PIPELINE || instr->peer == own ||
        !values_rank_uses(v, own, f) || !values_rank_uses(v, instr->peer, f))
        return wrong_operand(v, i, -1);
    if (instr->elems != flat_of(v, f)->shard_elems || instr->dtype != DTYPE_F32 ||
        bytes_of(v, b) != (size_t)instr->elems * sizeof(float))
        return wrong_size(v, i, b);
    *brings = (struct value){.meaning = MEANS_GRAD,
                             .of = f,
                             .index = from == own ? 0 : OTHER_RANK,
                             .is_shard = flat_is_sharded(flat_of(v, f))};
    return 0;
}

/* Does a rank have units of a stage? */
static int has_stage(const struct units *units, int rank, int stage)
{
    for (int u = 0; u < units->count; u++)
        if (units->stage[u] == stage)
            return units->rank[u] == rank;
    return 0;
}

/* What a message brings: the output of a unit to the rank of the next stage, or its gradient, as
 * far as that stage has summed it.  0, or -1: it goes where it should not. */
static int check_message(const struct values *v, int i, int from, struct value *brings)
{
    const struct instr *instr = &v->program->instr[i];
    const struct units *units = v->program->units;
    int own = v->program->state->coord.at[MESH_PIPELINE], is_output = instr->phase == PHASE_FORWARD;
    int b = instr->buffer[instr->kind == INSTR_SEND ? SLOT_FROM : SLOT_TO];
    if (instr->flat >= 0)
        return check_copy(v, i, from, brings);
    if (instr->unit < 0 || instr->unit >= units->count || instr->axes != 1u << MESH_PIPELINE)
        return wrong_operand(v, i, -1);
    int next = units->stage[instr->unit] + 1, to = from == own ? instr->peer : own;
    if (from == to || (from != own && from != instr->peer) ||
        (is_output ? from : to) != units->rank[instr->unit] ||
        !has_stage(units, is_output ? to : from, next) ||
        (!is_output && instr->phase != PHASE_BACKWARD))
        return wrong_operand(v, i, -1);
    if (bytes_of(v, b) != program_boundary_bytes(v->program, instr->unit) ||
        bytes_of(v, b) != (size_t)instr->elems * dtype_bytes(instr->dtype))
        return wrong_size(v, i, b);
    *brings = meant(is_output ? MEANS_OUTPUT : MEANS_OUTPUT_GRAD, instr->unit, instr->micro);
    if (!is_output)
        brings->terms[0] = values_stage_readers(v, instr->unit, instr->micro, next);
    return 0;
}

int rules_send(struct values *v, int i)
{
    int b = v->program->instr[i].buffer[SLOT_FROM];
    struct value has = values_get(v, b), want;
    char text[VALUE_TEXT];
    if (check_message(v, i, v->program->state->coord.at[MESH_PIPELINE], &want))
        return -1;
    addends_add(&v->messages[0], values_message(&v->program->instr[i]));
    if (value_is(&has, MEANS_GRAD, want.of, 0) && want.meaning == MEANS_GRAD && !has.updated &&
        has.is_shard == want.is_shard && has.pending == 1u << MESH_PIPELINE &&
        values_is_complete(v, &has))
        return 0;
    if (want.meaning == MEANS_GRAD || !value_is(&has, want.meaning, want.of, want.index) ||
        has.pending || has.maxima || !addends_equal(has.terms[0], want.terms[0]))
        return wrong(v, i, b, &has, "%s", value_text(v, &want, text));
    return 0;
}

int rules_receive(struct values *v, int i)
{
    struct value brings;
    if (check_message(v, i, v->program->instr[i].peer, &brings))
        return -1;
    addends_add(&v->messages[1], values_message(&v->program->instr[i]));
    values_put(v, i, v->program->instr[i].buffer[SLOT_TO], brings);
    return 0;
}
