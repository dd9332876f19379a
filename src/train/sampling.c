/* sampling.c - the steps of sampling.h, in time linear in the vocabulary but for a small sort.
 *
 * For top_k only the k-th largest logit has to be known, which selection finds without sorting.
 * Each token then has the weight exp((logit - largest) / temperature), or 0 if it is left out; no
 * weight is divided by their sum.  For top_p candidates are sorted, but only those that can be
 * among the fewest: tokens too light to matter even all together are not looked at.  The token is
 * the one in whose weight the place uniform * sum lies:
 *
 *   weights  3 | 0 | 5 | 2    uniform 0.5: place 5 of 10, which is in the third
 */
#include "train/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

struct candidate {
    float weight;
    int32_t id;
};

struct sampling {
    int64_t vocab;
    float *weight;               /* of each token; before, logits to select among */
    struct candidate *candidate; /* of those that top_p may keep */
    char *seen;                  /* of each token: is it in the text?  All 0 between calls */
};

struct sampling *sampling_create(int64_t vocab)
{
    struct sampling *s = array_make(1, sizeof *s);
    s->vocab = vocab;
    s->weight = array_make((size_t)vocab, sizeof *s->weight);
    s->candidate = array_make((size_t)vocab, sizeof *s->candidate);
    s->seen = array_make((size_t)vocab, 1);
    return s;
}

void sampling_destroy(struct sampling *s)
{
    if (!s)
        return;
    free(s->weight);
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

static int64_t likeliest(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
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
    if (k <= 0 || k >= s->vocab)
        return -INFINITY;
    memcpy(s->weight, logits, (size_t)s->vocab * sizeof *logits);
    return kth_largest(s->weight, s->vocab, k);
}

static int heavier_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->id > y->id ? 1 : -1;
}

/* Leave out what is behind the fewest tokens that come to top_p of total; returns the sum of those.
 * Tokens lighter than total (1 - top_p) / vocab come to less than 1 - top_p of it together, so that
 * none of them is needed, and only the others are sorted. */
static double keep_heaviest(struct sampling *s, double top_p, double total)
{
    double least = total * (1 - top_p) / (double)s->vocab, sum = 0;
    int64_t n = 0, kept = 0;
    for (int64_t i = 0; i < s->vocab; i++)
        if (s->weight[i] > 0 && s->weight[i] >= least)
            s->candidate[n++] = (struct candidate){s->weight[i], (int32_t)i};
    qsort(s->candidate, (size_t)n, sizeof *s->candidate, heavier_first);
    memset(s->weight, 0, (size_t)s->vocab * sizeof *s->weight);
    while (kept < n && (kept == 0 || sum < top_p * total)) {
        s->weight[s->candidate[kept].id] = s->candidate[kept].weight;
        sum += s->candidate[kept++].weight;
    }
    return sum;
}

int64_t sampling_draw(struct sampling *s, const struct config_generate *how, float *logits,
                      const int32_t *ids, int64_t count, double uniform)
{
    if (how->repetition_penalty != 1)
        penalize(s, (float)how->repetition_penalty, logits, ids, count);
    int64_t best = likeliest(logits, s->vocab), last = best;
    if (how->temperature <= 0)
        return best;
    float least = threshold(s, logits, how->top_k);
    double total = 0;
    for (int64_t i = 0; i < s->vocab; i++) {
        s->weight[i] =
            logits[i] < least ? 0 : (float)exp((logits[i] - logits[best]) / how->temperature);
        total += s->weight[i];
    }
    if (how->top_p < 1)
        total = keep_heaviest(s, how->top_p, total);
    double at = uniform * total;
    for (int64_t i = 0; i < s->vocab; i++) {
        if (s->weight[i] <= 0)
            continue;
        last = i;
        if ((at -= s->weight[i]) < 0)
            break;
    }
    return last;
}
