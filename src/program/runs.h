/* runs.h - write a RUN with its buffers: what it computes with, and what passes between runs. */
#ifndef TRIREME_PROGRAM_RUNS_H
#define TRIREME_PROGRAM_RUNS_H

#include "program/run.h"

/* The buffers that pass between runs: inputs, boundaries, and what one phase keeps for another. */
struct runs_buffers;

/* The sets of addresses at which these buffers lie, by number.  A micro-batch takes over the set of
 * an earlier one that needs it no longer, so that CUDA graphs are captured for no more than the
 * combinations of sets. */
struct runs_sets {
    int *own;      /* [stage, micro-batch]: set for what units of the stage make */
    int *received; /* [stage, micro-batch]: set for what the stage receives; numbered apart */
    int *deferred; /* [stage, micro-batch]: set for what the input part of backward keeps for the
                      weight part; numbered apart */
    int *loaded;   /* [micro-batch]: set for what LOAD loads; numbered apart */
    int owns, receipts, defers, loads; /* how many sets of each kind there are */
};

/* Begin with no buffer made.  program and sets are the caller's and must outlive what this returns,
 * which runs_close() frees; the buffers stay the program's. */
struct runs_buffers *runs_open(const struct program *program, const struct runs_sets *sets);
void runs_close(struct runs_buffers *buffers);

/* Decide for all runs which of them write the gradient of a boundary, and which add to it: of the
 * units that read a boundary, the first to run in backward writes, those after it add. */
void runs_plan(const struct program *program, const struct runs_buffers *buffers, struct run *run,
               int runs);

/* Append the LOAD of what a micro-batch's segments read of data: tokens of each sequence, targets,
 * positions, documents, samples. */
void runs_load(struct program *program, struct runs_buffers *buffers, int micro);

/* Append a RECV for each boundary, or gradient of one, that the runs of an action, all of one
 * stage, read and another rank makes, if it is not there yet.  Both ends take outputs in the order
 * of their units, and gradients in the reverse. */
void runs_receive(struct program *program, struct runs_buffers *buffers, const struct run *run,
                  int runs);

/* Append a SEND for each output, or gradient of an input, that the runs of an action, now written,
 * have made for another rank. */
void runs_send(struct program *program, struct runs_buffers *buffers, const struct run *run,
               int runs);

/* Append the RUN of run, whose parameters and gradients have their buffers, and bind the others:
 * each is made where a run is the first to name it. */
void runs_write(struct program *program, struct runs_buffers *buffers, const struct run *run);

#endif
