/* values.c - the meaning of buffers: how a step finds them, and what its sums must come to.
 *
 * values_open() gives each persistent buffer its meaning before the step, and computes from the
 * segments alone, not from the list, which addends each sum must have.  Of a whole buffer and its
 * views, the name that an instruction wrote last is the valid one.
 */
#include "verify/values.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/philox.h"
#include "base/text.h"

void addends_add(struct addends *sum, struct addends more)
{
    sum->count += more.count;
    sum->tags += more.tags;
}

int addends_equal(struct addends a, struct addends b)
{
    return a.count == b.count && a.tags == b.tags;
}

struct addends addend(enum value_meaning meaning, int micro, int of)
{
    uint64_t place = (uint64_t)(uint32_t)micro << 32 | (uint32_t)of;
    return (struct addends){1, philox_u64((uint64_t)meaning, place)};
}

int value_is(const struct value *value, enum value_meaning meaning, int of, int index)
{
    return value->meaning == meaning && value->of == of && value->index == index;
}

int values_is_own_unit(const struct values *v, int unit)
{
    return v->program->units->rank[unit] == v->program->state->coord.at[MESH_PIPELINE];
}

int values_rank_uses(const struct values *v, int rank, int flat)
{
    int ranks = v->program->layout->shape.degree[MESH_PIPELINE];
    return rank >= 0 && rank < ranks && v->rank_uses[rank * v->program->units->flats + flat];
}

unsigned values_sum_axes(const struct values *v, int flat)
{
    return v->sum_axes[flat];
}

int values_is_after_update(const struct values *v, const struct value *value)
{
    return value->meaning == MEANS_PARAM && program_updates_first(v->program) &&
           v->program->units->flat[value->of].trained;
}

/* Which ranks of the pipeline axis use which flats: every RUN of backward asks. */
static void open_uses(struct values *v)
{
    const struct units *units = v->program->units;
    int ranks = v->program->layout->shape.degree[MESH_PIPELINE], flats = units->flats;
    v->rank_uses = array_make((size_t)ranks * (size_t)flats, 1);
    v->sum_axes = array_make((size_t)flats, sizeof *v->sum_axes);
    for (int u = 0; u < units->count; u++)
        for (int k = 0; k < units->use[u].count; k++)
            v->rank_uses[units->rank[u] * flats + units->use[u].flat[k]] = 1;
    for (int f = 0; f < flats; f++) {
        int users = 0;
        for (int rank = 0; rank < ranks; rank++)
            users += v->rank_uses[rank * flats + f];
        v->sum_axes[f] =
            units->flat[f].sum_axes | (v->axes & MESH_DATA) | (users > 1 ? 1u << MESH_PIPELINE : 0);
    }
}

int values_is_own_place(const struct values *v, int view)
{
    const struct program_buffer *buffer = &v->program->buffer[view];
    const struct mesh_shape *shape = &v->program->layout->shape;
    size_t shards = (size_t)mesh_members(shape, MESH_SHARDS);
    size_t own = (size_t)mesh_member(shape, v->program->state->coord, MESH_SHARDS);
    return buffer->bytes * shards == v->program->buffer[buffer->whole].bytes &&
           buffer->from == buffer->bytes * own;
}

/* What a view holds by what was written to the whole. */
static struct value value_of_view(const struct values *v, int view)
{
    struct value value = v->value[v->program->buffer[view].whole];
    if (value.meaning == MEANS_SUMS)
        return value;
    if (value.meaning != MEANS_PARAM || value.is_shard || !values_is_own_place(v, view))
        return value_nothing;
    value.is_shard = 1;
    return value;
}

struct value values_get(const struct values *v, int b)
{
    int whole = v->program->buffer[b].whole;
    if (whole >= 0 && v->since[whole] > v->since[b])
        return value_of_view(v, b);
    return v->view_since[b] > v->since[b] ? value_nothing : v->value[b];
}

void values_put(struct values *v, int i, int b, struct value value)
{
    v->value[b] = value;
    v->since[b] = i;
    if (v->program->buffer[b].whole >= 0)
        v->view_since[v->program->buffer[b].whole] = i;
}

