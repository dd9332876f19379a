/* attention_block.c - products of blocks, and packing their operands.
 *
 * The products are small (tens to hundreds a side) and their operands are made on the spot in
 * the layout they like, which is why they are not calls of gemm.
 */
#include "device/cpu/attention.h"

struct attention_shape CPU(attention_shape)(const struct attention *a)
{
    int is_bf16 = (HAS_TILES || HAS_DOT_BF16) && a->dt == DTYPE_BF16;
    int64_t per_unit = is_bf16 ? 2 : 1;
    int64_t row_units = a->head_dim / per_unit;
    return (struct attention_shape){
        .dt = is_bf16 ? DTYPE_BF16 : DTYPE_F32,
        .dt_rows = a->dt,
        .dim = a->head_dim,
        .row_units = row_units,
        .dim_units = is_bf16 ? round_up(row_units, TILE_UNITS) : row_units,
        .dim_rows = round_up(a->head_dim, TILE_ROWS),
        .dim_cols = round_up(a->head_dim, TILE_COLS),
        .block_units = BLOCK / per_unit,
    };
}

/* Four keys have the words of one block; a query is a step of the inner loop, of which the compiler
 * makes vector code. */
void CPU(attention_draw)(struct attention_dropout *w, int64_t j, int64_t nk)
{
    const struct dropout_mask mask = *w->mask;
    const struct philox4 counter = w->counter;
    for (int64_t row = 0; row < nk; row += 4) {
        uint32_t block = (uint32_t)((j * BLOCK + row) / 4);
#pragma omp simd
        for (int64_t c = 0; c < BLOCK; c++) {
            struct philox4 drawn = dropout_words(&mask, counter, w->position[c], block);
            w->words[row][c] = drawn.v[0];
            w->words[row + 1][c] = drawn.v[1];
            w->words[row + 2][c] = drawn.v[2];
            w->words[row + 3][c] = drawn.v[3];
        }
    }
}

/* Make REGISTER_ROWS x TILE_COLS sums, which stay in registers; per unit of k a row costs one
 * broadcast. */
SIMD_INLINE void vector_block(const enum dtype dt, const int accumulate,
                              const struct attention_product *p, int64_t row, int64_t col)
{
    const unit *a = p->a + row * p->lda, *b = p->b + col;
    const int64_t lda = p->lda, ldb = p->ldb, ldc = p->ldc, units = p->k;
    float *c = p->c + row * ldc + col;
    vf sum[REGISTER_ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < REGISTER_ROWS; i++) {
        sum[i][0] = accumulate ? vf_load(c + i * ldc) : (vf){0};
        sum[i][1] = accumulate ? vf_load(c + i * ldc + CPU_LANES) : (vf){0};
    }
    for (int64_t k = 0; k < units; k++, a++, b += ldb) {
        vu b0 = unit_load(b), b1 = unit_load(b + CPU_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < REGISTER_ROWS; i++) {
            vu ai = unit_broadcast(a + i * lda);
            sum[i][0] = unit_dot(dt, sum[i][0], ai, b0);
            sum[i][1] = unit_dot(dt, sum[i][1], ai, b1);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < REGISTER_ROWS; i++) {
        vf_store(c + i * ldc, sum[i][0]);
        vf_store(c + i * ldc + CPU_LANES, sum[i][1]);
    }
}

SIMD_INLINE void tile_blocks(const int accumulate, const struct attention_product *p)
{
    for (int64_t row = 0; row < p->m; row += TILE_ROWS)
        for (int64_t col = 0; col < p->n; col += TILE_COLS) {
            struct tile_pairs a = {p->a + row * p->lda, p->lda, 16 * p->lda, TILE_UNITS};
            struct tile_pairs b = {p->b + col, p->ldb, 16, TILE_UNITS * p->ldb};
            struct tile_sums c = {p->c + row * p->ldc + col, p->ldc}, none = {NULL, 0};
            tile_block(&a, &b, accumulate ? &c : &none, &c, p->k);
        }
}

SIMD_INLINE void vector_blocks(const enum dtype dt, const int accumulate,
                               const struct attention_product *p)
{
    for (int64_t col = 0; col < p->n; col += TILE_COLS)
        for (int64_t row = 0; row < p->m; row += REGISTER_ROWS)
            vector_block(dt, accumulate, p, row, col);
}

void CPU(attention_product)(const struct attention_product *p)
{
    if (HAS_TILES && p->dt == DTYPE_BF16 && p->accumulate)
        tile_blocks(1, p);
    else if (HAS_TILES && p->dt == DTYPE_BF16)
        tile_blocks(0, p);
    else if (p->dt == DTYPE_BF16 && p->accumulate)
        vector_blocks(DTYPE_BF16, 1, p);
    else if (p->dt == DTYPE_BF16)
        vector_blocks(DTYPE_BF16, 0, p);
    else if (p->accumulate)
        vector_blocks(DTYPE_F32, 1, p);
    else
        vector_blocks(DTYPE_F32, 0, p);
}

/* to [n][dim] = n rows of dt */
SIMD_INLINE void widen_rows(const enum dtype dt, float *to, int64_t dim,
                            const struct attention_rows *from, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < dim; i += CPU_LANES) {
            int64_t at = from->first + r * from->stride + i;
            vf_put_some(DTYPE_F32, to, r * dim + i, dim - i,
                        vf_get_some(dt, from->base, at, dim - i));
        }
}

