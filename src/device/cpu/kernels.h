/* kernels.h - the names of the CPU kernels of one level, and how they share work.
 *
 * A kernel file defines CPU(name) for each op of ops.h; the level (generic, avx2, avx512)
 * it is compiled for becomes part of the symbol, and ops.c of the same level collects them.
 */
#ifndef TRIREME_DEVICE_CPU_KERNELS_H
#define TRIREME_DEVICE_CPU_KERNELS_H

#include <math.h>

#include "device/cpu/work.h"
#include "device/ops.h"

#define CPU_PASTE2(name, level) cpu_##name##_##level
#define CPU_PASTE(name, level)  CPU_PASTE2(name, level)
#define CPU(name)               CPU_PASTE(name, CPU_LEVEL)

extern const struct device_ops CPU(ops);

/* CPU_OP(bias) declares CPU(bias) as struct device_ops has bias. */
#define CPU_OP(op) DEVICE_FUNCTION(device_ops, op) CPU(op)

CPU_OP(embedding);
CPU_OP(embedding_backward);
CPU_OP(rmsnorm);
CPU_OP(rmsnorm_backward);
CPU_OP(rmsnorm_backward_scratch);
CPU_OP(layernorm);
CPU_OP(layernorm_backward);
CPU_OP(layernorm_backward_scratch);
CPU_OP(bias);
CPU_OP(bias_backward);
CPU_OP(bias_backward_scratch);
CPU_OP(gelu);
CPU_OP(gelu_backward);
CPU_OP(rope);
CPU_OP(attention);
CPU_OP(attention_backward);
CPU_OP(attention_scratch);
CPU_OP(swiglu);
CPU_OP(swiglu_backward);
CPU_OP(cross_entropy);
CPU_OP(loss_sum);
CPU_OP(add);
CPU_OP(cast);
CPU_OP(fill_zero);
CPU_OP(copy);
CPU_OP(set);
CPU_OP(sumsq);
CPU_OP(update_factor);
CPU_OP(adamw);
CPU_OP(adamw_bf16);
CPU_OP(sgd);
CPU_OP(momentum);
CPU_OP(muon);
CPU_OP(normalize);
CPU_OP(polynomial);

#endif
