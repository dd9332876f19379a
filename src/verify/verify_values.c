/* verify_values.c - does a program compute the step?  See verify.h.
 *
 * An abstract interpretation: each kind of instruction has a rule, what its operands must mean
 * (values.h) and what its results then do.  verify.c has excluded hazards before, so that order in
 * the list is order in time.
 */
#include "verify/verify.h"

#include <limits.h>

#include "verify/rules.h"
#include "verify/writers.h"

static int rule_zero(struct values *v, int i)
{
    struct value sums = {.meaning = MEANS_SUMS,
                         .of = -1,
                         .index = -1,
                         .pending = v->axes,
                         .counting = v->counted_axes};
    values_put(v, i, v->program->instr[i].buffer[SLOT_SUMS], sums);
    return 0;
}

static int rule_load(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int64_t batch = program_batch(v->program);
    for (int k = 0; k < LOAD_SLOTS; k++) {
        int b = instr->buffer[k], sequence = k % SEQUENCES;
        if (b < 0)
            continue;
        int64_t each = k < SLOT_LOAD_SAMPLES ? program_seq(v->program, sequence) : 2;
        if (bytes_of(v, b) != (size_t)(batch * each) * sizeof(int32_t))
            return wrong_size(v, i, b);
        values_put(v, i, b, meant(MEANS_TOKENS + k / SEQUENCES, sequence, instr->micro));
    }
    return 0;
}

/* Rounding and copies do not change what a value means; the result has this size. */
static int keep_meaning(struct values *v, int i, size_t bytes)
{
    const int *buffer = v->program->instr[i].buffer;
    if (bytes_of(v, buffer[SLOT_TO]) != bytes)
        return wrong_size(v, i, buffer[SLOT_TO]);
    values_put(v, i, buffer[SLOT_TO], values_get(v, buffer[SLOT_FROM]));
    return 0;
}

static int rule_cast(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    size_t elems = (size_t)instr->elems;
    if (bytes_of(v, instr->buffer[SLOT_FROM]) != elems * sizeof(float))
        return wrong_size(v, i, instr->buffer[SLOT_FROM]);
    struct value value = values_get(v, instr->buffer[SLOT_FROM]);
    if (instr->dtype != (value.meaning == MEANS_GRAD ? v->program->layout->reduce_dtype
                                                     : v->program->units->request.dtype))
        return wrong_operand(v, i, -1);
    return keep_meaning(v, i, elems * dtype_bytes(instr->dtype));
}

/* DECODE: of the whole of a flat's parameters of 4 bits, the format that is computed with. */
static int rule_decode(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    const struct flat *flat = flat_of(v, instr->flat);
    int from = instr->buffer[SLOT_FROM], to = instr->buffer[SLOT_TO];
    struct value value = values_get(v, from);
    if (!value_is(&value, MEANS_PARAM, instr->flat, 0) || value.is_shard || !value.coded)
        return wrong(v, i, from, &value, "whole parameters of 4 bits");
    if (instr->elems != flat->padded || instr->dtype != v->program->units->request.dtype)
        return wrong_operand(v, i, -1);
    if (bytes_of(v, from) != nf4_bytes(flat->padded))
        return wrong_size(v, i, from);
    if (bytes_of(v, to) != (size_t)flat->padded * dtype_bytes(instr->dtype))
        return wrong_size(v, i, to);
    value.coded = 0;
    values_put(v, i, to, value);
    return 0;
}

/* ADD: to this rank's gradient of a flat that two ranks of the pipeline axis have, the one that the
 * other rank made. */
static int rule_add(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int from = instr->buffer[SLOT_FROM], to = instr->buffer[SLOT_TO];
    struct value value = values_get(v, from), sum = values_get(v, to);
    size_t bytes = (size_t)instr->elems * sizeof(float);
    if (instr->dtype != DTYPE_F32)
        return wrong_operand(v, i, -1);
    if (bytes_of(v, from) != bytes || bytes_of(v, to) != bytes)
        return wrong_size(v, i, to);
    if (!value_is(&value, MEANS_GRAD, instr->flat, OTHER_RANK))
        return wrong(v, i, from, &value, "the gradient of another rank");
    if (!value_is(&sum, MEANS_GRAD, instr->flat, 0) || sum.updated ||
        sum.is_shard != value.is_shard || sum.pending != 1u << MESH_PIPELINE ||
        !values_is_complete(v, &sum))
        return wrong(v, i, to, &sum, "this rank's gradient, which lacks the other's");
    sum.pending = 0;
    values_put(v, i, from, value_nothing);
    values_put(v, i, to, sum);
    return 0;
}

