/* runs_buffers.c - the buffers that pass between runs, by unit and by set of addresses (runs.h).
 *
 * What has sets that are numbered apart is noted apart:
 *
 *   made       of an own unit: its output, what it keeps for backward, and its output's gradient
 *              if that is made here
 *   deferred   of an own unit: what the input part of backward keeps for the weight part
 *   received   of a unit of another rank: its output
 *              of an own unit: its output's gradient, if that comes from another rank
 *
 * Which of these cross to another rank is found once for all, by find_crossings().
 */
#include "program/runs_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static void *make_table(int count, size_t size)
{
    return memset(array_make((size_t)count, size), -1, (size_t)count * size);
}

struct runs_unit_buffers *runs_unit_buffers(const struct program *program,
                                            const struct runs_buffers *b, int micro, int unit)
{
    int set = b->sets->own[runs_stage_of(program, unit) * program->micros + micro];
    return &b->unit[set * b->units + unit];
}

/* What is received at a unit of another rank is its output, for the stage after it; at an own unit
 * the gradient of its output, for the unit's own stage. */
struct runs_received_buffers *runs_received_buffers(const struct program *program,
                                                    const struct runs_buffers *b, int micro,
                                                    int unit)
{
    int stage = runs_stage_of(program, unit) + !b->crossing[unit].is_own;
    int set = b->sets->received[stage * program->micros + micro];
    return &b->received[set * b->units + unit];
}

int *runs_deferred(const struct program *program, const struct runs_buffers *b, int micro, int unit)
{
    int set = b->sets->deferred[runs_stage_of(program, unit) * program->micros + micro];
    return &b->deferred[set * b->units + unit];
}

int *runs_output(const struct program *program, const struct runs_buffers *b, int micro, int unit)
{
    return b->crossing[unit].is_own
               ? &runs_unit_buffers(program, b, micro, unit)->output
               : &runs_received_buffers(program, b, micro, unit)->buffer[WAY_UP];
}

int *runs_gradient(const struct program *program, const struct runs_buffers *b, int micro, int unit)
{
    return b->crossing[unit].is_own && !b->crossing[unit].comes_back
               ? &runs_unit_buffers(program, b, micro, unit)->output_grad
               : &runs_received_buffers(program, b, micro, unit)->buffer[WAY_DOWN];
}

/* Does a unit make a gradient of its input k? */
static int makes_gradient(const struct program *program, int unit, int k)
{
    for (int phase = 0; phase < PHASES; phase++)
        if (units_segment(program->units, unit, phase)->writes >> (SPACE_INPUT_GRAD + k) & 1)
            return 1;
    return 0;
}

/* Find whether the output of an own unit goes to units of the next stage, and whether its gradient
 * comes back from there. */
static void find_crossing(const struct program *program, struct units_stage next, int unit,
                          struct runs_crossing *crossing)
{
    for (int u = next.first; u < next.first + next.count; u++)
        for (int k = 0; k < program->units->boundary[u].inputs; k++)
            if (program->units->boundary[u].producer[k] == unit) {
                crossing->goes = 1;
                crossing->comes_back |=
                    program->kind == PROGRAM_TRAIN && makes_gradient(program, u, k);
            }
}

static void find_crossings(const struct program *program, struct runs_buffers *b)
{
    size_t stages = (size_t)program->units->stages;
    b->stage = array_make(stages, sizeof *b->stage);
    b->rank = array_make(stages, sizeof *b->rank);
    b->crossing = array_make((size_t)b->units, sizeof *b->crossing);
    for (int stage = 0; stage < program->units->stages; stage++) {
        b->stage[stage] = units_stage(program->units, stage);
        b->rank[stage] = program->units->rank[b->stage[stage].first];
    }
    for (int u = 0; u < b->units; u++) {
        int next = runs_stage_of(program, u) + 1;
        b->crossing[u].is_own = program_owns(program, u) != 0;
        if (program_owns(program, u) && next < program->units->stages &&
            b->rank[next] != runs_own_rank(program))
            find_crossing(program, b->stage[next], u, &b->crossing[u]);
    }
}

struct runs_buffers *runs_open(const struct program *program, const struct runs_sets *sets)
{
    struct runs_buffers *b = array_make(1, sizeof *b);
    b->units = program->units->count;
    b->last = -1;
    b->sets = sets;
    b->unit = make_table(sets->owns * b->units, sizeof *b->unit);
    b->received = make_table(sets->receipts * b->units, sizeof *b->received);
    b->deferred = make_table(sets->defers * b->units, sizeof *b->deferred);
    b->loaded = make_table(sets->loads, sizeof *b->loaded);
    b->carried = make_table(b->units, sizeof *b->carried);
    b->slots = runs_slots_read(program);
    find_crossings(program, b);
    return b;
}

void runs_close(struct runs_buffers *b)
{
    free(b->stage);
    free(b->rank);
    free(b->crossing);
    free(b->unit);
    free(b->received);
    free(b->deferred);
    free(b->loaded);
    free(b->carried);
    free(b);
}
