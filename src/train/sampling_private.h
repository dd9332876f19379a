/* sampling_private.h - what the files of sampling share: see sampling.c. */
#ifndef TRIREME_TRAIN_SAMPLING_PRIVATE_H
#define TRIREME_TRAIN_SAMPLING_PRIVATE_H

#include <stdint.h>
#include <string.h>

enum {
    SAMPLING_BLOCK = 128,       /* tokens of a block; the last may have fewer */
    SAMPLING_BUCKETS = 1 << 15, /* values that half the bits of a weight can have */
};

struct sampling_candidate {
    float weight;
    int32_t id;
};

struct sampling {
    int64_t vocab, blocks;
    float *top;                           /* per block: its largest logit */
    float *weight;                        /* per token, valid in blocks whose sum is above 0 */
    double *sum;                          /* per block: sum of its weights, up to rounding */
    double *bucket;                       /* sums of weights whose bits begin, or end, alike */
    struct sampling_candidate *candidate; /* tokens that top_p may keep, to be sorted */
    char *seen;                           /* per token: 1: it is in the text; all 0 between calls */
};

/* What a token is drawn by, once penalties and top_k have changed the logits. */
struct sampling_call {
    const float *logits;
    float most, least; /* the largest, which is finite, and the smallest that is not left out */
    double temperature, top_p, uniform;
};

/* The number of tokens in block b, which begins with token b * SAMPLING_BLOCK. */
static inline int64_t sampling_block(const struct sampling *s, int64_t b)
{
    int64_t left = s->vocab - b * SAMPLING_BLOCK;
    return left < SAMPLING_BLOCK ? left : SAMPLING_BLOCK;
}

/* The bits of a float: for floats from 0 on, integers in the same order. */
static inline __attribute__((always_inline)) uint32_t sampling_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Set top; returns the largest logit of all, NaN if one is NaN. */
float sampling_tops(struct sampling *s, const float *logits);

/* The weight of a token of this logit. */
float sampling_weight(const struct sampling_call *call, float logit);

/* Set weight and sum, after top; returns the sum of all weights. */
double sampling_weigh(struct sampling *s, const struct sampling_call *call);

/* After sampling_weigh(), whose sum was total: leave out what comes after the fewest tokens that
 * come to top_p of it.  Returns the sum of the weights kept; or a negative number, with weights in
 * any state, where sums lie within margin of where it would be decided otherwise. */
double sampling_keep(struct sampling *s, const struct sampling_call *call, double total,
                     double margin);

/* Draw the token by sums in the order that defines it; top, weight and sum need not be set.  All
 * else here is a faster way to the same token. */
int64_t sampling_in_order(struct sampling *s, const struct sampling_call *call);

#endif
