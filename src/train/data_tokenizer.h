/* data_tokenizer.h - the tokenizer that made a run's data. */
#ifndef TRIREME_TRAIN_DATA_TOKENIZER_H
#define TRIREME_TRAIN_DATA_TOKENIZER_H

#include "config/config.h"
#include "io/tokenizer.h"

/* Open the tokenizer that token files call `name`: one of trireme's own, the one of the folder that
 * the config's model came from (saved_source()), or the one beside its data.  Returns 0 and a
 * tokenizer for tokenizer_close(), or -1 with err (NULL allowed) set: it is in none of these
 * places; err also says why a tokenizer.json that is there is not it. */
int data_tokenizer_open(struct tokenizer **tokenizer, const char *name, const struct config *config,
                        struct error *err);

/* Has the tokenizer that token files call `name` (NULL or "": not known) files of its own, unlike
 * "bytes" and "unnamed"? */
int data_tokenizer_has_files(const char *name);

/* Open the tokenizer that a user names: "bytes", a file, a model's folder, or a name of the hub
 * whose model is in the cache of this machine.  Returns 0 and a tokenizer for tokenizer_close(), or
 * -1 with err set. */
int data_tokenizer_open_named(struct tokenizer **tokenizer, const char *name, struct error *err);

#endif
