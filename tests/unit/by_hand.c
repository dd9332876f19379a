/* by_hand.c - see by_hand.h. */
#include "tests/unit/by_hand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "verify/verify.h"

void hand_open(struct hand *hand, int ranks, enum mesh_axis axis)
{
    *hand = (struct hand){.ranks = ranks};
    hand->layout.shape = (struct mesh_shape){{1, 1, 1, 1, 1}};
    hand->layout.shape.degree[axis] = ranks;
    for (int r = 0; r < ranks; r++) {
        hand->state[r] = (struct state){.layout = &hand->layout,
                                        .coord = mesh_coord_of_rank(&hand->layout.shape, r)};
        hand->rank[r].state = &hand->state[r];
        hand->rank[r].layout = &hand->layout;
        hand->program[r] = &hand->rank[r];
    }
}

void hand_close(struct hand *hand)
{
    for (int r = 0; r < hand->ranks; r++) {
        free(hand->rank[r].instr);
        free(hand->rank[r].buffer);
    }
}

int hand_add(struct program *program, enum instr_kind kind, enum program_stream stream, int wait)
{
    struct instr *instr = program_add_instr(program, kind, stream);
    int index = program->instrs - 1;
    if (wait >= 0)
        instr->wait[program->instr[wait].stream] = wait;
    if (kind == INSTR_RUN || kind == INSTR_RELEASE)
        return index;
    instr->axes = 1u << (kind == INSTR_SEND || kind == INSTR_RECV ? MESH_PIPELINE : MESH_SHARD);
    instr->peer = !program->state->coord.at[MESH_PIPELINE];
    instr->elems = 7;
    instr->dtype = DTYPE_F32;
    int buffer = program_add_buffer(program, POOL_ACTIVATIONS, 28, 1, "b%d", index);
    instr_bind(instr, kind == INSTR_SEND ? SLOT_FROM : SLOT_TO, buffer,
               kind == INSTR_SEND ? ACCESS_READ : ACCESS_WRITE);
    return index;
}

void hand_idle(struct instr *instr)
{
    instr->kind = INSTR_RELEASE;
    instr->axes = 0;
    memset(instr->buffer, -1, sizeof instr->buffer);
}

static int verify(struct program *const *programs, int ranks, struct error *err)
{
    *err = (struct error){0};
    return verify_ranks((const struct program *const *)programs, ranks, err);
}

void hand_fit(struct program *const *programs, int ranks)
{
    struct error err;
    if (verify(programs, ranks, &err))
        fail_msg("%s", err.text);
}

void hand_refused(struct program *const *programs, int ranks, const char *names)
{
    struct error err;
    char copy[128], *rest = copy;
    if (!verify(programs, ranks, &err))
        fail_msg("not noticed: %s", names);
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name; (name = strtok_r(rest, "|", &rest));)
        if (strstr(err.text, name))
            return;
    fail_msg("wanted \"%s\", got \"%s\"", names, err.text);
}

void hand_refused_as(struct program *const *programs, int ranks, const char *text)
{
    struct error err;
    if (!verify(programs, ranks, &err))
        fail_msg("not noticed: %s", text);
    assert_string_equal(err.text, text);
}
