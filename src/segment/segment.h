/* segment.h - a straight-line list of ops for one unit and phase, with every operand resolved
 * to a memory space and an offset.  Compiled once per kind of unit, run for all of them.
 */
#ifndef TRIREME_STEP_SEGMENT_H
#define TRIREME_STEP_SEGMENT_H

#include <stddef.h>

#include "config/config.h"
#include "device/device.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "segment/flat.h"

/* What a segment touches; a RUN instruction binds a buffer to each. */
enum segment_space {
    SPACE_PARAM,       /* the unit's flat parameter, whole */
    SPACE_SHARED,      /* another unit's, that it shares */
    SPACE_GRAD,        /* fp32 gradient of the flat parameter */
    SPACE_SHARED_GRAD, /* of the shared one */
    SPACE_INPUT,
    SPACE_OUTPUT,
    SPACE_OUTPUT_GRAD,
    SPACE_INPUT_GRAD, /* boundaries */
    SPACE_SAVED,      /* what forward keeps for backward */
    SPACE_TOKENS,
    SPACE_TARGETS,
    SPACE_CONST,
    SPACE_LOSS,       /* double[2] at its start */
    SPACE_LOSS_SCALE, /* double[1]; may be absent: 1 */
    SPACE_WORK,       /* temporaries and scratch */
    SPACE_COUNT
};

enum segment_phase {
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_BOTH, /* the unit that ends in the loss: forward and backward in one */
};

const char *segment_phase_name(enum segment_phase phase);

struct segment_ref {
    int space; /* -1: absent */
    size_t offset;
};

struct segment_step {
    int node;
    struct segment_ref in[NODE_INS], out[NODE_OUTS], scratch;
    int grad_space; /* SPACE_GRAD or SPACE_SHARED_GRAD if it writes a parameter's gradient; or -1 */
};

struct segment {
    const struct graph *graph;       /* the caller's */
    const struct flat *own, *shared; /* the caller's; shared may be NULL */
    enum segment_phase phase;
    int steps;
    struct segment_step *step;
    size_t work_bytes, saved_bytes;
    unsigned reads, writes; /* bit per space */
    double flops, bytes;
};

/* Compile the nodes of a phase.  A graph without backward nodes has only PHASE_FORWARD and
 * keeps nothing.  recompute, the same for both phases, says what forward keeps: the rest of what
 * backward needs is made again there, by the same ops to the same bits.  device sizes the
 * scratch; it is not kept.
 * Returns 0 and a segment for segment_destroy(), or -1 with err set. */
int segment_compile(struct segment *segment, const struct graph *graph, enum segment_phase phase,
                    enum config_recompute recompute, const struct flat *own,
                    const struct flat *shared, struct device *device, struct error *err);
void segment_destroy(struct segment *segment);

/* Called around every op when tracing; 0, or -1 with err set. */
struct segment_watch {
    int (*begins)(struct segment_watch *watch, const char *name, struct error *err);
    int (*ended)(struct segment_watch *watch, const char *name, struct error *err);
};

/* Run all ops.  base holds the address of each space the segment touches.  accumulate: bit
 * SPACE_GRAD (SPACE_SHARED_GRAD) set: add to the gradient that is there; clear: write it, and
 * zero the padding.  watch may be NULL. */
int segment_run(const struct segment *segment, struct device *device, void *const *base,
                unsigned accumulate, struct segment_watch *watch, struct error *err);

#endif
