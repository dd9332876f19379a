/* sampling.c - the steps of sampling.h, in time linear in the vocabulary.
 *
 * Each token has the weight exp((logit - largest) / temperature), or 0 if it is left out; no weight
 * is divided by their sum.  The token is the one in whose weight the place uniform * sum lies:
 *
 *   weights  3 | 0 | 5 | 2    uniform 0.5: place 5 of 10, which is in the third
 *
 * Additions round, so that their order can decide which token that is.  sampling_in_order.c defines
 * it, by an order in which each addition waits for the one before.  To be faster, sums of blocks of
 * tokens are made by vectors (sampling_blocks.c), and for top_p sums of tokens of about the same
 * weight (sampling_top_p.c).  They differ from sums in order by less than a margin.  Where the
 * numbers compared are further apart than that, the order decides nothing, and the token is found.
 * Where they are not, as in one draw of 100,000 or where many tokens weigh the same, the token is
 * drawn again by sums in order.
 *
 * For top_k only the k-th largest logit has to be known.  The k-th largest of all blocks' largest
 * logits bounds it from below, since k blocks have one at least as large.  It is then selected
 * among the logits that reach the bound, which are few.
 */
#include "train/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "train/sampling_private.h"

struct sampling *sampling_create(int64_t vocab)
{
    struct sampling *s = array_make(1, sizeof *s);
    s->vocab = vocab;
    s->blocks = (vocab + SAMPLING_BLOCK - 1) / SAMPLING_BLOCK;
    s->top = array_make((size_t)s->blocks, sizeof *s->top);
    s->weight = array_make((size_t)vocab, sizeof *s->weight);
    s->sum = array_make((size_t)s->blocks, sizeof *s->sum);
    s->bucket = array_make(SAMPLING_BUCKETS, sizeof *s->bucket);
    s->candidate = array_make((size_t)vocab, sizeof *s->candidate);
    s->seen = array_make((size_t)vocab, 1);
    return s;
}

void sampling_destroy(struct sampling *s)
{
    if (!s)
        return;
    free(s->top);
    free(s->weight);
    free(s->sum);
    free(s->bucket);
    free(s->candidate);
    free(s->seen);
    free(s);
}

static void penalize(struct sampling *s, float penalty, float *logits, const int32_t *ids,
                     int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= s->vocab || s->seen[ids[i]])
            continue;
        s->seen[ids[i]] = 1;
        float *logit = &logits[ids[i]];
        *logit = *logit > 0 ? *logit / penalty : *logit * penalty;
    }
    for (int64_t i = 0; i < count; i++)
        if (ids[i] >= 0 && ids[i] < s->vocab)
            s->seen[ids[i]] = 0;
}

/* The first token whose logit is the largest. */
static int64_t likeliest(const struct sampling *s, const float *logits, float most)
{
    int64_t b = 0;
    while (s->top[b] != most)
        b++;
    int64_t id = b * SAMPLING_BLOCK;
    while (logits[id] != most)
        id++;
    return id;
}

/* The k-th largest of n numbers, 1 <= k <= n, whose order changes (Hoare's selection). */
static float kth_largest(float *x, int64_t n, int64_t k)
{
    int64_t first = 0, last = n - 1, want = k - 1;
    while (first < last) {
        float pivot = x[first + (last - first) / 2];
        int64_t i = first, j = last;
        while (i <= j) {
            while (x[i] > pivot)
                i++;
            while (x[j] < pivot)
                j--;
            if (i <= j) {
                float other = x[i];
                x[i++] = x[j];
                x[j--] = other;
            }
        }
        if (want <= j)
            last = j;
        else if (want >= i)
            first = i;
        else
            break;
    }
    return x[want];
}

/* The logit that the k likeliest tokens have at least. */
static float threshold(struct sampling *s, const float *logits, int64_t k)
{
    float bound = -INFINITY;
    int64_t n = 0;
    if (k <= 0 || k >= s->vocab)
        return bound;
    if (k <= s->blocks) {
        memcpy(s->weight, s->top, (size_t)s->blocks * sizeof *s->top);
        bound = kth_largest(s->weight, s->blocks, k);
    }
    for (int64_t b = 0; b < s->blocks; b++) {
        const float *x = logits + b * SAMPLING_BLOCK;
        int64_t count = s->top[b] < bound ? 0 : sampling_block(s, b);
        for (int64_t i = 0; i < count; i++)
            if (x[i] >= bound)
                s->weight[n++] = x[i];
    }
    return kth_largest(s->weight, n, k);
}

/* The token in whose weight the place lies; -1 where that is within margin of an end of it. */
static int64_t find(const struct sampling *s, double place, double margin)
{
    double before = 0;
    int64_t b = 0;
    while (b < s->blocks && before + s->sum[b] <= place)
        before += s->sum[b++];
    const float *weight = s->weight + b * SAMPLING_BLOCK;
    int64_t n = b < s->blocks ? sampling_block(s, b) : 0;
    for (int64_t i = 0; i < n; i++) {
        double after = before + weight[i];
        if (after > place)
            return place - before > margin && after - place > margin ? b * SAMPLING_BLOCK + i : -1;
        before = after;
    }
    return -1;
}

/* Sums of all weights in two orders, and places and sums on the way to one, differ by less than
 * 2^-51 of the sum for each token. */
static int64_t draw(struct sampling *s, const struct sampling_call *call)
{
    double total = sampling_weigh(s, call), margin = 0x1p-50 * (double)s->vocab * total;
    if (call->top_p < 1)
        total = sampling_keep(s, call, total, margin);
    int64_t id = total < 0 ? -1 : find(s, call->uniform * total, margin);
    return id < 0 ? sampling_in_order(s, call) : id;
}

int64_t sampling_draw(struct sampling *s, const struct config_generate *how, float *logits,
                      const int32_t *ids, int64_t count, double uniform)
{
    if (how->repetition_penalty != 1)
        penalize(s, (float)how->repetition_penalty, logits, ids, count);
    float most = sampling_tops(s, logits);
    if (isnan(most))
        return -1;
    if (how->temperature <= 0 || isinf(most))
        return likeliest(s, logits, most);
    const struct sampling_call call = {
        .logits = logits,
        .most = most,
        .least = threshold(s, logits, how->top_k),
        .temperature = how->temperature,
        .top_p = how->top_p,
        .uniform = uniform,
    };
    return draw(s, &call);
}
