/* runs_private.h - what runs.c and the files of its parts share. */
#ifndef TRIREME_PROGRAM_RUNS_PRIVATE_H
#define TRIREME_PROGRAM_RUNS_PRIVATE_H

#include "program/runs.h"

/* Buffers that a unit's runs hand on; -1: not made yet. */
struct runs_unit_buffers {
    int output;      /* activation leaving the unit */
    int output_grad; /* its gradient, from the units that read it */
    int saved;       /* what forward keeps for backward */
};

/* Buffers whose values another rank makes; -1: none yet. */
struct runs_received_buffers {
    int buffer[2]; /* by way: [WAY_UP] the unit's output, [WAY_DOWN] its gradient */
    int micro[2];  /* by way: the micro-batch that was received last */
};

/* What of a unit's output crosses to another rank, and back. */
struct runs_crossing {
    unsigned is_own : 1;     /* the unit is the rank's */
    unsigned goes : 1;       /* its output goes to units of the next stage */
    unsigned comes_back : 1; /* and the gradient of that comes back */
};

struct runs_buffers {
    int units;
    const struct runs_sets *sets;
    struct units_stage *stage;              /* per stage */
    int *rank;                              /* per stage: its rank on the pipeline axis */
    struct runs_crossing *crossing;         /* per unit */
    struct runs_unit_buffers *unit;         /* by set and unit */
    struct runs_received_buffers *received; /* by set and unit */
    int *deferred; /* by set and unit: what the input part of backward keeps for the weight part */
    int (*loaded)[LOAD_SLOTS]; /* by set */
    int (*carried)[PHASES][2]; /* per unit and phase, two buffers: a transfer may still read that of
                                  the last run, so the next run of the same unit takes the other */
    int carried_now;           /* which of the two `carried` buffers the present run takes */
    int last;                  /* the unit of the run before, or -1 */
    uint64_t slots;            /* the slots of LOAD that the rank's segments read, a bit each */
};

/* The stage that has a unit. */
static inline int runs_stage_of(const struct program *program, int unit)
{
    return program->units->stage[unit];
}

/* The rank's coordinate along the pipeline axis. */
static inline int runs_own_rank(const struct program *program)
{
    return program->state->coord.at[MESH_PIPELINE];
}

/* Have a new buffer lie at the address of *which, the buffer of an earlier micro-batch, if there
 * was one; then *which is the new one, which is returned. */
static inline int runs_follow(struct program *program, int *which, int buffer)
{
    program->buffer[buffer].like = *which;
    return *which = buffer;
}

/* In runs_buffers.c.  Return, for a unit and a micro-batch, the buffers of what the unit makes, and
 * of what is received from another rank at it. */
struct runs_unit_buffers *runs_unit_buffers(const struct program *program,
                                            const struct runs_buffers *b, int micro, int unit);
struct runs_received_buffers *runs_received_buffers(const struct program *program,
                                                    const struct runs_buffers *b, int micro,
                                                    int unit);

/* Return where the buffer is noted that a unit's input part of backward keeps for the weight part.
 */
int *runs_deferred(const struct program *program, const struct runs_buffers *b, int micro,
                   int unit);

/* Return where the buffer of a unit's output is noted, and that of the output's gradient: among
 * those of what is made or of what is received. */
int *runs_output(const struct program *program, const struct runs_buffers *b, int micro, int unit);
int *runs_gradient(const struct program *program, const struct runs_buffers *b, int micro,
                   int unit);

/* In runs_load.c.  Return the slot of LOAD that fills a space of a segment; -1: none does. */
int runs_load_slot(const struct segment *segment, int space);

/* Return the slots of LOAD that segments of the rank's units read, a bit each. */
uint64_t runs_slots_read(const struct program *program);

#endif
