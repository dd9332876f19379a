/* rules_run.c - what a RUN must find in its spaces, and what it leaves there.
 *
 * What forward keeps and what pieces hand on is followed by its writers: each piece, and each
 * exchange, is an addend, so that one left out, doubled or out of order shows.
 */
#include "verify/rules.h"

/* Of which sequence, says the unit's graph. */
static struct value wanted_rows(const struct values *v, const struct instr *instr,
                                enum graph_value_role role, enum value_meaning meaning)
{
    const struct graph *graph = program_segment(v->program, instr->unit, instr->phase)->graph;
    int value = graph ? graph_find(graph, role) : -1;
    return meant(meaning, value < 0 ? -1 : graph->values[value].index, instr->micro);
}

struct value rules_written(const struct instr *instr, int space)
{
    static const enum value_meaning meanings[SPACE_COUNT] = {
        [SPACE_OUTPUT] = MEANS_OUTPUT,
        [SPACE_SAVED] = MEANS_SAVED,
        [SPACE_DEFERRED] = MEANS_DEFERRED,
        [SPACE_CARRY] = CARRIED,
    };
    return meanings[space] ? meant(meanings[space], instr->unit, instr->micro) : nothing;
}

/* What a RUN must find in a space; meaning MEANS_NOTHING: anything. */
struct value rules_wanted(const struct values *v, const struct instr *instr, int space)
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
    case SPACE_CONST: return meant(MEANS_CONSTANTS, -1, -1);
    default: return rules_written(instr, space);
    }
}

/* What a piece, or the exchange after it, writes to a space. */
enum writer { BY_PIECE, BY_EXCHANGE };

static struct addends step_addend(const struct values *v, const struct instr *instr,
                                  enum segment_phase phase, int piece, enum writer writer)
{
    int number = values_place(instr->unit, phase, piece) * 2 + (int)writer;
    return addend(CARRIED, instr->micro, number);
}

static int exchange_writes(const struct segment *segment, int piece, int space)
{
    const struct segment_step *step = segment_exchange(segment, piece);
    return step && step->out[0].space == space;
}

/* All that is written to a space of instr's unit and micro-batch in a phase before its piece, or by
 * it where this is exchange. */
static struct addends steps_before(const struct values *v, const struct instr *instr,
                                   enum segment_phase phase, int end, enum writer until, int space)
{
    const struct segment *segment = program_segment(v->program, instr->unit, phase);
    struct addends sum = {0};
    for (int piece = 0; piece < segment->pieces && piece <= end; piece++) {
        if (piece == end && until == BY_PIECE)
            break;
        if (segment->piece[piece].writes >> space & 1)
            addends_add(&sum, step_addend(v, instr, phase, piece, BY_PIECE));
        if (piece < end && exchange_writes(segment, piece, space))
            addends_add(&sum, step_addend(v, instr, phase, piece, BY_EXCHANGE));
    }
    return sum;
}

/* Is it written by steps that follow one another: kept, or carried? */
int rules_is_stepwise(int space)
{
    return space == SPACE_SAVED || space == SPACE_DEFERRED || space == SPACE_CARRY;
}

/* The phase that writes what an instruction of another finds in a space; its own: -1. */
static int kept_by(int space, enum segment_phase phase)
{
    if (space == SPACE_SAVED && segment_phase_is_backward(phase))
        return PHASE_FORWARD;
    return space == SPACE_DEFERRED && phase == PHASE_BACKWARD_WEIGHT ? PHASE_BACKWARD_INPUT : -1;
}

static int has_steps(const struct values *v, const struct instr *instr, int space,
                     const struct value *has)
{
    int phase = kept_by(space, instr->phase);
    enum writer until = instr->kind == INSTR_RUN ? BY_PIECE : BY_EXCHANGE;
    struct addends want = phase >= 0
                              ? steps_before(v, instr, phase, PIECES, BY_PIECE, space)
                              : steps_before(v, instr, instr->phase, instr->piece, until, space);
    return addends_equal(has->terms[0], want);
}

/* Instruction i writes to what is kept or carried, which has what was written before; or nothing
 * was, and what is there is lost. */
int rules_add_step(struct values *v, int i, int b, int space, struct value value)
{
    const struct instr *instr = &v->program->instr[i];
    enum writer writer = instr->kind == INSTR_RUN ? BY_PIECE : BY_EXCHANGE;
    struct addends before = steps_before(v, instr, instr->phase, instr->piece, writer, space);
    struct value has = values_get(v, b);
    if (before.count && (!value_is(&has, value.meaning, value.of, value.index) ||
                         !addends_equal(has.terms[0], before) || has.pending || has.maxima))
        return wrong(v, i, b, &has, "all that is before it");
    value.terms[0] = before;
    addends_add(&value.terms[0], step_addend(v, instr, instr->phase, instr->piece, writer));
    values_put(v, i, b, value);
    return 0;
}

