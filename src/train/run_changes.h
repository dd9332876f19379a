/* run_changes.h - what a start asks for that is not what a checkpoint was saved with. */
#ifndef TRIREME_TRAIN_RUN_CHANGES_H
#define TRIREME_TRAIN_RUN_CHANGES_H

#include "base/json.h"
#include "config/config.h"

/* Hashes of the token files' contents; 0: no file, or one that has none. */
struct run_data {
    uint64_t train, valid;
};

/* Put them into a checkpoint's meta.json. */
void run_data_add(struct js *meta, const struct run_data *data);

/* The weights of the saved model fit the one asked for.  Returns 0, or -1 with err naming both. */
int run_changes_model(const struct config *saved, const struct config *asked, struct error *err);

/* "train.lr 0.0003 -> 0.01, seed 0 -> 7": every setting that changes the numbers of a run; keys
 * of layout, device, memory and records do not.  Data is compared by its contents where meta
 * knows them.  Returns how many there are, train.steps, which only says how long, not counted. */
int run_changes_text(const struct config *saved, const struct config *asked, const struct js *meta,
                     const struct run_data *data, char *text, size_t bytes);

#endif
