/* schedule.h - in which order a pipeline stage computes its micro-batches.
 *
 * A schedule is a row of a table: how far forward is ahead of backward, and what is split.
 * schedule_list() makes of a row the actions of a stage in order, each a micro-batch in a phase.  A
 * stage computes its units upward in a forward action, downward in one of backward.  With one
 * stage, 1f1b is naive; gpipe keeps all micro-batches alive:
 *
 *   naive, 1f1b   F0 B0 F1 B1 F2 B2
 *   gpipe         F0 F1 F2 B0 B1 B2
 *   zb_h1         F0 I0 W0 F1 I1 W1 F2 I2 W2    (I: backward for the input, W: for weights)
 *
 * Backward actions come in the order of micro-batches in every row, so that gradients are summed in
 * the same order, to the same bits.
 */
#ifndef TRIREME_PROGRAM_SCHEDULE_H
#define TRIREME_PROGRAM_SCHEDULE_H

#include "config/config.h"
#include "segment/segment.h"

struct schedule_action {
    int stage, micro;
    enum segment_phase phase;
};

/* Whose actions: of `stages` stages, `stage`, over `micros` micro-batches a step. */
struct schedule_place {
    int stages, stage, micros;
};

/* The most actions that a stage has for a micro-batch. */
enum { SCHEDULE_ACTIONS = 3 };

/* How many micro-batches a stage is ahead in forward. */
enum schedule_ahead {
    AHEAD_NONE,
    AHEAD_STAGES, /* as many as the stages behind it hold */
    AHEAD_ALL
};

struct schedule {
    enum schedule_ahead ahead;
    unsigned splits_loss : 1; /* the unit that ends in the loss has its forward in forward
                                 actions; else it has all in backward (PHASE_BOTH), which keeps
                                 nothing but its input */
    /* Backward is two actions, input and weight part; weight parts are put off by as many
     * micro-batches as there are stages before it.  They fill the time in which the stage would
     * wait, and every stage holds as many micro-batches as the first one of 1F1B (Qi et al. 2023,
     * zero bubble pipeline parallelism, H1). */
    unsigned splits_backward : 1;
};

/* The row of a name; const, never NULL. */
const struct schedule *schedule_row(enum config_pipeline_schedule name);

/* Write the actions of a stage in order; returns how many.  action has space for SCHEDULE_ACTIONS
 * of each micro-batch. */
int schedule_list(const struct schedule *schedule, const struct schedule_place *place,
                  struct schedule_action *action);

#endif
