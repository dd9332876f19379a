/* run_changes.h - the settings in which a start differs from the checkpoint that it resumes. */
#ifndef TRIREME_TRAIN_RUN_CHANGES_H
#define TRIREME_TRAIN_RUN_CHANGES_H

#include "base/json.h"
#include "config/config.h"

/* The data that a run trains on. */
struct run_data {
    uint64_t train, valid; /* hashes of the token files' contents; 0: no file, or it has no hash */
    char tokenizer[64];    /* name of the tokenizer that made data.train; "": not known */
};

/* Add data to a checkpoint's meta.json; and read the tokenizer's name from there, NULL if it is
 * absent. */
void run_data_add(struct js *meta, const struct run_data *data);
const char *run_data_tokenizer(const struct js *meta);

/* The weights of the saved model fit the one asked for.  Returns 0, or -1 with err naming both. */
int run_changes_model(const struct config *saved, const struct config *asked, struct error *err);

/* "train.lr 0.0003 -> 0.01, seed 0 -> 7": every setting that changes the numbers of a run; keys of
 * layout, device, memory and records do not.  Data is compared by contents where meta has their
 * hashes.  Returns the number of changes, without train.steps, which only sets how long the run is.
 */
int run_changes_text(const struct config *saved, const struct config *asked, const struct js *meta,
                     const struct run_data *data, char *text, size_t bytes);

#endif
