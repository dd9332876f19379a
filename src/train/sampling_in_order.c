/* sampling_in_order.c - a token by the definition: sums in order of ids, or heaviest token first.
 *
 * Additions round, so that their order can decide which token is drawn.  It is this one: a seed
 * gives the same text on every machine, and did so before there was a faster way. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/sampling_private.h"

static int heavier_first(const void *a, const void *b)
{
    const struct sampling_candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->id > y->id ? 1 : -1;
}

/* Leave out what is after the fewest tokens that come to top_p of total; returns the sum of those.
 * Tokens lighter than total (1 - top_p) / vocab come to less than 1 - top_p of it together, so that
 * none of them is needed, and only the others are sorted. */
static double keep_heaviest(struct sampling *s, double top_p, double total)
{
    double least = total * (1 - top_p) / (double)s->vocab, sum = 0;
    int64_t n = 0, kept = 0;
    for (int64_t i = 0; i < s->vocab; i++)
        if (s->weight[i] > 0 && s->weight[i] >= least)
            s->candidate[n++] = (struct sampling_candidate){s->weight[i], (int32_t)i};
    qsort(s->candidate, (size_t)n, sizeof *s->candidate, heavier_first);
    memset(s->weight, 0, (size_t)s->vocab * sizeof *s->weight);
    while (kept < n && (kept == 0 || sum < top_p * total)) {
        s->weight[s->candidate[kept].id] = s->candidate[kept].weight;
        sum += s->candidate[kept++].weight;
    }
    return sum;
}

float sampling_weight(const struct sampling_call *call, float logit)
{
    return logit < call->least ? 0 : (float)exp((logit - call->most) / call->temperature);
}

int64_t sampling_in_order(struct sampling *s, const struct sampling_call *call)
{
    int64_t last = 0;
    double total = 0;
    for (int64_t i = 0; i < s->vocab; i++) {
        s->weight[i] = sampling_weight(call, call->logits[i]);
        total += s->weight[i];
    }
    if (call->top_p < 1)
        total = keep_heaviest(s, call->top_p, total);
    double at = call->uniform * total;
    for (int64_t i = 0; i < s->vocab; i++) {
        if (s->weight[i] <= 0)
            continue;
        last = i;
        if ((at -= s->weight[i]) < 0)
            break;
    }
    return last;
}
