/* orthogonalize.h - a matrix made orthogonal, nearly: the Newton-Schulz iteration of Muon.
 *
 * With G = U S V^T, what comes out is U S' V^T, S' between some 0.7 and 1.2: all directions of a
 * step count alike (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks").
 * With X = G / |G|, in each step A = X X^T and X = (a I + b A + c A A) X; where G has more rows
 * than columns, A = X^T X and X = X (a I + b A + c A A), so that A is the smaller of the two.
 *
 * In bf16 what is multiplied is rounded to 8 bits: X, A and the polynomial.  Products are summed in
 * fp32, and |G|, A and the polynomial are computed in it.
 */
#ifndef TRIREME_SEGMENT_ORTHOGONALIZE_H
#define TRIREME_SEGMENT_ORTHOGONALIZE_H

#include "device/ops.h"

struct orthogonalize {
    int64_t rows, cols;
    int steps;
    enum dtype dtype; /* of the operands of products: fp32 or bf16 */
};

/* x fp32 [rows, cols], in place.  work: orthogonalize_bytes(), 64-byte aligned.  0, or -1 with err
 * set (the product's library fails). */
int orthogonalize(struct device *d, const struct orthogonalize *o, float *x, void *work,
                  struct error *err);

/* Bytes of work that a matrix of this shape needs on the device. */
size_t orthogonalize_bytes(struct device *d, const struct orthogonalize *o);

/* Floating point operations of the products; a multiply-add is two. */
double orthogonalize_flops(const struct orthogonalize *o);

#endif
