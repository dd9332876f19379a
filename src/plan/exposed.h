/* exposed.h - the instructions of a step for which a rank's compute stream waits longest. */
#ifndef TRIREME_PLAN_EXPOSED_H
#define TRIREME_PLAN_EXPOSED_H

#include "program/program.h"
#include "program/trace.h"

enum { EXPOSED_ROWS = 4 };

/* Of all micro-batches together. */
struct exposed_row {
    char name[TRACE_NAME]; /* as in a trace, without the micro-batch: "GATHER layers.0" */
    int times;
    double seconds;
};

struct exposed {
    int ranks;
    double **seconds; /* per rank and instruction */
};

/* Sums of the ranks of programs, for exposed_free(). */
void exposed_begin(struct exposed *exposed, const struct program *const *program, int ranks);
void exposed_add(struct exposed *exposed, int rank, int instr, double seconds);

/* The longest waits of a rank, whose program is this, longest first.  Returns how many. */
int exposed_list(const struct exposed *exposed, const struct program *program, int rank,
                 struct exposed_row row[EXPOSED_ROWS]);
void exposed_free(struct exposed *exposed); /* one that is all zero is allowed */

#endif
