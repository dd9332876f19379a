/* rules.h - what the files of verify_values() share: complaints, and the rules of a unit's own
 * instructions.  Private to them. */
#ifndef TRIREME_VERIFY_RULES_H
#define TRIREME_VERIFY_RULES_H

#include <stdarg.h>

#include "verify/values.h"

enum { RULE_TEXT = 112, WANTED_TEXT = 160 };

/* Follow a RUN of a piece of a unit of the rank's, and what ranks exchange after one (rules_run.c).
 * Return 0, or -1 with v->err set. */
int rules_run(struct values *v, int index);
int rules_exchange(struct values *v, int index);

/* Follow a message between stages (rules_run.c). */
int rules_send(struct values *v, int index);
int rules_receive(struct values *v, int index);

/* Follow what ends a training step (rules_update.c); matrices: an ALLTOALL of a flat. */
int rules_norm(struct values *v, int index);
int rules_scale(struct values *v, int index);
int rules_momentum(struct values *v, int index);
int rules_matrices(struct values *v, int index);
int rules_orthogonalize(struct values *v, int index);
int rules_update(struct values *v, int index);

/* Are these the sums of this rank alone, before SCALE? */
int rules_are_own_sums(const struct values *v, const struct value *sums);

/* Is it the gradient of a flat that this rank updates with: the sum over all micro-batches and
 * ranks, of its shard? */
int rules_is_whole_gradient(const struct values *v, int flat, const struct value *value);

/* Are these the sums over all ranks, with the norms or without, after SCALE or before it? */
int rules_are_sums(const struct values *v, const struct value *sums, int norms, int updated);

/* Instruction i wants one thing in buffer b and has another. */
static inline int __attribute__((format(printf, 5, 6)))
wrong(const struct values *v, int i, int b, const struct value *has, const char *fmt, ...)
{
    char here[RULE_TEXT], what[VALUE_TEXT], wanted[WANTED_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(wanted, sizeof wanted, fmt, args);
    va_end(args);
    return error_set(v->err,
                     "verify: wrong value: buffer \"%s\" at instruction %d (%s) is %s, not %s",
                     v->program->buffer[b].name, i, instr_text(v->program, i, here, sizeof here),
                     value_text(v, has, what), wanted);
}

static inline int wrong_size(const struct values *v, int i, int b)
{
    char here[RULE_TEXT];
    return error_set(v->err, "verify: wrong size: buffer \"%s\" at instruction %d (%s)",
                     v->program->buffer[b].name, i, instr_text(v->program, i, here, sizeof here));
}

/* slot -1: none, but what the instruction itself says. */
static inline int wrong_operand(const struct values *v, int i, int slot)
{
    char here[RULE_TEXT];
    instr_text(v->program, i, here, sizeof here);
    if (slot < 0)
        return error_set(v->err, "verify: wrong operand: instruction %d (%s)", i, here);
    return error_set(v->err, "verify: wrong operand: slot %d of instruction %d (%s)", slot, i,
                     here);
}

static inline const struct flat *flat_of(const struct values *v, int flat)
{
    return &v->program->units->flat[flat];
}

static inline size_t bytes_of(const struct values *v, int b)
{
    return v->program->buffer[b].bytes;
}

static inline struct value meant(enum value_meaning meaning, int of, int index)
{
    return (struct value){.meaning = meaning, .of = of, .index = index};
}

#endif
