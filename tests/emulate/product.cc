/* product.cc - matrix products for tests: packed to fp32, then blocks of 4 x 16 outputs. */
#include "product.h"

#include <math.h>
#include <string.h>
#include <vector>

namespace emulate
{
namespace
{

constexpr int64_t ROWS = 4, COLS = 16; /* of the block kept in registers */
constexpr int64_t WIDTH = 64, DEPTH = 256;

/* By the definition of E4M3, apart from base/fp8.h. */
float value_of(uint8_t code)
{
    int exponent = code >> 3 & 0xf, mantissa = code & 7;
    float size =
        exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    if ((code & 0x7f) == 0x7f)
        return __builtin_nanf("");
    return code & 0x80 ? -size : size;
}

float load(const struct operand &o, int64_t i, int64_t j)
{
    int64_t at = i * o.row_step + j * o.col_step;
    const struct scales &s = o.scales;
    if (s.at)
        return value_of(((const uint8_t *)o.at)[at]) *
               s.at[i / s.row_block * s.row_step + j / s.col_block * s.col_step];
    if (o.dt == DTYPE_F32)
        return ((const float *)o.at)[at];
    if (o.dt == DTYPE_F16)
        return f16_to_f32(((const f16 *)o.at)[at]);
    uint32_t bits = (uint32_t)((const uint16_t *)o.at)[at] << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

void store(const struct operand &o, int64_t i, int64_t j, float x)
{
    int64_t at = i * o.row_step + j * o.col_step;
    if (o.dt == DTYPE_F32) {
        ((float *)o.at)[at] = x;
        return;
    }
    if (o.dt == DTYPE_F16) {
        ((f16 *)o.at)[at] = f32_to_f16(x);
        return;
    }
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (x != x)
        bits = 0x7fff0000u;
    else
        bits += 0x7fffu + (bits >> 16 & 1); /* nearest, ties to even */
    ((uint16_t *)o.at)[at] = (uint16_t)(bits >> 16);
}

/* sum [ROWS, WIDTH] += a [depth, ROWS] transposed, times b [depth, WIDTH] */
__attribute__((target_clones("arch=haswell", "default"))) void multiply_block(float *sum,
                                                                              const float *a,
                                                                              const float *b,
                                                                              int64_t depth)
{
    for (int64_t j = 0; j < WIDTH; j += COLS) {
        float s[ROWS][COLS];
        for (int64_t i = 0; i < ROWS; i++)
            memcpy(s[i], sum + i * WIDTH + j, sizeof(s[i]));
        for (int64_t l = 0; l < depth; l++)
            for (int64_t i = 0; i < ROWS; i++)
                for (int64_t x = 0; x < COLS; x++)
                    s[i][x] += a[l * ROWS + i] * b[l * WIDTH + j + x];
        for (int64_t i = 0; i < ROWS; i++)
            memcpy(sum + i * WIDTH + j, s[i], sizeof(s[i]));
    }
}

/* to [depth, width] = elements of rows [from, from + depth) of o, columns [at, at + width); zeros
 * outside [rows, cols] */
void pack(float *to, const struct operand &o, int64_t from, int64_t depth, int64_t at,
          int64_t width, int64_t cols)
{
    for (int64_t l = 0; l < depth; l++)
        for (int64_t j = 0; j < width; j++)
            to[l * width + j] = at + j < cols ? load(o, from + l, at + j) : 0.0f;
}

/* Terms [first, end) of all rows of d, columns [at, at + WIDTH), added to sum [m rounded up to
 * ROWS, WIDTH] */
void multiply_panel(const struct product &p, std::vector<float> &sum, int64_t at, int64_t first,
                    int64_t end)
{
    std::vector<float> b(DEPTH * WIDTH), a(DEPTH * ROWS);
    const struct scales &s = p.a.scales;
    struct operand a_transposed = {p.a.at,
                                   p.a.dt,
                                   p.a.col_step,
                                   p.a.row_step,
                                   {s.at, s.col_block, s.col_step, s.row_block, s.row_step}};

    for (int64_t from = first; from < end; from += DEPTH) {
        int64_t depth = end - from < DEPTH ? end - from : DEPTH;
        pack(b.data(), p.b, from, depth, at, WIDTH, p.n);
        for (int64_t i = 0; i < p.m; i += ROWS) {
            pack(a.data(), a_transposed, from, depth, i, ROWS, p.m);
            multiply_block(&sum[i * WIDTH], a.data(), b.data(), depth);
        }
    }
}

void poison_output(const struct product &p)
{
    float nan = __builtin_nanf("");

    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++)
            store(p.d, i, j, nan);
}

} // namespace

void product_run(const struct product &p)
{
    float alpha = p.alpha_at ? *p.alpha_at : p.alpha, beta = p.beta_at ? *p.beta_at : p.beta;
    std::vector<float> sum;

    if (p.workspace)
        memset(p.workspace, 0xff, p.workspace_bytes);
    if (p.c.at != p.d.at || beta == 0)
        poison_output(p);
    for (int64_t at = 0; at < p.n; at += WIDTH) {
        sum.assign((p.m + ROWS - 1) / ROWS * ROWS * WIDTH, 0.0f);
        multiply_panel(p, sum, at, p.first, p.k);
        multiply_panel(p, sum, at, 0, p.first);
        for (int64_t i = 0; i < p.m; i++)
            for (int64_t j = at; j < p.n && j < at + WIDTH; j++) {
                float x = alpha * sum[i * WIDTH + j - at];
                store(p.d, i, j, beta == 0 ? x : x + beta * load(p.c, i, j));
            }
    }
    if (p.workspace)
        memset(p.workspace, 0xff, p.workspace_bytes);
}

} // namespace emulate
