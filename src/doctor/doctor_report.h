/* doctor_report.h - what the parts of trireme doctor share: facts, and a list of problems. */
#ifndef TRIREME_DOCTOR_DOCTOR_REPORT_H
#define TRIREME_DOCTOR_DOCTOR_REPORT_H

#include "comm/launch.h"
#include "comm/world.h"

enum { PROBLEMS_BYTES = 8192 };

struct doctor {
    struct mem *mem;     /* the caller's */
    struct world *world; /* NULL: MPI did not start */
    struct launch launch;
    int prints;                    /* whether this rank prints */
    int fatal;                     /* problems that keep trireme from running */
    int gpu;                       /* GPU of this rank; -1: it can use none */
    unsigned replaced;             /* parts of it that a self-check found wrong before */
    int share_gpu;                 /* 1: ranks of a node share its GPUs */
    char problems[PROBLEMS_BYTES]; /* one per line */
};

/* Print a fact in two columns, on the first rank. */
void doctor_fact(const struct doctor *d, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Add a problem to the list; only those of the first rank of each node are printed. */
void doctor_problem(struct doctor *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Print the GPUs, and whether every rank can have one.  Collective where there is a world. */
void doctor_check_gpus(struct doctor *d);

/* Print how fast the ranks copy and transfer, and their GPUs, where every rank has one, multiply
 * too.  Collective; needs a world.  Returns 0, or -1 on every rank with err set. */
int doctor_measure(struct doctor *d, struct error *err);

#endif
