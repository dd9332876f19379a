/* gemm_own.h - products by a level's own kernels; the library makes all others. */
#ifndef TRIREME_DEVICE_CPU_GEMM_OWN_H
#define TRIREME_DEVICE_CPU_GEMM_OWN_H

#include "device/cpu/kernels.h"

/* Does gemm_packed() take g on this level?  Types, transpositions and sizes decide.  Whether a
 * device leaves such products to it or to the library, packs_products of struct device says. */
int CPU(gemm_is_packed)(const struct gemm *g);

/* Can gemm_packed() make g, even if it is so small that gemm_is_packed() leaves it to the library?
 * If so, it can make all products that are smaller. */
int CPU(gemm_packed_takes)(const struct gemm *g);

/* Make a product that gemm_packed_takes().  scratch is the caller's, of gemm_packed_scratch()
 * bytes.  It cannot fail, and its bits do not depend on the number of threads. */
void CPU(gemm_packed)(struct device *d, const struct gemm *g, void *scratch);

/* Return the bytes of scratch that gemm_packed() needs, with however few threads it runs. */
size_t CPU(gemm_packed_scratch)(struct device *d, const struct gemm *g);

/* Return a bound of these bytes, by so many threads at most, for all products that differ from g in
 * m and k alone, which are not larger than g's. */
size_t CPU(gemm_packed_most_scratch)(const struct gemm *g, int threads);

/* Is g a product of a few rows with the transpose of a matrix, as generation has them? */
int CPU(gemm_has_few_rows)(const struct gemm *g);

/* Make a product that gemm_has_few_rows() takes.  scratch is the caller's, of
 * gemm_few_rows_scratch() bytes.  It cannot fail; a row's bits do not depend on other rows. */
void CPU(gemm_of_few_rows)(struct device *d, const struct gemm *g, void *scratch);
size_t CPU(gemm_few_rows_scratch)(const struct gemm *g);

#endif
