/* run.h - a RUN of the schedule before it is written: what the passes shard.h and gradients.h
 * decide for it. */
#ifndef TRIREME_PROGRAM_RUN_H
#define TRIREME_PROGRAM_RUN_H

#include "program/program.h"

/* What a run does with one of the flats that its unit uses.
 *
 * The runs that write a flat's gradient into one buffer, before that is summed over ranks or copied
 * to where it lives, are a window.  Which runs these are:
 *
 *   gradients are reduced to shards in     the runs of one micro-batch
 *   each micro-batch
 *   whole gradients live on another side   the runs of one micro-batch, and of the next one where
 *   (offload.gradients)                    these follow at once
 *   else                                   all runs of the step
 */
struct run_use {
    int flat;
    int param;   /* buffer with the whole flat; -1: not gathered yet or not read */
    int decoded; /* of parameters of 4 bits, what DECODE makes of param; -1: none */
    int fetched; /* the copy of its shard on the device, where that lives on another side; -1: not
                    fetched yet */
    int grad;    /* the window's buffer; -1: not made yet, or the run writes no gradient */
    int follows; /* the run that wrote before in this window, or -1 */
    int finished_grad;     /* its buffer, until it is spilled to where it lives; else -1 */
    unsigned reads : 1;    /* the run reads the flat's parameters */
    unsigned writes : 1;   /* the run writes the flat's gradient */
    unsigned gathers : 1;  /* the flat must be gathered before the run */
    unsigned resumes : 1;  /* the run begins a window that adds to the sum of earlier windows */
    unsigned finishes : 1; /* the window ends with this run */
    unsigned is_first : 1; /* the run finishes the first of the flat's windows in the step */
    unsigned is_last : 1;  /* the run finishes the last one */
};

/* One RUN to be written. */
struct run {
    enum segment_phase phase;
    const struct segment *segment;
    int unit, micro, uses;
    int action;          /* number of the rank's action that it is part of */
    uint64_t accumulate; /* bits of segment_adds() and segment_adds_input() */
    struct run_use use[FLAT_USES];
};

#endif
