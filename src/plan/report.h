/* report.h - the plan of a run: every rank's program compiled, checked and measured in one process.
 */
#ifndef TRIREME_PLAN_REPORT_H
#define TRIREME_PLAN_REPORT_H

#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "config/config.h"
#include "plan/exposed.h"
#include "program/layout.h"
#include "program/memory.h"
#include "program/schedule.h"
#include "segment/fp8_matrices.h"
#include "simulate/forecast.h"
#include "simulate/record.h"

/* What one rank's training step takes.  coord is first: report_show.c compares the bytes of all
 * that follows it, so a record begins as zero. */
struct report_rank {
    struct mesh_coord coord;
    struct memory_need need;
    int instrs, transfers;
    int64_t sent_bytes;           /* payload to other ranks in a step */
    int64_t sent_elems;           /* and the numbers in it */
    int64_t moved_bytes[STREAMS]; /* of offloaded state in a step: FETCH, SPILL, READ, WRITE */
    double flops;                 /* of its ops in a step: what is recomputed counts again */
};

/* A coordinate along the pipeline axis, with all the ranks that have it. */
struct report_pipeline {
    int units;
    int64_t params;                        /* of the model, in its units */
    size_t activation_bytes, memory_bytes; /* the most of its ranks: of one pool, of device memory
                                              on GPUs, else of the total */
};

/* A unit as the first rank has it: with tensor ranks, its part. */
struct report_unit {
    int64_t params, trained; /* of its own flats */
    size_t kept_bytes;       /* from forward to backward of a micro-batch, without its input */
    double flops; /* forward of one micro-batch of the whole unit: stages are cut by it */
    /* Seconds in a step, with nothing running at the same time: the unit's own operations, and the
     * transfers among tensor and context ranks between them. */
    double forward_s, backward_s, forward_exchange_s, backward_exchange_s;
};

struct report {
    struct config config;
    struct layout layout;
    int ranks, nodes;
    int64_t params, frozen;   /* all of the model, and those that are not trained */
    int64_t params_per_token; /* those that one token goes through */
    int64_t nf4;              /* of the frozen ones, those that are kept in 4 bits */
    int64_t checkpoint_bytes; /* of one on disk (checkpoint_size.h) */
    double flops;             /* of a step, all ranks (attention's causal half) */
    double whole_flops;       /* the same with all of attention */
    int on_gpu;               /* 1: planned for a GPU per rank */
    char fp8_note[FP8_NOTE];  /* what of precision fp8 is not in fp8 */
    char machine[96];         /* the GPU's name given to report_set_gpu_memory(), or "" */
    struct memory_limits limits;
    size_t node_bytes;      /* given to report_set_node_memory(); 0: not known */
    size_t attention_bytes; /* that training takes of what is left (attention_memory.h) */
    int compiled;           /* ranks that were compiled and checked; the others repeat them */
    int measured; /* ranks that `rank` has: all, or the first of each coordinate along the pipeline
                     axis */
    struct report_rank *rank;
    struct report_pipeline *pipeline; /* per rank of the pipeline axis */
    struct schedule_costs
        *cost; /* per stage: by its units' operations, as timeline_costs() has it */
    const struct machine *speeds; /* the caller's; NULL: no times are forecast */
    struct forecast forecast;     /* of all ranks, or of the first of each coordinate along the
                                     pipeline axis; no ranks: there is none */
    struct report_unit *unit;     /* per unit, where times are forecast */
    int units;
    struct exposed_row exposed[EXPOSED_ROWS]; /* of the rank of the forecast that waits least; not
                                                 of report_measure() */
    int exposed_rows;
    int64_t steps; /* of the whole run; 0: not known, as with train.epochs until the caller counts
                      them */
    struct error no_data; /* why steps is not known, set by the caller */
    int verified;         /* 1: the programs passed; 0: see verdict */
    struct error verdict;
};

