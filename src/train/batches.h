/* batches.h - which samples this rank computes, micro-batch by micro-batch, and of each which rows.
 */
#ifndef TRIREME_TRAIN_BATCHES_H
#define TRIREME_TRAIN_BATCHES_H

#include "io/loader.h"
#include "train/session.h"

struct batches {
    struct tokens tokens;
    struct loader loader;
    int64_t micro_batch, data_ranks, data_rank;
    int64_t batch;  /* samples in a global batch */
    int64_t sample; /* the first of the current one, counted from the start of training */
};

/* Open a token file for this session.  Returns 0, or -1 with err set, as for a model that reads
 * more than the one sequence that a token file has; batches_close() in any case. */
int batches_open(struct batches *batches, const struct session *session, const char *path,
                 enum loader_order order, struct error *err);
void batches_close(struct batches *batches);

/* A step_input's load function; user is a struct batches.  Sequences beyond the global batch are
 * masked.  Returns 0, or -1 with err set where the file cannot be read or is damaged. */
int batches_load(void *user, const struct step_batch *batch, struct error *err);

#endif
