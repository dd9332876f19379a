/* checkpoint_space.h - whether the disk can hold a run's checkpoints; compared before the run
 * trains. */
#ifndef TRIREME_TRAIN_CHECKPOINT_SPACE_H
#define TRIREME_TRAIN_CHECKPOINT_SPACE_H

#include "train/session.h"

/* Compare the bytes that checkpoints under dir, a folder that all ranks share, will take with those
 * that are free now, its files with those that can still be made (inodes), and a rank's file with
 * the limit of sizes (ulimit -f).  If the first one does not fit, the run is refused: -1 on all
 * ranks with err set; if only later ones may not fit, rank 0 warns. done: finished steps; there:
 * the run's checkpoints that pruning will count (rank 0's counts).  Changes nothing.  Collective.
 */
int checkpoint_space_check(struct session *session, const char *dir, int64_t done, int64_t there,
                           struct error *err);

#endif
