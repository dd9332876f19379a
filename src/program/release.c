/* release.c - the end of every passing buffer's life, written into the list. */
#include "program/passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "program/memory.h"

/* The instruction after which a buffer last used by instruction `last` is released: `last` itself,
 * or, if that is on another stream than the compute stream or the host's, the next RUN or UPDATE,
 * so that the two overlap. */
static int release_after(const struct program *program, int last)
{
    enum program_stream stream = program->instr[last].stream;
    if (stream == STREAM_COMPUTE || stream == STREAM_HOST)
        return last;
    for (int i = last + 1; i < program->instrs; i++)
        if (program->instr[i].kind == INSTR_RUN || program->instr[i].kind == INSTR_UPDATE)
            return i;
    return program->instrs - 1;
}

/* A buffer, after which instruction it is released, and on which stream: that of its last use. */
struct death {
    int after;
    enum program_stream stream;
    int buffer;
};

static int same_place(const struct death *a, const struct death *b)
{
    return a->after == b->after && a->stream == b->stream;
}

/* In the order of the list; of one instruction, by stream. */
static int in_order(const void *a, const void *b)
{
    const struct death *one = a, *other = b;
    if (same_place(one, other))
        return one->buffer - other->buffer;
    return one->after != other->after ? one->after - other->after
                                      : (int)one->stream - (int)other->stream;
}

/* All buffers that do not outlive the step, as deaths; for free(), *count of them. */
static struct death *find_deaths(const struct program *program, int *count)
{
    struct memory_lifetime *life = memory_lifetimes(program);
    struct death *death = array_make((size_t)program->buffers, sizeof *death);
    *count = 0;
    for (int b = 0; b < program->buffers; b++)
        if (!program->buffer[b].persistent && life[b].first >= 0)
            death[(*count)++] = (struct death){.after = release_after(program, life[b].last),
                                               .stream = program->instr[life[b].last].stream,
                                               .buffer = b};
    free(life);
    qsort(death, (size_t)*count, sizeof *death, in_order);
    return death;
}

/* How many of the last deaths are of one instruction and stream. */
static int count_last(const struct death *death, int deaths)
{
    int count = 1;
    while (count < deaths && same_place(&death[deaths - 1 - count], &death[deaths - 1]))
        count++;
    return count;
}

/* One RELEASE names up to SLOTS buffers that die after the same instruction on the same stream. */
static int releases_for(int deaths)
{
    return (deaths + SLOTS - 1) / SLOTS;
}

static int count_releases(const struct death *death, int deaths)
{
    int releases = 0;
    for (int left = deaths; left > 0;) {
        int count = count_last(death, left);
        releases += releases_for(count);
        left -= count;
    }
    return releases;
}

/* Write the RELEASEs of `deaths` buffers that die after one instruction on one stream. */
static void write_releases(struct instr *instr, const struct death *death, int deaths)
{
    for (int k = 0; k < deaths; k++) {
        if (k % SLOTS == 0)
            instr_make(&instr[k / SLOTS], INSTR_RELEASE, death->stream);
        instr_bind(&instr[k / SLOTS], k % SLOTS, death[k].buffer, ACCESS_NONE);
    }
}

/* The list is moved apart in place, from its end on, so that what is moved never overwrites what is
 * still to be moved. */
void pass_release(struct program *program)
{
    int deaths, from = program->instrs;
    struct death *death = find_deaths(program, &deaths);
    int to = from + count_releases(death, deaths);
    program_set_instrs(program, to);
    while (to > from) {
        int last = death[deaths - 1].after, moved = from - last - 1;
        from -= moved;
        to -= moved;
        memmove(&program->instr[to], &program->instr[from], (size_t)moved * sizeof *program->instr);
        while (deaths > 0 && death[deaths - 1].after == last) {
            int count = count_last(death, deaths);
            deaths -= count;
            to -= releases_for(count);
            write_releases(&program->instr[to], &death[deaths], count);
        }
    }
    free(death);
}