static int rule_copy(struct values *v, int i)
{
    return keep_meaning(v, i, bytes_of(v, v->program->instr[i].buffer[SLOT_FROM]));
}

/* Do the buffers of a GATHER or REDUCE have their sizes: the shard that of one rank's elements,
 * at its own place if it lies in a whole, and the whole that of all ranks'? */
static int check_sizes(const struct values *v, int i, int shard, size_t shard_bytes, int whole,
                       size_t whole_bytes)
{
    const struct program *p = v->program;
    size_t ranks = (size_t)mesh_members(&p->layout->shape, MESH_SHARDS);
    size_t elems = (size_t)p->instr[i].elems;
    if (bytes_of(v, shard) != elems * shard_bytes ||
        (p->buffer[shard].whole >= 0 && !values_is_own_place(v, shard)))
        return wrong_size(v, i, shard);
    return bytes_of(v, whole) == ranks * elems * whole_bytes ? 0 : wrong_size(v, i, whole);
}

static int rule_gather(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int from = instr->buffer[SLOT_FROM], to = instr->buffer[SLOT_TO];
    size_t bytes = dtype_bytes(instr->dtype);
    struct value value = values_get(v, from);
    if (!value_is(&value, MEANS_PARAM, instr->flat, 0) || !value.is_shard ||
        instr->axes != v->shard_axes)
        return wrong(v, i, from, &value, "the rank's own shard of parameters");
    if (check_sizes(v, i, from, bytes, to, bytes))
        return -1;
    value.is_shard = 0;
    values_put(v, i, to, value);
    return 0;
}

/* A gradient travels to its shards in its own format or, of fp32, in a narrower one.  One in 16
 * bits is not added to, and its sum is not where its terms are. */
static int check_reduced(const struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    enum dtype own = flat_of(v, instr->flat)->grad_dtype;
    int in_place = buffer_root(v->program, instr->buffer[SLOT_FROM]) ==
                   buffer_root(v->program, instr->buffer[SLOT_TO]);
    int is_narrow = own != DTYPE_F32;
    if (instr->result != own ||
        (instr->dtype != own && instr->dtype != v->program->layout->reduce_dtype) ||
        (is_narrow && (instr->dtype != own || instr->accumulate || in_place)))
        return wrong_operand(v, i, -1);
    return check_sizes(v, i, instr->buffer[SLOT_TO], dtype_bytes(own), instr->buffer[SLOT_FROM],
                       dtype_bytes(instr->dtype));
}

/* REDUCE: the sum of a whole gradient over shards, after which each rank has its own shard of it.
 */
static int rule_reduce(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int from = instr->buffer[SLOT_FROM], to = instr->buffer[SLOT_TO];
    struct value value = values_get(v, from), had = values_get(v, to);
    if (!value_is(&value, MEANS_GRAD, instr->flat, 0) || value.updated || value.is_shard ||
        instr->axes != v->shard_axes || (value.pending & v->shard_axes) != v->shard_axes)
        return wrong(v, i, from, &value, "a whole gradient that is not summed over shards");
    if (check_reduced(v, i))
        return -1;
    value.is_shard = 1;
    value.pending &= ~v->shard_axes;
    if (instr->accumulate) {
        if (!value_is(&had, MEANS_GRAD, instr->flat, 0) || had.updated || !had.is_shard ||
            had.pending != value.pending)
            return wrong(v, i, to, &had, "to add to the sum over shards of this gradient");
        for (int s = 0; s < FLAT_SECTIONS; s++)
            addends_add(&value.terms[s], had.terms[s]);
    }
    if (instr->writes >> SLOT_FROM & 1)
        values_put(v, i, from, value_nothing);
    values_put(v, i, to, value);
    return 0;
}

