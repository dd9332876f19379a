/* verify_values.c - does a program compute the step?  See verify.h.
 *
 * An abstract interpretation: each kind of instruction has a rule, what its operands must mean
 * (values.h) and what its results then do.  verify.c has excluded hazards before, so that order in
 * the list is order in time.
 */
#include "verify/verify.h"

#include <stdarg.h>

#include "verify/values.h"

enum { TEXT = 112, WANTED_TEXT = 160, DATA_AXES = 1 << MESH_SHARD | 1 << MESH_REPLICATE };

static const struct value nothing = {.meaning = NOTHING, .of = -1, .index = -1};

/* Instruction i wants one thing in buffer b and has another. */
static int wrong(const struct values *v, int i, int b, const struct value *has, const char *fmt,
                 ...) __attribute__((format(printf, 5, 6)));
static int wrong(const struct values *v, int i, int b, const struct value *has, const char *fmt,
                 ...)
{
    char here[TEXT], what[VALUE_TEXT], wanted[WANTED_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(wanted, sizeof wanted, fmt, args);
    va_end(args);
    return error_set(v->err,
                     "verify: wrong value: buffer \"%s\" at instruction %d (%s) is %s, not %s",
                     v->program->buffer[b].name, i, instr_text(v->program, i, here, sizeof here),
                     value_text(v, has, what), wanted);
}

static int wrong_size(const struct values *v, int i, int b)
{
    char here[TEXT];
    return error_set(v->err, "verify: wrong size: buffer \"%s\" at instruction %d (%s)",
                     v->program->buffer[b].name, i, instr_text(v->program, i, here, sizeof here));
}

static int wrong_operand(const struct values *v, int i, int slot)
{
    char here[TEXT];
    return error_set(v->err, "verify: wrong operand: slot %d of instruction %d (%s)", slot, i,
                     instr_text(v->program, i, here, sizeof here));
}

static const struct flat *flat_of(const struct values *v, int flat)
{
    return &v->program->units->flat[flat];
}

static size_t bytes_of(const struct values *v, int b)
{
    return v->program->buffer[b].bytes;
}

/* ---- RUN ---- */

static struct value meant(enum meaning meaning, int of, int index)
{
    return (struct value){.meaning = meaning, .of = of, .index = index};
}

/* What a RUN must find in a space; meaning NOTHING: anything. */
static struct value wanted(const struct values *v, const struct instr *instr, int space)
{
    int unit = instr->unit, micro = instr->micro;
    if (space < SPACE_GRAD)
        return meant(PARAM, v->program->units->use[unit].flat[space - SPACE_PARAM], 0);
    switch (space) {
    case SPACE_INPUT: return meant(OUTPUT, unit - 1, micro);
    case SPACE_OUTPUT_GRAD: return meant(OUTPUT_GRAD, unit, micro);
    case SPACE_SAVED: return meant(SAVED, unit, micro);
    case SPACE_DEFERRED: return meant(DEFERRED, unit, micro);
    case SPACE_TOKENS: return meant(TOKENS, -1, micro);
    case SPACE_TARGETS: return meant(TARGETS, -1, micro);
    case SPACE_CONST: return meant(CONSTANTS, -1, -1);
    default: return nothing;
    }
}

static int reads_space(struct values *v, int i, int space)
{
    const struct instr *instr = &v->program->instr[i];
    struct value want = wanted(v, instr, space), has = values_get(v, instr->buffer[space]);
    char text[VALUE_TEXT];
    if (want.meaning == NOTHING)
        return 0;
    if (value_is(&has, want.meaning, want.of, want.index) && !has.part && !has.updated)
        return 0;
    return wrong(v, i, instr->buffer[space], &has, "%s", value_text(v, &want, text));
}

/* The run adds to the sections of a gradient whose bits are set, and writes the others that its
 * segment makes: what they hold so far is lost. */
static int adds_gradient(struct values *v, int i, int use)
{
    const struct instr *instr = &v->program->instr[i];
    int b = instr->buffer[SPACE_GRAD + use], f = v->program->units->use[instr->unit].flat[use];
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    unsigned sections = segment_sections(segment, use, flat_of(v, f));
    unsigned added = segment_added(instr->accumulate, use);
    struct value value = {.meaning = GRAD, .of = f, .pending = v->axes}, has = values_get(v, b);
    int is_ours = value_is(&has, GRAD, f, 0) && !has.part && has.pending == v->axes;
    if (added & ~sections)
        return wrong_operand(v, i, SPACE_GRAD + use);
    if (added && !is_ours)
        return wrong(v, i, b, &has, "to add to %s's gradient of this rank", flat_of(v, f)->name);
    if (bytes_of(v, b) != (size_t)flat_of(v, f)->padded * sizeof(float))
        return wrong_size(v, i, b);
    for (int s = 0; s < FLAT_SECTIONS; s++) {
        if (added >> s & 1 && !has.terms[s].count)
            return wrong(v, i, b, &has, "to add to section %d of %s", s, flat_of(v, f)->name);
        if (is_ours && (added >> s & 1 || !(sections >> s & 1)))
            value.terms[s] = has.terms[s];
        if (sections >> s & 1)
            addends_add(&value.terms[s],
                        addend(GRAD, instr->micro, values_place(instr->unit, instr->phase)));
    }
    values_put(v, i, b, value);
    return 0;
}

static int adds_loss(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int b = instr->buffer[SPACE_LOSS];
    struct value sums = values_get(v, b);
    if (sums.meaning != SUMS || sums.pending != v->axes || sums.updated)
        return wrong(v, i, b, &sums, "sums of this rank alone");
    addends_add(&sums.terms[0], addend(SUMS, instr->micro, -1));
    values_put(v, i, b, sums);
    return 0;
}

static int writes_space(struct values *v, int i, int space)
{
    const struct instr *instr = &v->program->instr[i];
    struct value value = {.of = instr->unit, .index = instr->micro};
    if (space >= SPACE_GRAD && space < SPACE_INPUT)
        return adds_gradient(v, i, space - SPACE_GRAD);
    switch (space) {
    case SPACE_LOSS: return adds_loss(v, i);
    case SPACE_OUTPUT: value.meaning = OUTPUT; break;
    case SPACE_INPUT_GRAD: value.meaning = OUTPUT_GRAD, value.of--; break;
    case SPACE_SAVED: value.meaning = SAVED; break;
    case SPACE_DEFERRED: value.meaning = DEFERRED; break;
    default: return 0;
    }
    values_put(v, i, instr->buffer[space], value);
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
    unsigned scratch = segment->reads & 1u << SPACE_WORK, writes = segment->writes;
    unsigned reads = segment->reads & ~scratch;
    unsigned bound = 0;
    for (int s = 0; s < SPACE_COUNT; s++)
        bound |= (instr->buffer[s] >= 0 ? 1u : 0) << s;
    unsigned faults =
        (bound ^ (reads | scratch | writes)) | (reads & ~instr->reads) | (writes ^ instr->writes);
    return faults ? wrong_operand(v, i, __builtin_ctz(faults)) : 0;
}

static int rule_run(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    if (check_spaces(v, i))
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

/* ---- the other kinds ---- */

static int rule_zero(struct values *v, int i)
{
    values_put(v, i, v->program->instr[i].buffer[SLOT_SUMS],
               (struct value){.meaning = SUMS, .of = -1, .index = -1, .pending = v->axes});
    return 0;
}

static int rule_load(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    struct value value = {.of = -1, .index = instr->micro, .meaning = TOKENS};
    values_put(v, i, instr->buffer[SLOT_LOAD_TOKENS], value);
    value.meaning = TARGETS;
    values_put(v, i, instr->buffer[SLOT_LOAD_TARGETS], value);
    return 0;
}

/* Rounding and copies do not change what a value means. */
static int rule_cast(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int from = instr->buffer[SLOT_FROM], to = instr->buffer[SLOT_TO];
    size_t elems = (size_t)instr->elems;
    if (bytes_of(v, from) != elems * sizeof(float))
        return wrong_size(v, i, from);
    if (bytes_of(v, to) != elems * dtype_bytes(instr->dtype))
        return wrong_size(v, i, to);
    values_put(v, i, to, values_get(v, from));
    return 0;
}

static int rule_copy(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int from = instr->buffer[SLOT_FROM], to = instr->buffer[SLOT_TO];
    if (bytes_of(v, from) != bytes_of(v, to))
        return wrong_size(v, i, to);
    values_put(v, i, to, values_get(v, from));
    return 0;
}

/* A whole is made of parts, or parts of it. */
static int check_parts(const struct values *v, int i, int part, size_t part_bytes, int whole,
                       size_t whole_bytes)
{
    const struct program *p = v->program;
    size_t ranks = (size_t)p->layout->shape.degree[MESH_SHARD];
    size_t elems = (size_t)p->instr[i].elems;
    if (bytes_of(v, part) != elems * part_bytes ||
        (p->buffer[part].whole >= 0 && !values_is_own_place(v, part)))
        return wrong_size(v, i, part);
    return bytes_of(v, whole) == ranks * elems * whole_bytes ? 0 : wrong_size(v, i, whole);
}

static int rule_gather(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int from = instr->buffer[SLOT_FROM], to = instr->buffer[SLOT_TO];
    size_t bytes = dtype_bytes(instr->dtype);
    struct value value = values_get(v, from);
    if (!value_is(&value, PARAM, instr->flat, 0) || !value.part || instr->group != MESH_SHARD)
        return wrong(v, i, from, &value, "the rank's own shard of parameters");
    if (check_parts(v, i, from, bytes, to, bytes))
        return -1;
    value.part = 0;
    values_put(v, i, to, value);
    return 0;
}

/* Over shards: each rank has its own then. */
static int rule_reduce(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int from = instr->buffer[SLOT_FROM], to = instr->buffer[SLOT_TO];
    struct value value = values_get(v, from), had = values_get(v, to);
    if (!value_is(&value, GRAD, instr->flat, 0) || value.part || instr->group != MESH_SHARD ||
        !(value.pending >> MESH_SHARD & 1))
        return wrong(v, i, from, &value, "a whole gradient that is not summed over shards");
    if (check_parts(v, i, to, sizeof(float), from, dtype_bytes(instr->dtype)))
        return -1;
    value.part = 1;
    value.pending &= ~(1u << MESH_SHARD);
    if (instr->accumulate) {
        if (!value_is(&had, GRAD, instr->flat, 0) || !had.part || had.pending != value.pending)
            return wrong(v, i, to, &had, "to add to the sum over shards of this gradient");
        for (int s = 0; s < FLAT_SECTIONS; s++)
            addends_add(&value.terms[s], had.terms[s]);
    }
    if (instr->writes >> SLOT_FROM & 1)
        values_put(v, i, from, nothing);
    values_put(v, i, to, value);
    return 0;
}

static unsigned axes_of(const struct values *v, int group)
{
    unsigned axes = group == GROUP_DATA ? DATA_AXES : group >= 0 ? 1u << group : 0;
    return axes & v->axes;
}

/* Over the group of instruction i, of what is not yet summed over any of it. */
static int sum_buffer(struct values *v, int i, int b, unsigned axes)
{
    struct value value = values_get(v, b);
    if ((value.meaning != GRAD && value.meaning != SUMS) || !axes ||
        (value.pending & axes) != axes || value.updated)
        return wrong(v, i, b, &value, "a sum that lacks other ranks");
    value.pending &= ~axes;
    values_put(v, i, b, value);
    return 0;
}

static int rule_all_reduce(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int b = instr->buffer[SLOT_TO], sums = instr->dtype == DTYPE_F64;
    unsigned axes = axes_of(v, instr->group);
    size_t bytes = (size_t)instr->elems * dtype_bytes(instr->dtype);
    if (sums ? instr->elems != SUM_REDUCED : bytes != bytes_of(v, b))
        return wrong_size(v, i, b);
    if (sums || v->view[b] < 0)
        return sum_buffer(v, i, b, axes);
    for (int part = v->view[b]; part >= 0; part = v->next[part])
        if (sum_buffer(v, i, part, axes))
            return -1;
    return 0;
}

/* Is b the sum over all micro-batches and ranks of the gradient that this rank updates with? */
static int check_gradient(const struct values *v, int i, int b)
{
    int f = v->program->instr[i].flat;
    struct value value = values_get(v, b);
    if (f < 0 || f >= v->program->units->flats)
        return wrong_operand(v, i, -1);
    if (value_is(&value, GRAD, f, 0) && !value.pending &&
        value.part == flat_is_sharded(flat_of(v, f)) && values_is_complete(v, &value))
        return 0;
    return wrong(v, i, b, &value, "%s's gradient of the whole batch", flat_of(v, f)->name);
}

static int rule_norm(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    struct value sums = values_get(v, instr->buffer[SLOT_SUMS]);
    if (check_gradient(v, i, instr->buffer[SLOT_SHARD_GRAD]))
        return -1;
    if (sums.meaning != SUMS || sums.pending != v->axes || sums.updated)
        return wrong(v, i, instr->buffer[SLOT_SUMS], &sums, "sums of this rank alone");
    addends_add(&sums.norms, addend(SUMS, -1, instr->flat));
    values_put(v, i, instr->buffer[SLOT_SUMS], sums);
    return 0;
}

static int are_sums(const struct values *v, const struct value *sums, int norms, int updated)
{
    struct addends none = {0, 0};
    return sums->meaning == SUMS && !sums->pending && sums->updated == updated &&
           addends_equal(sums->terms[0], v->losses) &&
           addends_equal(sums->norms, norms ? v->norms : none);
}

static int rule_scale(struct values *v, int i)
{
    int b = v->program->instr[i].buffer[SLOT_SUMS];
    struct value sums = values_get(v, b);
    if (!are_sums(v, &sums, 1, 0))
        return wrong(v, i, b, &sums, "this rank's part of loss and norm, summed over all");
    sums.updated = 1;
    values_put(v, i, b, sums);
    return 0;
}

/* State as the step found it; then it is updated. */
static int update_state(struct values *v, int i, int slot, enum meaning meaning, int index)
{
    int b = v->program->instr[i].buffer[slot], f = v->program->instr[i].flat;
    int part = flat_is_sharded(flat_of(v, f));
    struct value value = values_get(v, b), want = {.meaning = meaning, .of = f, .part = part};
    char text[VALUE_TEXT];
    if (!value_is(&value, meaning, f, index) || value.updated || value.part != part)
        return wrong(v, i, b, &value, "%s", value_text(v, &want, text));
    value.updated = 1;
    values_put(v, i, b, value);
    return 0;
}

/* An update may be skipped: what it would write over must be there, too. */
static int rule_update(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int slots = optimizer_row(v->program->layout->optimizer)->slots;
    struct value sums = values_get(v, instr->buffer[SLOT_SUMS]);
    if (!are_sums(v, &sums, 1, 1))
        return wrong(v, i, instr->buffer[SLOT_SUMS], &sums, "the factor of gradients");
    if (check_gradient(v, i, instr->buffer[SLOT_SHARD_GRAD]) ||
        update_state(v, i, SLOT_MASTER, PARAM, 0))
        return -1;
    for (int k = 0; k < slots; k++) {
        if (instr->buffer[SLOT_OPTIMIZER + k] < 0)
            return wrong_operand(v, i, SLOT_OPTIMIZER + k);
        if (update_state(v, i, SLOT_OPTIMIZER + k, SLOT, k))
            return -1;
    }
    return instr->buffer[SLOT_PARAM] >= 0 ? update_state(v, i, SLOT_PARAM, PARAM, 0) : 0;
}

static int rule_release(struct values *v, int i)
{
    return 0;
}

enum {
    FROM_TO = 1 << SLOT_FROM | 1 << SLOT_TO,
    LOADED = 1 << SLOT_LOAD_TOKENS | 1 << SLOT_LOAD_TARGETS,
    MEASURED = 1 << SLOT_SUMS | 1 << SLOT_SHARD_GRAD
};

/* By kind, the rule and the slots it needs; those of a RUN are its segment's.  SEND and RECV have
 * none: no pass writes them. */
static const struct {
    int (*follow)(struct values *v, int i);
    unsigned slots;
} rule[INSTR_KINDS] = {
    [INSTR_ZERO] = {.follow = rule_zero, .slots = 1 << SLOT_SUMS},
    [INSTR_LOAD] = {.follow = rule_load, .slots = LOADED},
    [INSTR_RUN] = {.follow = rule_run},
    [INSTR_CAST] = {.follow = rule_cast, .slots = FROM_TO},
    [INSTR_GATHER] = {.follow = rule_gather, .slots = FROM_TO},
    [INSTR_REDUCE] = {.follow = rule_reduce, .slots = FROM_TO},
    [INSTR_FETCH] = {.follow = rule_copy, .slots = FROM_TO},
    [INSTR_SPILL] = {.follow = rule_copy, .slots = FROM_TO},
    [INSTR_ALLREDUCE] = {.follow = rule_all_reduce, .slots = 1 << SLOT_TO},
    [INSTR_NORM] = {.follow = rule_norm, .slots = MEASURED},
    [INSTR_SCALE] = {.follow = rule_scale, .slots = 1 << SLOT_SUMS},
    [INSTR_UPDATE] = {.follow = rule_update, .slots = MEASURED | 1 << SLOT_MASTER},
    [INSTR_RELEASE] = {.follow = rule_release},
};

static int follow(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    if (!rule[instr->kind].follow)
        return error_set(v->err, "verify: no rule for %s", instr_name(instr->kind));
    for (int slot = 0; slot < SLOTS; slot++)
        if (rule[instr->kind].slots >> slot & 1 && instr->buffer[slot] < 0)
            return wrong_operand(v, i, slot);
    return rule[instr->kind].follow(v, i);
}

/* ---- the end ---- */

/* What persists in buffer b is what the next step, or whoever reads it, finds. */
static int check_end(const struct values *v, int b, struct value want)
{
    char has_text[VALUE_TEXT], want_text[VALUE_TEXT];
    if (b < 0)
        return 0;
    struct value has = values_get(v, b);
    if (value_is(&has, want.meaning, want.of, want.index) && has.part == want.part &&
        has.updated == want.updated)
        return 0;
    return error_set(v->err, "verify: wrong value: buffer \"%s\" at the end is %s, not %s",
                     v->program->buffer[b].name, value_text(v, &has, has_text),
                     value_text(v, &want, want_text));
}

static int check_flat_end(const struct values *v, int flat, int updated)
{
    const struct flat_state *state = &v->program->state->flat[flat];
    struct value want = {.meaning = PARAM,
                         .of = flat,
                         .part = flat_is_sharded(flat_of(v, flat)),
                         .updated = updated};
    if (check_end(v, state->master, want) || check_end(v, state->param, want))
        return -1;
    want.meaning = SLOT;
    for (want.index = 0; want.index < OPTIMIZER_SLOTS; want.index++)
        if (check_end(v, state->slot[want.index], want))
            return -1;
    return 0;
}

static int check_ends(const struct values *v)
{
    const struct program *p = v->program;
    struct value sums = values_get(v, p->state->sums);
    int train = p->kind == PROGRAM_TRAIN;
    for (int f = 0; f < p->units->flats; f++)
        if (check_flat_end(v, f, train && p->units->flat[f].trained))
            return -1;
    if (p->kind == PROGRAM_LOGITS)
        return check_end(v, p->logits,
                         (struct value){.meaning = OUTPUT, .of = p->units->count - 1});
    if (are_sums(v, &sums, train, train))
        return 0;
    char text[VALUE_TEXT];
    return error_set(v->err, "verify: wrong value: the sums at the end are %s",
                     value_text(v, &sums, text));
}

int verify_values(const struct program *program, struct error *err)
{
    struct values v;
    int rc = 0;
    values_open(&v, program, err);
    for (int i = 0; !rc && i < program->instrs; i++)
        rc = follow(&v, i);
    if (!rc)
        rc = check_ends(&v);
    values_close(&v);
    return rc;
}
