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
    size_t turn_bytes;             /* of the host's: inputs and sums of the steps in flight */
    size_t total_bytes;            /* of the pools that are memory */
    size_t device_bytes;           /* of a GPU's memory: pools that lie there, and its reserve */
    int instrs, transfers;
    int64_t sent_bytes; /* payload to other ranks in a step */
};

struct report {
    struct config config;
    struct layout layout;
    int ranks;
    int64_t params;
    double flops;         /* of a step, all ranks (attention's causal half) */
    int on_gpu;           /* planned for one GPU a rank */
    size_t reserve_bytes; /* of a GPU beside the pools: context, libraries */
    char machine[96];     /* what report_judge() was asked, or "" */
    size_t machine_bytes;
    struct report_rank *rank;
    int verified; /* 1: the programs passed; 0: see verdict */
    struct error verdict;
};

/* Compile and check the programs of `ranks` ranks on `nodes` nodes; threads is what a rank would
 * have (it sizes scratch).  config->device cuda is planned without a GPU; auto is taken for cpu.
 * Not collective.  A program that does not pass is a report, not a failure. Returns 0 and a report
 * for report_free(), or -1 with err set. */
int report_make(struct report *report, const struct config *config, int ranks, int nodes,
                int threads, struct error *err);

/* Compare with the memory of a GPU, named as people will read it. */
void report_judge(struct report *report, const char *name, size_t memory_bytes);

/* Bytes the neediest rank wants beyond that memory; 0: it fits, or nothing was asked. */
size_t report_short_bytes(const struct report *report);
void report_free(struct report *report);

/* For people, and for programs (the caller frees with js_free()). */
void report_print(const struct report *report, FILE *out);
struct js *report_json(const struct report *report);

#endif
