/* release.c - the end of every passing buffer's life, written into the list. */
#include "program/passes.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/memory.h"

/* After which instruction the buffer is released: its last use, or the RUN or UPDATE that follows
 * a last use on another stream than the compute stream's or the host's, so that the two overlap. */
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

/* All that die; for free(), *count of them. */
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

/* One RELEASE names up to SLOTS buffers that die after the same instruction on the same stream.
 * Returns how many of the deaths it has written. */
static int write_release(struct program *program, const struct death *death, int deaths)
{
    struct instr *instr = program_instr(program, INSTR_RELEASE, death->stream);
    int named = 0;
    for (; named < deaths && named < SLOTS && same_place(death, &death[named]); named++)
        instr_bind(instr, named, death[named].buffer, 0);
    return named;
}

void pass_release(struct program *program)
{
    int deaths, count = program->instrs, at = 0;
    struct death *death = find_deaths(program, &deaths);
    struct instr *old = program->instr;
    program->instr_capacity = count + deaths; /* no more RELEASEs than deaths */
    program->instr = array_make((size_t)program->instr_capacity, sizeof *program->instr);
    program->instrs = 0;
    for (int i = 0; i < count; i++) {
        *program_instr(program, old[i].kind, old[i].stream) = old[i];
        while (at < deaths && death[at].after == i)
            at += write_release(program, &death[at], deaths - at);
    }
    free(old);
    free(death);
}
