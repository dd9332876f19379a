/* cost.h - what each instruction of a program takes on a machine while nothing runs beside it.
 *
 * A RUN is the sum of its ops: products by their shapes, attention by its operations, all others by
 * the bytes they move.  Updates by their optimizer's slots, norms, casts, ZERO, SCALE and LOAD go
 * by bytes too, transfers by their bytes, their group and the nodes it lies on (machine.h).
 * machine->step_s is for what no instruction is: reading data, and the host's work around a step.
 * Sums of a RUN are kept, so that a program of many micro-batches costs what one does.
 */
#ifndef TRIREME_SIMULATE_COST_H
#define TRIREME_SIMULATE_COST_H

#include "program/program.h"
#include "simulate/machine.h"

struct cost; /* of one rank's program */

struct cost_request {
    const struct machine *machine;
    const struct program *program;
    const struct device *device; /* says how ops divide their work; it may be a planning one */
    int per_node;                /* ranks of a node */
    int ns_steps;                /* of muon */
    const struct machine_files *files; /* of the node; NULL: nothing fits the page cache */
};

/* What request names is the caller's and outlives the cost, which is for cost_destroy() (NULL
 * allowed).  Pure. */
struct cost *cost_create(const struct cost_request *request);
void cost_destroy(struct cost *cost);

/* Seconds of instruction i.  One thread at a time. */
double cost_instr_s(struct cost *cost, int i);

/* The share of its speed that a message keeps while one of its ranks computes, where the machine
 * has rows of such messages; else 0, as of other instructions. */
double cost_beside(struct cost *cost, int i);

/* Is instruction i a copy from or to a file that the page cache has? */
int cost_is_cached(const struct cost *cost, int i);

/* Seconds of one step of a segment. */
double cost_step_s(const struct cost *cost, const struct segment *segment,
                   const struct segment_step *step);

/* The group of an instruction (of a message the two ends): its ranks, the nodes on which they lie,
 * and how many of the ranks are on the rank's own node. */
struct cost_group {
    int ranks, nodes, on_node;
};
struct cost_group cost_group(struct cost *cost, int i);

/* What machine.h calls a transfer, and the bytes that it moves, as they are counted there for its
 * kind. */
enum machine_transfer_kind cost_transfer_kind(const struct instr *instr);
double cost_transfer_bytes(const struct program *program, const struct instr *instr);

#endif
