/* compare.h - what each sharding strategy would take, side by side. */
#ifndef TRIREME_PLAN_COMPARE_H
#define TRIREME_PLAN_COMPARE_H

#include "plan/report.h"
#include "plan/settings.h"

/* One strategy: a plan of the first rank, or why there is none. */
struct compare_row {
    char name[24];
    int chosen; /* the configuration's own */
    int made;
    struct report report;
    int64_t largest, largest_eval; /* micro-batches that fit the limits; without limits 0 */
    struct error why;
};

struct compare {
    struct compare_row row[CONFIG_STRATEGIES]; /* by enum config_strategy */
};

/* Plan every strategy for the run of report, compared with the same limits.  Hybrids need several
 * copies: nodes, or a parallel.shard of the configuration.  report_at_once() of them are planned
 * at a time.  For compare_free(). */
void compare_make(struct compare *compare, const struct report *report, int threads);
void compare_free(struct compare *compare);

/* The row of the configuration's own strategy. */
const struct compare_row *compare_chosen(const struct compare *compare);

/* Return how many numbers a rank sends in a step, per parameter of the model. */
double compare_volume(const struct compare_row *row);

/* Return the bytes of state by ZeRO's published formula (estimate.h); of what is frozen its 16-bit
 * parameters alone. */
double compare_zero_bytes(const struct compare_row *row, enum config_strategy strategy);

/* Print the rows as a table, a column for each strategy. */
void compare_print(const struct compare *compare, FILE *out);
struct js *compare_json(const struct compare *compare); /* js_free() it */

#endif
