/* estimate.h - the published formula of sharded training, which plan prints beside its own sums,
 * in the table of strategies.
 *
 * ZeRO (Rajbhandari and others, 2020): N ranks, parameters of 2 bytes, gradients of 2, and K = 12
 * of optimizer (fp32 masters and two moments).  State alone: activations and buffers come on top.
 */
#ifndef TRIREME_PLAN_ESTIMATE_H
#define TRIREME_PLAN_ESTIMATE_H

/* Bytes that training keeps of one parameter. */
struct estimate_regime {
    double params, grads, optimizer;
};

extern const struct estimate_regime estimate_zero; /* 2 + 2 + 12 */

/* Bytes per parameter and rank of ZeRO's stage 0 (plain data parallelism), 1, 2 or 3. */
double estimate_state(const struct estimate_regime *regime, int stage, int ranks);

#endif
