/* foreign.h - names of other trainers' settings, and trireme's names for them.
 *
 * Users come from Accelerate, DeepSpeed, Hugging Face's Trainer, LLaMA-Factory, torchtitan,
 * torchtune, Megatron-LM and llm.c.  A key, an option or a whole file of theirs is an error that
 * names trireme's key (foreign_text.c recognises files, foreign_answer.c translates their keys).
 */
#ifndef TRIREME_CONFIG_FOREIGN_H
#define TRIREME_CONFIG_FOREIGN_H

#include <stddef.h>

#include "base/error.h"

struct foreign {
    const char *names; /* the settings' names, "a|b", in lower case with '_' for '-'; "a.b" also
                          stands for "x.a.b" */
    const char *here;  /* trireme's key that does the same, or NULL */
    const char *note;  /* a remark for the user, such as how values differ, or NULL; one of here and
                          note is set */
};

extern const struct foreign foreign_names[];
extern const int foreign_count;

/* Find the row of a name as users write it: dotted or plain, in any case, with '-' or '_', with or
 * without leading dashes.  "deepspeed.zero_optimization.stage" finds "zero_optimization.stage".
 * NULL: there is none. */
const struct foreign *foreign_find(const char *name);

/* Where a text that failed to load is another program's configuration, set err to say so, with
 * trireme's names for the keys in it, or that it is TOML; else leave err as it is.  A text with
 * keys or groups of trireme at its top level is trireme's own.  name: where the text came from.
 * Returns -1. */
int foreign_text(const char *name, const char *text, struct error *err);

/* Write to answer, of `size` bytes, 900 or more, what the keys of another program's text are here,
 * as sentences that begin with ". ", "" where the text has no keys.  keys: the text with blanks for
 * comments and quoted values.  defaults: keys "a|b" whose defaults are to be named where the text
 * does not set them, or NULL. */
void foreign_answer(const char *text, const char *keys, const char *defaults, char *answer,
                    size_t size);

#endif
