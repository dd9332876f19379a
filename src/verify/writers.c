/* writers.c - see writers.h.
 *
 * Writers, the pieces of a segment and the exchanges after them, have numbers in their order:
 *
 *   RUN piece 0    ALLREDUCE    RUN piece 1    GATHER    RUN piece 2
 *   0              1            2              3         4
 *
 * Each number of a phase has a random tag, and each unit and micro-batch a random factor, an odd
 * number: the addend of a writer is their product.  So what the first n writers write to a space is
 * the same sum of tags for all micro-batches, and is summed up once, for all n.
 */
#include "verify/writers.h"

#include <stdlib.h>

#include "base/array.h"

/* The spaces that writers fill. */
static const int filled[] = {SPACE_SAVED, SPACE_DEFERRED, SPACE_CARRY};
enum { FILLED = sizeof filled / sizeof filled[0] };

struct writers {
    int segments;
    /* [segment][number][`filled`]: the tags of the writers with lower numbers; NULL: not asked for
     * yet.  A segment is a kind of unit and a phase. */
    struct addends (**before)[FILLED];
};

static int fill_index(int space)
{
    int k = 0;
    while (k < FILLED && filled[k] != space)
        k++;
    return k;
}

int writers_fill(int space)
{
    return fill_index(space) < FILLED;
}

int writers_keeper(int space, enum segment_phase phase)
{
    if (space == SPACE_SAVED && segment_phase_is_backward(phase))
        return PHASE_FORWARD;
    return space == SPACE_DEFERRED && phase == PHASE_BACKWARD_WEIGHT ? PHASE_BACKWARD_INPUT : -1;
}

/* The number of an instruction in its segment, as above: of RUN piece 1 it is 2, of the GATHER
 * after it 3. */
static int writer_number(const struct instr *instr)
{
    return 2 * instr->piece + instr_is_exchange(instr);
}

/* The tag of writer n of a phase: the same for all units and micro-batches. */
static struct addends tag(enum segment_phase phase, int n)
{
    return addend(MEANS_CARRIED, -1, n * PHASES + (int)phase);
}

/* The addends by which writers with these tags are known where instr's unit and micro-batch ran
 * them.
 */
static struct addends of_run(struct addends tags, const struct instr *instr)
{
    tags.tags *= addend(MEANS_CARRIED, instr->micro, instr->unit).tags | 1;
    return tags;
}

/* Does number n write to a space?  The GATHER above does to SPACE_CARRY, if piece 2 finds its
 * result there. */
static int writer_writes(const struct segment *segment, int n, int space)
{
    const struct segment_step *step = segment_exchange(segment, n / 2);
    if (n % 2)
        return step && step->out[0].space == space;
    return segment->piece[n / 2].writes >> space & 1;
}

static struct addends (*sum_tags(const struct segment *segment, enum segment_phase phase))[FILLED]
{
    struct addends(*before)[FILLED] = array_make(2 * (size_t)segment->pieces + 1, sizeof *before);
    for (int n = 0; n < 2 * segment->pieces; n++)
        for (int k = 0; k < FILLED; k++) {
            before[n + 1][k] = before[n][k];
            if (writer_writes(segment, n, filled[k]))
                addends_add(&before[n + 1][k], tag(phase, n));
        }
    return before;
}

struct writers *writers_open(const struct program *program)
{
    struct writers *writers = array_make(1, sizeof *writers);
    writers->segments = program->units->kinds * PHASES;
    writers->before = array_make((size_t)writers->segments, sizeof *writers->before);
    return writers;
}

void writers_close(struct writers *writers)
{
    for (int s = 0; writers && s < writers->segments; s++)
        free(writers->before[s]);
    if (writers)
        free(writers->before);
    free(writers);
}

struct addends writers_addend(const struct instr *instr)
{
    return of_run(tag(instr->phase, writer_number(instr)), instr);
}

struct addends writers_before(const struct values *v, const struct instr *instr, int space)
{
    int keeper = writers_keeper(space, instr->phase);
    int phase = keeper < 0 ? (int)instr->phase : keeper;
    const struct segment *segment = program_segment(v->program, instr->unit, phase);
    int end = keeper < 0 ? writer_number(instr) : 2 * segment->pieces;
    struct addends(**before)[FILLED] =
        &v->writers->before[v->program->units->kind_of[instr->unit] * PHASES + phase];
    if (!*before)
        *before = sum_tags(segment, (enum segment_phase)phase);
    return of_run((*before)[end][fill_index(space)], instr);
}

int writers_after(const struct values *v, const struct instr *instr, int space,
                  struct addends *before)
{
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    int own = writer_number(instr), after = 0;
    struct addends sum = {0};
    for (int n = 0; n < 2 * segment->pieces; n++) {
        if (!writer_writes(segment, n, space))
            continue;
        after += n > own;
        if (n < own)
            addends_add(&sum, tag(instr->phase, n));
    }
    *before = of_run(sum, instr);
    return after;
}
