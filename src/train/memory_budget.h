/* memory_budget.h - whether a run fits into memory and disk, before the first allocation. */
#ifndef TRIREME_TRAIN_MEMORY_BUDGET_H
#define TRIREME_TRAIN_MEMORY_BUDGET_H

#include "train/session.h"

/* Return the part of a GPU's reserve that an opened device has not taken yet, in bytes: CUDA
 * graphs. */
size_t memory_budget_reserve(const struct device *device);

/* Returns what a rank has of its node's memory, or of what a control group allows, for what is
 * planned (report_node_share()); 0: not known. */
size_t memory_budget_node_share(const struct world *world, const struct config *config, int instrs);

/* Compare what a session needs with the free memory of its GPU, and with its share of the node's
 * memory or of what a control group allows, and whether offload.path can hold what is to be there.
 * Warns where other programs have too much of a node's memory.  Collective over the session's
 * world.  Returns 0, or -1 on all ranks with err saying what is short, and limits what the rank
 * with the least has. */
int memory_budget_check(const struct session *session, struct memory_limits *limits,
                        struct error *err);

/* Compare what a session whose mesh is attached still needs of its GPU with what is free: NCCL may
 * have taken more than was planned.  Collective over the session's world.  Returns 0, or -1 on all
 * ranks with err saying what is short. */
int memory_budget_check_attached(const struct session *session, struct error *err);

#endif
