/* execute.h - run a program: the list, as it was planned and checked. */
#ifndef TRIREME_STEP_EXECUTE_H
#define TRIREME_STEP_EXECUTE_H

#include "base/mem.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "device/ops.h"
#include "step/program.h"
#include "step/trace.h"

struct executor;

/* What one step is given. */
struct step_input {
    /* Fill int32 [batch, seq] of micro-batch `micro` of this rank; -1 masks a target. */
    void (*load)(void *user, int micro, int32_t *tokens, int32_t *targets);
    void *user;
    struct adamw adamw;     /* grad_scale is set here, by the step */
    int decay_all;          /* 1: weight decay on every tensor; 0: on matrices only */
    double clip;            /* of the gradient's norm; 0: none */
    double nominal_targets; /* the count the loss scale assumed: gradients are summed over it */
    int stop_vote;          /* 1: this rank asks all to stop after the step */
};

/* What one step says; the same on all ranks. */
struct step_output {
    double loss;      /* mean over the targets of the global batch */
    double targets;   /* how many there were */
    double grad_norm; /* of the mean gradient, before clipping; training only */
    double votes;     /* ranks that asked to stop */
    int skipped;      /* 1: the norm was not finite, nothing was updated */
};

/* Allocate slabs for programs that take turns (same units, same state), counted in mem.
 * mesh may be NULL for one rank.  device, mesh, mem and programs stay the caller's.
 * Not collective.  Returns 0, or -1 with err set. */
int executor_create(struct executor **executor, struct device *device, struct mesh *mesh,
                    struct mem *mem, const struct program *const *programs, int count,
                    struct error *err);
void executor_destroy(struct executor *executor); /* NULL allowed */

/* Where a buffer of a program lies. */
void *executor_buffer(const struct executor *executor, const struct program *program, int buffer);

/* Run all instructions of a program.  Collective over its mesh.  trace may be NULL.
 * Returns 0, or -1 with err naming the instruction; output may be NULL. */
int execute(struct executor *executor, const struct program *program,
            const struct step_input *input, struct step_output *output, struct trace *trace,
            struct error *err);

/* Payload bytes sent to other ranks by the last execute(). */
int64_t executor_sent_bytes(const struct executor *executor);

#endif
