/* rules_update.c - the rules of what ends a training step: norm, factor, and the optimizers.
 *
 * Of a flat whose rule is of matrices, MOMENTUM makes a direction of the gradient, an owner makes
 * its range of that orthogonal, and UPDATE wants it orthogonal throughout.
 */
#include "base/round.h"
#include "verify/rules.h"

int rules_is_whole_gradient(const struct values *v, int f, const struct value *value)
{
    return value_is(value, MEANS_GRAD, f, 0) && !value->pending &&
           value->is_shard == flat_is_sharded(flat_of(v, f)) && values_is_complete(v, value);
}

/* Is b the gradient of the whole batch of this step (before: 0), or of the one before (1)? */
static int check_gradient(const struct values *v, int i, int b, int before)
{
    int f = v->program->instr[i].flat;
    struct value value = values_get(v, b);
    if (f < 0 || f >= v->program->units->flats)
        return wrong_operand(v, i, -1);
    const struct flat *flat = flat_of(v, f);
    if (!rules_is_whole_gradient(v, f, &value) || value.updated != before)
        return wrong(v, i, b, &value, "%s's gradient of the whole batch%s", flat->name,
                     before ? " of the step before" : "");
    enum instr_kind kind = v->program->instr[i].kind;
    if ((kind == INSTR_NORM || kind == INSTR_MOMENTUM) &&
        v->program->instr[i].elems != flat->shard_elems)
        return wrong_operand(v, i, -1);
    return bytes_of(v, b) == (size_t)flat->shard_elems * dtype_bytes(flat->grad_dtype)
               ? 0
               : wrong_size(v, i, b);
}

/* Is b the gradient that the update of this program is made by? */
static int check_updating(const struct values *v, int i, int b)
{
    return check_gradient(v, i, b, program_updates_first(v->program));
}

int rules_norm(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    struct value sums = values_get(v, instr->buffer[SLOT_SUMS]);
    if (check_gradient(v, i, instr->buffer[SLOT_SHARD_GRAD], 0))
        return -1;
    if (!values_counts_norm(v, instr->flat)) {
        struct value value = values_get(v, instr->buffer[SLOT_SHARD_GRAD]);
        return wrong(v, i, instr->buffer[SLOT_SHARD_GRAD], &value,
                     "a gradient whose square this rank counts");
    }
    if (!rules_are_own_sums(v, &sums))
        return wrong(v, i, instr->buffer[SLOT_SUMS], &sums, "sums of this rank alone");
    addends_add(&sums.norms, addend(MEANS_SUMS, -1, instr->flat));
    values_put(v, i, instr->buffer[SLOT_SUMS], sums);
    return 0;
}

int rules_are_own_sums(const struct values *v, const struct value *sums)
{
    return sums->meaning == MEANS_SUMS && sums->pending == v->axes &&
           sums->counting == v->counted_axes && !sums->updated;
}

int rules_are_sums(const struct values *v, const struct value *sums, int norms, int updated)
{
    struct addends none = {0, 0};
    return sums->meaning == MEANS_SUMS && !sums->pending && !sums->counting &&
           sums->updated == updated && addends_equal(sums->terms[0], v->losses) &&
           addends_equal(sums->terms[1], v->expert_tokens) &&
           addends_equal(sums->norms, norms ? v->norms : none);
}

int rules_scale(struct values *v, int i)
{
    int b = v->program->instr[i].buffer[SLOT_SUMS];
    struct value sums = values_get(v, b);
    if (!rules_are_sums(v, &sums, 1, 0))
        return wrong(v, i, b, &sums, "this rank's part of loss and norm, summed over all");
    sums.updated = 1;
    values_put(v, i, b, sums);
    return 0;
}

/* State as the step found it; then it is updated. */
static int update_state(struct values *v, int i, int slot, enum value_meaning meaning, int index)
{
    int b = v->program->instr[i].buffer[slot], f = v->program->instr[i].flat;
    int is_shard = flat_is_sharded(flat_of(v, f));
    struct value value = values_get(v, b),
                 want = {.meaning = meaning, .of = f, .is_shard = is_shard};
    char text[VALUE_TEXT];
    if (!value_is(&value, meaning, f, index) || value.updated || value.is_shard != is_shard)
        return wrong(v, i, b, &value, "%s", value_text(v, &want, text));
    value.updated = 1;
    values_put(v, i, b, value);
    return 0;
}

static int update_slots(struct values *v, int i, int slots)
{
    const struct instr *instr = &v->program->instr[i];
    for (int k = 0; k < slots; k++) {
        if (instr->buffer[SLOT_OPTIMIZER + k] < 0)
            return wrong_operand(v, i, SLOT_OPTIMIZER + k);
        if (update_state(v, i, SLOT_OPTIMIZER + k, MEANS_SLOT, k))
            return -1;
    }
    return 0;
}

