/* runs_load.c - the LOAD of each micro-batch: what the rank's segments read of data.
 *
 * A table has the kinds of data, each with the value of a graph that it fills, the space in which a
 * segment finds it, and the slot of the LOAD that writes it.  A model with two sequences has a slot
 * of each kind for either.  Only what some unit of the rank reads is loaded: in a pipeline, a
 * rank without the loss loads no targets.
 */
#include "program/runs_private.h"

/* The kinds of data that LOAD loads. */
static const struct load {
    int slot; /* LOAD's slot for sequence 0; that of sequence s is slot + s */
    const char *name;
    enum graph_value_role role; /* of its value in a unit's graph */
    enum segment_space space;   /* where a segment finds it; of tokens: of those of sequence 0 */
    int64_t each;               /* int32 for each sequence; 0: one for each of its rows */
} loads[] = {
    {.slot = SLOT_LOAD_TOKENS, .name = "tokens", .role = VALUE_TOKENS, .space = SPACE_TOKENS},
    {.slot = SLOT_LOAD_TARGETS, .name = "targets", .role = VALUE_TARGETS, .space = SPACE_TARGETS},
    {.slot = SLOT_LOAD_POSITIONS,
     .name = "positions",
     .role = VALUE_POSITIONS,
     .space = SPACE_POSITIONS},
    {.slot = SLOT_LOAD_DOCUMENTS,
     .name = "documents",
     .role = VALUE_DOCUMENTS,
     .space = SPACE_DOCUMENTS},
    {.slot = SLOT_LOAD_SAMPLES,
     .name = "samples",
     .role = VALUE_SAMPLES,
     .space = SPACE_SAMPLES,
     .each = 2},
};
enum { LOADS = sizeof loads / sizeof loads[0] };
_Static_assert(LOADS *SEQUENCES == LOAD_SLOTS, "each of a LOAD's slots has its row");

int runs_load_slot(const struct segment *segment, int space)
{
    if (space >= SPACE_TOKENS && space < SPACE_TARGETS)
        return SLOT_LOAD_TOKENS + space - SPACE_TOKENS;
    for (int k = 0; k < LOADS; k++)
        if ((int)loads[k].space == space)
            return loads[k].slot +
                   segment->graph->values[graph_find(segment->graph, loads[k].role)].index;
    return -1;
}

uint64_t runs_slots_read(const struct program *program)
{
    uint64_t slots = 0;
    for (int unit = 0; unit < program->units->count; unit++)
        for (int phase = 0; phase < PHASES && program_owns(program, unit); phase++) {
            const struct segment *segment = program_segment(program, unit, phase);
            for (int space = SPACE_TOKENS; space <= SPACE_SAMPLES; space++)
                if (segment->reads >> space & 1 && runs_load_slot(segment, space) >= 0)
                    slots |= space_bit(runs_load_slot(segment, space));
        }
    return slots;
}

/* Make the buffer of a slot of LOAD. */
static int loaded(struct program *program, int *which, const struct load *load, int sequence,
                  int micro)
{
    int64_t each = load->each ? load->each : program_seq(program, sequence);
    size_t bytes = (size_t)(program_batch(program) * each) * sizeof(int32_t);
    return runs_follow(program, which,
                       program_add_buffer(program, POOL_WORKSPACE, bytes, 0, "%s%s micro %d",
                                          load->name, sequence ? " of the other" : "", micro));
}

void runs_load(struct program *program, struct runs_buffers *b, int micro)
{
    int *which = b->loaded[b->sets->loaded[micro]];
    if (!b->slots)
        return;
    struct instr *instr = program_add_instr(program, INSTR_LOAD, STREAM_COMPUTE);
    instr->micro = micro;
    for (int k = 0; k < LOADS; k++)
        for (int s = 0; s < SEQUENCES; s++) {
            int slot = loads[k].slot + s;
            if (b->slots >> slot & 1)
                instr_bind(instr, slot, loaded(program, &which[slot], &loads[k], s, micro),
                           ACCESS_WRITE);
        }
}
