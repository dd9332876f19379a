/* tokenizer_check.h - are tokens numbered as the model's are?  Numbers of another tokenizer are
 * valid ids all the same: nothing fails, and the model learns, or is measured on, noise. */
#ifndef TRIREME_TRAIN_TOKENIZER_CHECK_H
#define TRIREME_TRAIN_TOKENIZER_CHECK_H

#include "base/log.h"
#include "io/checkpoint.h"
#include "io/dataset.h"

/* The tokenizer of a dataset, by the name that token files have it under; "": it has no file. */
const char *tokenizer_check_name(const struct dataset *data);

/* Were data.train and data.valid made with one tokenizer?  A file whose ids came from elsewhere
 * ("unnamed"), and no file, fit any.  Returns 0, or -1 with err naming both. */
int tokenizer_check_data(const struct dataset *train, const struct dataset *valid,
                         struct error *err);

/* Was data.train made with the tokenizer `made` that the run's own checkpoint was trained with?
 * Where either is not known, it fits.  Returns 0, or -1 with err naming both. */
int tokenizer_check_run(const char *made, const struct checkpoint *checkpoint, struct error *err);

/* Warn where the data of `key`, of tokens of the tokenizer `made`, is not of that of a model:
 * `path` is the model's folder with a tokenizer.json, a name of the hub, a run, or a checkpoint,
 * which knows what it was trained on.  Where that is not known nothing is said.  To be called by
 * rank 0. */
void tokenizer_check_model(struct log *log, const char *key, const char *made, const char *path);

#endif
