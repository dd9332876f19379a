/* largest.h - the largest micro-batch that fits the memory. */
#ifndef TRIREME_PLAN_LARGEST_H
#define TRIREME_PLAN_LARGEST_H

#include "plan/report.h"

enum { LARGEST_MOST = 4096 }; /* no more sequences are tried */

/* Find the most sequences that a rank's micro-batch can have, in training and in evaluation, within
 * limits of which at least one is set.  The configuration is checked, and its device cpu or cuda.
 * Returns 0 where not even one fits, or the configuration makes no plan; LARGEST_MOST: at least so
 * many fit.  Training is planned with the configuration's global batch, or one micro-batch of each
 * rank if that is larger or gradients are in bf16; evaluation beside training in the
 * configuration's micro-batches, or, where these do not fit and gradients are in fp32, of one
 * sequence.  Plans up to four dozen configurations.  Several threads may search at once. */
int64_t largest_training(const struct config *config, int ranks, int nodes, int threads,
                         const struct memory_limits *limits);
int64_t largest_evaluation(const struct config *config, int ranks, int nodes, int threads,
                           const struct memory_limits *limits);

#endif