static void open_buffers(struct values *v)
{
    int buffers = v->program->buffers;
    v->value = array_make((size_t)buffers, sizeof *v->value);
    v->since = array_make((size_t)buffers, sizeof *v->since);
    v->view = array_make((size_t)buffers, sizeof *v->view);
    v->next = array_make((size_t)buffers, sizeof *v->next);
    v->view_since = array_make((size_t)buffers, sizeof *v->view_since);
    for (int b = 0; b < buffers; b++) {
        v->value[b] = value_nothing;
        v->since[b] = v->view_since[b] = v->view[b] = v->next[b] = -1;
    }
    for (int b = 0; b < buffers; b++) {
        int whole = v->program->buffer[b].whole;
        if (whole < 0)
            continue;
        v->next[b] = v->view[whole];
        v->view[whole] = b;
    }
}

static void holds(struct values *v, int b, struct value value)
{
    if (b >= 0)
        v->value[b] = value;
}

static void open_state(struct values *v)
{
    for (int f = 0; f < v->program->units->flats; f++) {
        const struct state_flat *state = &v->program->state->flat[f];
        struct value value = {
            .meaning = MEANS_PARAM, .of = f, .coded = v->program->units->flat[f].is_nf4};
        if (state->whole_param >= 0 && !v->program->buffer[state->whole_param].partial)
            holds(v, state->whole_param, value);
        value.is_shard = flat_is_sharded(&v->program->units->flat[f]);
        holds(v, state->param, value);
        holds(v, state->master, value);
        value.meaning = MEANS_SLOT;
        value.coded = 0;
        for (int k = 0; k < OPTIMIZER_SLOTS; k++) {
            value.index = k;
            holds(v, state->slot[k], value);
        }
    }
    holds(v, v->program->state->constants,
          (struct value){.meaning = MEANS_CONSTANTS, .of = -1, .index = -1});
}

/* Of a value that several ranks hold alike, one counts the square: the first of them. */
int values_counts_norm(const struct values *v, int flat)
{
    const struct flat *of = &v->program->units->flat[flat];
    if (!of->trained || !values_is_own_unit(v, of->unit))
        return 0;
    unsigned alike = v->counted_axes & ~(1u << MESH_PIPELINE);
    if (flat_is_sharded(of))
        alike &= ~(unsigned)MESH_SHARDS;
    for (int t = 0; t < of->tensors; t++)
        if (!box_is_whole(&of->tensor[t].box))
            alike &= ~(1u << MESH_TENSOR);
    return !mesh_member(&v->program->layout->shape, v->program->state->coord, alike);
}

void values_add_piece(const struct values *v, struct addends *terms, int unit, int micro,
                      enum segment_phase phase, int piece, int use)
{
    const struct units *units = v->program->units;
    const struct flat *flat = &units->flat[units->use[unit].flat[use]];
    unsigned sections = segment_piece_sections(units_segment(units, unit, phase), piece, use, flat);
    for (int s = 0; s < FLAT_SECTIONS; s++)
        if (sections >> s & 1)
            addends_add(&terms[s], addend(MEANS_GRAD, micro, values_place(unit, phase, piece)));
}

/* What the segments of a unit in a micro-batch add to the gradients of the flats it uses. */
static void open_gradients(struct values *v, int unit, int micro)
{
    const struct units *units = v->program->units;
    for (int i = 0; i < units->use[unit].count * PHASES; i++) {
        int k = i / PHASES, phase = i % PHASES;
        const struct segment *segment = units_segment(units, unit, phase);
        for (int piece = 0; piece < segment->pieces; piece++)
            values_add_piece(v, v->gradient[units->use[unit].flat[k]], unit, micro, phase, piece,
                             k);
    }
}

/* An input is what the nearest unit before puts out by its name. */
static int find_producer(const struct units *units, int unit, const char *name)
{
    for (unit--; unit >= 0; unit--)
        if (!strcmp(units_kind(units, unit)->train->output_name, name))
            return unit;
    return -1;
}

