/* export_tokenizer.h - what goes with an exported model beside its weights: its tokenizer, the ids
 * of special tokens, and how it generates. */
#ifndef TRIREME_TRAIN_EXPORT_TOKENIZER_H
#define TRIREME_TRAIN_EXPORT_TOKENIZER_H

#include "config/config.h"
#include "io/checkpoint.h"

struct export_tokenizer {
    char folder[CONFIG_TEXT];     /* whose tokenizer is copied; "": none is */
    int has_tokenizer;            /* 1: the tokenizer there is that of the run's data */
    char *file;                   /* a tokenizer that is copied by itself; NULL: none */
    char generation[CONFIG_TEXT]; /* the folder whose generation_config.json is copied; "": none */
    struct js *ids;               /* ids of special tokens, for hf_write_config() */
};

/* Find what goes with the model of a checkpoint: the tokenizer that a user names
 * (data_tokenizer_open_named()), or, where `asked` is NULL, that of the checkpoint's data
 * (data_tokenizer_open()); where that is not found, the tokenizer of the folder that the model came
 * from, if the data names none.  Ids and generation are that model's, if its tokenizer is the same.
 * Not collective.  export_tokenizer_free() in any case.  Returns 0, or -1 with err set: `asked` is
 * another tokenizer than that of the data or has no files, or config.json of the model's source
 * cannot be read. */
int export_tokenizer_find(struct export_tokenizer *found, const char *asked,
                          const struct checkpoint *checkpoint, const struct config *config,
                          struct error *err);
void export_tokenizer_free(struct export_tokenizer *found);

/* Refuse a folder that holds another tokenizer than the one that is copied to it: other files of
 * its tokenizer, which may lie there, would be taken for the new model's.  Returns 0, or -1 with
 * err set. */
int export_tokenizer_check(const struct export_tokenizer *found, const char *to, struct error *err);

/* Copy what was found to a folder, which must exist, and write tokenizer_config.json where the
 * tokenizer has none, so that transformers takes tokenizer.json as it is and knows its eos_token.
 * Returns 0, or -1 with err set and some files copied. */
int export_tokenizer_copy(const struct export_tokenizer *found, const char *to, struct error *err);

#endif
