/* search_plan.h - the plan of a candidate of a search.  Private to search.c.
 *
 * A step's order of work repeats: from some micro-batches on, as many more as there are in a period
 * (one, or a round of interleaved_1f1b) make it longer by the same time, and take no more memory.
 * So a step of many micro-batches is forecast by planning two of few, a period apart:
 *
 *   seconds(m) = seconds(a) + (m - a) / period * (seconds(a + period) - seconds(a))
 */
#ifndef TRIREME_PLAN_SEARCH_PLAN_H
#define TRIREME_PLAN_SEARCH_PLAN_H

#include "plan/search_candidates.h"

enum search_fate {
    SEARCH_REFUSED, /* there is no such layout, or no time of it */
    SEARCH_TOO_LARGE,
    SEARCH_SLOW, /* its step is longer than most_s, or only its memory was looked at */
    SEARCH_FITS
};

/* What a plan of a candidate came to. */
struct search_outcome {
    const struct search_candidate *candidate;
    enum search_fate fate;
    int is_far;   /* 1: SEARCH_TOO_LARGE by a twentieth of a limit or more */
    int is_whole; /* 1: no plan of more of its micro-batches is made; 0: a plan of few, as above */
    double step_s, seconds[PLAY_KINDS]; /* of its busiest rank */
    double tokens_per_s, mfu;
    struct memory_limits takes;
};

enum search_extent {
    SEARCH_MEMORY, /* is it too large?  Some ranks are asked, and no time */
    SEARCH_FEW,    /* few micro-batches, as said above, where there are more */
    SEARCH_WHOLE   /* all of them, unless that takes longer than a search should */
};

/* Plan a candidate; one whose step takes longer than most_s may be left SLOW. Pure: several threads
 * may plan at once. */
void search_plan(struct search_outcome *outcome, const struct search_candidate *candidate,
                 const struct search_request *request, enum search_extent extent, double most_s);

#endif