/* ALLREDUCE of a gradient: it must still lack the sum over each of these axes. */
static int sum_buffer(struct values *v, int i, int b, unsigned axes)
{
    struct value value = values_get(v, b);
    if (value.meaning != MEANS_GRAD || value.updated || !axes || (value.pending & axes) != axes)
        return wrong(v, i, b, &value, "a sum that lacks other ranks");
    if (v->program->instr[i].dtype != flat_of(v, value.of)->grad_dtype)
        return wrong_operand(v, i, -1);
    value.pending &= ~axes;
    values_put(v, i, b, value);
    return 0;
}

/* ALLREDUCE of the step's sums: all of them, or those from SUM_OVER_TENSOR on. */
static int add_sums(struct values *v, int i, unsigned axes)
{
    const struct instr *instr = &v->program->instr[i];
    int sums = v->program->state->sums, b = instr->buffer[SLOT_TO];
    int all = b == v->program->state->over_data;
    struct value value = values_get(v, sums);
    if (!all && b != v->program->state->over_tensor)
        return wrong_operand(v, i, SLOT_TO);
    if ((size_t)instr->elems * sizeof(double) != bytes_of(v, b))
        return wrong_size(v, i, b);
    if (value.meaning != MEANS_SUMS || !axes || (value.counting & axes) != axes ||
        (all && (value.pending & axes) != axes) || value.updated)
        return wrong(v, i, b, &value, "a sum that lacks other ranks");
    value.counting &= ~axes;
    value.pending &= all ? ~axes : ~0u;
    values_put(v, i, sums, value);
    return 0;
}

/* Of gradients and of a step's sums nothing but sums are taken. */
static int rule_all_reduce(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int b = instr->buffer[SLOT_TO];
    unsigned axes = mesh_wide_axes(&v->program->layout->shape, instr->axes);
    size_t bytes = (size_t)instr->elems * dtype_bytes(instr->dtype);
    if (instr->reduction != GROUP_SUM)
        return wrong_operand(v, i, -1);
    if (instr->dtype == DTYPE_F64)
        return add_sums(v, i, axes);
    if (bytes != bytes_of(v, b))
        return wrong_size(v, i, b);
    if (v->view[b] < 0)
        return sum_buffer(v, i, b, axes);
    for (int view = v->view[b]; view >= 0; view = v->next[view])
        if (sum_buffer(v, i, view, axes))
            return -1;
    return 0;
}

static int rule_release(struct values *v, int i)
{
    return 0;
}

enum {
    FROM = 1 << SLOT_FROM,
    TO = 1 << SLOT_TO,
    SUMS = 1 << SLOT_SUMS,
    GRAD = 1 << SLOT_SHARD_GRAD,
    WORK = 1 << SLOT_WORK,
    MATRICES = 1 << SLOT_MATRICES,
    OPTIMIZER = 1 << SLOT_OPTIMIZER,
    MASTER = 1 << SLOT_MASTER,
};

/* By kind, the rule and the slots it reads and writes, which it needs; those of a RUN are its
 * segment's. */
