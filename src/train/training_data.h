/* training_data.h - the token files of a training run: what it trains on, read ahead, and what it
 * evaluates on. */
#ifndef TRIREME_TRAIN_TRAINING_DATA_H
#define TRIREME_TRAIN_TRAINING_DATA_H

#include "train/batches.h"
#include "train/read_ahead.h"

struct training_data {
    struct batches train, valid;
    struct read_ahead *ahead; /* of train */
    struct error unread; /* why valid could not be read, the same on all ranks; no text: it could */
};

/* Open what data.train and data.valid name.  Not collective.  Returns 0, or -1 with err set;
 * training_data_close() in either case. */
int training_data_open(struct training_data *data, const struct session *session,
                       struct error *err);
void training_data_close(struct training_data *data); /* one of zeros allowed */

/* Before the first step: begin to read ahead, `steps` steps from sample number `sample` on.  data
 * stays where it is from now on.  Collective.  Returns 0, or -1 on all ranks with err set. */
int training_data_begin(struct training_data *data, const struct session *session, int64_t sample,
                        int64_t steps, struct error *err);

/* Once all ranks were asked to stop: has any failed to read data?  Collective.  Returns 0, or -1 on
 * all ranks with err set to the failure. */
int training_data_check(const struct training_data *data, struct world *world, struct error *err);

/* Warn where a file was written to while the run reads it, of which a block that is whole says
 * nothing.  One rank of each node asks the file system.  Collective. */
void training_data_warn_changed(struct training_data *data, const struct session *session);

#endif
