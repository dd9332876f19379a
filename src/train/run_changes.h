/* run_changes.h - the settings in which a start differs from the checkpoint that it resumes. */
#ifndef TRIREME_TRAIN_RUN_CHANGES_H
#define TRIREME_TRAIN_RUN_CHANGES_H

#include "base/json.h"
#include "config/config.h"
#include "io/dataset.h"

struct run_position;

/* The data that a run trains on. */
struct run_data {
    /* What the contents of the token files are known by: "1f..." is the hash that a file has,
     * "sample 1f..." that of a sample of one which has none; "": no file.  Of several files, and of
     * one of which not all is used, it is a hash of theirs, of weights and of limits. */
    char train[32], valid[32];
    char tokenizer[64];     /* name of the tokenizer that made data.train; "": not known */
    char chat[TOKENS_CHAT]; /* chat template of its conversations (data_chat_name()); "": none */
    int64_t sequences, valid_sequences; /* in an epoch of data.train; in data.valid */
};

/* Describe the data of open token files; a dataset of zeros has none. */
struct run_data run_data_of(const struct dataset *train, const struct dataset *valid);

/* Add data to a checkpoint's meta.json. */
void run_data_add(struct js *meta, const struct run_data *data);

/* Return the tokenizer's name in a meta.json, whose it stays; NULL: it has none. */
const char *run_data_tokenizer(const struct js *meta);

/* Return the name of the chat template in a meta.json, whose it stays; NULL: it has none. */
const char *run_data_chat(const struct js *meta);

/* In all of these saved is the configuration of the checkpoint, meta its meta.json, asked and data
 * are those of the start that resumes it, and batch the sequences of its step, of all ranks. */

/* Check that the weights of the saved model fit the one asked for.  Returns 0, or -1 with err
 * naming both. */
int run_changes_model(const struct config *saved, const struct config *asked, struct error *err);

/* Write to text every setting that differs and changes the numbers of a run, such as "train.lr
 * 0.0003 -> 0.01, seed 0 -> 7"; keys of layout, device, memory and records do not.  Data is
 * compared by contents where meta has hashes of the same kind, else by name; the global batch by
 * the sequences of a step.  Returns the number of changes, without train.steps, train.epochs and
 * train.decay_steps, which only set how long the run and its decay are. */
int run_changes_text(const struct config *saved, const struct config *asked, int64_t batch,
                     const struct js *meta, const struct run_data *data, char *text, size_t bytes);

/* Return the i-th of the keys that run_changes_text() does not compare, or of the beginnings of
 * such keys, which end in '.' or '_'; NULL after the last. */
const char *run_changes_without_effect(int i);

/* Where a run at this position is elsewhere in the decay of its learning rate now, because the run
 * or its decay has another length, write to text how the learning rate jumps, or that it stays 0.
 * Returns 1, or 0 where the learning rate goes on as it was. */
int run_changes_decay(const struct config *saved, const struct config *asked, const struct js *meta,
                      const struct run_data *data, const struct run_position *at, char *text,
                      size_t bytes);

/* Write to text the settings that name other weights to begin from, such as "model.path a -> b": a
 * run that resumes keeps its own.  Returns how many. */
int run_changes_source(const struct config *saved, const struct config *asked, char *text,
                       size_t bytes);

/* Does the run train on other sequences than the checkpoint's run did, so that its epochs are
 * others? */
int run_changes_sequences(const struct config *saved, const struct config *asked,
                          const struct js *meta, const struct run_data *data);

/* Do evaluations look at other sequences than those of the checkpoint's run did, so that their
 * losses cannot be compared? */
int run_changes_evaluation(const struct config *saved, const struct config *asked, int64_t batch,
                           const struct js *meta, const struct run_data *data);

#endif