static const struct {
    int (*follow)(struct values *v, int i);
    uint64_t reads, writes;
} rule[INSTR_KINDS] = {
    [INSTR_ZERO] = {.follow = rule_zero, .writes = SUMS},
    [INSTR_LOAD] = {.follow = rule_load},
    [INSTR_RUN] = {.follow = rules_run},
    [INSTR_CAST] = {.follow = rule_cast, .reads = FROM, .writes = TO},
    [INSTR_DECODE] = {.follow = rule_decode, .reads = FROM, .writes = TO},
    [INSTR_ADD] = {.follow = rule_add, .reads = FROM | TO, .writes = TO},
    [INSTR_GATHER] = {.follow = rule_gather, .reads = FROM, .writes = TO},
    [INSTR_REDUCE] = {.follow = rule_reduce, .reads = FROM, .writes = TO},
    [INSTR_FETCH] = {.follow = rule_copy, .reads = FROM, .writes = TO},
    [INSTR_SPILL] = {.follow = rule_copy, .reads = FROM, .writes = TO},
    [INSTR_ALLREDUCE] = {.follow = rule_all_reduce, .reads = TO, .writes = TO},
    [INSTR_SEND] = {.follow = rules_send, .reads = FROM},
    [INSTR_RECV] = {.follow = rules_receive, .writes = TO},
    [INSTR_ALLTOALL] = {.follow = rules_matrices, .reads = FROM, .writes = TO},
    [INSTR_NORM] = {.follow = rules_norm, .reads = SUMS | GRAD, .writes = SUMS},
    [INSTR_SCALE] = {.follow = rules_scale, .reads = SUMS, .writes = SUMS},
    [INSTR_MOMENTUM] = {.follow = rules_momentum,
                        .reads = SUMS | GRAD | OPTIMIZER,
                        .writes = GRAD | OPTIMIZER},
    [INSTR_ORTHOGONALIZE] = {.follow = rules_orthogonalize,
                             .reads = MATRICES,
                             .writes = WORK | MATRICES},
    [INSTR_UPDATE] = {.follow = rules_update, .reads = SUMS | GRAD | MASTER, .writes = MASTER},
    [INSTR_RELEASE] = {.follow = rule_release},
};

/* An instruction has its operands, and says that it reads and writes them, so that nothing else
 * touches them meanwhile. */
static int check_operands(const struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    uint64_t reads = rule[instr->kind].reads, writes = rule[instr->kind].writes;
    if (instr->kind == INSTR_REDUCE && instr->accumulate)
        reads |= TO;
    for (int slot = 0; slot < SLOTS; slot++) {
        int is_bound = instr->buffer[slot] >= 0;
        if (is_bound && instr->kind == INSTR_LOAD)
            writes |= space_bit(slot);
        if (is_bound && instr->kind == INSTR_UPDATE && slot >= SLOT_PARAM) {
            writes |= space_bit(slot);
            reads |= slot >= SLOT_OPTIMIZER ? space_bit(slot) : 0;
        }
        uint64_t missing = (reads & ~instr->reads) | (writes & ~instr->writes);
        if (missing >> slot & 1 || ((reads | writes) >> slot & 1 && !is_bound))
            return wrong_operand(v, i, slot);
    }
    return 0;
}

static int follow(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    if (!rule[instr->kind].follow && !instr_is_exchange(instr))
        return error_set(v->err, "verify: no rule for %s", instr_name(instr->kind));
    if (check_operands(v, i))
        return -1;
    if (instr_is_exchange(instr) || instr->kind == INSTR_RUN) {
        if (instr->unit < 0 || instr->unit >= v->program->units->count ||
            !values_is_own_unit(v, instr->unit))
            return wrong_operand(v, i, -1);
    }
    return instr_is_exchange(instr) ? rules_exchange(v, i) : rule[instr->kind].follow(v, i);
}

/* ---- the end ---- */

/* What persists in buffer b is what the next step, or whoever reads it, finds. */
static int check_end(const struct values *v, int b, struct value want)
{
    char has_text[VALUE_TEXT], want_text[VALUE_TEXT];
    if (b < 0)
        return 0;
    struct value has = values_get(v, b);
    if (value_is(&has, want.meaning, want.of, want.index) && has.is_shard == want.is_shard &&
        has.coded == want.coded && has.updated == want.updated)
        return 0;
    return error_set(v->err, "verify: wrong value: buffer \"%s\" at the end is %s, not %s",
                     v->program->buffer[b].name, value_text(v, &has, has_text),
                     value_text(v, &want, want_text));
}

static int check_flat_end(const struct values *v, int flat, int updated)
{
    const struct state_flat *state = &v->program->state->flat[flat];
    struct value want = {.meaning = MEANS_PARAM,
                         .of = flat,
                         .is_shard = flat_is_sharded(flat_of(v, flat)),
                         .coded = flat_of(v, flat)->is_nf4,
                         .updated = updated};
    if (check_end(v, state->master, want) || check_end(v, state->param, want))
        return -1;
    want.meaning = MEANS_SLOT;
    want.coded = 0;
    for (want.index = 0; want.index < OPTIMIZER_SLOTS; want.index++)
        if (check_end(v, state->slot[want.index], want))
            return -1;
    return 0;
}

