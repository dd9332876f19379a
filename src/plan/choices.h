/* choices.h - what a run would take with one setting changed: recomputation, prefetch, precision,
 * offload, micro-batches.  Each row is a complete plan with that setting, not an estimate of
 * the difference. */
#ifndef TRIREME_PLAN_CHOICES_H
#define TRIREME_PLAN_CHOICES_H

#include "plan/report.h"
#include "plan/settings.h"

enum { CHOICES_MOST = 35 };

/* One change of a rank's plan: another setting, or several that are changed together. */
struct choices_row {
    char settings[SETTINGS_BYTES]; /* "key=value key=value" */
    size_t memory_bytes;           /* of the GPU, or of the rank where it computes on CPUs */
    size_t host_bytes;             /* that a GPU's rank has in the node's memory; 0 on CPUs */
    size_t disk_bytes;             /* of offloaded state */
    int64_t sent_bytes;            /* to other ranks in a step */
    double flops;                  /* in a step */
    double step_s;                 /* 0: not forecast */
};

struct choices {
    struct choices_row as_is; /* without a change */
    int count;
    struct choices_row row[CHOICES_MOST];
};

/* Plan the run of a report again with each change.  The report is made once more by
 * report_measure(), too, so that the same ranks are compared; each row is of that plan's
 * report_largest().  A change that the configuration has already, that it does not allow, or that
 * changes no number is left out.  report_at_once() of them are planned at a time.
 */
void choices_make(struct choices *choices, const struct report *report, int threads);

/* Print the rows as a table. */
void choices_print(const struct choices *choices, FILE *out);
struct js *choices_json(const struct choices *choices); /* js_free() it */

#endif