static void open_boundaries(struct values *v)
{
    const struct units *units = v->program->units;
    v->producer = array_make((size_t)units->count, sizeof *v->producer);
    for (int u = 0; u < units->count; u++) {
        const struct graph *graph = units_kind(units, u)->train;
        for (int k = 0; k < BOUNDARY_USES; k++)
            v->producer[u][k] =
                k < graph->inputs ? find_producer(units, u, graph->input[k].name) : -1;
    }
}

/* Does a unit make a gradient of its input k? */
static int makes_gradient(const struct units *units, int unit, int k)
{
    for (int phase = 0; phase < PHASES; phase++)
        if (units_segment(units, unit, phase)->writes >> (SPACE_INPUT_GRAD + k) & 1)
            return 1;
    return 0;
}

struct addends values_stage_readers(const struct values *v, int unit, int micro, int stage)
{
    const struct units *units = v->program->units;
    struct addends sum = {0};
    for (int u = unit + 1; u < units->count; u++)
        for (int k = 0; k < BOUNDARY_USES; k++)
            if (v->producer[u][k] == unit && units->stage[u] == stage &&
                makes_gradient(units, u, k))
                addends_add(&sum, addend(MEANS_OUTPUT_GRAD, micro, u));
    return sum;
}

struct addends values_readers(const struct values *v, int unit, int micro)
{
    struct addends sum = {0};
    for (int stage = 0; stage < v->program->units->stages; stage++)
        addends_add(&sum, values_stage_readers(v, unit, micro, stage));
    return sum;
}

struct addends values_message(const struct instr *message)
{
    if (message->flat >= 0)
        return addend(MEANS_GRAD, message->micro, message->flat);
    return addend(message->phase == PHASE_FORWARD ? MEANS_OUTPUT : MEANS_OUTPUT_GRAD,
                  message->micro, message->unit);
}

/* Does a stage read what a unit puts out? */
static int reads_output(const struct values *v, int stage, int unit)
{
    const struct units *units = v->program->units;
    for (int u = unit + 1; u < units->count; u++)
        for (int k = 0; k < BOUNDARY_USES; k++)
            if (v->producer[u][k] == unit && units->stage[u] == stage)
                return 1;
    return 0;
}

/* A message from one rank of the pipeline axis to another, of which this one may be either. */
static void expect(struct values *v, int from, int to, struct instr message)
{
    int own = v->program->state->coord.at[MESH_PIPELINE];
    if (own == from)
        addends_add(&v->all_messages[0], values_message(&message));
    if (own == to)
        addends_add(&v->all_messages[1], values_message(&message));
}

/* The rank of a stage: that of its units. */
static int rank_of(const struct units *units, int stage)
{
    for (int u = 0; u < units->count; u++)
        if (units->stage[u] == stage)
            return units->rank[u];
    return -1;
}

/* Of what a unit puts out, if units of another rank read it. */
static void open_boundary_messages(struct values *v, int unit)
{
    const struct units *units = v->program->units;
    int next = units->stage[unit] + 1, from = units->rank[unit], to = rank_of(units, next);
    int train = v->program->kind == PROGRAM_TRAIN;
    if (to < 0 || to == from || !reads_output(v, next, unit))
        return;
    for (int m = 0; m < v->program->micros; m++) {
        struct instr message = {.unit = unit, .micro = m, .flat = -1, .phase = PHASE_FORWARD};
        expect(v, from, to, message);
        message.phase = PHASE_BACKWARD;
        if (train && values_stage_readers(v, unit, m, next).count)
            expect(v, to, from, message);
    }
}

static void open_messages(struct values *v)
{
    const struct units *units = v->program->units;
    int ranks = v->program->layout->shape.degree[MESH_PIPELINE];
    for (int u = 0; u < units->count; u++)
        open_boundary_messages(v, u);
    for (int f = 0; f < units->flats && v->program->kind == PROGRAM_TRAIN; f++)
        for (int k = 0; k < ranks * ranks && units->flat[f].trained; k++)
            if (k / ranks != k % ranks && values_rank_uses(v, k / ranks, f) &&
                values_rank_uses(v, k % ranks, f))
                expect(v, k / ranks, k % ranks, (struct instr){.flat = f, .micro = -1});
}

