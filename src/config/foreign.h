/* foreign.h - names of other trainers' settings, and trireme's names for them.
 *
 * Users come from Accelerate, DeepSpeed, Hugging Face's Trainer, LLaMA-Factory, torchtitan,
 * torchtune, Megatron-LM and llm.c.  A key or an option of theirs is an error that names
 * trireme's key; a whole file is recognised (foreign_text.c), and trireme config --translate writes
 * it with trireme's keys (foreign_translate.c).
 */
#ifndef TRIREME_CONFIG_FOREIGN_H
#define TRIREME_CONFIG_FOREIGN_H

#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

struct foreign {
    const char *names; /* the settings' names, "a|b", in lower case with '_' for '-'; "a.b" also
                          stands for "x.a.b" */
    const char *here;  /* trireme's key that does the same, or NULL */
    const char *note;  /* a remark for the user, such as how values differ, or NULL; one of here and
                          note is set */
    const char *values; /* their values, and what these are here, "3=FULL_SHARD|0=NO_SHARD"; "*":
                           the same; NULL: the same, or with a note such that the user chooses */
};

extern const struct foreign foreign_names[];
extern const int foreign_count;

/* Find the row of a name as users write it: dotted or plain, in any case, with '-' or '_', with or
 * without leading dashes.  "deepspeed.zero_optimization.stage" finds "zero_optimization.stage".
 * NULL: there is none. */
const struct foreign *foreign_find(const char *name);

/* A text of another program, as it was recognised. */
struct foreign_source {
    const char *name, *text; /* where it came from, and what it is; the caller's */
    char *keys;              /* the text with blanks for comments and quoted values */
    const char *program;     /* whose it is; NULL: it is trireme's own, or not recognised */
    const char *defaults;    /* keys "a|b" whose defaults are others there, or NULL */
    int is_script;           /* 1: a shell script with options */
    int is_toml;             /* 1, where program is NULL: it has tables of TOML */
};

/* Recognise a text by words that only one program's configurations have.  One with keys or groups
 * of trireme at its top level is trireme's own.  source is for foreign_free(). */
void foreign_recognise(struct foreign_source *source, const char *name, const char *text);
void foreign_free(struct foreign_source *source);

/* Where a text that failed to load is another program's configuration, set err to name the program
 * and the command that translates it, or say that it is TOML; else leave err as it is.  Returns -1.
 */
int foreign_refuse(const char *name, const char *text, struct error *err);

/* Write a recognised text as YAML of trireme's keys: a line for each of its keys, a setting or a
 * comment, then the keys without an answer, and those that the text does not set and that have
 * another default in its program. */
void foreign_write(FILE *out, const struct foreign_source *source);

#endif
