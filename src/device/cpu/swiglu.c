/* swiglu.c - the activation of gated feed-forward layers; of experts, times a factor for each row.
 *
 * Without factors a row's is 1, which changes no bit, and the compiler leaves it out.
 */
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

/* Compute a row; the next one is prefetched, here and backward. */
SIMD_INLINE void swiglu_row(enum dtype dt, void *y, const void *gate_up, float factor, int64_t row,
                            int64_t ffn)
{
    int64_t gate = row * 2 * ffn, up = gate + ffn;
    for (int64_t i = 0; i < ffn; i += CPU_LANES) {
        vf_prefetch(dt, gate_up, gate + 2 * ffn + i);
        vf_prefetch(dt, gate_up, up + 2 * ffn + i);
        vf g = vf_get_some(dt, gate_up, gate + i, ffn - i);
        vf u = vf_get_some(dt, gate_up, up + i, ffn - i);
        vf_put_some(dt, y, row * ffn + i, ffn - i, g * vf_sigmoid(g) * u * vf_set(factor));
    }
}

void CPU(swiglu)(struct device *d, enum dtype dt, void *y, const void *gate_up, int64_t rows,
                 int64_t ffn)
{
#pragma omp parallel for num_threads(cpu_threads(d, rows *ffn * 4))
    for (int64_t row = 0; row < rows; row++)
        WITH_DTYPE(swiglu_row, dt, y, gate_up, 1, row, ffn);
}

void CPU(swiglu_scaled)(struct device *d, enum dtype dt, void *y, const void *gate_up,
                        const float *factors, int64_t rows, int64_t ffn)
{
#pragma omp parallel for num_threads(cpu_threads(d, rows *ffn * 4))
    for (int64_t row = 0; row < rows; row++)
        WITH_DTYPE(swiglu_row, dt, y, gate_up, factors[row], row, ffn);
}

/* With s = sigmoid(g) and grad = dy factor: dup = grad g s,  dgate = grad u s (1 + g (1 - s)).
 * dfactor = sum of dy g s u, of which 1024 elements are added to the total together; dfactors NULL:
 * it is not wanted. */
SIMD_INLINE void swiglu_backward_row(enum dtype dt, void *dgate_up, float *dfactors, const void *dy,
                                     const void *gate_up, float factor, int64_t row, int64_t ffn)
{
    enum { BLOCK = 1024 };
    int64_t gate = row * 2 * ffn, up = gate + ffn;
    vf total = {0};
    for (int64_t block = 0; block < ffn; block += BLOCK) {
        int64_t end = min_i64(block + BLOCK, ffn);
        vf sum = {0};
        for (int64_t i = block; i < end; i += CPU_LANES) {
            vf_prefetch(dt, gate_up, gate + 2 * ffn + i);
            vf_prefetch(dt, gate_up, up + 2 * ffn + i);
            vf_prefetch(dt, dy, (row + 1) * ffn + i);
            vf g = vf_get_some(dt, gate_up, gate + i, end - i);
            vf u = vf_get_some(dt, gate_up, up + i, end - i);
            vf grad = vf_get_some(dt, dy, row * ffn + i, end - i);
            vf s = vf_sigmoid(g), scaled = grad * vf_set(factor);
            sum += grad * g * s * u;
            vf_put_some(dt, dgate_up, gate + i, end - i, scaled * u * s * (1.0f + g * (1.0f - s)));
            vf_put_some(dt, dgate_up, up + i, end - i, scaled * g * s);
        }
        total += sum;
    }
    if (dfactors)
        dfactors[row] = vf_sum(total);
}

void CPU(swiglu_backward)(struct device *d, enum dtype dt, void *dgate_up, const void *dy,
                          const void *gate_up, int64_t rows, int64_t ffn)
{
#pragma omp parallel for num_threads(cpu_threads(d, rows *ffn * 4))
    for (int64_t row = 0; row < rows; row++)
        WITH_DTYPE(swiglu_backward_row, dt, dgate_up, NULL, dy, gate_up, 1, row, ffn);
}

void CPU(swiglu_scaled_backward)(struct device *d, enum dtype dt, void *dgate_up, float *dfactors,
                                 const void *dy, const void *gate_up, const float *factors,
                                 int64_t rows, int64_t ffn)
{
#pragma omp parallel for num_threads(cpu_threads(d, rows *ffn * 4))
    for (int64_t row = 0; row < rows; row++)
        WITH_DTYPE(swiglu_backward_row, dt, dgate_up, dfactors, dy, gate_up, factors[row], row,
                   ffn);
}
