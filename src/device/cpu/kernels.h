/* kernels.h - the names of the CPU kernels of one level, and how they share work.
 *
 * A kernel file defines CPU(name) for each op of ops.h; the level (generic, avx2, avx512,
 * amx) it is compiled for becomes part of the symbol, and ops.c of the same level collects them.
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

/* CPU(bias) as struct device_ops has bias, and so on. */
#define CPU_OP(op) DEVICE_FUNCTION(device_ops, op) CPU(op);
DEVICE_OPS(CPU_OP)
CPU_OP(gemm)
CPU_OP(gemm_scratch)

#endif
