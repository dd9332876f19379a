/* choices.h - what a run would take with one setting changed: recomputation, prefetch, precision,
 * offload, micro-batches.  Each row is a plan of its own, so a saving is the bytes of that run. */
#ifndef TRIREME_PLAN_CHOICES_H
#define TRIREME_PLAN_CHOICES_H

#include "plan/report.h"

enum { CHOICES_MOST = 32 };

/* One change of a rank's plan: another setting, or several that are changed together. */
struct choices_row {
    char settings[160];
    size_t memory_bytes; /* of the GPU, or of the rank where it computes on CPUs */
    size_t host_bytes;   /* that a GPU's rank has in the node's memory; 0 on CPUs */
    size_t disk_bytes;
    int64_t sent_bytes;
    double flops;
    double step_s; /* 0: not forecast */
};

struct choices {
    struct choices_row as_is;
    int count;
    struct choices_row row[CHOICES_MOST];
};

/* Plan again for each change the run of a report by report_measure(): so what is compared is of the
 * same ranks.  Of each plan report_largest() is shown.  A change that the configuration has
 * already, that it does not allow, or that changes no number is left out. */
void choices_make(struct choices *choices, const struct report *report, int threads);

void choices_print(const struct choices *choices, FILE *out);
struct js *choices_json(const struct choices *choices); /* js_free() it */

#endif