static int check_factor(const struct values *v, int i)
{
    int b = v->program->instr[i].buffer[SLOT_SUMS];
    struct value sums = values_get(v, b);
    return rules_are_sums(v, &sums, 1, 1) ? 0 : wrong(v, i, b, &sums, "the factor of gradients");
}

/* The row of a flat's optimizer; NULL: there is no such flat, or none that is updated. */
static const struct optimizer *optimizer_at(const struct values *v, int i)
{
    int f = v->program->instr[i].flat;
    if (f < 0 || f >= v->program->units->flats || !flat_of(v, f)->trained)
        return NULL;
    return optimizer_row(flat_of(v, f)->optimizer);
}

int rules_momentum(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    const struct optimizer *optimizer = optimizer_at(v, i);
    int b = instr->buffer[SLOT_SHARD_GRAD];
    if (!optimizer || !optimizer->of_matrices)
        return wrong_operand(v, i, -1);
    if (check_factor(v, i) || check_updating(v, i, b) || update_slots(v, i, optimizer->slots))
        return -1;
    struct value direction = meant(MEANS_DIRECTION, instr->flat, DIRECTION_MOMENTUM);
    direction.is_shard = flat_is_sharded(flat_of(v, instr->flat));
    values_put(v, i, b, direction);
    return 0;
}

/* Is a range of a flat whole tensors, and which part of them all?  Returns the number of tensors in
 * it, or -1. */
static int whole_tensors(const struct flat *flat, struct flat_range range)
{
    struct flat_part part;
    int count = 0;
    for (int t = -1;
         (t = flat_next_part(flat, range.start, range.start + range.count, t, &part)) >= 0;) {
        if (part.count != part.tensor->elems)
            return -1;
        count++;
    }
    return count;
}

/* What a rank owns lies in a buffer of its own, or in the whole flat at its place. */
int rules_orthogonalize(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    int b = instr->buffer[SLOT_MATRICES];
    struct value value = values_get(v, b);
    if (!optimizer_at(v, i) ||
        bytes_of(v, instr->buffer[SLOT_WORK]) < v->program->units->work_bytes)
        return wrong_operand(v, i, -1);
    const struct flat *flat = flat_of(v, instr->flat);
    struct flat_range range = {instr->from, instr->elems};
    int count = whole_tensors(flat, range);
    int64_t elems = flat_is_sharded(flat) ? range.count : flat->padded;
    if (instr->first_elem[SLOT_MATRICES] != (flat_is_sharded(flat) ? range.start : 0))
        return wrong_operand(v, i, SLOT_MATRICES);
    if (count < 1 || bytes_of(v, b) != (size_t)elems * sizeof(float))
        return wrong_size(v, i, b);
    if (!value_is(&value, MEANS_DIRECTION, instr->flat, DIRECTION_MOMENTUM) || value.is_shard)
        return wrong(v, i, b, &value, "whole matrices of momentum");
    value.index =
        count == flat->tensors && !flat_is_sharded(flat) ? DIRECTION_ORTHOGONAL : DIRECTION_OWN;
    value.own = range;
    values_put(v, i, b, value);
    return 0;
}

/* ---- matrices on their way to their owners and back ---- */

static int members_of(const struct values *v, const struct instr *instr)
{
    return mesh_members(&v->program->layout->shape, instr->axes);
}

static struct flat_range common(struct flat_range a, struct flat_range b)
{
    int64_t start = max_i64(a.start, b.start), end = min_i64(a.start + a.count, b.start + b.count);
    return (struct flat_range){start, max_i64(end - start, 0)};
}

/* The range of the flat that a buffer of an ALLTOALL holds. */
static struct flat_range held(const struct values *v, int i, int slot)
{
    const struct instr *instr = &v->program->instr[i];
    size_t bytes = bytes_of(v, instr->buffer[slot]);
    return (struct flat_range){instr->first_elem[slot], (int64_t)(bytes / sizeof(float))};
}

/* An ALLTOALL of shards to owners: an owner receives every member's part of its range, and who owns
 * nothing receives nothing. */
static int to_owner(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    const struct comm_part *part = &v->program->part[instr->first_part];
    const struct flat *flat = flat_of(v, instr->flat);
    int to = instr->buffer[SLOT_TO], owns = 0;
    struct flat_range own = held(v, i, SLOT_TO);
    for (int m = 0; m < members_of(v, instr); m++)
        owns |= part[m].recv_elems > 0;
    for (int m = 0; owns && m < members_of(v, instr); m++) {
        struct flat_range shard = {flat_shard_start(flat, m), flat->shard_elems};
        struct flat_range both = common(own, shard);
        if (part[m].recv_elems != both.count ||
            (both.count && part[m].recv_from != both.start - own.start))
            return wrong_size(v, i, to);
    }
    values_put(v, i, to,
               owns ? meant(MEANS_DIRECTION, instr->flat, DIRECTION_MOMENTUM) : value_nothing);
    return 0;
}

