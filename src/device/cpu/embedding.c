/* embedding.c - rows of a table, and the sum of gradients into them. */
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

void CPU(embedding)(struct device *d, enum dtype dt, void *y, const void *table,
                    const int32_t *tokens, int64_t rows, int64_t hidden, int64_t first,
                    int64_t vocab)
{
    size_t bytes = (size_t)hidden * dtype_bytes(dt);
#pragma omp parallel for num_threads(cpu_threads(d, rows *(int64_t)bytes))
    for (int64_t row = 0; row < rows; row++) {
        int64_t from = tokens[row] - first;
        char *to = (char *)y + (size_t)row * bytes;
        if (from >= 0 && from < vocab)
            memcpy(to, (const char *)table + (size_t)from * bytes, bytes);
        else
            memset(to, 0, bytes);
    }
}

SIMD_INLINE void add_columns(enum dtype dt, float *dtable, const void *dy, const int32_t *tokens,
                             int64_t rows, int64_t hidden, int64_t first, int64_t vocab,
                             int64_t begin, int64_t end)
{
    for (int64_t row = 0; row < rows; row++) {
        int64_t token = tokens[row] - first;
        float *to = dtable + token * hidden;
        if (token < 0 || token >= vocab)
            continue;
        for (int64_t i = begin; i < end; i += CPU_LANES) {
            vf sum = vf_get_some(DTYPE_F32, to, i, end - i) +
                     vf_get_some(dt, dy, row * hidden + i, end - i);
            vf_put_some(DTYPE_F32, to, i, end - i, sum);
        }
    }
}

/* A token may occur in many rows: each thread takes some columns of all rows, so every
 * element is summed by one thread in the order of the rows. */
void CPU(embedding_backward)(struct device *d, enum dtype dt, float *dtable, const void *dy,
                             const int32_t *tokens, int64_t rows, int64_t hidden, int64_t first,
                             int64_t vocab, int accumulate)
{
    int threads = cpu_threads(d, rows * hidden * 4);
    int64_t columns = round_up(ceil_div(hidden, threads), 32);
    if (!accumulate)
        CPU(fill_zero)(d, dtable, (size_t)(vocab * hidden) * sizeof *dtable);
#pragma omp parallel for num_threads(threads)
    for (int64_t begin = 0; begin < hidden; begin += columns) {
        int64_t end = min_i64(begin + columns, hidden);
        WITH_DTYPE(add_columns, dt, dtable, dy, tokens, rows, hidden, first, vocab, begin, end);
    }
}
