/* fp8.h - operands of products rounded to fp8. */
#ifndef TRIREME_DEVICE_CPU_FP8_H
#define TRIREME_DEVICE_CPU_FP8_H

#include "device/cpu/kernels.h"

/* Round the operands of g, as its fp8 says, into scratch, which has gemm_rounded_bytes() and is the
 * caller's.  Returns the product in bf16 to be made instead, whose operands lie in scratch: it is
 * valid as long as scratch is.  With scratch NULL nothing is rounded, and only sizes and strides of
 * the result may be used.  Cannot fail. */
struct gemm CPU(gemm_rounded)(struct device *d, const struct gemm *g, void *scratch);
size_t CPU(gemm_rounded_bytes)(const struct gemm *g);

#endif
