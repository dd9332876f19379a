/* run_summary.h - the lines that trireme train prints before its first step. */
#ifndef TRIREME_TRAIN_RUN_SUMMARY_H
#define TRIREME_TRAIN_RUN_SUMMARY_H

#include "train/batches.h"

/* Log the ranks, the nodes, the data and the layout in a few lines, and warn of settings that are
 * hardly meant (run_warnings()). done: finished steps; valid: NULL where nothing is evaluated. */
void run_summary(const struct session *session, const struct batches *train,
                 const struct batches *valid, int64_t done);

/* Rank 0 warns of settings that are allowed but wasteful or without effect: ranks and sequences
 * without work, more threads than cores, a warm-up or a trace beyond the last step. */
void run_warnings(const struct session *session, int64_t done);

#endif
