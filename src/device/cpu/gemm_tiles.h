/* gemm_tiles.h - large products of bf16 in tiles, of the levels that have some (tile.h). */
#ifndef TRIREME_DEVICE_CPU_GEMM_TILES_H
#define TRIREME_DEVICE_CPU_GEMM_TILES_H

#include "device/cpu/kernels.h"

/* Is g such a product? Types, transpositions and sizes decide. */
int CPU(gemm_has_tiles)(const struct gemm *g);

/* Such a product.  It cannot fail, and its bits do not depend on the number of threads. */
void CPU(gemm_by_tiles)(struct device *d, const struct gemm *g, void *scratch);

/* Bytes of scratch it needs, with however few threads it runs. */
size_t CPU(gemm_tiles_scratch)(struct device *d, const struct gemm *g);

#endif
