/* sampling_blocks.c - the largest logits and the weights of blocks of tokens, by vectors.
 *
 * A weight is what exp() in double gives, rounded to float, to the bit.  A series gives it in a
 * vector to 2^-43 of it, which nearly always rounds to the same float whatever the error; where it
 * might not, which is one token in 2^18, the weights of its block are computed by exp().
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/levels.h"
#include "base/round.h"
#include "train/sampling_private.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- the largest logits ---- */

/* Floats as integers in the same order, but that -0 is below 0; those of NaN with either sign are
 * at the ends. */
INLINE int32_t in_order(float x)
{
    int32_t bits = (int32_t)sampling_bits(x);
    return bits ^ ((bits >> 31) & INT32_MAX);
}

INLINE float from_order(int32_t order)
{
    float x;
    order ^= (order >> 31) & INT32_MAX;
    memcpy(&x, &order, sizeof x);
    return x;
}

/* Returns the largest logit, or NaN. */
EVERY_LEVEL static float find_tops(float *top, const float *logits, int64_t vocab)
{
    const int32_t infinity = 0x7f800000;
    int32_t most = INT32_MIN, least = INT32_MAX;
    for (int64_t first = 0; first < vocab; first += SAMPLING_BLOCK) {
        int64_t n = min_i64(vocab - first, SAMPLING_BLOCK);
        int32_t high = INT32_MIN;
        for (int64_t i = 0; i < n; i++) {
            int32_t order = in_order(logits[first + i]);
            high = order > high ? order : high;
            least = order < least ? order : least;
        }
        top[first / SAMPLING_BLOCK] = from_order(high);
        most = high > most ? high : most;
    }
    return most > infinity || least < ~infinity ? NAN : from_order(most);
}

float sampling_tops(struct sampling *s, const float *logits)
{
    return find_tops(s->top, logits, s->vocab);
}

/* ---- weights ---- */

/* e^x, x in [-700, 0], to 2^-46 of it.  x = n ln 2 + r, |r| <= ln 2 / 2, where adding 1.5 * 2^52
 * rounds to an integer, which the last bits then are; ln 2 in two parts, of which n times the first
 * is exact; and the series of e^r up to r^11 / 11!. */
INLINE double power(double x)
{
    const double to_integer = 0x1.8p52;
    double shifted = x * 0x1.71547652b82fep0 + to_integer, n = shifted - to_integer, scale;
    double r = x - n * 0x1.62e42fefap-1 - n * 0x1.cf79abc9e3b39p-40;
    double y = 1.0 / 3628800 + r * (1.0 / 39916800);
    y = 1.0 / 40320 + r * (1.0 / 362880 + r * y);
    y = 1.0 / 720 + r * (1.0 / 5040 + r * y);
    y = 1.0 / 24 + r * (1.0 / 120 + r * y);
    y = 1.0 / 2 + r * (1.0 / 6 + r * y);
    y = 1 + r * (1 + r * y);
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52; /* 2^n */
    memcpy(&scale, &bits, sizeof scale);
    return y * scale;
}

/* The weights of n tokens and their sum; 0 of those with a logit below `least`.  Returns 1 where
 * one of them may be another.  In place of a division by the temperature its inverse is a factor:
 * the exponent, -104 at least where the weight is not 0, gets an error of up to 2^-44.7, and so
 * does the power.  Without a branch, which would keep the loop from vectors. */
EVERY_LEVEL static int weigh(float *restrict weight, double *restrict sum,
                             const float *restrict logits, int64_t n, float most, float least,
                             double factor)
{
    const double error = 0x1p-43;
    double total = 0;
    uint32_t doubt = 0;
#pragma omp simd reduction(+ : total) reduction(| : doubt)
    for (int64_t i = 0; i < n; i++) {
        double y = power((logits[i] - most) * factor);
        uint32_t kept = -(uint32_t)(logits[i] >= least);
        uint32_t low = sampling_bits((float)(y * (1 - error))) & kept;
        uint32_t high = sampling_bits((float)(y * (1 + error))) & kept;
        doubt |= low ^ high;
        memcpy(&weight[i], &low, sizeof low);
        total += weight[i];
    }
    *sum = total;
    return doubt != 0;
}

static double weigh_by_exp(float *weight, const float *logits, int64_t n,
                           const struct sampling_call *call)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        weight[i] = sampling_weight(call, logits[i]);
        sum += weight[i];
    }
    return sum;
}

double sampling_weigh(struct sampling *s, const struct sampling_call *call)
{
    const double lowest = -110; /* of the exponent: e^-104 is less than half of the least float */
    double factor = 1 / call->temperature, total = 0;
    float least = fmaxf(call->least, (float)(call->most + lowest * call->temperature));
    least = fmaxf(least, -FLT_MAX);
    for (int64_t b = 0; b < s->blocks; b++) {
        float *weight = s->weight + b * SAMPLING_BLOCK;
        const float *logits = call->logits + b * SAMPLING_BLOCK;
        int64_t n = sampling_block(s, b);
        s->sum[b] = 0;
        if (s->top[b] < call->least)
            continue;
        if (isinf(factor) || weigh(weight, &s->sum[b], logits, n, call->most, least, factor))
            s->sum[b] = weigh_by_exp(weight, logits, n, call);
        total += s->sum[b];
    }
    return total;
}