/* How many of the ranges that arrive, and of the rank's own that stays, hold all of a part of a
 * tensor; and none holds some of it. */
static int holders(const struct values *v, int i, struct flat_range tensor, struct flat_range stays)
{
    const struct instr *instr = &v->program->instr[i];
    const struct comm_part *part = &v->program->part[instr->first_part];
    int count = common(tensor, stays).count == tensor.count, some = 0;
    for (int m = 0; m < members_of(v, instr); m++) {
        struct flat_range got = {instr->first_elem[SLOT_TO] + part[m].recv_from,
                                 part[m].recv_elems};
        int64_t both = common(tensor, got).count;
        count += both == tensor.count;
        some |= both > 0 && both < tensor.count;
    }
    return some ? 0 : count;
}

/* An ALLTOALL from owners: each gives what it has made orthogonal, and every tensor comes whole
 * from one of them. */
static int from_owners(struct values *v, int i, const struct value *has)
{
    const struct instr *instr = &v->program->instr[i];
    const struct comm_part *part = &v->program->part[instr->first_part];
    const struct flat *flat = flat_of(v, instr->flat);
    int from = instr->buffer[SLOT_FROM], to = instr->buffer[SLOT_TO];
    int is_own = value_is(has, MEANS_DIRECTION, instr->flat, DIRECTION_OWN);
    struct flat_range want = held(v, i, SLOT_TO), stays = {0, 0};
    struct flat_part tensor;
    for (int m = 0; m < members_of(v, instr); m++) {
        struct flat_range sent = {instr->first_elem[SLOT_FROM] + part[m].send_from,
                                  part[m].send_elems};
        if (sent.count && (!is_own || common(sent, has->own).count != sent.count))
            return wrong(v, i, from, has, "what this rank made orthogonal");
    }
    if (from == to && is_own)
        stays = has->own;
    for (int t = -1;
         (t = flat_next_part(flat, want.start, want.start + want.count, t, &tensor)) >= 0;) {
        struct flat_range whole = {want.start + tensor.at, tensor.count};
        if (holders(v, i, whole, stays) != 1)
            return wrong_size(v, i, to);
    }
    struct value direction = meant(MEANS_DIRECTION, instr->flat, DIRECTION_ORTHOGONAL);
    direction.is_shard = flat_is_sharded(flat);
    values_put(v, i, to, direction);
    return 0;
}

int rules_matrices(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    const struct optimizer *optimizer = optimizer_at(v, i);
    if (!optimizer || !optimizer->of_matrices || instr->dtype != DTYPE_F32)
        return wrong_operand(v, i, -1);
    const struct flat *flat = flat_of(v, instr->flat);
    struct value has = values_get(v, instr->buffer[SLOT_FROM]);
    int to_owners =
        value_is(&has, MEANS_DIRECTION, instr->flat, DIRECTION_MOMENTUM) && has.is_shard;
    int shard_slot = to_owners ? SLOT_FROM : SLOT_TO;
    struct flat_range shard = held(v, i, shard_slot);
    int own = mesh_member(&v->program->layout->shape, v->program->state->coord, MESH_SHARDS);
    if (instr->axes != (flat_is_sharded(flat) ? v->shard_axes : MESH_DATA) ||
        shard.count != flat->shard_elems || shard.start != flat_shard_start(flat, own))
        return wrong_size(v, i, instr->buffer[shard_slot]);
    return to_owners ? to_owner(v, i) : from_owners(v, i, &has);
}

/* ---- the update ---- */

/* What MOMENTUM and ORTHOGONALIZE made of the gradient. */
static int check_step(const struct values *v, int i, int b)
{
    int f = v->program->instr[i].flat;
    struct value value = values_get(v, b);
    if (value_is(&value, MEANS_DIRECTION, f, DIRECTION_ORTHOGONAL) &&
        value.is_shard == flat_is_sharded(flat_of(v, f)))
        return 0;
    return wrong(v, i, b, &value, "%s's direction, orthogonal", flat_of(v, f)->name);
}

/* UPDATE: its state, and also what it writes over, must be there, because a skipped update leaves
 * them as they are. */
int rules_update(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    const struct optimizer *optimizer = optimizer_at(v, i);
    if (!optimizer)
        return wrong_operand(v, i, -1);
    int (*check)(const struct values *, int, int) =
        optimizer->of_matrices ? check_step : check_updating;
    if (check_factor(v, i) || check(v, i, instr->buffer[SLOT_SHARD_GRAD]) ||
        update_state(v, i, SLOT_MASTER, MEANS_PARAM, 0) ||
        update_slots(v, i, optimizer->of_matrices ? 0 : optimizer->slots))
        return -1;
    return instr->buffer[SLOT_PARAM] >= 0 ? update_state(v, i, SLOT_PARAM, MEANS_PARAM, 0) : 0;
}
