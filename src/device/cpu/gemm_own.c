/* gemm_own.c - who makes a product: a level's own kernels, or the library; of operands as they are,
 * or rounded to fp8. */
#include "device/cpu/gemm_own.h"

#include "device/cpu/fp8.h"
#include "device/cpu/gemm.h"

int CPU(gemm)(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    if (g->fp8) {
        const struct gemm rounded = CPU(gemm_rounded)(d, g, scratch);
        return CPU(gemm)(d, &rounded, (char *)scratch + CPU(gemm_rounded_bytes)(g), err);
    }
    if (d->packs_products && CPU(gemm_is_packed)(g))
        CPU(gemm_packed)(d, g, scratch);
    else if (CPU(gemm_has_few_rows)(g))
        CPU(gemm_of_few_rows)(d, g, scratch);
    else
        return gemm_library(d, g, scratch, err);
    return 0;
}

size_t CPU(gemm_scratch)(struct device *d, const struct gemm *g)
{
    if (g->fp8) {
        const struct gemm rounded = CPU(gemm_rounded)(d, g, NULL);
        return CPU(gemm_rounded_bytes)(g) + CPU(gemm_scratch)(d, &rounded);
    }
    if (d->packs_products && CPU(gemm_is_packed)(g))
        return CPU(gemm_packed_scratch)(d, g);
    return CPU(gemm_has_few_rows)(g) ? CPU(gemm_few_rows_scratch)(g) : gemm_library_scratch(d, g);
}
