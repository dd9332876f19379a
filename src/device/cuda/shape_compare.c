/* shape_compare.c - rows of a result, and how far two results are apart; contracts in
 * shape_check_private.h. */
#include "device/cuda/shape_check_private.h"

#include <math.h>

void shape_compare_add(struct shape_compare *sum, enum dtype dt, const void *got, const void *want,
                       int64_t first, int64_t elems)
{
    enum { BATCH = 256 };
    const size_t size = dtype_bytes(dt);
    for (int64_t i = first, n; i < first + elems; i += n) {
        float x[BATCH], y[BATCH];
        n = first + elems - i < BATCH ? first + elems - i : BATCH;
        dtype_widen(x, (const char *)got + (size_t)i * size, dt, n);
        dtype_widen(y, (const char *)want + (size_t)i * size, dt, n);
        for (int64_t j = 0; j < n; j++) {
            const double by = (double)x[j] - y[j];
            sum->right += (double)y[j] * y[j];
            sum->wrong += by * by;
        }
    }
}

double shape_compare_share(const struct shape_compare *sum)
{
    return sum->wrong == 0 ? 0 : sqrt(sum->wrong / sum->right);
}

double shape_compare_larger(double a, double b)
{
    return a > b || isnan(a) ? a : b;
}

int64_t shape_compare_start(int block, int64_t rows, int64_t all)
{
    return (all - rows) * block / (SHAPE_BLOCKS - 1);
}

int shape_compare_rows_down(struct device *d, void *to, const void *from, enum dtype dt,
                            int64_t rows, int64_t width, int64_t stride, struct error *err)
{
    const int64_t at_once = width == stride ? rows : 1;
    const size_t size = dtype_bytes(dt);
    for (int64_t r = 0; r < rows; r += at_once)
        if (device_download(d, (char *)to + (size_t)(r * width) * size,
                            (const char *)from + (size_t)(r * stride) * size,
                            (size_t)(at_once * width) * size, err))
            return -1;
    return 0;
}

int shape_compare_rows_up(struct device *d, void *to, const void *from, enum dtype dt, int64_t rows,
                          int64_t width, int64_t stride, struct error *err)
{
    const int64_t at_once = width == stride ? rows : 1;
    const size_t size = dtype_bytes(dt);
    for (int64_t r = 0; r < rows; r += at_once)
        if (device_upload(d, (char *)to + (size_t)(r * stride) * size,
                          (const char *)from + (size_t)(r * width) * size,
                          (size_t)(at_once * width) * size, err))
            return -1;
    return 0;
}

int shape_compare_blocks_down(struct device *d, void *to, const void *from, enum dtype dt,
                              int64_t rows, int64_t all, int64_t width, int64_t stride,
                              struct error *err)
{
    const size_t size = dtype_bytes(dt);
    for (int block = 0; block < SHAPE_BLOCKS; block++) {
        const int64_t first = shape_compare_start(block, rows, all);
        if (shape_compare_rows_down(d, (char *)to + (size_t)(block * rows * width) * size,
                                    (const char *)from + (size_t)(first * stride) * size, dt, rows,
                                    width, stride, err))
            return -1;
    }
    return 0;
}