/* What the next step updates by. */
static int check_pending(const struct values *v)
{
    const struct program *p = v->program;
    char text[VALUE_TEXT];
    for (int f = 0; f < p->units->flats; f++) {
        int b = p->state->flat[f].grad;
        struct value value = b < 0 ? value_nothing : values_get(v, b);
        if (b >= 0 && (!rules_is_whole_gradient(v, f, &value) || value.updated))
            return error_set(v->err,
                             "verify: wrong value: buffer \"%s\" at the end is %s, not its "
                             "gradient of the whole batch",
                             p->buffer[b].name, value_text(v, &value, text));
    }
    return 0;
}

static int check_ends(const struct values *v)
{
    const struct program *p = v->program;
    struct value sums = values_get(v, p->state->sums);
    int train = p->kind == PROGRAM_TRAIN, updates = train || p->kind == PROGRAM_UPDATE;
    for (int f = 0; f < p->units->flats; f++)
        if (check_flat_end(v, f, updates && p->units->flat[f].trained))
            return -1;
    if (train && program_updates_first(p) && check_pending(v))
        return -1;
    for (int way = 0; way < 2; way++)
        if (!addends_equal(v->messages[way], v->all_messages[way]))
            return error_set(v->err, "verify: wrong value: %lld messages are %s, not %lld others",
                             (long long)v->messages[way].count, way ? "received" : "sent",
                             (long long)v->all_messages[way].count);
    if (program_generates(p) >= 0)
        return check_end(v, p->logits,
                         (struct value){.meaning = MEANS_OUTPUT, .of = p->units->count - 1});
    if (p->kind == PROGRAM_UPDATE ? rules_are_own_sums(v, &sums)
                                  : rules_are_sums(v, &sums, train, train))
        return 0;
    char text[VALUE_TEXT];
    return error_set(v->err, "verify: wrong value: the sums at the end are %s",
                     value_text(v, &sums, text));
}

/* Is it of units that have the rank's own part of layers and sequences? */
static int check_place(const struct program *p, struct error *err)
{
    const struct units_request *r = &p->units->request;
    const struct mesh_shape *shape = &p->layout->shape;
    const int *at = p->state->coord.at;
    if ((shape->degree[MESH_CONTEXT] == 1 || r->context.rank == at[MESH_CONTEXT]) &&
        (shape->degree[MESH_TENSOR] == 1 || r->tensor.rank == at[MESH_TENSOR]))
        return 0;
    return error_set(
        err,
        "verify: wrong operand: the program is of units for context %d, tensor %d, and "
        "its rank is at %d and %d",
        r->context.rank, r->tensor.rank, at[MESH_CONTEXT], at[MESH_TENSOR]);
}

/* Values of two pieces must not have one name (values_place()). */
static int check_pieces(const struct program *program, struct error *err)
{
    for (int unit = 0; unit < program->units->count; unit++)
        for (int phase = 0; program_owns(program, unit) && phase < PHASES; phase++)
            if (program_segment(program, unit, phase)->pieces > PIECES)
                return error_set(err, "verify: unit %d has more than %d pieces", unit, PIECES);
    if (program->units->count > INT_MAX / PHASES / PIECES)
        return error_set(err, "verify: %d units are more than the %d that can be checked",
                         program->units->count, INT_MAX / PHASES / PIECES);
    return 0;
}

int verify_values(const struct program *program, struct error *err)
{
    struct values v;
    if (check_place(program, err) || check_pieces(program, err))
        return -1;
    int rc = 0;
    values_open(&v, program, err);
    v.writers = writers_open(program);
    for (int i = 0; !rc && i < program->instrs; i++)
        rc = follow(&v, i);
    if (!rc)
        rc = check_ends(&v);
    writers_close(v.writers);
    values_close(&v);
    return rc;
}
