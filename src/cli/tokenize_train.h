/* tokenize_train.h - trireme tokenize --train-bpe: making a tokenizer of texts. */
#ifndef TRIREME_CLI_TOKENIZE_TRAIN_H
#define TRIREME_CLI_TOKENIZE_TRAIN_H

#include "cli/command.h"

/* Do the arguments of tokenize ask for a vocabulary? */
int tokenize_train_is_asked(int argc, char **argv);

/* INPUT... --train-bpe N -o FILE.json: read the texts and write a tokenizer.json of at most N
 * tokens.  One of another vocabulary is not replaced.  Returns 0, or -1 with err set. */
int tokenize_train(struct app *app, int argc, char **argv, struct error *err);

#endif
