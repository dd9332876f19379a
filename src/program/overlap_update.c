/* overlap_update.c - updates in front of the first use of each flat; see overlap_update.h.
 *
 * While pass_schedule() writes the runs, it calls overlap_update_before() in front of whatever
 * reads a flat.  Flats are numbered in the order of their first reads, after those that nothing
 * reads.  In front of a read of the flat with number n it writes the updates of all flats up to n
 * that are not written yet, and the FETCHes of the state of the flat after it.
 */
#include "program/overlap_update.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "program/update_flat.h"

struct overlap_update {
    int *flat, count; /* the flats that are updated, in order */
    int *number;      /* per flat: its index in that list; -1: it is not updated */
    int done;         /* how many of the list have their UPDATE */
    int fetched;      /* how many of the list have their state fetched: here[0 .. fetched) is set */
    int sums;         /* the step's sums where UPDATE works; -1: not fetched yet */
    int has_zero;     /* 1: ZERO is written */
    struct update_operands *here; /* per index in that list */
};

static void append(struct overlap_update *o, int flat)
{
    if (o->number[flat] >= 0)
        return;
    o->number[flat] = o->count;
    o->flat[o->count++] = flat;
}

static int is_read(const struct run *run, int runs, int flat)
{
    for (int r = 0; r < runs; r++)
        for (int k = 0; k < run[r].uses; k++)
            if (run[r].use[k].flat == flat && run[r].use[k].reads)
                return 1;
    return 0;
}

static void order_flats(const struct program *program, struct overlap_update *o,
                        const struct run *run, int runs)
{
    int *trained = array_make((size_t)program->units->flats, sizeof *trained);
    int count = update_list(program, trained);
    for (int i = 0; i < count; i++)
        if (!is_read(run, runs, trained[i]))
            append(o, trained[i]);
    for (int r = 0; r < runs; r++)
        for (int k = 0; k < run[r].uses; k++)
            if (run[r].use[k].reads && state_trains(program->state, run[r].use[k].flat))
                append(o, run[r].use[k].flat);
    free(trained);
}

void overlap_update_plan(struct program *program, const struct run *run, int runs)
{
    size_t flats = (size_t)program->units->flats;
    if (!program_updates_first(program))
        return;
    struct overlap_update *o = program->overlap = array_make(1, sizeof *o);
    *o = (struct overlap_update){.flat = array_make(flats, sizeof *o->flat),
                                 .number = array_make(flats, sizeof *o->number),
                                 .sums = -1,
                                 .here = array_make(flats, sizeof *o->here)};
    memset(o->number, -1, flats * sizeof *o->number);
    order_flats(program, o, run, runs);
}

/* Up to number `last` of the list; state is fetched one flat ahead. */
static void update_to(struct program *program, int last)
{
    struct overlap_update *o = program->overlap;
    if (o->done <= last && o->sums < 0)
        o->sums = update_fetch(program, -1, program->state->sums);
    for (; o->done <= last; o->done++) {
        for (; o->fetched < o->count && o->fetched <= o->done + 1; o->fetched++)
            o->here[o->fetched] = update_fetch_flat(program, o->flat[o->fetched], -1);
        update_write(program, o->sums, &o->here[o->done]);
    }
}

void overlap_update_before(struct program *program, int flat)
{
    if (program->overlap && program->overlap->number[flat] >= 0)
        update_to(program, program->overlap->number[flat]);
}

void overlap_update_before_sums(struct program *program)
{
    struct overlap_update *o = program->overlap;
    if (!o || o->has_zero)
        return;
    o->has_zero = 1;
    program_add_zero(program);
}

void overlap_update_before_run(struct program *program, const struct run *run)
{
    const uint64_t sums =
        space_bit(SPACE_LOSS) | space_bit(SPACE_LOSS_SCALE) | space_bit(SPACE_EXPERT_TOKENS);
    if (!program->overlap)
        return;
    for (int k = 0; k < run->uses; k++)
        if (run->use[k].reads)
            overlap_update_before(program, run->use[k].flat);
    if ((run->segment->reads | run->segment->writes) & sums)
        overlap_update_before_sums(program);
}

void overlap_update_end(struct program *program)
{
    struct overlap_update *o = program->overlap;
    if (!o)
        return;
    update_to(program, o->count - 1);
    overlap_update_before_sums(program);
    free(o->flat);
    free(o->number);
    free(o->here);
    free(o);
    program->overlap = NULL;
}
