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

void CPU(embedding)(struct device *d, enum dtype dt, void *y, const void *table,
                    const int32_t *tokens, int64_t rows, int64_t hidden, int64_t vocab);
void CPU(embedding_backward)(struct device *d, enum dtype dt, float *dtable, const void *dy,
                             const int32_t *tokens, int64_t rows, int64_t hidden, int64_t vocab,
                             int accumulate);
void CPU(rmsnorm)(struct device *d, enum dtype dt, void *y, void *sum, float *rstd, const void *x,
                  const void *delta, const void *w, int64_t rows, int64_t hidden, float eps);
void CPU(rmsnorm_backward)(struct device *d, enum dtype dt, void *dx, float *dw, const void *dy,
                           const void *dsum, const void *x, const void *w, const float *rstd,
                           int64_t rows, int64_t hidden, int accumulate, void *scratch);
size_t CPU(rmsnorm_backward_scratch)(struct device *d, int64_t rows, int64_t hidden);
void CPU(layernorm)(struct device *d, enum dtype dt, void *y, float *stats, const void *x,
                    const void *w, const void *b, int64_t rows, int64_t hidden, float eps);
void CPU(layernorm_backward)(struct device *d, enum dtype dt, void *dx, float *dw, float *db,
                             const void *dy, const void *dsum, const void *x, const void *w,
                             const float *stats, int64_t rows, int64_t hidden, int accumulate,
                             void *scratch);
size_t CPU(layernorm_backward_scratch)(struct device *d, int64_t rows, int64_t hidden);
void CPU(bias)(struct device *d, enum dtype dt, void *y, const void *x, const void *b, int64_t rows,
               int64_t cols);
void CPU(bias_backward)(struct device *d, enum dtype dt, float *db, const void *dy, int64_t rows,
                        int64_t cols, int accumulate, void *scratch);
size_t CPU(bias_backward_scratch)(struct device *d, int64_t rows, int64_t cols);
void CPU(gelu)(struct device *d, enum dtype dt, void *y, const void *x, const void *b, int64_t rows,
               int64_t cols);
void CPU(gelu_backward)(struct device *d, enum dtype dt, void *dx, const void *dy, const void *x,
                        const void *b, int64_t rows, int64_t cols);
void CPU(rope)(struct device *d, const struct rope *r, void *y, const void *x,
               const float *cos_sin);
void CPU(attention)(struct device *d, const struct attention *a, void *o, float *lse,
                    const void *qkv, void *scratch);
void CPU(attention_backward)(struct device *d, const struct attention *a, void *dqkv,
                             const void *dout, const void *o, const float *lse, const void *qkv,
                             void *scratch);
size_t CPU(attention_scratch)(struct device *d, const struct attention *a, int backward);
void CPU(swiglu)(struct device *d, enum dtype dt, void *y, const void *gate_up, int64_t rows,
                 int64_t ffn);
void CPU(swiglu_backward)(struct device *d, enum dtype dt, void *dgate_up, const void *dy,
                          const void *gate_up, int64_t rows, int64_t ffn);
void CPU(cross_entropy)(struct device *d, enum dtype dt, float *row_loss, void *dlogits,
                        int64_t ld_d, const float *logits, int64_t ld, const int32_t *targets,
                        int64_t rows, int64_t vocab, float scale, const double *loss_scale);
void CPU(loss_sum)(struct device *d, double out[2], const float *row_loss, const int32_t *targets,
                   int64_t rows);
void CPU(add)(struct device *d, enum dtype dt, void *y, const void *a, const void *b,
              int64_t elems);
void CPU(cast)(struct device *d, enum dtype to, void *y, enum dtype from, const void *x,
               int64_t elems);
void CPU(fill_zero)(struct device *d, void *y, size_t bytes);
void CPU(copy)(struct device *d, void *y, const void *x, size_t bytes);
void CPU(set)(struct device *d, double *y, const double *values, int count);
void CPU(sumsq)(struct device *d, double *result, const float *x, int64_t elems);
void CPU(update_factor)(struct device *d, double *factor, const double *targets,
                        const double *squares, const double *loss_scale, double nominal,
                        double clip);
void CPU(adamw)(struct device *d, const struct adamw *a, const double *factor, float *p, float *m,
                float *v, const float *g, enum dtype dt_copy, void *copy, int64_t elems);
void CPU(adamw_bf16)(struct device *d, const struct adamw *a, const double *factor,
                     const struct adamw_state *s, const struct rounding *r, int64_t elems);
void CPU(sgd)(struct device *d, const struct sgd *s, const double *factor, float *p, float *v,
              const float *g, enum dtype dt_copy, void *copy, int64_t elems);

#endif