/* What is planned. */
struct report_request {
    const struct config *config; /* device cuda is planned without a GPU; auto is taken for cpu */
    int ranks, nodes;
    int threads;                  /* that a rank would have: they size scratch */
    const struct machine *speeds; /* how long a step takes, the caller's while the report is used;
                                     NULL: no times are forecast */
};

/* Compile and check the programs of all ranks.  Of more than 1,024 ranks only two along replicate
 * and two along shard are compiled and checked, and two along context and tensor where the units of
 * the others are alike, because the others repeat these; but all of them, 4,096 at most, where an
 * optimizer's matrices have owners.  Not collective.  A program that does not pass is a report, not
 * a failure.  Returns 0 and a report for report_free(), or -1 with err set. */
int report_make(struct report *report, const struct report_request *request, struct error *err);

/* The same, recording the forecast's step of its ranks in record, for record_free(); no ranks are
 * in it where there is no forecast. */
int report_make_recorded(struct report *report, struct record *record,
                         const struct report_request *request, struct error *err);

/* The same, but faster: of each coordinate along the pipeline axis only the first rank is
 * measured, which has the largest parts of all that is divided (others send a rounding less or
 * more), and nothing is checked. */
int report_measure(struct report *report, const struct report_request *request, struct error *err);

/* Faster again, for memory alone: only the first two ranks of the pipeline axis and the last one
 * are measured, and no time is forecast: request->speeds is not read. */
int report_probe(struct report *report, const struct report_request *request, struct error *err);

/* Return how many reports to make at once, each by a thread: as many as OpenMP has threads, but no
 * more than 8, since each has lists of all that a step does in memory. */
int report_at_once(void);

/* Return the tokens of a step, masked ones too, per second; 0 where no time is forecast. */
double report_tokens_per_s(const struct report *report);

/* Return the share of the machine's peak in products that the model's operations use, counted as if
 * all of attention were computed (whole_attention 1) or its causal half (0); 0 where no time is
 * forecast. */
double report_mfu(const struct report *report, int whole_attention);

/* Return what a process takes of its node's memory beside what is planned, for a model of config
 * and a step of `instrs` instructions (0: not known yet). */
size_t report_process_bytes(const struct config *config, int instrs);

enum { REPORT_NODE_TAKEN = 1 };

/* Return what each of `ranks` ranks of a node with node_bytes has for what is planned: its equal
 * share without report_process_bytes(), or REPORT_NODE_TAKEN, in which nothing fits, where the
 * process takes all of it; 0 where node_bytes is 0, not known. */
size_t report_node_share(size_t node_bytes, int ranks, const struct config *config, int instrs);

/* Set the memory that the plan is compared with: of a GPU, with its name for messages; of a node,
 * of which each rank has its report_node_share(), for which ranks, nodes and config are set. */
void report_set_gpu_memory(struct report *report, const char *name, size_t memory_bytes);
void report_set_node_memory(struct report *report, size_t memory_bytes);

/* Check that the processes leave memory of the node for training.  Returns 0, or -1 with err set to
 * the sizes where limits.host_bytes is REPORT_NODE_TAKEN. */
int report_check_node(const struct report *report, struct error *err);

/* Return the measured rank that stands for a run where one is shown: with several pipeline ranks
 * the one that needs most memory, else the first. */
const struct report_rank *report_largest(const struct report *report);

/* Return the most device memory, and the most host memory, that a measured rank needs. */
struct memory_limits report_most(const struct report *report);

/* Return by how much report_most() exceeds limits; all 0: it fits. */
struct memory_limits report_lack(const struct report *report, const struct memory_limits *limits);
void report_free(struct report *report);

/* Print a report for people, and make one for programs, for js_free(). */
void report_print(const struct report *report, FILE *out);
struct js *report_json(const struct report *report);

/* Add the memory of a rank to an object: members pool_bytes, total_bytes and so on. */
void report_rank_json(const struct report *report, const struct report_rank *rank, struct js *to);

/* Print how the plan compares with the memory of a GPU and of a node, where these are set. */
void report_verdicts(const struct report *report, FILE *out);

#endif
