/* rope.c - rotary position embedding (Su et al. 2021), half-split pairs. */
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

/* (a, b) -> (a cos - b sin, b cos + a sin) for the pairs of the row's heads; first: its first
 * element, cosine: of its position, and sines after them.  The next row is prefetched. */
SIMD_INLINE void rotate_heads(enum dtype dt, const struct rope *r, void *y, const void *x,
                              int64_t first, const float *cosine)
{
    const int64_t half = r->head_dim / 2, end = first + r->rotated * r->head_dim;
    const int64_t width = r->row_heads * r->head_dim;
    for (int64_t i = 0; i < half; i += CPU_LANES) {
        int64_t left = half - i;
        vf c = vf_get_some(DTYPE_F32, cosine, i, left);
        vf s = vf_get_some(DTYPE_F32, cosine, half + i, left) * (r->inverse ? -1.0f : 1.0f);
        for (int64_t low = first + i; low < end; low += r->head_dim) {
            vf_prefetch(dt, x, low + width);
            vf_prefetch(dt, x, low + half + width);
            vf a = vf_get_some(dt, x, low, left), b = vf_get_some(dt, x, low + half, left);
            vf_put_some(dt, y, low, left, a * c - b * s);
            vf_put_some(dt, y, low + half, left, b * c + a * s);
        }
    }
}

static void rotate_row(const struct rope *r, void *y, const void *x, const float *cos_sin,
                       const int32_t *positions, int64_t row)
{
    int64_t width = r->row_heads * r->head_dim;
    int64_t position = positions ? positions[row] : row % r->seq;
    WITH_DTYPE(rotate_heads, r->dt, r, y, x, row * width, cos_sin + position * r->head_dim);
    if (y != x) {
        size_t elem = dtype_bytes(r->dt);
        size_t begin = (size_t)(row * width + r->rotated * r->head_dim) * elem;
        size_t bytes = (size_t)((r->row_heads - r->rotated) * r->head_dim) * elem;
        memcpy((char *)y + begin, (const char *)x + begin, bytes);
    }
}

void CPU(rope)(struct device *d, const struct rope *r, void *y, const void *x, const float *cos_sin,
               const int32_t *positions)
{
#pragma omp parallel for num_threads(cpu_threads(d, r->rows * r->row_heads * r->head_dim * 4))
    for (int64_t row = 0; row < r->rows; row++)
        rotate_row(r, y, x, cos_sin, positions, row);
}