/* What the segments of a unit in a micro-batch add to the tokens at its experts: those of each of
 * its routers, which several pieces may count. */
static void open_load(struct values *v, int unit, int micro)
{
    for (int phase = 0; phase < PHASES; phase++) {
        const struct segment *segment = units_segment(v->program->units, unit, phase);
        for (int piece = 0; piece < segment->pieces; piece++)
            if (segment->piece[piece].writes >> SPACE_EXPERT_TOKENS & 1)
                addends_add(&v->expert_tokens,
                            addend(MEANS_SUMS, micro, values_place(unit, phase, piece)));
    }
}

static void open_sums(struct values *v)
{
    const struct units *units = v->program->units;
    v->gradient = array_make((size_t)units->flats, sizeof *v->gradient);
    for (int u = 0; u < units->count; u++)
        for (int m = 0; m < v->program->micros && values_is_own_unit(v, u); m++) {
            open_gradients(v, u, m);
            if (units_kind(units, u)->ends_in_loss)
                addends_add(&v->losses, addend(MEANS_SUMS, m, -1));
            if (v->program->kind == PROGRAM_TRAIN)
                open_load(v, u, m);
        }
    for (int f = 0; f < units->flats; f++)
        if (values_counts_norm(v, f))
            addends_add(&v->norms, addend(MEANS_SUMS, -1, f));
}

/* What the step before has left to a program that updates first: gradients of its whole batch, and
 * their factor. */
static void open_pending(struct values *v)
{
    for (int f = 0; f < v->program->units->flats; f++) {
        struct value gradient = {.meaning = MEANS_GRAD,
                                 .of = f,
                                 .updated = 1,
                                 .is_shard = flat_is_sharded(&v->program->units->flat[f])};
        memcpy(gradient.terms, v->gradient[f], sizeof gradient.terms);
        holds(v, v->program->state->flat[f].grad, gradient);
    }
    holds(v, v->program->state->sums,
          (struct value){.meaning = MEANS_SUMS,
                         .of = -1,
                         .index = -1,
                         .updated = 1,
                         .norms = v->norms,
                         .terms = {v->losses, v->expert_tokens}});
}

int values_is_complete(const struct values *v, const struct value *gradient)
{
    for (int s = 0; s < v->program->units->flat[gradient->of].sections; s++) {
        struct addends all = v->gradient[gradient->of][s];
        if (!all.count || !addends_equal(gradient->terms[s], all)) /* none: what is there is old */
            return 0;
    }
    return 1;
}

void values_open(struct values *v, const struct program *program, struct error *err)
{
    const struct mesh_shape *shape = &program->layout->shape;
    *v = (struct values){.program = program, .err = err};
    v->axes = mesh_wide_axes(shape, MESH_DATA | 1u << MESH_PIPELINE);
    v->counted_axes = mesh_wide_axes(shape, MESH_SETS - 1);
    v->shard_axes = mesh_wide_axes(shape, MESH_SHARDS);
    open_buffers(v);
    open_state(v);
    open_uses(v);
    open_boundaries(v);
    if (mesh_members(shape, 1u << MESH_PIPELINE) > 1 && program->kind != PROGRAM_UPDATE)
        open_messages(v);
    open_sums(v);
    if (program_updates_first(program))
        open_pending(v);
}

void values_close(struct values *v)
{
    free(v->value);
    free(v->since);
    free(v->view);
    free(v->next);
    free(v->view_since);
    free(v->producer);
    free(v->rank_uses);
    free(v->sum_axes);
    free(v->gradient);
}

/* ---- for messages ---- */

