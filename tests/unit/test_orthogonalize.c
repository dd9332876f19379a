/* test_orthogonalize.c - what Muon makes orthogonal is, in fp32 and by products in bf16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "segment/orthogonalize.h"

static struct error err;

static float *orthogonal_in(struct device *d, enum dtype dtype, const float *from, int64_t rows,
                            int64_t cols)
{
    const struct orthogonalize o = {.rows = rows, .cols = cols, .steps = 5, .dtype = dtype};
    void *work = aligned_alloc(64, (orthogonalize_bytes(d, &o) + 63) / 64 * 64);
    float *x = malloc((size_t)(rows * cols) * sizeof *x);
    memcpy(x, from, (size_t)(rows * cols) * sizeof *x);
    assert_int_equal(orthogonalize(d, &o, x, work, &err), 0);
    free(work);
    return x;
}

static float *orthogonal(struct device *d, const float *from, int64_t rows, int64_t cols)
{
    return orthogonal_in(d, DTYPE_F32, from, rows, cols);
}

static float *random_matrix(int64_t elems, uint64_t seed)
{
    float *x = malloc((size_t)elems * sizeof *x);
    for (int64_t i = 0; i < elems; i++)
        x[i] = (float)(philox_u64(seed, (uint64_t)i) % 20001) / 1e4f - 1;
    return x;
}

/* Rows (or columns, of which there are fewer) of length near one and nearly at right angles; the
 * transpose comes out as the transpose; nothing stays nothing. */
static void shapes_come_out_orthogonal(void **state)
{
    static const int64_t shapes[][2] = {{1, 1}, {1, 97}, {3, 50}, {7, 64}, {31, 211}, {64, 257}};
    struct device *d;
    struct device_request request = {.threads = 1};
    assert_int_equal(device_open(&d, &request, &err), 0);
    for (int s = 0; s < 6; s++) {
        int64_t rows = shapes[s][0], cols = shapes[s][1];
        float *wide = random_matrix(rows * cols, (uint64_t)s),
              *tall = random_matrix(rows * cols, 0);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                tall[c * rows + r] = wide[r * cols + c];
        float *x = orthogonal(d, wide, rows, cols), *y = orthogonal(d, tall, cols, rows);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t q = 0; q < rows; q++) {
                double dot = 0;
                for (int64_t c = 0; c < cols; c++)
                    dot += (double)x[r * cols + c] * x[q * cols + c];
                assert_true(r == q ? dot > 0.4 && dot < 1.5 : fabs(dot) < 0.4);
            }
        for (int64_t i = 0; i < rows * cols; i++)
            assert_true(fabsf(x[i] - y[i % cols * rows + i / cols]) < 2e-5f);
        memset(wide, 0, (size_t)(rows * cols) * sizeof *wide);
        float *zero = orthogonal(d, wide, rows, cols);
        assert_memory_equal(zero, wide, (size_t)(rows * cols) * sizeof *wide);
        free(zero);
        free(wide);
        free(tall);
        free(x);
        free(y);
    }
    device_close(d);
}

/* The singular values of x [rows, cols], in no order: columns are turned in pairs until all are at
 * right angles (one-sided Jacobi), and then their lengths.  rows >= cols. */
static void singular_values(double *x, int64_t rows, int64_t cols, double *value)
{
    double off = 1;
    for (int sweep = 0; sweep < 60 && off > 1e-12; sweep++) {
        off = 0;
        for (int64_t p = 0; p < cols; p++)
            for (int64_t q = p + 1; q < cols; q++) {
                double pp = 0, qq = 0, pq = 0;
                for (int64_t r = 0; r < rows; r++) {
                    double a = x[r * cols + p], c = x[r * cols + q];
                    pp += a * a, qq += c * c, pq += a * c;
                }
                if (pq == 0)
                    continue;
                off = fmax(off, fabs(pq) / sqrt(pp * qq + 1e-300));
                double zeta = (qq - pp) / (2 * pq);
                double t = copysign(1, zeta) / (fabs(zeta) + sqrt(1 + zeta * zeta));
                double cosine = 1 / sqrt(1 + t * t), sine = cosine * t;
                for (int64_t r = 0; r < rows; r++) {
                    double a = x[r * cols + p], c = x[r * cols + q];
                    x[r * cols + p] = cosine * a - sine * c;
                    x[r * cols + q] = sine * a + cosine * c;
                }
            }
    }
    for (int64_t c = 0; c < cols; c++) {
        value[c] = 0;
        for (int64_t r = 0; r < rows; r++)
            value[c] += x[r * cols + c] * x[r * cols + c];
        value[c] = sqrt(value[c]);
    }
}

/* [rows, cols] with singular values that fall evenly in their logarithm from 1 to `last`: a random
 * matrix is made orthogonal by Gram and Schmidt, and its columns are scaled. rows >= cols. */
