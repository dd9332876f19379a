/* doctor_report.h - printing facts and collecting problems, for the parts of trireme doctor. */
#ifndef TRIREME_DOCTOR_DOCTOR_REPORT_H
#define TRIREME_DOCTOR_DOCTOR_REPORT_H

#include "comm/launch.h"
#include "comm/world.h"

enum { PROBLEMS_BYTES = 8192 };

struct doctor {
    struct mem *mem;     /* the caller's */
    struct world *world; /* NULL: MPI did not start */
    struct launch launch;
    int prints;                    /* 1: this process prints, the first one alone */
    int fatal;                     /* number of problems that keep trireme from running */
    int gpu;                       /* index of this rank's GPU; -1: it can use none */
    unsigned replaced;             /* bits: parts of the GPU that an earlier self-check found wrong
                                      (device/self_check.h) */
    int share_gpu;                 /* 1: several ranks of a node use one GPU */
    char problems[PROBLEMS_BYTES]; /* of this process, one per line */
};

/* Print a fact in two columns, name and text, where d->prints; else do nothing. */
void doctor_fact(const struct doctor *d, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Add a problem to the list of this process.  At the end, the lists of the first rank of each node
 * are printed. */
void doctor_problem(struct doctor *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Print the GPUs, and whether every rank can have one; set gpu, replaced and share_gpu.  Collective
 * where there is a world. */
void doctor_check_gpus(struct doctor *d);

/* Measure and print how fast the ranks copy and transfer; where every rank has a GPU, also how fast
 * the GPUs do, and multiply matrices.  Collective; needs a world.  Returns 0, or -1 on every rank
 * with err set. */
int doctor_measure(struct doctor *d, struct error *err);

#endif
