/* deviation.h - what is off in a run, and the likely cause: steps against their forecast, ranks
 * against one another, bytes against the plan.
 *
 * A rank that is slow computes longer than the others, which wait for it: so what ranks compute is
 * compared, not how long their steps are.  A transfer that is slow moves longer after its last
 * member has come: so of each transfer the member counts that waits least.
 *
 *   rank 0  compute 1.0 s   transfer 2.1 s     rank 1 is slow: it computes 3 s, and of the transfer
 *   rank 1  compute 3.0 s   transfer 0.1 s     0.1 s counts, as it takes on a link that is well
 */
#ifndef TRIREME_TRAIN_DEVIATION_H
#define TRIREME_TRAIN_DEVIATION_H

#include <stddef.h>
#include <stdint.h>

#include "simulate/forecast.h"

enum deviation_cause {
    DEVIATION_NONE,     /* nothing is off */
    DEVIATION_BYTES,    /* a rank sent other bytes than its program has: a fault of trireme's */
    DEVIATION_RANK,     /* a rank computes longer than the others, */
    DEVIATION_NODE,     /* or all ranks of a node do, */
    DEVIATION_COMPUTE,  /* or all ranks alike, by the forecast */
    DEVIATION_CORES,    /* a rank, a node, or all, by the forecast, wait for cores to run on */
    DEVIATION_TRANSFER, /* transfers of a kind are slow */
    DEVIATION_DATA,     /* tokens come late */
    DEVIATION_COPIES,   /* copies of offloaded state are slow */
    DEVIATION_FASTER,   /* the step is shorter than its forecast */
    DEVIATION_UNKNOWN,  /* the step is longer, and none of the above */
    DEVIATION_CAUSES
};

/* "rank", "transfer", ...: as metrics.jsonl has it. */
const char *deviation_cause_name(enum deviation_cause cause);

/* What a rank measured of a step; seconds. */
struct deviation_rank {
    int node, pipeline_rank;
    int is_crowded;    /* 1: more ranks than cores share its cores (core_use.h) */
    double run_s;      /* seconds in segments */
    double update_s;   /* in all other work */
    double data_s;     /* putting tokens where they are computed with */
    double wait_s;     /* in which it did nothing of these */
    double copy_s;     /* copies of offloaded state */
    double core_share; /* share of its computing in which its thread had a core; 0: not known */
    double queue_s;    /* in which a thread of it was ready to run and had no core */
    double flops;      /* operations of its segments */
    double sent_bytes; /* bytes sent to other ranks */
    double plan_bytes; /* bytes that its program sends */
};

/* The transfers of a step that are of one kind and among the same ranks; of messages: from one rank
 * to another. */
struct deviation_link {
    enum machine_transfer_kind kind;
    int way;                   /* FORECAST_WITHIN a node, or _BETWEEN nodes */
    int members, nodes;        /* ranks, and on how many nodes */
    int first_node, last_node; /* of the first and the last of the members */
    double bytes, seconds;     /* as in struct forecast_transfer */
};

/* What was forecast of the ranks of one coordinate along the pipeline axis; seconds. */
struct deviation_planned {
    double run_s, update_s, copy_s;
};

/* The forecast of a step. */
struct deviation_forecast {
    const char *machine; /* its name */
    double step_s;
    int pipeline_ranks;
    const struct deviation_planned *planned; /* per pipeline rank */
    struct forecast_transfers transfers;     /* of all ranks that were played */
};

/* All that is known of a step. */
struct deviation_facts {
    double step_s; /* as measured */
    int ranks, links;
    const struct deviation_rank *rank;
    const struct deviation_link *link;
    const struct deviation_forecast *forecast; /* NULL: none */
};

/* What is off. */
struct deviation {
    enum deviation_cause cause;
    int rank, node, link; /* whom it is about: index; -1: none */
    double measured,
        expected;    /* seconds; of DEVIATION_BYTES: bytes; of transfers: bytes per second */
    double excess_s; /* seconds by which it makes a step longer */
};

/* Find the likely cause of what is off.  Pure. */
struct deviation deviation_find(const struct deviation_facts *facts);

/* How texts name what a run has. */
struct deviation_names {
    const char *(*host)(void *user, int node); /* of a node */
    void *user;
    int on_gpu;
    const char *network; /* what is known of the way between nodes, or "" */
};

/* Write one line to text, such as "step takes 2.31 s, forecast 1.20 s (+92 %): rank 3 on node n7
 * ...".  size: of text, in bytes.  Returns text. */
const char *deviation_text(const struct deviation_facts *facts, const struct deviation *deviation,
                           const struct deviation_names *names, char *text, size_t size);

#endif