static float *with_values(int64_t rows, int64_t cols, double last, uint64_t seed)
{
    double *q = malloc((size_t)(rows * cols) * sizeof *q);
    float *x = malloc((size_t)(rows * cols) * sizeof *x);
    float *random = random_matrix(rows * cols, seed), *turn = random_matrix(cols * cols, seed + 1);
    double *v = malloc((size_t)(cols * cols) * sizeof *v);
    double *base[] = {q, v};
    const float *from[] = {random, turn};
    for (int m = 0; m < 2; m++)
        for (int64_t c = 0, n = m ? cols : rows; c < cols; c++) {
            double *at = base[m], length = 0;
            for (int64_t r = 0; r < n; r++)
                at[r * cols + c] = from[m][r * cols + c];
            for (int64_t b = 0; b < 2 * c; b++) { /* twice is enough */
                double dot = 0;
                for (int64_t r = 0; r < n; r++)
                    dot += at[r * cols + c] * at[r * cols + b % c];
                for (int64_t r = 0; r < n; r++)
                    at[r * cols + c] -= dot * at[r * cols + b % c];
            }
            for (int64_t r = 0; r < n; r++)
                length += at[r * cols + c] * at[r * cols + c];
            for (int64_t r = 0; r < n; r++)
                at[r * cols + c] /= sqrt(length);
        }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (int64_t k = 0; k < cols; k++)
                sum += q[r * cols + k] * v[c * cols + k] *
                       pow(last, cols > 1 ? (double)k / (double)(cols - 1) : 0);
            x[r * cols + c] = (float)sum;
        }
    free(q);
    free(v);
    free(random);
    free(turn);
    return x;
}

/* The lowest and the highest singular value of what comes out of x, and how far it is from what
 * comes out in fp32, of the length of that. */
struct outcome {
    double low, high, off;
};

static struct outcome orthogonal_outcome(struct device *d, enum dtype dtype, const float *x,
                                         int64_t rows, int64_t cols)
{
    struct outcome o = {.low = INFINITY};
    float *y = orthogonal_in(d, dtype, x, rows, cols), *exact = orthogonal(d, x, rows, cols);
    double *wide = malloc((size_t)(rows * cols) * sizeof *wide),
           *value = calloc(cols, sizeof *value);
    double difference = 0, length = 0;
    for (int64_t i = 0; i < rows * cols; i++) {
        wide[i] = y[i];
        difference += ((double)y[i] - exact[i]) * ((double)y[i] - exact[i]);
        length += (double)exact[i] * exact[i];
    }
    singular_values(wide, rows, cols, value);
    for (int64_t c = 0; c < cols; c++) {
        o.low = fmin(o.low, value[c]);
        o.high = fmax(o.high, value[c]);
    }
    o.off = sqrt(difference / length);
    free(value);
    free(wide);
    free(y);
    free(exact);
    return o;
}

/* bf16 has 8 bits: what is rounded is off by up to 2^-9 of its length.  Three operands are rounded
 * in each of five steps, and a step multiplies an error by 3.4445 at most where values are small,
 * and by less than one, on the whole, where they have arrived: 15 * 2^-9 * 3.4445 = 0.1 of the
 * length of what comes out bounds the sum.  Errors of many elements have all directions, so that a
 * singular value is off by far less: in fp32 values end between 0.68 and 1.21, in bf16 0.02 beside
 * that at most.  Where a matrix has directions of a thousandth of its length, roundings are as
 * large as they: then only the highest value is bounded. */
static void bf16_is_as_orthogonal(void **state)
{
    static const int64_t shapes[][2] = {{7, 7}, {61, 17}, {128, 128}, {257, 64}};
    static const double lasts[] = {1, 0.3, 0.1, 0.01, 0.001};
    struct device *d;
    struct device_request request = {.threads = 2};
    struct outcome worst = {.low = INFINITY};
    assert_int_equal(device_open(&d, &request, &err), 0);
    for (int s = 0; s < 4; s++)
        for (int k = 0; k < 5; k++) {
            int64_t rows = shapes[s][0], cols = shapes[s][1];
            float *x = with_values(rows, cols, lasts[k], (uint64_t)(10 * s + k));
            struct outcome full = orthogonal_outcome(d, DTYPE_F32, x, rows, cols);
            struct outcome half = orthogonal_outcome(d, DTYPE_BF16, x, rows, cols);
            free(x);
            assert_true(full.off == 0 && half.off > 1e-3);
            worst.high = fmax(worst.high, half.high);
            if (lasts[k] < 0.01)
                continue;
            assert_true(full.low > 0.68 && full.high < 1.21);
            worst.off = fmax(worst.off, half.off);
            worst.low = fmin(worst.low, half.low);
        }
    print_message("off by %.2g of the length, values from %.4f to %.4f\n", worst.off, worst.low,
                  worst.high);
    assert_true(worst.off < 0.1 && worst.low > 0.66 && worst.high < 1.23);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_come_out_orthogonal),
        cmocka_unit_test(bf16_is_as_orthogonal),
    };
    return cmocka_run_group_tests_name("orthogonalize", tests, NULL, NULL);
}