static const char *const meaning_names[MEANINGS] = {
    [MEANS_NOTHING] = "nothing",
    [MEANS_PARAM] = "parameters of",
    [MEANS_SLOT] = "optimizer state of",
    [MEANS_DIRECTION] = "direction of",
    [MEANS_GRAD] = "gradient of",
    [MEANS_SUMS] = "the step's sums",
    [MEANS_TOKENS] = "tokens of",
    [MEANS_TARGETS] = "targets of",
    [MEANS_POSITIONS] = "positions of",
    [MEANS_DOCUMENTS] = "documents of",
    [MEANS_SAMPLES] = "samples of",
    [MEANS_OUTPUT] = "output of",
    [MEANS_OUTPUT_GRAD] = "output gradient of",
    [MEANS_SAVED] = "what is kept of",
    [MEANS_DEFERRED] = "what is deferred of",
    [MEANS_CARRIED] = "what is carried in",
    [MEANS_CONSTANTS] = "constants",
};

static void add_axes(char *text, const char *what, unsigned axes)
{
    if (axes)
        text_append(text, VALUE_TEXT, "%s%s%s%s%s%s", what, axes >> MESH_SHARD & 1 ? " shards" : "",
                    axes >> MESH_CONTEXT & 1 ? " context ranks" : "",
                    axes >> MESH_REPLICATE & 1 ? " replicas" : "",
                    axes >> MESH_TENSOR & 1 ? " tensor ranks" : "",
                    axes >> MESH_PIPELINE & 1 ? " stages" : "");
}

/* The runs in a gradient, of how many: of the section that lacks one, if any does. */
static void add_terms(char *text, const struct values *v, const struct value *value)
{
    const struct addends *all = v->gradient[value->of];
    int s = 0, sections = v->program->units->flat[value->of].sections;
    while (s + 1 < sections && addends_equal(value->terms[s], all[s]))
        s++;
    text_append(text, VALUE_TEXT, ", %lld of %lld runs", (long long)value->terms[s].count,
                (long long)all[s].count);
}

const char *value_text(const struct values *v, const struct value *value, char text[VALUE_TEXT])
{
    enum value_meaning meaning = value->meaning;
    int is_of_flat = meaning >= MEANS_PARAM && meaning <= MEANS_GRAD;
    snprintf(text, VALUE_TEXT, "%s", meaning_names[meaning]);
    if (value->of >= 0 && is_of_flat)
        text_append(text, VALUE_TEXT, " %s", v->program->units->flat[value->of].name);
    else if (value->of >= 0)
        text_append(text, VALUE_TEXT, " %s %d",
                    meaning >= MEANS_TOKENS && meaning <= MEANS_SAMPLES ? "sequence" : "unit",
                    value->of);
    if (value->index >= 0 && meaning >= MEANS_TOKENS)
        text_append(text, VALUE_TEXT, " micro %d", value->index);
    if (is_of_flat)
        text_append(text, VALUE_TEXT, "%s%s", value->is_shard ? ", own shard" : ", whole",
                    !value->updated         ? ""
                    : meaning == MEANS_GRAD ? ", of the step before"
                                            : ", updated");
    if (value->coded)
        text_append(text, VALUE_TEXT, ", in 4 bits");
    if (meaning == MEANS_DIRECTION)
        text_append(text, VALUE_TEXT, "%s",
                    value->index == DIRECTION_ORTHOGONAL ? ", orthogonal"
                    : value->index == DIRECTION_OWN      ? ", orthogonal in part"
                                                         : "");
    if (meaning == MEANS_GRAD)
        add_terms(text, v, value);
    if (meaning == MEANS_OUTPUT_GRAD)
        text_append(text, VALUE_TEXT, ", of %lld of %lld readers", (long long)value->terms[0].count,
                    (long long)values_readers(v, value->of, value->index).count);
    if (meaning == MEANS_SUMS)
        text_append(text, VALUE_TEXT, ", %lld of %lld micro-batches, %lld norms",
                    (long long)value->terms[0].count, (long long)v->losses.count,
                    (long long)value->norms.count);
    add_axes(text, ", not summed over", value->pending);
    add_axes(text, ", squares not over", value->counting);
    add_axes(text, ", no maximum over", value->maxima);
    return text;
}
