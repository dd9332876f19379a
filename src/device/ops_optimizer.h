/* ops_optimizer.h - what the ops of optimizers work on: a step's constants, and tensors.
 *
 * Part of ops.h, whose conventions hold here.
 */
#ifndef TRIREME_DEVICE_OPS_OPTIMIZER_H
#define TRIREME_DEVICE_OPS_OPTIMIZER_H

#include <assert.h>
#include <stdint.h>

#include "base/dtype.h"

/* Differences from 1 are taken in double and rounded once: in fp32 1 - beta would be off by up to
 * 2^-25, which is a 1 % error where beta is 0.999999. */
struct adamw {
    float lr, beta2, eps, weight_decay;
    float one_minus_beta1, one_minus_beta2;
    float bias1, bias2; /* 1 - beta1^t and 1 - beta2^t at this step t >= 1 */
};

/* The tensors that AdamW works on, of as many elements each. */
struct adamw_state {
    enum dtype dt_p, dt_m; /* of p: fp32 or bf16; of m and v: these, or codes (u8) of dynamic8.h */
    void *p, *m, *v;       /* parameters, means of gradients and of their squares */
    const void *g;         /* gradients */
    enum dtype dt_copy;    /* bf16 or fp16 */
    void *copy;            /* receives an fp32 p rounded to nearest; NULL: no copy, as for bf16 p */
    enum dtype dt_g;       /* fp32 or bf16 */
    /* Of codes: the largest magnitudes of m and v in blocks of DYNAMIC8_BLOCK elements from the
     * first one on, of which the last may be shorter. */
    float *m_largest, *v_largest;
};

/* Is any of p, m and v in bf16, and so rounded stochastically? */
static inline int adamw_rounds(enum dtype dt_p, enum dtype dt_m)
{
    assert((dt_p == DTYPE_F32 || dt_p == DTYPE_BF16) &&
           (dt_m == DTYPE_F32 || dt_m == DTYPE_BF16 || dt_m == DTYPE_U8));
    return dt_p == DTYPE_BF16 || dt_m == DTYPE_BF16;
}

/* Random numbers for stochastic rounding.  Those of element i are a function of key, step and the
 * element's number alone.  The number is first + i or, where the elements are some columns of a
 * larger matrix, that of its place there: first + i / run * stride + i % run. */
struct rounding {
    uint64_t key, step, first;
    int64_t run;    /* elements of a row; 0: number first + i */
    int64_t stride; /* elements of a row of the larger matrix */
};

struct sgd {
    float lr, momentum, weight_decay;
};

/* Muon: the mean of gradients, then the step. */
struct momentum {
    float one_minus_momentum;
    int nesterov; /* 1: Nesterov's form */
};
struct muon {
    float lr, weight_decay;
    float adjusted_lr; /* learning rate for the shape of the matrix */
};

/* Coefficients of y = a I + b x + c y. */
struct polynomial {
    float a, b, c;
};

#endif
