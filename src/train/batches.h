/* batches.h - the samples that this rank computes, micro-batch by micro-batch, and its rows of
 * each.
 */
#ifndef TRIREME_TRAIN_BATCHES_H
#define TRIREME_TRAIN_BATCHES_H

#include "io/dataset.h"
#include "train/session.h"

struct batches {
    struct dataset data;
    int64_t micro_batch;           /* samples that a rank computes at once */
    int64_t data_ranks, data_rank; /* ranks that share a batch; which of them this is */
    int64_t batch;                 /* samples in a global batch */
    int64_t sample; /* first sample of the current batch, counted from the start of training */
};

/* Open the token files that text names (config data.train, data.valid) for this session, cut into
 * sequences as config data.packing says.  With LOADER_SEQUENTIAL a micro-batch is one of an
 * evaluation (layout.eval_batch).  Returns 0, or -1 with err set, as for a model that reads more
 * than the one sequence that a token file has; batches_close() in any case. */
int batches_open(struct batches *batches, const struct session *session, const char *text,
                 enum loader_order order, struct error *err);
void batches_close(struct batches *batches); /* one of zeros allowed */

/* Warn where many targets at the end of the files are in no sequence (dataset_left_rows()), which
 * an evaluation then does not read.  To be called by rank 0. */
void batches_warn_left(const struct batches *batches, struct log *log);

/* Functions for a step_input (execute.h), whose user is a struct batches: batches_load() fills
 * tokens and targets, batches_load_positions() positions, documents and samples.  Sequences beyond
 * the global batch are masked.  Return 0, or -1 with err set where a file cannot be read or is
 * damaged.
 */
int batches_load(void *user, const struct step_batch *batch, struct error *err);
int batches_load_positions(void *user, const struct step_batch *batch, struct error *err);

#endif
