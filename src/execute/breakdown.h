/* breakdown.h - on what a rank spent the time of a step.
 *
 * The time of the compute stream from the step's first instruction to its last is divided among
 * kinds of work, instruction by instruction.  Waiting for another stream counts as a kind of its
 * own: only so much of a transfer shows, the rest lies under computation.  On the CPU the compute
 * stream is the calling thread and the clock is read; on a GPU timed events are put into its
 * stream, which waits for nothing, and read when the step has ended.
 */
#ifndef TRIREME_EXECUTE_BREAKDOWN_H
#define TRIREME_EXECUTE_BREAKDOWN_H

#include "device/device.h"

enum breakdown_kind {
    BREAKDOWN_OTHER,
    BREAKDOWN_DATA,     /* tokens and targets, to where they are computed with */
    BREAKDOWN_FORWARD,  /* of all units but the one that ends in the loss */
    BREAKDOWN_BACKWARD, /* with what is recomputed, and both passes of that last unit */
    BREAKDOWN_UPDATE,   /* the gradient's norm and the optimizer */
    BREAKDOWN_COMM,     /* waiting for transfers between ranks */
    BREAKDOWN_OFFLOAD,  /* waiting for copies of offloaded state, and for its file */
    BREAKDOWN_KINDS
};

struct breakdown_event;

/* The breakdown of a step.  Zero-initialise it once; it serves one step after another. */
struct breakdown {
    double ms[BREAKDOWN_KINDS]; /* after breakdown_read() */

    /* The rest is private. */
    struct device *device;
    enum breakdown_kind kind; /* of the time since since_ns */
    int64_t since_ns;
    struct breakdown_event *event; /* of a GPU: a kind begins at each */
    int events, capacity;
};

/* Begin a step on a device: what follows is BREAKDOWN_OTHER.  0, or -1 with err set. */
int breakdown_begin(struct breakdown *breakdown, struct device *device, struct error *err);

/* Count what the compute stream does from here on as `kind`; breakdown may be NULL.  0, or -1 with
 * err set. */
int breakdown_enter(struct breakdown *breakdown, enum breakdown_kind kind, struct error *err);

/* End the step: its last instruction has been given to the stream.  breakdown may be NULL.  0, or
 * -1 with err set. */
int breakdown_end(struct breakdown *breakdown, struct error *err);

/* Fill ms.  To be called when the device has done the step. */
void breakdown_read(struct breakdown *breakdown);

/* Free its events, while the device is open; one that is all zero is allowed. */
void breakdown_free(struct breakdown *breakdown);

#endif
