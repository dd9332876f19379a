/* product.h - one matrix product on the host, as the emulated cuBLASLt runs it on a stream. */
#ifndef TRIREME_EMULATE_PRODUCT_H
#define TRIREME_EMULATE_PRODUCT_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

namespace emulate
{

/* What codes of E4M3 are multiplied by: code (i, j) by the scale that lies i / row_block * row_step
 * + j / col_block * col_step behind at. */
struct scales {
    const float *at; /* NULL: none */
    int64_t row_block, row_step, col_block, col_step;
};

/* A matrix of fp32, bf16 or fp16: element (i, j) lies i * row_step + j * col_step elements behind
 * at.  With scales, of codes of E4M3, whatever dt is. */
struct operand {
    char *at;
    enum dtype dt;
    int64_t row_step, col_step;
    struct scales scales;
};

/* d [m, n] = alpha a [m, k] b [k, n] + beta c [m, n]; c is not read when beta is 0. */
struct product {
    int64_t m, n, k;
    struct operand a, b, c, d;
    float alpha, beta;
    const float *alpha_at, *beta_at; /* where they lie on the device, else NULL */
    int64_t first;                   /* sums begin with this term, and those before it come last */
    void *workspace;
    size_t workspace_bytes;
};

/* Compute it, with sums in fp32.  The workspace is full of NaN before and after, as is d before
 * anything is read, where it is not c as well. */
void product_run(const struct product &p);

} // namespace emulate

#endif
