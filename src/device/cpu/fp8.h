/* fp8.h - operands of products rounded to fp8. */
#ifndef TRIREME_DEVICE_CPU_FP8_H
#define TRIREME_DEVICE_CPU_FP8_H

#include "device/cpu/kernels.h"

/* A product of bf16 that is g's of operands rounded as g's fp8 says.  They are made in scratch, of
 * the bytes below, which stays the product's; with NULL for it the product has none, and is for its
 * sizes. */
struct gemm CPU(gemm_rounded)(struct device *d, const struct gemm *g, void *scratch);
size_t CPU(gemm_rounded_bytes)(const struct gemm *g);

#endif
