/* foreign.h - names of other trainers' settings, and trireme's names for them.
 *
 * Users come from Accelerate, DeepSpeed, Hugging Face's Trainer, LLaMA-Factory, torchtitan,
 * Megatron-LM and llm.c.  A key, an option or a whole file of theirs is an error that names
 * trireme's key.
 */
#ifndef TRIREME_CONFIG_FOREIGN_H
#define TRIREME_CONFIG_FOREIGN_H

#include "base/error.h"

struct foreign {
    const char *names; /* "a|b", lower case with '_'; a dotted one must match from some dot on */
    const char *here;  /* the key that does it, or NULL */
    const char *note;  /* a remark for the user, above all where values differ, or NULL */
};

extern const struct foreign foreign_names[];
extern const int foreign_count;

/* The row of a name as users write it: dotted or plain, in any case, with '-' or '_', with or
 * without leading dashes.  "deepspeed.zero_optimization.stage" finds "zero_optimization.stage".
 * NULL if there is none. */
const struct foreign *foreign_find(const char *name);

/* Where a text, which failed to load, is a configuration of another program, replace err by that
 * and by what its keys are called here; a text that has keys or groups of trireme's is none, and
 * err stays.  name: where the text came from.  Returns -1. */
int foreign_text(const char *name, const char *text, struct error *err);

#endif
