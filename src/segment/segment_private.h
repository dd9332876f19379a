/* segment_private.h - what the passes of segment_compile() share.  Private to segment/. */
#ifndef TRIREME_SEGMENT_SEGMENT_PRIVATE_H
#define TRIREME_SEGMENT_SEGMENT_PRIVATE_H

#include "segment/place.h"
#include "segment/segment.h"

/* What lies in a space: values, and in WORK scratch of steps. */
struct segment_items {
    struct place *place;
    int count, capacity;
};

/* Scratch of one compilation. */
struct segment_draft {
    struct segment *segment;
    const struct graph *graph;
    const struct segment_param_place *place; /* per parameter */
    struct device *device;
    enum config_recompute recompute;
    char *here;       /* per node: a step of this segment */
    char *input_part; /* per node: backward's input part needs it */
    char *made;      /* per node: 1: backward's input part made it, where this is the weight part */
    int *step_of;    /* per node: its step, the last of several */
    int *temp_space; /* per value, if it is a temporary: SPACE_SAVED, kept from forward to backward;
                        SPACE_DEFERRED, from backward's input part to its weight part; SPACE_CARRY,
                        handed from piece to piece; SPACE_WORK, at first, none of these */
    int *item;       /* per value: its item in its space, or -1 */
    struct segment_items items[SPACE_COUNT]; /* of the four spaces of temp_space; those of
                                                SPACE_WORK have scratch, too */
    int *scratch_item;                       /* per step: its scratch's item in SPACE_WORK, or -1 */
};

/* Choose the nodes of the draft's phase: fills segment->step[].node and steps, here, made, and what
 * is saved and deferred in temp_space.  segment_destroy() frees the steps. */
void segment_pick_nodes(struct segment_draft *c);

/* Replace each step whose rows are exchanged in chunks, and each product beside one, by a step for
 * each chunk. */
void segment_divide(struct segment_draft *c);

/* Has a step for a chunk of the rows only that chunk of an operand?  It has of what is exchanged,
 * of output 0, and of the inputs that its op names. */
int segment_is_by_rows(const struct graph_node *node, int operand);

/* Set segment->touch and the first_touch and end_touch of its pieces, which have their operands. */
void segment_find_touches(struct segment *segment);

#endif
