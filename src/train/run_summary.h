/* run_summary.h - the lines that trireme train prints before its first step. */
#ifndef TRIREME_TRAIN_RUN_SUMMARY_H
#define TRIREME_TRAIN_RUN_SUMMARY_H

#include "train/batches.h"

/* Log the ranks, the nodes, the data and the layout in a few lines, and warn of settings that
 * are probably a mistake. done: finished steps, which read `samples` sequences; valid: NULL where
 * nothing is evaluated. */
void run_summary(const struct session *session, const struct batches *train,
                 const struct batches *valid, int64_t done, int64_t samples);

/* Log that training was over before this start, in the run directory dir, and what would train it
 * longer. */
void run_summary_done(const struct session *session, const struct batches *train, int64_t done,
                      int64_t samples, const char *dir);

/* "node1", or "2 nodes (node1, node2)", of which four are named at most.  Returns text. */
enum { RUN_SUMMARY_NODES = 320 };
const char *run_summary_nodes(const struct world *world, char text[RUN_SUMMARY_NODES]);

#endif
