/* release.c - the end of every passing buffer's life, written into the list. */
#include "program/passes.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/memory.h"

/* After which instruction the buffer is released: its last use, or the RUN or UPDATE that follows
 * a last use by a transfer, so that the two overlap. */
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

/* The buffers to release after each instruction, as linked lists through next. */
struct deaths {
    int *head;                   /* per instruction, a buffer or -1 */
    int *next;                   /* per buffer */
    enum program_stream *stream; /* per buffer: of its last use */
};

static struct deaths find_deaths(const struct program *program)
{
    struct memory_lifetime *life = memory_lifetimes(program);
    struct deaths deaths = {
        .head = array_make((size_t)program->instrs, sizeof(int)),
        .next = array_make((size_t)program->buffers, sizeof(int)),
        .stream = array_make((size_t)program->buffers, sizeof(enum program_stream)),
    };
    for (int i = 0; i < program->instrs; i++)
        deaths.head[i] = -1;
    for (int b = program->buffers - 1; b >= 0; b--) {
        if (program->buffer[b].persistent || life[b].first < 0)
            continue;
        int after = release_after(program, life[b].last);
        deaths.stream[b] = program->instr[life[b].last].stream;
        deaths.next[b] = deaths.head[after];
        deaths.head[after] = b;
    }
    free(life);
    return deaths;
}

/* One RELEASE for up to SLOTS buffers that die here on this stream. */
static void write_releases(struct program *program, const struct deaths *deaths, int after,
                           enum program_stream stream)
{
    int slot = SLOTS;
    struct instr *instr = NULL;
    for (int b = deaths->head[after]; b >= 0; b = deaths->next[b]) {
        if (deaths->stream[b] != stream)
            continue;
        if (slot == SLOTS) {
            instr = program_instr(program, INSTR_RELEASE, stream);
            slot = 0;
        }
        instr_bind(instr, slot++, b, 0);
    }
}

void pass_release(struct program *program)
{
    struct deaths deaths = find_deaths(program);
    struct instr *old = program->instr;
    int count = program->instrs;
    program->instr = NULL;
    program->instrs = program->instr_capacity = 0;
    for (int i = 0; i < count; i++) {
        *program_instr(program, old[i].kind, old[i].stream) = old[i];
        for (int stream = 0; stream < STREAMS; stream++)
            write_releases(program, &deaths, i, stream);
    }
    free(old);
    free(deaths.head);
    free(deaths.next);
    free(deaths.stream);
}
