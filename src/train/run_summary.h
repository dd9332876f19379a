/* run_summary.h - what a start of trireme train says about itself before its first step. */
#ifndef TRIREME_TRAIN_RUN_SUMMARY_H
#define TRIREME_TRAIN_RUN_SUMMARY_H

#include "train/batches.h"

/* Log who runs where, on what data, how: a few lines; and warn of settings that cannot be meant
 * (run_warnings()).  done: steps that are finished; valid: NULL where nothing is evaluated.
 * Collective. */
void run_summary(const struct session *session, const struct batches *train,
                 const struct batches *valid, int64_t done);

/* Warn, by rank 0, of what is allowed but wasteful or without effect: ranks and sequences without
 * work, more threads than cores, a warm-up or a trace beyond the steps. */
void run_warnings(const struct session *session, int64_t done);

#endif
