/* doctor_say.h - what the parts of trireme doctor share: facts, and a list of problems. */
#ifndef TRIREME_CLI_DOCTOR_SAY_H
#define TRIREME_CLI_DOCTOR_SAY_H

#include "cli/command.h"
#include "comm/launch.h"

enum { PROBLEMS_BYTES = 8192 };

struct doctor {
    struct app *app;
    struct launch launch;
    int speaks;                    /* whether this rank prints */
    int fatal;                     /* problems that keep trireme from running */
    int gpu;                       /* this rank's, -1: it has none to use */
    int share_gpu;                 /* ranks of a node go round its GPUs */
    char problems[PROBLEMS_BYTES]; /* one per line */
};

/* Print a fact in two columns, on the first rank. */
void doctor_fact(const struct doctor *d, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Keep a problem for the list; what the first rank of a node keeps is listed. */
void doctor_problem(struct doctor *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
