/* search.h - the fastest layout that fits.
 *
 * A candidate sets the degrees of pipeline, tensor and context, the strategy of the data ranks, the
 * schedule with its stages of a rank, the micro-batch and what is recomputed; the global batch and
 * all else stay as the configuration has them, so that the numbers do, too.  Each one that could be
 * the fastest is planned and played (report.h): its time and its bytes are those of the plan.  Most
 * could not be:
 *
 * Bounds: its work, waits and transfers take so long at least, and its state and what it keeps for
 * backward so many bytes (search_bounds.h).  Candidates are taken in the order of these times, and
 * the search is over when the next one is above the best step.
 *
 * Dominance: what lacks a twentieth of the memory or more lacks it with a larger micro-batch, less
 * recomputation or a strategy of an earlier stage, too.  So of the candidates that differ in
 * strategy and micro-batch alone the one that needs least is planned first.
 *
 * Few micro-batches: a step of many is forecast by plans of few (search_plan.h); only what comes
 * near the best is planned whole at the end, where that is not too long; the others keep that
 * forecast.
 *
 * That memory follows these rules, and that bounds are none too high, is held by tests against
 * planning every candidate.
 *
 * Where nothing fits, the same is searched with the optimizer's state in the host's memory, then
 * with parameters and gradients there as well.
 */
#ifndef TRIREME_PLAN_SEARCH_H
#define TRIREME_PLAN_SEARCH_H

#include "plan/report.h"
#include "plan/settings.h"

enum { SEARCH_ROWS = 10, SEARCH_SETTINGS = SETTINGS_BYTES };

struct search_request {
    const struct config *config; /* checked; device cpu or cuda */
    const struct config *given;  /* what rows' settings are put after; NULL: config */
    int ranks, nodes, threads;
    const struct machine *machine;
    const struct memory_limits *limits; /* of a rank; not NULL; a field that is 0: no limit */
    int exhaustive; /* 1: plan every candidate whole, without all of the above: for tests */
};

struct search_row {
    char settings[SEARCH_SETTINGS]; /* "key=value key=value": the layout, and what else changes */
    double step_s, tokens_per_s, mfu;
    struct memory_limits takes; /* memory that a rank needs */
    char why[96];               /* of all rows but the first: what takes longer than there */
};

struct search {
    int rows;
    struct search_row row[SEARCH_ROWS]; /* the fastest first */
    struct config best;                 /* of row 0 */
    int candidates;                     /* that the configuration allows */
    int planned, too_large; /* plans that were made, and those of them that are too large */
    int below_bound;        /* plans that took less time or memory than their bounds: 0 */
};

/* Search.  Returns 0 and at least one row, or -1 with err set: no candidate is allowed, or none
 * fits.
 */
int search_find(struct search *search, const struct search_request *request, struct error *err);

/* Set config to base with a row's settings in place of its layout.  Returns 0, or -1 where base
 * does not allow it. */
int search_apply(struct config *config, const struct config *base, const char *settings);

/* Print the rows as a table. */
void search_print(const struct search *search, const struct search_request *request, FILE *out);
struct js *search_json(const struct search *search); /* js_free() it */

#endif