/* Is it, if it is the gradient of a boundary, the sum over all the units that read this? */
static int has_readers(const struct values *v, const struct value *has)
{
    return has->meaning != MEANS_OUTPUT_GRAD ||
           addends_equal(has->terms[0], values_readers(v, has->of, has->index));
}

struct value rules_input_grad(const struct values *v, const struct instr *instr, int k)
{
    struct value value = meant(MEANS_OUTPUT_GRAD, v->producer[instr->unit][k], instr->micro);
    value.terms[0] = values_reader(instr->micro, instr->unit);
    return value;
}

int rules_read(const struct values *v, int i, int b, int space, struct value want)
{
    struct value has = values_get(v, b);
    char text[VALUE_TEXT];
    if (!value_is(&has, want.meaning, want.of, want.index) || has.part || has.updated ||
        has.pending != want.pending || has.maxima != want.maxima)
        return wrong(v, i, b, &has, "%s", value_text(v, &want, text));
    if (rules_is_stepwise(space) && !has_steps(v, &v->program->instr[i], space, &has))
        return wrong(v, i, b, &has, "all that is before it");
    if (segment_input_grad(space) < 0 && !has_readers(v, &has))
        return wrong(v, i, b, &has, "the sum over all its readers");
    return 0;
}

static int reads_space(struct values *v, int i, int space)
{
    const struct instr *instr = &v->program->instr[i];
    struct value want = rules_wanted(v, instr, space);
    return want.meaning == MEANS_NOTHING ? 0 : rules_read(v, i, instr->buffer[space], space, want);
}

/* Of a section that an earlier piece of the run has begun, a piece adds to its tensors where that
 * one did: where there is more than what this run has made so far. */
static int continues(const struct values *v, const struct instr *instr, int use,
                     const struct value *has, unsigned added)
{
    struct addends earlier[FLAT_SECTIONS] = {{0}};
    for (int piece = 0; piece < instr->piece; piece++)
        values_add_piece(v, earlier, instr->unit, instr->micro, instr->phase, piece, use);
    for (int s = 0; s < FLAT_SECTIONS; s++)
        if (earlier[s].count && addends_equal(has->terms[s], earlier[s]) != !(added >> s & 1))
            return 0;
    return 1;
}

/* The sections of the use-th flat whose gradients earlier pieces of the run have begun. */
static unsigned begun_sections(const struct values *v, const struct instr *instr, int use,
                               const struct flat *flat)
{
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    unsigned begun = 0;
    for (int piece = 0; piece < instr->piece; piece++)
        begun |= segment_piece_sections(segment, piece, use, flat);
    return begun;
}

/* The run adds to the sections of a gradient whose bits are set, and writes the others that its
 * piece makes: what they hold so far is lost, but for what earlier pieces made. */
static int adds_gradient(struct values *v, int i, int use)
{
    const struct instr *instr = &v->program->instr[i];
    int b = instr->buffer[SPACE_GRAD + use], f = v->program->units->use[instr->unit].flat[use];
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    unsigned sections = segment_piece_sections(segment, instr->piece, use, flat_of(v, f));
    unsigned begun = begun_sections(v, instr, use, flat_of(v, f)) & sections;
    unsigned added = segment_added(instr->accumulate, use), pending = flat_of(v, f)->sum_axes;
    struct value value = {.meaning = MEANS_GRAD, .of = f, .pending = pending},
                 has = values_get(v, b);
    int is_ours = value_is(&has, MEANS_GRAD, f, 0) && !has.part && has.pending == pending;
    if ((added && !is_ours) || (begun && (!is_ours || !continues(v, instr, use, &has, added))))
        return wrong(v, i, b, &has, "to add to %s's gradient of this rank", flat_of(v, f)->name);
    if (bytes_of(v, b) != (size_t)flat_of(v, f)->padded * sizeof(float))
        return wrong_size(v, i, b);
    for (int s = 0; s < FLAT_SECTIONS; s++)
        if (added >> s & 1 && !has.terms[s].count)
            return wrong(v, i, b, &has, "to add to section %d of %s", s, flat_of(v, f)->name);
    for (int s = 0; s < FLAT_SECTIONS; s++)
        if (is_ours && ((added | begun) >> s & 1 || !(sections >> s & 1)))
            value.terms[s] = has.terms[s];
    values_add_piece(v, value.terms, instr->unit, instr->micro, instr->phase, instr->piece, use);
    values_put(v, i, b, value);
    return 0;
}

