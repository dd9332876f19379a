/* run.h - a RUN of the schedule before it is written: what the passes shard.h and gradients.h
 * decide for it. */
#ifndef TRIREME_PROGRAM_RUN_H
#define TRIREME_PROGRAM_RUN_H

#include "program/program.h"

/* What a run does with one of the flats that its unit uses.
 *
 * A gradient is made in windows: runs one behind the other that write to one buffer, which is then
 * summed over ranks or stays.  A window ends with the micro-batch where gradients leave the buffer
 * then, else with the step. */
struct run_use {
    int flat;
    int param;   /* buffer to compute with; -1: not gathered yet or not read */
    int fetched; /* its shard, where that lives elsewhere; -1: not fetched yet */
    int grad;    /* buffer, or -1 */
    int follows; /* the run that wrote before in this window, or -1 */
    int sum;     /* where a finished one is summed, until it is where it lives; or -1 */
    unsigned reads : 1, writes : 1; /* its parameters / its gradient */
    unsigned gathers : 1;           /* a gather of it must precede the run */
    unsigned finishes : 1;          /* the window ends with this run */
    unsigned is_first : 1;          /* it is the step's first window */
    unsigned is_last : 1;           /* it is the step's last window */
};

/* One RUN to be written. */
struct run {
    enum segment_phase phase;
    const struct segment *segment;
    int unit, micro, uses;
    uint64_t accumulate; /* bits of segment_adds() */
    struct run_use use[FLAT_USES];
};

#endif
