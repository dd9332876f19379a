/* exposed.h - the instructions of a step for which a rank's compute stream waits longest. */
#ifndef TRIREME_PLAN_EXPOSED_H
#define TRIREME_PLAN_EXPOSED_H

#include "program/program.h"
#include "program/trace.h"

enum { EXPOSED_ROWS = 4 };

/* How long the compute stream waits for one instruction, of all micro-batches together. */
struct exposed_row {
    char name[TRACE_NAME]; /* as in a trace, without the micro-batch: "GATHER layers.0" */
    int times;             /* how often */
    double seconds;        /* in all */
};

struct exposed {
    int ranks;
    double **seconds; /* per rank and instruction */
};

/* Begin sums for the programs of so many ranks, for exposed_free(). */
void exposed_begin(struct exposed *exposed, const struct program *const *program, int ranks);

/* Add seconds for which a rank's compute stream has waited for an instruction. */
void exposed_add(struct exposed *exposed, int rank, int instr, double seconds);

/* List the longest waits of a rank, whose program is this, longest first.  Returns how many. */
int exposed_list(const struct exposed *exposed, const struct program *program, int rank,
                 struct exposed_row row[EXPOSED_ROWS]);
void exposed_free(struct exposed *exposed); /* one that is all zero is allowed */

#endif
