/* report.h - a run on paper: every rank's program compiled, checked and measured, without ranks.
 */
#ifndef TRIREME_PLAN_REPORT_H
#define TRIREME_PLAN_REPORT_H

#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "config/config.h"
#include "step/layout.h"

/* What one rank's training step takes. */
struct report_rank {
    size_t pool_bytes[POOL_COUNT]; /* as the executor will allocate them */
    size_t total_bytes;
    int instrs, transfers;
    int64_t sent_bytes; /* payload to other ranks in a step */
};

struct report {
    struct config config;
    struct layout layout;
    int ranks;
    int64_t params;
    double flops; /* of a step, all ranks (attention's causal half) */
    struct report_rank *rank;
    int verified; /* 1: the programs passed; 0: see verdict */
    struct error verdict;
};

/* Compile and check the programs of `ranks` ranks; threads is what a rank would have (it
 * sizes scratch).  Not collective.  A program that does not pass is a report, not a failure.
 * Returns 0 and a report for report_free(), or -1 with err set. */
int report_make(struct report *report, const struct config *config, int ranks, int threads,
                struct error *err);
void report_free(struct report *report);

/* For people, and for programs (the caller frees with js_free()). */
void report_print(const struct report *report, FILE *out);
struct js *report_json(const struct report *report);

#endif
