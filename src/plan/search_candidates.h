/* search_candidates.h - the layouts that a search goes through.  Private to search.c. */
#ifndef TRIREME_PLAN_SEARCH_CANDIDATES_H
#define TRIREME_PLAN_SEARCH_CANDIDATES_H

#include "plan/search.h"

struct search_candidate {
    int pipeline, tensor, context, shard; /* shard 0: as the strategy has by itself */
    enum config_strategy strategy;
    int schedule; /* a row of the table in search_candidates.c */
    int chunks;   /* stages of a rank */
    int64_t micro;
    enum config_recompute recompute; /* ordered: none, selective, full keep less and less */
    const char *offload;             /* settings */
    double least_s;                  /* no step of it is shorter */
    int family;     /* the first in the list that differs in strategy and micro-batch alone */
    int is_planned; /* the search's */
};

struct search_candidates {
    struct search_candidate *item;
    struct search_candidate **by_bound; /* the least first, then as they are listed */
    int count, capacity;
};

/* All that the configuration allows, with their bounds.  Returns 0 and a list for
 * search_candidates_free(), or -1 with err set: there is none. */
int search_candidates_make(struct search_candidates *list, const struct search_request *request,
                           const char *offload, struct error *err);
void search_candidates_free(struct search_candidates *list); /* one that is all zero is allowed */

/* The configuration of a candidate, checked.  Returns 0, or -1 where it is not allowed. */
int search_candidate_config(const struct search_candidate *candidate, const struct config *base,
                            struct config *config);

/* "parallel.tensor=2 ..." */
void search_candidate_text(const struct search_candidate *candidate, char text[SEARCH_SETTINGS]);

#endif
