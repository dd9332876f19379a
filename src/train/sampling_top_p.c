/* sampling_top_p.c - the fewest tokens that come to top_p, without sorting.
 *
 * The bits of a weight, which is from 0 to 1, are a number of 30 bits in the same order.  By their
 * first 15 bits weights are summed in buckets, and the buckets are added up, heaviest first, until
 * one brings the sum to where it has to come.  Those in that bucket are summed by their other 15
 * bits, so that all in a bucket weigh the same:
 *
 *   buckets   | .. 1.0 | .. 0.5 | .. 0.25 | ...      wanted 0.9 of 3 = 2.7
 *   sums      |  1.0   |  1.5   |  0.3    | 0.2      2.5 of two buckets; the third has the rest,
 *             |        |        | 0.15  0.15 |       2.65 and 2.8: both of 0.15 are kept
 *
 * Blocks whose heaviest token is lighter than the lightest that is kept can be are not looked at.
 */
#include <math.h>
#include <string.h>

#include "base/levels.h"
#include "train/sampling_private.h"

/* Where tokens are cut off: those that are heavier than a weight are kept, and the first `ties` of
 * those that have this weight. */
struct cut {
    float weight;
    double ties;
};

enum { ALL = -1, LOW_BITS = 15, BUCKETS = SAMPLING_BUCKETS };

/* Leave out blocks of which all weights are below `faint`, even when they are rounded. */
static void leave_faint(struct sampling *s, const struct sampling_call *call, double faint)
{
    const double rounding = 1e-6;
    double least = call->most + call->temperature * (log(faint) - rounding);
    for (int64_t b = 0; b < s->blocks; b++)
        if (s->top[b] < least)
            s->sum[b] = 0;
}

/* Sum the weights of blocks that are left: ALL by their first bits, or those whose first bits are
 * `upper` by their last. */
static void fill(struct sampling *s, int upper)
{
    memset(s->bucket, 0, BUCKETS * sizeof *s->bucket);
    for (int64_t b = 0; b < s->blocks; b++) {
        const float *weight = s->weight + b * SAMPLING_BLOCK;
        int64_t n = s->sum[b] > 0 ? sampling_block(s, b) : 0;
        for (int64_t i = 0; i < n && upper == ALL; i++)
            s->bucket[sampling_bits(weight[i]) >> LOW_BITS] += weight[i];
        for (int64_t i = 0; i < n && upper != ALL; i++)
            if (sampling_bits(weight[i]) >> LOW_BITS == (uint32_t)upper)
                s->bucket[sampling_bits(weight[i]) % BUCKETS] += weight[i];
    }
}

/* The bucket that brings *heavier, the sum of those before it, to limit; -1 if none does. */
static int reach(const struct sampling *s, double limit, double *heavier)
{
    int k = BUCKETS - 1;
    while (k >= 0 && *heavier + s->bucket[k] < limit)
        *heavier += s->bucket[k--];
    return k;
}

/* Find where tokens are cut off.  The first token is kept in any case.  Returns 0, or -1 where
 * rounding may decide. */
static int find_cut(struct sampling *s, double limit, double faint, double margin, struct cut *cut)
{
    double heavier = 0;
    fill(s, ALL);
    int upper = reach(s, limit, &heavier);
    if (upper < 0)
        return -1;
    fill(s, upper);
    int lower = reach(s, limit, &heavier);
    if (lower < 0)
        return -1;
    uint32_t bits = (uint32_t)upper << LOW_BITS | (uint32_t)lower;
    memcpy(&cut->weight, &bits, sizeof bits);
    cut->ties = fmax(ceil((limit - heavier) / cut->weight), 1);
    double before = heavier + (cut->ties - 1) * cut->weight, after = before + cut->weight;
    int is_sure = (before == 0 || limit - before > margin) && after - limit > margin;
    return is_sure && cut->weight >= faint ? 0 : -1;
}

/* Set the weights of a block that are below `least` to 0.  Returns the sum of the others; *ties:
 * how many are equal to least.  least is the bits of a weight, which are in the order of weights.
 */
EVERY_LEVEL static double keep_block(float *weight, int64_t n, uint32_t least, int *ties)
{
    double sum = 0;
    uint32_t equal = 0;
#pragma omp simd reduction(+ : sum, equal)
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = sampling_bits(weight[i]);
        equal += bits == least;
        bits &= -(uint32_t)(bits >= least);
        memcpy(&weight[i], &bits, sizeof bits);
        sum += weight[i];
    }
    *ties = (int)equal;
    return sum;
}

static double keep(struct sampling *s, const struct cut *cut)
{
    double total = 0, left = cut->ties;
    for (int64_t b = 0; b < s->blocks; b++) {
        float *weight = s->weight + b * SAMPLING_BLOCK;
        int64_t n = sampling_block(s, b);
        int ties = 0;
        if (s->sum[b] > 0)
            s->sum[b] = keep_block(weight, n, sampling_bits(cut->weight), &ties);
        for (int64_t i = n - 1; ties > left; i--)
            if (weight[i] == cut->weight) {
                weight[i] = 0;
                s->sum[b] -= cut->weight;
                ties--;
            }
        left -= ties;
        total += s->sum[b];
    }
    return total;
}

double sampling_keep(struct sampling *s, const struct sampling_call *call, double total,
                     double margin)
{
    /* Tokens lighter than that come to less than what is left out. */
    double faint = total * (1 - call->top_p) / (double)s->vocab;
    struct cut cut;
    leave_faint(s, call, faint);
    if (find_cut(s, call->top_p * total, faint, margin, &cut))
        return -1;
    return keep(s, &cut);
}
