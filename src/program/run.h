/* run.h - a RUN of the schedule before it is written: what the passes shard.h and gradients.h
 * decide for it. */
#ifndef TRIREME_PROGRAM_RUN_H
#define TRIREME_PROGRAM_RUN_H

#include "program/program.h"

/* What a run does with one of the flats that its unit uses.
 *
 * A gradient is made in windows: runs that write to one buffer, which is then summed over ranks or
 * stays.  Where each micro-batch's gradient is reduced to shards, its runs are a window, whatever
 * runs come between them; where whole gradients live elsewhere, a window ends before the next
 * micro-batch's runs, unless these follow at once; else it is the step. */
struct run_use {
    int flat;
    int param;   /* buffer to compute with; -1: not gathered yet or not read */
    int fetched; /* its shard, where that lives elsewhere; -1: not fetched yet */
    int grad;    /* buffer, or -1 */
    int follows; /* the run that wrote before in this window, or -1 */
    int sum;     /* where a finished one is summed, until it is where it lives; or -1 */
    unsigned reads : 1, writes : 1; /* its parameters / its gradient */
    unsigned gathers : 1;           /* a gather of it must precede the run */
    unsigned resumes : 1;           /* a window begins that adds to what is elsewhere */
    unsigned finishes : 1;          /* the window ends with this run */
    unsigned is_first : 1;          /* and is the step's first to end */
    unsigned is_last : 1;           /* and the last */
};

/* One RUN to be written. */
struct run {
    enum segment_phase phase;
    const struct segment *segment;
    int unit, micro, uses;
    int action;          /* of the schedule, that it is part of */
    uint64_t accumulate; /* bits of segment_adds() and segment_adds_input() */
    struct run_use use[FLAT_USES];
};

#endif
