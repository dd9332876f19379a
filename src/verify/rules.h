/* rules.h - what the files of verify_values() share: complaints, and the rules of a unit's own
 * instructions.  Private to them. */
#ifndef TRIREME_VERIFY_RULES_H
#define TRIREME_VERIFY_RULES_H

#include <stdarg.h>

#include "verify/values.h"

enum { RULE_TEXT = 112, WANTED_TEXT = 160 };

/* Follow a RUN of a piece (rules_run.c), and what ranks exchange after one (rules_exchange.c).
 * Return 0, or -1 with v->err set. */
int rules_run(struct values *v, int index);
int rules_exchange(struct values *v, int index);

/* Follow what ends a training step (rules_update.c); matrices: an ALLTOALL of a flat. */
int rules_norm(struct values *v, int index);
int rules_scale(struct values *v, int index);
int rules_momentum(struct values *v, int index);
int rules_matrices(struct values *v, int index);
int rules_orthogonalize(struct values *v, int index);
int rules_update(struct values *v, int index);

/* Are these the sums of this rank alone, before SCALE? */
int rules_are_own_sums(const struct values *v, const struct value *sums);

/* Are these the sums over all ranks, with the norms or without, after SCALE or before it? */
int rules_are_sums(const struct values *v, const struct value *sums, int norms, int updated);

/* Is a space written by steps that follow one another: what is kept, and what is carried? */
int rules_is_stepwise(int space);

/* Check that buffer b, which instruction i of a unit reads in a space, holds `want`: what meaning,
 * of and index say, whole, before UPDATE or SCALE, lacking sums over the axes of want.pending and
 * maxima over those of want.maxima, and no others.  What is kept or carried must also have all that
 * was to be written before i (rules_is_stepwise()), and the gradient of a boundary must be summed
 * over all the units that read it; this last is not asked in a space of the unit's own input
 * gradient, where other readers may add later.  Returns 0, or -1 with v->err set. */
int rules_read(const struct values *v, int i, int b, int space, struct value want);

/* What an instruction of a unit leaves in a space that others read; meaning MEANS_NOTHING: nothing
 * that is followed. */
struct value rules_written(const struct instr *instr, int space);

/* The boundary whose gradient an instruction of a unit has in a space of its k-th input, with that
 * unit's own part. */
struct value rules_input_grad(const struct values *v, const struct instr *instr, int k);

/* Instruction i of a unit writes value to what is kept or carried, buffer b. */
int rules_add_step(struct values *v, int i, int b, int space, struct value value);

/* What an instruction of a unit finds in a space that other instructions wrote; meaning
 * MEANS_NOTHING: anything. */
struct value rules_wanted(const struct values *v, const struct instr *instr, int space);

/* Set what a piece's results in a space lack until the exchange after it: the axes over which that
 * sums them, or takes their maximum. */
void rules_lacks_after(const struct values *v, const struct instr *instr, int space,
                       struct value *value);

/* Instruction i wants one thing in buffer b and has another. */
static inline int wrong(const struct values *v, int i, int b, const struct value *has,
                        const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static inline int wrong(const struct values *v, int i, int b, const struct value *has,
                        const char *fmt, ...)
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

static inline int wrong_operand(const struct values *v, int i, int slot)
{
    char here[RULE_TEXT];
    return error_set(v->err, "verify: wrong operand: slot %d of instruction %d (%s)", slot, i,
                     instr_text(v->program, i, here, sizeof here));
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
