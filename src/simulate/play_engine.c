/* play_engine.c - makes what play.c knows of a step before it begins.
 *
 *   of each rank      its number in the job, and per instruction the next one on the same stream
 *   of each set of    the groups of the ranks that are simulated: the first rank of each rank's
 *   axes in use       group, by which the group is known, and how many of the group are simulated
 *
 * Two ranks are of one group of a set of axes where their coordinates on all other axes are equal.
 */
#include "simulate/play_private.h"

#include <stdlib.h>

#include "base/array.h"

/* Do two ranks differ along these axes alone, so that they are of one group? */
static int are_of_one_group(const struct play_engine *e, int a, int b, unsigned axes)
{
    const struct mesh_coord *of_a = &e->rank[a].program->state->coord;
    const struct mesh_coord *of_b = &e->rank[b].program->state->coord;
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (!(axes >> axis & 1) && of_a->at[axis] != of_b->at[axis])
            return 0;
    return 1;
}

static void make_groups(struct play_engine *e, unsigned axes)
{
    int ranks = e->request->ranks;
    if (e->arrived[axes])
        return;
    e->arrived[axes] = array_make((size_t)ranks * STREAMS, sizeof(int));
    e->first[axes] = array_make((size_t)ranks, sizeof(int));
    e->present[axes] = array_make((size_t)ranks, sizeof(int));
    for (int r = 0; r < ranks; r++) {
        int first = 0;
        while (!are_of_one_group(e, first, r, axes))
            first++;
        e->first[axes][r] = first;
    }
    for (int r = 0; r < ranks; r++)
        for (int other = 0; other < ranks; other++)
            e->present[axes][r] += e->first[axes][other] == e->first[axes][r];
}

static void make_rank(struct play_engine *e, int rank)
{
    struct play_progress *r = &e->rank[rank];
    const struct program *program = r->program;
    int next[STREAMS];
    r->next_on_stream = array_make((size_t)program->instrs + 1, sizeof *r->next_on_stream);
    for (int s = 0; s < STREAMS; s++)
        next[s] = program->instrs;
    for (int i = program->instrs - 1; i >= 0; i--) {
        enum program_stream stream = program->instr[i].stream;
        r->next_on_stream[i] = next[stream];
        next[stream] = i;
    }
    for (int s = 0; s < STREAMS; s++)
        r->stream[s] = (struct play_stream){.next = next[s],
                                            .awaits = -1,
                                            .done = -1,
                                            .held_by = -1,
                                            .worked = -1,
                                            .took = -1,
                                            .starts_after = -1};
    r->waits_for = -1;
    for (int i = 0; i < program->instrs; i++)
        if (program->instr[i].axes)
            make_groups(e, program->instr[i].axes);
}

void play_engine_make(struct play_engine *e)
{
    const struct play_request *request = e->request;
    const struct mesh_shape *shape = &request->program[0]->layout->shape;
    e->world = mesh_members(shape, MESH_SETS - 1);
    e->rank = array_make((size_t)request->ranks, sizeof *e->rank);
    e->of_global = array_make((size_t)e->world, sizeof *e->of_global);
    for (int g = 0; g < e->world; g++)
        e->of_global[g] = -1;
    for (int r = 0; r < request->ranks; r++) {
        e->rank[r].program = request->program[r];
        e->rank[r].global = mesh_rank(shape, request->program[r]->state->coord);
        e->of_global[e->rank[r].global] = r;
    }
    for (int r = 0; r < request->ranks; r++)
        make_rank(e, r);
}

void play_engine_free(struct play_engine *e)
{
    for (int r = 0; r < e->request->ranks; r++)
        free(e->rank[r].next_on_stream);
    for (unsigned axes = 0; axes < MESH_SETS; axes++) {
        free(e->arrived[axes]);
        free(e->first[axes]);
        free(e->present[axes]);
    }
    for (int i = 0; i < e->count; i++)
        play_activity_free(e->running[i]);
    for (int i = 0; i < e->spares; i++)
        play_activity_free(e->spare[i]);
    free(e->ended);
    free(e->running);
    free(e->spare);
    free(e->rank);
    free(e->of_global);
}