static int adds_loss(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int b = instr->buffer[SPACE_LOSS];
    struct value sums = values_get(v, b);
    if (!rules_are_own_sums(v, &sums))
        return wrong(v, i, b, &sums, "sums of this rank alone");
    addends_add(&sums.terms[0], addend(MEANS_SUMS, instr->micro, -1));
    values_put(v, i, b, sums);
    return 0;
}

void rules_lacks_after(const struct values *v, const struct instr *instr, int space,
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

/* The run writes the gradient of its input k, or adds to what other readers have made of it. */
static int adds_input_gradient(struct values *v, int i, int k)
{
    const struct instr *instr = &v->program->instr[i];
    int space = SPACE_INPUT_GRAD + k, b = instr->buffer[space];
    struct value value = rules_input_grad(v, instr, k), has = values_get(v, b);
    rules_lacks_after(v, instr, space, &value);
    if (instr->accumulate & segment_adds_input(k)) {
        if (!value_is(&has, value.meaning, value.of, value.index) || has.pending ||
            !(instr->reads >> space & 1))
            return wrong(v, i, b, &has, "to add to the gradient of what unit %d puts out",
                         value.of);
        addends_add(&value.terms[0], has.terms[0]);
    }
    values_put(v, i, b, value);
    return 0;
}

static int writes_space(struct values *v, int i, int space)
{
    const struct instr *instr = &v->program->instr[i];
    struct value value = rules_written(instr, space);
    if (space >= SPACE_GRAD && space < SPACE_INPUT)
        return adds_gradient(v, i, space - SPACE_GRAD);
    if (segment_input_grad(space) >= 0)
        return adds_input_gradient(v, i, segment_input_grad(space));
    if (space == SPACE_LOSS)
        return adds_loss(v, i);
    if (value.meaning == MEANS_NOTHING)
        return 0;
    rules_lacks_after(v, instr, space, &value);
    if (rules_is_stepwise(space))
        return rules_add_step(v, i, instr->buffer[space], space, value);
    values_put(v, i, instr->buffer[space], value);
    return 0;
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

static int boundary_space(const struct graph_value *value)
{
    switch (value->role) {
    case VALUE_INPUT: return SPACE_INPUT + value->index;
    case VALUE_INPUT_GRAD: return SPACE_INPUT_GRAD + value->index;
    case VALUE_OUTPUT: return SPACE_OUTPUT;
    case VALUE_OUTPUT_GRAD: return SPACE_OUTPUT_GRAD;
    default: return -1;
    }
}

/* Boundaries have at least the size that the unit's graph gives them. */
static int check_boundaries(const struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    const struct graph *graph = program_segment(v->program, instr->unit, instr->phase)->graph;
    for (int k = 0; k < graph->value_count; k++) {
        int space = boundary_space(&graph->values[k]), b = space < 0 ? -1 : instr->buffer[space];
        if (b >= 0 && bytes_of(v, b) < graph_bytes(graph, k))
            return wrong_size(v, i, b);
    }
    return 0;
}

/* Each space the segment touches has a buffer, said to be read and written as the segment does, and
 * no other has.  Scratch is written before it is read. */
static int check_spaces(const struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    const struct layout_stage *own = &v->program->stage;
    if (instr->unit < own->first || instr->unit >= own->first + own->count)
        return wrong_operand(v, i, -1);
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    if (instr->piece < 0 || instr->piece >= segment->pieces)
        return wrong_operand(v, i, -1);
    const struct segment_piece *piece = &segment->piece[instr->piece];
    unsigned scratch = piece->reads & 1u << SPACE_WORK, writes = piece->writes;
    unsigned reads = piece->reads & ~scratch;
    unsigned bound = 0;
    for (int s = 0; s < SPACE_COUNT; s++)
        bound |= (instr->buffer[s] >= 0 ? 1u : 0) << s;
    if (instr->accumulate & ~can_add(v, instr))
        return wrong_operand(v, i, -1);
    unsigned faults =
        (bound ^ (reads | scratch | writes)) | (reads & ~instr->reads) | (writes ^ instr->writes);
    return faults ? wrong_operand(v, i, __builtin_ctz(faults)) : 0;
}

int rules_run(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    if (check_spaces(v, i) || check_boundaries(v, i))
        return -1;
    for (int s = 0; s < SPACE_COUNT; s++)
        if (instr->buffer[s] >= 0 && instr->reads >> s & 1 && !(instr->writes >> s & 1) &&
            reads_space(v, i, s))
            return -1;
    for (int s = 0; s < SPACE_COUNT; s++)
        if (instr->buffer[s] >= 0 && instr->writes >> s & 1 && writes_space(v, i, s))
            return -1;
    return 0;
}
