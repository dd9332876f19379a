/* report.h - a run on paper: every rank's program compiled, checked and measured, without ranks.
 */
#ifndef TRIREME_PLAN_REPORT_H
#define TRIREME_PLAN_REPORT_H

#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "config/config.h"
#include "program/layout.h"

/* What one rank's training step takes. */
struct report_rank {
    size_t pool_bytes[POOL_COUNT]; /* as the executor will allocate them */
    size_t turn_bytes;             /* of the host's: inputs and sums of the steps in flight */
    size_t total_bytes;            /* of the pools that are memory */
    size_t device_bytes;           /* of a GPU's memory: pools that lie there, and its reserve */
    size_t host_bytes;             /* of the node's memory: all pools, or what a GPU leaves there */
    int instrs, transfers;
    int64_t sent_bytes;           /* payload to other ranks in a step */
    int64_t sent_elems;           /* and the numbers in it */
    int64_t moved_bytes[STREAMS]; /* of offloaded state in a step: FETCH, SPILL, READ, WRITE */
    double flops;                 /* of its ops in a step: what is recomputed counts again */
};

/* Memory for one rank, or what it wants beyond that.  As what there is, 0 is "nobody said". */
struct report_room {
    size_t device_bytes; /* of its GPU */
    size_t host_bytes;   /* its share of the node's */
    int no_disk;         /* 1: nothing can be offloaded to disk */
};

struct report {
    struct config config;
    struct layout layout;
    int ranks, nodes;
    int64_t params;
    double flops;         /* of a step, all ranks (attention's causal half) */
    int on_gpu;           /* planned for one GPU a rank */
    size_t reserve_bytes; /* of a GPU beside the pools: context, libraries, NCCL */
    char machine[96];     /* what report_judge() was asked, or "" */
    struct report_room room;
    int measured; /* ranks that were compiled, from the first on */
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

/* The same in a moment: of the first rank alone (others differ in what they send, by a rounding),
 * and nothing is checked. */
int report_measure(struct report *report, const struct config *config, int ranks, int nodes,
                   int threads, struct error *err);

/* Compare with the memory of a GPU, named as people will read it, and of a node. */
void report_judge(struct report *report, const char *name, size_t memory_bytes);
void report_judge_node(struct report *report, size_t memory_bytes);

/* What the neediest rank wants beyond a room (all 0: it fits); and beyond the room it was judged
 * by, of the GPU. */
struct report_room report_lack(const struct report *report, const struct report_room *room);
size_t report_short_bytes(const struct report *report);
void report_free(struct report *report);

/* For people, and for programs (the caller frees with js_free()). */
void report_print(const struct report *report, FILE *out);
struct js *report_json(const struct report *report);

/* Members pool_bytes, total_bytes and so on of a rank. */
void report_rank_json(const struct report *report, const struct report_rank *rank, struct js *to);

/* One line of how a GPU's and a node's memory compare with the plan. */
void report_verdicts(const struct report *report, FILE *out);

#endif
