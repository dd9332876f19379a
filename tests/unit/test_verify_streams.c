/* test_verify_streams.c - does verify_program() see instructions on streams that cannot do them,
 * and offloaded state that nobody fetched?  Real programs of every strategy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/programs.h"
#include "verify/streams.h"

static int is_waited_for(const struct program *program, int i)
{
    for (int k = i + 1; k < program->instrs; k++)
        if (program->instr[k].wait[program->instr[i].stream] == i)
            return 1;
    return 0;
}

/* The stream that an instruction may not be on though another one of its kind may, because its
 * operands are elsewhere; itself: there is none. */
static enum program_stream other_side(const struct instr *instr)
{
    static const enum program_stream others[STREAMS] = {
        [STREAM_FETCH] = STREAM_READ,
        [STREAM_READ] = STREAM_FETCH,
        [STREAM_SPILL] = STREAM_WRITE,
        [STREAM_WRITE] = STREAM_SPILL,
    };
    if (instr->kind == INSTR_UPDATE)
        return instr->stream == STREAM_HOST ? STREAM_COMPUTE : STREAM_HOST;
    return instr_is_copy(instr) ? others[instr->stream] : instr->stream;
}

static int is_point(enum program_stream stream)
{
    return stream >= STREAM_POINT && stream <= STREAM_POINT_7;
}

/* Each instruction on another stream: the n-th on the n-th of them.  What nothing waits for can be
 * there without a wrong wait. */
static void check_streams(struct program *program)
{
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i];
        enum program_stream was = instr->stream, other = other_side(instr);
        enum program_stream stream = (enum program_stream)(i % STREAMS);
        int has_other = other != was;
        int fits = stream == was || (has_other && stream == other) || instr->kind == INSTR_RELEASE;
        fits |=
            instr->kind == INSTR_UPDATE && (stream == STREAM_COMPUTE || stream == STREAM_UPDATE);
        fits |= instr_is_message(instr) && is_point(stream) &&
                program->layout->shape.points >> (stream - STREAM_POINT) & 1;
        instr->stream = stream;
        assert_int_equal(streams_allow(program, instr), fits);
        instr->stream = was;
        if (is_waited_for(program, i))
            continue;
        instr->stream = stream;
        if (!fits)
            assert_wrong(program, "wrong stream", "another stream", i);
        instr->stream = other;
        if (has_other)
            assert_wrong(program, "out of reach", "a stream of another side", i);
        instr->stream = was;
    }
    assert_right(program);
}

static void test_streams_do_what_they_can(void **state)
{
    programs_everywhere(check_streams);
}

/* Messages on a stream for which the pipeline has no channel. */
static void test_messages_have_channels(void **state)
{
    const struct config config =
        programs_config(0, "parallel.pipeline=3 train.global_batch=2 parallel.schedule=zb_h1");
    struct fleet fleet;
    fleet_open(&fleet, &config, 3, PROGRAM_TRAIN);
    for (int i = 0, points = (int)fleet.layout.shape.points; i < fleet.program[1]->instrs; i++) {
        const struct instr *instr = &fleet.program[1]->instr[i];
        if (!instr_is_message(instr))
            continue;
        fleet.layout.shape.points &= ~(1u << (instr->stream - STREAM_POINT));
        assert_wrong(fleet.program[1], "wrong stream", "no channel", i);
        fleet.layout.shape.points = (unsigned)points;
    }
    assert_right(fleet.program[1]);
    fleet_close(&fleet);
}

/* Let what reads the copy that instruction i makes read what that is a copy of; 1 if anything does.
 */
static int leave_out_copy(struct program *program, int i, struct instr *was, int *reader)
{
    const int *buffer = program->instr[i].buffer;
    for (int k = i + 1; k < program->instrs; k++)
        for (int slot = 0; slot < SLOTS && program->instr[k].kind != INSTR_RELEASE; slot++) {
            if (program->instr[k].buffer[slot] != buffer[SLOT_TO])
                continue;
            *was = program->instr[k];
            *reader = k;
            program->instr[k].buffer[slot] = buffer[SLOT_FROM];
            return 1;
        }
    return 0;
}

/* Bind a copy to other buffers, which must not be. */
static void refuse_copy(struct program *program, int i, int from, int to)
{
    struct instr *copy = &program->instr[i], was = *copy;
    copy->buffer[SLOT_FROM] = from;
    copy->buffer[SLOT_TO] = to;
    assert_wrong(program, "out of reach", "another copy", i);
    *copy = was;
}

/* Each copy of offloaded state the other way, to where it comes from, and from a file past the
 * host's memory; and each FETCH left out. */
static void check_copies(struct program *program)
{
    for (int i = 0; i < program->instrs; i++) {
        struct instr *copy = &program->instr[i], was;
        int reader;
        if (!instr_is_copy(copy))
            continue;
        int from = copy->buffer[SLOT_FROM], to = copy->buffer[SLOT_TO];
        refuse_copy(program, i, to, from);
        refuse_copy(program, i, from, from);
        if (program->layout->host_apart && copy->stream == STREAM_READ)
            refuse_copy(program, i, from, program->state->work);
        if (copy->kind == INSTR_FETCH && leave_out_copy(program, i, &was, &reader)) {
            assert_wrong(program, "out of reach", "not fetched", reader);
            program->instr[reader] = was;
        }
    }
    assert_right(program);
}

/* What works on the device, or on the host, leaves offloaded state alone. */
static void test_offloaded_state_is_fetched(void **state)
{
    programs_everywhere(check_copies);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_do_what_they_can),
        cmocka_unit_test(test_messages_have_channels),
        cmocka_unit_test(test_offloaded_state_is_fetched),
    };
    return cmocka_run_group_tests_name("verify_streams", tests, NULL, NULL);
}