/* Copy the units of one row, and prefetch the row that lies ahead_bytes further. */
SIMD_INLINE void copy_row(unit *to, const char *from, int64_t units, int64_t ahead_bytes)
{
    int64_t i = 0;
    for (; i + CPU_LANES <= units; i += CPU_LANES, from += CPU_LANES * sizeof *to) {
        __builtin_prefetch(from + ahead_bytes);
        unit_store(to + i, unit_load((const unit *)from));
    }
    if (i < units)
        memcpy(to + i, from, (size_t)(units - i) * sizeof *to);
}

void CPU(attention_pack_rows)(unit *to, const struct attention_shape *s,
                              const struct attention_rows *from, int64_t n)
{
    const int64_t size = (int64_t)dtype_bytes(s->dt_rows), stride = from->stride * size;
    const char *first = (const char *)from->base + from->first * size;
    int is_widened = s->dt != s->dt_rows;
    if (is_widened)
        WITH_DTYPE(widen_rows, s->dt_rows, (float *)to, s->dim, from, n);
    for (int64_t r = 0; r < n && !is_widened; r++) {
        unit *row = to + r * s->dim_units;
        copy_row(row, first + r * stride, s->row_units, BLOCK * stride);
        if (s->row_units < s->dim_units)
            memset(row + s->row_units, 0, (size_t)(s->dim_units - s->row_units) * sizeof *row);
    }
    memset(to + n * s->dim_units, 0, (size_t)((BLOCK - n) * s->dim_units) * sizeof *to);
}

/* Make of pairs of neighbouring elements in two rows pairs of elements of neighbouring rows. */
SIMD_INLINE void interleave_rows(unit *to, const unit *even, const unit *odd, int64_t units)
{
    const vi lanes = vi_lanes(), half = lanes / 2;
    const vi odd_lane = (lanes & 1) != 0;
    int64_t i = 0;
    for (; i + CPU_LANES <= units; i += CPU_LANES) {
        vu e = unit_load(even + i), o = unit_load(odd + i);
        vu low = (e & 0xffffu) | o << 16, high = e >> 16 | (o & 0xffff0000u);
        vi first = half + (odd_lane & CPU_LANES);
        unit_store(to + 2 * i, simd_shuffle_two(low, high, first));
        unit_store(to + 2 * i + CPU_LANES, simd_shuffle_two(low, high, first + CPU_LANES / 2));
    }
    for (; i < units; i++) {
        to[2 * i] = (even[i] & 0xffffu) | odd[i] << 16;
        to[2 * i + 1] = even[i] >> 16 | (odd[i] & 0xffff0000u);
    }
}

void CPU(attention_pack_sum)(unit *to, const struct attention_shape *s, const unit *rows)
{
    int64_t units = s->row_units, pad = (s->dim_cols - s->dim) * sizeof *to, ld = s->dim_units;
    for (int64_t r = 0; r < s->block_units; r++, to += s->dim_cols) {
        if (s->dt == DTYPE_BF16)
            interleave_rows(to, rows + 2 * r * ld, rows + (2 * r + 1) * ld, units);
        else
            memcpy(to, rows + r * ld, units * sizeof *to);
        if (pad)
            memset(to + s->dim, 0, pad);
    }
}

void CPU(attention_transpose)(unit *to, int64_t ld_to, const unit *from, int64_t ld_from,
                              int64_t rows, int64_t cols)
{
    int64_t whole_rows = rows - rows % CPU_LANES, whole_cols = cols - cols % CPU_LANES;
    for (int64_t i = 0; i < whole_rows; i += CPU_LANES)
        for (int64_t j = 0; j < whole_cols; j += CPU_LANES) {
            vu v[CPU_LANES];
            for (int r = 0; r < CPU_LANES; r++)
                v[r] = unit_load(from + (i + r) * ld_from + j);
            unit_transpose(v);
            for (int r = 0; r < CPU_LANES; r++)
                unit_store(to + (j + r) * ld_to + i, v[r]);
        }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i < whole_rows ? whole_cols : 0; j < cols; j++)
            to[j * ld_to + i] = from[i * ld_from + j];
}

void CPU(attention_sum_keys)(const struct attention_shape *s, float *c, const unit *a,
                             const unit *b, int64_t nk, int64_t n, int diagonal, int accumulate)
{
    int64_t step = diagonal ? TILE_COLS : n;
    for (int64_t col = 0; col < n; col += step) {
        int64_t seen = diagonal ? min_i64(nk, col + TILE_COLS) : nk;
        struct attention_product p = {.dt = s->dt,
                                      .accumulate = accumulate,
                                      .m = s->dim_rows,
                                      .n = step,
                                      .k = seen * s->block_units / BLOCK,
                                      .a = a,
                                      .b = b + col,
                                      .c = c + col,
                                      .lda = s->block_units,
                                      .ldb = BLOCK,
                                      .ldc = BLOCK};
        CPU(attention_product)(&p);
    }
}

SIMD_INLINE void write_row(const enum dtype dt, void *base, int64_t first, const float *from,
                           float scale, int64_t dim)
{
    for (int64_t i = 0; i < dim; i += CPU_LANES) {
        vf v = vf_get_some(DTYPE_F32, from, i, dim - i) * scale;
        vf_put_some(dt, base, first + i, dim - i, v);
    }
}

void CPU(attention_write_rows)(void *base, int64_t first, int64_t stride,
                               const struct attention_shape *s, const float *from, int64_t ld,
                               float scale, int64_t n)
{
    for (int64_t r = 0; r < n; r++, first += stride, from += ld)
        WITH_DTYPE(write_row, s->dt_rows, base, first, from, scale, s->dim);
}
