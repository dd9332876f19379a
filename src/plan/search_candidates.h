/* search_candidates.h - the layouts that a search goes through.  Private to search*.c. */
#ifndef TRIREME_PLAN_SEARCH_CANDIDATES_H
#define TRIREME_PLAN_SEARCH_CANDIDATES_H

#include "plan/search.h"

struct search_candidate {
    int pipeline, tensor, context, shard; /* degrees; shard 0: as the strategy has by itself */
    enum config_strategy strategy;
    int schedule;                    /* index in the table of search_candidates.c */
    const struct schedule_row *row;  /* the schedule's row in the table of all schedules */
    int chunks;                      /* stages of a rank */
    int64_t micro;                   /* sequences of a micro-batch */
    enum config_recompute recompute; /* a greater value keeps less for backward */
    const char *offload;             /* settings "key=value key=value", or "" */
    int family;         /* index of the first candidate that differs from this one in strategy and
                           micro-batch alone */
    int unit_times;     /* index of its unit times in search_bounds.c */
    double least_s;     /* seconds that its step takes at least */
    double micro_s;     /* seconds by which one more micro-batch lengthens a step at least */
    double least_bytes; /* memory that a rank needs at least */
    int is_probed;      /* set by search.c: 1: its memory was planned */
    int is_planned;     /* set by search.c: 1: its step was planned, or it was ruled out */
};

struct search_candidates {
    struct search_candidate *item;
    int count, capacity;
};

/* List all candidates that the configuration allows, with settings of offload.  Their micro-batches
 * are not checked here, so that a few of the list are refused when they are planned.  Returns 0 and
 * a list for search_candidates_free(), or -1 with err set: there is none. */
int search_candidates_make(struct search_candidates *list, const struct search_request *request,
                           const char *offload, struct error *err);
void search_candidates_free(struct search_candidates *list); /* one that is all zero is allowed */

/* Make the configuration of a candidate, checked.  Returns 0, or -1 where it is not allowed. */
int search_candidate_config(const struct search_candidate *candidate, const struct config *base,
                            struct config *config);

/* Return how many data ranks a candidate has, and how many micro-batches a step of it has. */
int search_data_ranks(const struct search_request *request, const struct search_candidate *c);
int64_t search_micros(const struct search_request *request, const struct search_candidate *c);

/* Return, of a candidate's schedule: the pipeline rank that has a stage; whether weight parts are
 * actions of their own; after how many micro-batches its order repeats, 0: it does not within
 * `micros`. */
int search_rank_of_stage(const struct search_candidate *c, int stage);
int search_splits_backward(const struct search_candidate *c);
int search_period(const struct search_candidate *c, int64_t micros);

/* Write a candidate's layout to text, "parallel.tensor=2 ...", without what it unsets of the
 * configuration's. */
void search_candidate_text(const struct search_candidate *candidate, char text[SEARCH_SETTINGS]);

#endif
