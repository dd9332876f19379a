/* estimate.h - the published formulas of sharded training: what a plan is held against.
 *
 * ZeRO (Rajbhandari and others, 2020): N ranks, parameters of 2 bytes, gradients of 2, and K = 12
 * of optimizer (fp32 masters and two moments).  Megatron-LM's distributed optimizer is stage 1 over
 * fp32 gradients, which is trireme's bf16.  State alone: activations and buffers come on top. */
#ifndef TRIREME_PLAN_ESTIMATE_H
#define TRIREME_PLAN_ESTIMATE_H

#include "base/dtype.h"

/* Bytes that training keeps of one parameter. */
struct estimate_regime {
    double params, grads, optimizer;
};

extern const struct estimate_regime estimate_zero;     /* 2 + 2 + 12 */
extern const struct estimate_regime estimate_megatron; /* 2 + 4 + 12 */

/* Trireme's with AdamW, computing in dtype: gradients and moments are fp32, and masters too unless
 * the parameters are.  Stage 3 on several ranks keeps no 16-bit parameters: they are made of the
 * masters for each use. */
struct estimate_regime estimate_own(enum dtype dtype, int stage, int ranks);

/* Bytes per parameter and rank of ZeRO's stage 0 (plain data parallelism), 1, 2 or 3. */
double estimate_state(const struct estimate_regime *regime, int stage, int ranks);

/* Numbers a rank sends in a step, in parameters, with one micro-batch: what it tends to as ranks
 * grow many. */
double estimate_volume(int stage);

#endif
