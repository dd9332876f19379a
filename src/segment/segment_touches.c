/* segment_touches.c - which bytes of each space a step touches, and a piece.  A piece touches what
 * its steps touch, with ranges joined that overlap or adjoin.  Found once, as every RUN of a piece
 * touches the same bytes. */
#include <stdlib.h>

#include "base/array.h"
#include "segment/segment_private.h"

int segment_is_by_rows(const struct graph_node *node, int operand)
{
    if (node->op->transfer != TRANSFER_NONE || operand == NODE_INS)
        return 1;
    return operand < NODE_INS && node->op->by_rows >> operand & 1;
}

struct segment_touch segment_touch(const struct segment *segment, const struct segment_step *step,
                                   int operand)
{
    const struct graph_node *node = segment_node(segment, step);
    int writes = operand >= NODE_INS, out = operand - NODE_INS;
    if (operand == STEP_OPERANDS - 1)
        return (struct segment_touch){step->scratch.space, 0, SIZE_MAX, 1};
    struct segment_ref ref = writes ? step->out[out] : step->in[operand];
    int v = writes ? node->out[out] : node->in[operand];
    size_t bytes = ref.space < 0 ? 0 : graph_bytes(segment->graph, v);
    if (step->row_chunks > 1 && segment_is_by_rows(node, operand))
        bytes /= (size_t)step->row_chunks;
    return (struct segment_touch){ref.space, ref.offset, ref.offset + bytes, writes};
}

/* By space; of a space, reads first; of these, by the first byte. */
static int compare_touches(const void *a, const void *b)
{
    const struct segment_touch *one = a, *other = b;
    if (one->space != other->space)
        return one->space - other->space;
    if (one->writes != other->writes)
        return one->writes - other->writes;
    return (one->from > other->from) - (one->from < other->from);
}

/* Join touches that overlap or adjoin, of one space and kind.  Returns how many are left. */
static int join(struct segment_touch *touch, int count)
{
    int kept = 0;
    for (int t = 0; t < count; t++) {
        struct segment_touch *last = kept ? &touch[kept - 1] : NULL;
        if (last && touch[t].space == last->space && touch[t].writes == last->writes &&
            touch[t].from <= last->to)
            last->to = touch[t].to > last->to ? touch[t].to : last->to;
        else
            touch[kept++] = touch[t];
    }
    return kept;
}

void segment_find_touches(struct segment *segment)
{
    int count = 0, capacity = 0;
    for (int p = 0; p < segment->pieces; p++) {
        struct segment_piece *piece = &segment->piece[p];
        piece->first_touch = count;
        for (int s = piece->first; s < piece->end; s++)
            for (int k = 0; k < STEP_OPERANDS; k++) {
                struct segment_touch touch = segment_touch(segment, &segment->step[s], k);
                if (touch.space < 0)
                    continue;
                segment->touch =
                    array_grow(segment->touch, count, &capacity, sizeof *segment->touch);
                segment->touch[count++] = touch;
            }
        struct segment_touch *touch = &segment->touch[piece->first_touch];
        qsort(touch, (size_t)(count - piece->first_touch), sizeof *touch, compare_touches);
        count = piece->first_touch + join(touch, count - piece->first_touch);
        piece->end_touch = count;
    }
}
