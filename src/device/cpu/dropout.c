/* dropout.c - numbers dropped at random; see struct dropout_mask in ops.h.
 *
 * Each row by itself: the words of PIECE columns are made in a loop of their own, a block of four
 * for each step, of which the compiler makes vector code, and then read as the columns they are
 * for.
 */
#include "device/cpu/dropout.h"
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

enum {
    PIECE = 256,
    MORE = 4 + CPU_LANES, /* the first column may be any of its block, the last vector not full */
    WORDS = PIECE + MORE + 4
};

/* Draw the words of blocks of a row: words[4 i] to words[4 i + 3] are those of block `first` + i.
 */
SIMD_INLINE void draw(uint32_t *restrict words, const struct dropout_mask *m,
                      struct philox4 counter, uint32_t row, uint32_t first, int64_t blocks)
{
#pragma omp simd
    for (int64_t i = 0; i < blocks; i++) {
        struct philox4 drawn = dropout_words(m, counter, row, first + (uint32_t)i);
        words[4 * i] = drawn.v[0];
        words[4 * i + 1] = drawn.v[1];
        words[4 * i + 2] = drawn.v[2];
        words[4 * i + 3] = drawn.v[3];
    }
}

SIMD_INLINE void drop_row(const enum dtype dt, const struct dropout *p, void *y, const void *x,
                          const void *addend, int64_t r)
{
    uint32_t words[WORDS];
    int64_t row = dropout_row(p, r), sequence = row / p->seq;
    uint32_t position = (uint32_t)sequence_position(&p->part, row % p->seq);
    struct philox4 counter = dropout_counter(&p->mask, sequence, 0);
    const vu limit = p->mask.limit - (vu){0};
    for (int64_t c = 0; c < p->cols; c += PIECE) {
        int64_t n = min_i64(PIECE, p->cols - c), column = p->first + c, skip = column % 4;
        draw(words, &p->mask, counter, position, (uint32_t)(column / 4), (n + MORE + 3) / 4);
        for (int64_t i = 0; i < n; i += CPU_LANES) {
            int64_t at = r * p->cols + c + i;
            vu word;
            memcpy(&word, words + skip + i, sizeof word);
            vf kept = vf_get_some(dt, x, at, n - i) * vf_set(p->mask.factor);
            kept = vf_select(word < limit, (vf){0}, kept);
            if (addend)
                kept += vf_get_some(dt, addend, at, n - i);
            vf_put_some(dt, y, at, n - i, kept);
        }
    }
}

void CPU(dropout)(struct device *d, const struct dropout *p, void *y, const void *x,
                  const void *addend)
{
#pragma omp parallel for num_threads(cpu_threads(d, p->rows * p->cols * 8))
    for (int64_t r = 0; r < p->rows; r++) {
        WITH_DTYPE(drop_row, p->dt, p, y, x, addend, r);
    }
}
