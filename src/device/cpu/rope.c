/* rope.c - rotary position embedding (Su et al. 2021), half-split pairs. */
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

/* (a, b) -> (a cos - b sin, b cos + a sin) for each pair of the head that starts at first. */
SIMD_INLINE void rotate_head(enum dtype dt, void *y, const void *x, int64_t first, int64_t half,
                             const float *cosine, const float *sine, float sign)
{
    for (int64_t i = 0; i < half; i += CPU_LANES) {
        int64_t left = half - i;
        vf a = vf_get_some(dt, x, first + i, left);
        vf b = vf_get_some(dt, x, first + half + i, left);
        vf c = vf_get_some(DTYPE_F32, cosine, i, left);
        vf s = vf_get_some(DTYPE_F32, sine, i, left) * sign;
        vf_put_some(dt, y, first + i, left, a * c - b * s);
        vf_put_some(dt, y, first + half + i, left, b * c + a * s);
    }
}

static void rotate_row(const struct rope *r, void *y, const void *x, const float *cos_sin,
                       const int32_t *positions, int64_t row)
{
    int64_t half = r->head_dim / 2, width = r->row_heads * r->head_dim;
    int64_t position = positions ? positions[row] : row % r->seq;
    const float *cosine = cos_sin + position * r->head_dim, *sine = cosine + half;
    float sign = r->inverse ? -1.0f : 1.0f;
    for (int64_t head = 0; head < r->rotated; head++) {
        int64_t first = row * width + head * r->head_dim;
        WITH_DTYPE(rotate_head, r->dt, y, x, first, half, cosine, sine, sign);
    }
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
