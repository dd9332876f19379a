/* fp8_reference.c - see fp8_reference.h. */
#include "fp8_reference.h"

#include "base/philox.h"

/* ---- numbers ---- */

double reference_value(int code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double size = exponent ? ldexp(8 + mantissa, exponent - 7 - 3) : ldexp(mantissa, -9);
    return (code & 0x7f) == 0x7f ? NAN : code & 0x80 ? -size : size;
}

/* Of those whose sign is that of x. */
static int nearest(double x)
{
    const int sign = signbit(x) ? 0x80 : 0;
    int best = sign;
    if (isnan(x))
        return 0x7f;
    for (int code = sign; code < sign + 0x7f; code++) {
        double off = fabs(reference_value(code) - x), least = fabs(reference_value(best) - x);
        if (off < least || (off == least && !(code & 1)))
            best = code;
    }
    return best;
}

int reference_code(double x)
{
    static int16_t kept[0x10000]; /* 1 + the code */
    bf16 bits = f32_to_bf16((float)x);
    if (!kept[bits])
        kept[bits] = (int16_t)(1 + nearest(bf16_to_f32(bits)));
    return kept[bits] - 1;
}

/* ---- matrices ---- */

/* Of a block whose largest magnitude is this; not a number where one of it is none or infinite. */
static double scale_of(double largest)
{
    int exponent = -117;
    if (!isfinite(largest))
        return NAN;
    while (largest / ldexp(1, exponent) > 448)
        exponent++;
    return largest > 0 ? ldexp(1, exponent) : 1;
}

static double largest_of_block(const struct matrix *m, int64_t row, int64_t k)
{
    const int64_t first = m->squares ? row / 128 * 128 : row,
                  end = m->squares ? first + 128 : row + 1;
    double largest = 0;
    for (int64_t i = first; i < end && i < m->rows; i++)
        for (int64_t j = k / 128 * 128; j < k / 128 * 128 + 128 && j < m->k; j++) {
            double size = fabs(m->x[i * m->k + j]);
            largest = isnan(largest) || size <= largest ? largest : size;
        }
    return largest;
}

struct matrix make_matrix(int64_t rows, int64_t k, int squares)
{
    struct matrix m = {rows, k, squares};
    m.x = calloc((size_t)(rows * k), sizeof *m.x);
    m.scale = calloc((size_t)(rows * k), sizeof *m.scale);
    m.code = calloc((size_t)(rows * k), sizeof *m.code);
    return m;
}

void free_matrix(struct matrix *m)
{
    free(m->x);
    free(m->scale);
    free(m->code);
}

void round_matrix(struct matrix *m)
{
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->k; j++) {
            int is_first = j % 128 == 0 && (i % 128 == 0 || !m->squares);
            int64_t from = (m->squares ? i / 128 * 128 : i) * m->k + j / 128 * 128;
            m->scale[i * m->k + j] =
                is_first ? scale_of(largest_of_block(m, i, j)) : m->scale[from];
        }
    for (int64_t e = 0; e < m->rows * m->k; e++) {
        m->code[e] = reference_code(m->x[e] / m->scale[e]);
        m->x[e] = reference_value(m->code[e]) * m->scale[e];
    }
}

int64_t ld_of(const struct matrix *m, const struct lie *lie)
{
    return (lie->k_contiguous ? m->k : m->rows) + lie->padding;
}

int64_t place_of(const struct matrix *m, const struct lie *lie, int64_t row, int64_t k)
{
    const int64_t ld = ld_of(m, lie);
    return lie->offset + (lie->k_contiguous ? row * ld + k : k * ld + row);
}

struct tensor tensor_of(const struct matrix *m, const struct lie *lie)
{
    const int64_t lines = lie->k_contiguous ? m->rows : m->k;
    struct tensor t = tensor_poisoned(DTYPE_BF16, lie->offset + lines * ld_of(m, lie));
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->k; j++)
            tensor_set(&t, place_of(m, lie, i, j), m->x[i * m->k + j]);
    return t;
}

void fill_matrix(struct matrix *m, uint64_t seed)
{
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->k; j++) {
            int exponent = (int)((i * 5 + i / 128 * 3 + j / 128 * 7) % 11) - 5;
            double x = philox_normal(seed, (uint64_t)(i * m->k + j));
            m->x[i * m->k + j] = rounded(DTYPE_BF16, ldexp(x, exponent));
        }
}

/* ---- products ---- */

void check_product(const struct gemm *g, const struct matrix *a, const struct matrix *b,
                   const struct tensor *addend, const struct tensor *c, double tolerance)
{
    for (int64_t e = 0; e < g->m * g->n; e++) {
        const double *of_a = a->x + e / g->n * g->k, *of_b = b->x + e % g->n * g->k;
        double product = 0, square = 0, got = tensor_get(c, e);
        for (int64_t l = 0; l < g->k; l++) {
            double term = of_a[l] * of_b[l];
            product += term;
            square += term * term;
        }
        double want = product + (addend ? tensor_get(addend, e) : 0);
        double size = fabs(want) + sqrt(square);
        if (addend && c->dt != DTYPE_F32)
            size += fabs(product);
        if (!(fabs(got - want) <= tolerance * size))
            fail_msg("element %lld of %lld x %lld x %lld, trans %d%d, %s: got %.9g, want %.9g",
                     (long long)e, (long long)g->m, (long long)g->n, (long long)g->k, g->trans_a,
                     g->trans_b, b->squares ? "squares" : "vectors", got, want);
    }
}
