/* test_verify.c - does verify_program() accept what trireme compiles, and refuse it once one thing
 * in it is wrong?  Real programs of FULL_SHARD and NO_SHARD, each fault at every place where it
 * can be made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "program/memory.h"
#include "verify/verify.h"
#include "tests/unit/programs.h"

static void check_compiled(const struct config *config, int ranks, enum program_kind kind)
{
    struct fleet fleet;
    struct error err = {0};
    fleet_open(&fleet, config, ranks, kind);
    for (int r = 0; r < ranks; r++)
        assert_right(fleet.program[r]);
    if (verify_ranks((const struct program *const *)fleet.program, ranks, &err))
        fail_msg("%s", err.text);
    fleet_close(&fleet);
}

static void test_compiled_programs_are_right(void **state)
{
    static const char *const more[] = {
        "parallel.strategy=FULL_SHARD",
        "parallel.strategy=NO_SHARD",
        "parallel.strategy=FULL_SHARD precision=bf16 model.layers=1",
        "parallel.strategy=NO_SHARD precision=bf16 model.layers=1 train.global_batch=5",
    };
    for (int i = 0; i < 4; i++)
        for (int setting = 0; setting < 8; setting++) {
            struct config config = programs_config(setting, more[i]);
            for (int ranks = 1; ranks <= 7; ranks += 1 + ranks / 3) {
                check_compiled(&config, ranks, PROGRAM_TRAIN);
                check_compiled(&config, ranks, PROGRAM_EVALUATE);
            }
        }
}

/* The instruction of this stream before i, or -1. */
static int stream_before(const struct program *program, int i, enum program_stream stream)
{
    do
        i--;
    while (i >= 0 && program->instr[i].stream != stream);
    return i;
}

/* No wait can be missed, so verify knows every hazard there is and waits holds no idle one.
 * Nor may a wait be for one instruction less of the other stream. */
static void check_waits(struct program *program)
{
    static const char names[] = "race|memory reused in flight|released in flight";
    int waits = 0;
    for (int i = 0; i < program->instrs; i++)
        for (int s = 0; s < STREAMS; s++) {
            int *wait = &program->instr[i].wait[s], was = *wait;
            if (was < 0)
                continue;
            waits++;
            *wait = -1;
            assert_wrong(program, names, "a dropped wait", i);
            *wait = stream_before(program, was, s);
            assert_wrong(program, names, "a wait too short", i);
            *wait = was;
        }
    print_message("%d instructions, %d waits\n", program->instrs, waits);
    assert_true(waits > 0);
    assert_right(program);
}

static void test_every_wait_counts(void **state)
{
    programs_everywhere(check_waits);
}

static void check_wait_forward(struct program *program)
{
    for (int i = 0; i < program->instrs; i++)
        for (int s = 0; s < STREAMS; s++) {
            int *wait = &program->instr[i].wait[s], was = *wait;
            if (was < 0)
                continue;
            *wait = i;
            assert_wrong(program, "wrong wait", "a wait for itself", i);
            *wait = i + 1;
            assert_wrong(program, "wrong wait", "a wait for what follows", i);
            *wait = was;
        }
}

static void test_waits_point_backward(void **state)
{
    programs_everywhere(check_wait_forward);
}

/* A buffer with its views. */
static void move_to(struct program *program, int b, size_t offset)
{
    program->buffer[b].offset = offset;
    for (int v = 0; v < program->buffers; v++)
        if (program->buffer[v].whole == b)
            program->buffer[v].offset = offset + program->buffer[v].from;
}

/* Move each passing buffer onto each other one that lives at some time of its life. */
static void check_overlaps(struct program *program)
{
    struct memory_lifetime *life = memory_lifetimes(program);
    int moved = 0;
    for (int b = 0; b < program->buffers; b++)
        for (int c = 0; c < program->buffers; c++) {
            struct program_buffer *one = &program->buffer[b], *other = &program->buffer[c];
            size_t was = one->offset, slab = program->pool_bytes[one->pool];
            if (b == c || one->whole >= 0 || other->whole >= 0 || one->persistent ||
                one->pool != other->pool || life[c].first < 0 || !one->bytes || !other->bytes ||
                life[b].first > life[c].last || life[c].first > life[b].last)
                continue;
            move_to(program, b, other->offset + other->bytes / 2);
            program->pool_bytes[one->pool] = slab + one->bytes + other->bytes;
            assert_wrong(program, "memory reused too early|memory reused in flight", other->name,
                         life[b].first);
            move_to(program, b, was);
            program->pool_bytes[one->pool] = slab;
            moved++;
        }
    free(life);
    assert_true(moved > programs_share(program, 100));
    assert_right(program);
}

static void test_live_buffers_do_not_share(void **state)
{
    programs_everywhere(check_overlaps);
}

static void check_persistent(struct program *program)
{
    for (int b = 1; b < program->buffers; b++) {
        struct program_buffer *buffer = &program->buffer[b], *before = buffer - 1;
        size_t was = buffer->offset;
        if (!buffer->persistent || !before->persistent || buffer->pool != before->pool ||
            buffer->whole >= 0 || before->whole >= 0)
            continue;
        buffer->offset = before->offset;
        assert_wrong(program, "share memory", "two of the state", 0);
        buffer->offset = was;
    }
}

static void test_state_does_not_share(void **state)
{
    programs_everywhere(check_persistent);
}

static void check_slabs(struct program *program)
{
    struct memory_lifetime *life = memory_lifetimes(program);
    for (int b = 0; b < program->buffers; b++) {
        struct program_buffer *buffer = &program->buffer[b];
        size_t was = buffer->offset;
        if (!buffer->bytes || life[b].first < 0)
            continue;
        move_to(program, b, program->pool_bytes[buffer->pool] - buffer->bytes + 1);
        assert_wrong(program, "outside its slab", buffer->name, life[b].first);
        move_to(program, b, was);
    }
    free(life);
}

static void test_all_lie_in_their_slab(void **state)
{
    programs_everywhere(check_slabs);
}

/* Buffers whose memory a later one takes are missed when that comes, others at the end. */
static void check_missing_release(struct program *program)
{
    int at_end = 0;
    for (int i = 0; i < program->instrs; i++)
        for (int slot = 0; slot < SLOTS; slot++) {
            int *bound = &program->instr[i].buffer[slot], was = *bound;
            if (program->instr[i].kind != INSTR_RELEASE || was < 0)
                continue;
            struct error err = {0};
            *bound = -1;
            assert_wrong(program, "never released|memory reused too early", "no release", i);
            verify_program(program, &err);
            at_end += strstr(err.text, "never released") != NULL;
            *bound = was;
        }
    assert_true(at_end > 0);
}

/* A part of a parameter is no parameter: the own shard alone, from an UPDATE or a CAST. */
static void check_missing_gather(struct program *program)
{
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i];
        uint64_t was = instr->writes;
        if (instr->kind != INSTR_GATHER)
            continue;
        instr->writes = 0;
        assert_wrong(program, "read before written|wrong operand", "a gather that brings nothing",
                     i);
        instr->writes = was;
    }
    assert_right(program);
}

static void test_a_gather_is_missed(void **state)
{
    programs_everywhere(check_missing_gather);
}

static void test_a_release_is_missed(void **state)
{
    programs_everywhere(check_missing_release);
}

static void check_second_release(struct program *program)
{
    int doubled = 0;
    for (int i = 0; i < program->instrs; i++)
        for (int slot = 0; slot + 1 < SLOTS; slot++) {
            int *bound = program->instr[i].buffer + slot;
            if (program->instr[i].kind != INSTR_RELEASE || bound[0] < 0 || bound[1] >= 0)
                continue;
            bound[1] = bound[0];
            assert_wrong(program, "released twice", "a release twice", i);
            bound[1] = -1;
            doubled++;
        }
    assert_true(doubled > 0);
}

static void test_released_once(void **state)
{
    programs_everywhere(check_second_release);
}

/* The last instruction but releases that names buffer b. */
static int last_use(const struct program *program, int b)
{
    int last = -1;
    for (int i = 0; i < program->instrs; i++)
        for (int slot = 0; slot < SLOTS; slot++)
            if (program->instr[i].buffer[slot] == b && program->instr[i].kind != INSTR_RELEASE)
                last = i;
    return last;
}

/* Waits follow when instructions from `at` on move by `by`. */
static void shift_waits(struct program *program, int at, int by)
{
    for (int i = 0; i < program->instrs; i++)
        for (int s = 0; s < STREAMS; s++)
            if (program->instr[i].wait[s] >= at)
                program->instr[i].wait[s] += by;
}

/* A release of b in front of instruction `at`, which waits for all that is before it. */
static void insert_release(struct program *program, int at, enum program_stream stream, int b)
{
    struct instr release = *program_add_instr(program, INSTR_RELEASE, stream);
    int last = program->instrs - 1;
    shift_waits(program, at, 1);
    memmove(&program->instr[at + 1], &program->instr[at],
            (size_t)(last - at) * sizeof *program->instr);
    release.buffer[0] = b;
    for (int s = 0; s < STREAMS; s++)
        release.wait[s] = s == (int)stream ? -1 : stream_before(program, at, s);
    program->instr[at] = release;
}

static void remove_instr(struct program *program, int at)
{
    program->instrs--;
    memmove(&program->instr[at], &program->instr[at + 1],
            (size_t)(program->instrs - at) * sizeof *program->instr);
    shift_waits(program, at + 1, -1);
}

/* Every buffer, released in front of its last use instead of behind it. */
static void check_early_release(struct program *program)
{
    int moved = 0;
    for (int i = 0; i < program->instrs; i++)
        for (int slot = 0; slot < SLOTS && program->instr[i].kind == INSTR_RELEASE; slot++) {
            int b = program->instr[i].buffer[slot], at = b < 0 ? -1 : last_use(program, b);
            if (at < 0)
                continue;
            program->instr[i].buffer[slot] = -1;
            insert_release(program, at, program->instr[i].stream, b);
            assert_wrong(program, "used after release", "an early release", at);
            remove_instr(program, at);
            program->instr[i].buffer[slot] = b;
            moved++;
        }
    assert_true(moved > programs_share(program, 20));
    assert_right(program);
}

static void test_not_used_after_release(void **state)
{
    programs_everywhere(check_early_release);
}

/* The place behind the second RUN or UPDATE after instruction i; -1 where there are not two. */
static int after_two(const struct program *program, int i)
{
    int works = 0;
    for (i++; i < program->instrs && works < 2; i++)
        works += program->instr[i].kind == INSTR_RUN || program->instr[i].kind == INSTR_UPDATE;
    return works == 2 ? i : -1;
}

/* Every buffer, kept alive while two more work: too long, or others come into its memory. */
static void check_late_release(struct program *program)
{
    static const char names[] = "released late|memory reused too early|memory reused in flight";
    int late = 0;
    for (int i = 0; i < program->instrs; i++)
        for (int slot = 0; slot < SLOTS && program->instr[i].kind == INSTR_RELEASE; slot++) {
            int b = program->instr[i].buffer[slot], at = after_two(program, i);
            struct error err = {0};
            if (b < 0 || at < 0)
                continue;
            program->instr[i].buffer[slot] = -1;
            insert_release(program, at, program->instr[i].stream, b);
            assert_wrong(program, names, "a late release", at);
            verify_program(program, &err);
            late += strstr(err.text, "released late") != NULL;
            remove_instr(program, at);
            program->instr[i].buffer[slot] = b;
        }
    assert_true(late > programs_share(program, 5));
    assert_right(program);
}

static void test_nothing_lives_longer_than_needed(void **state)
{
    programs_everywhere(check_late_release);
}

/* Without a gather, a load, a run or the first reduction of a gradient, what it would have written
 * is read nevertheless. */
static void check_missing_writes(struct program *program)
{
    int dropped[INSTR_KINDS] = {0};
    for (int i = 0; i < program->instrs; i++) {
        struct instr was = program->instr[i];
        int makes = was.kind == INSTR_GATHER || was.kind == INSTR_LOAD || was.kind == INSTR_RUN ||
                    (was.kind == INSTR_REDUCE && !was.accumulate);
        /* The lowest unit's backward makes nothing but a gradient, to which it may only add; a
         * weight part makes a part of one, of which the input part has made another. */
        int adds =
            was.kind == INSTR_RUN && (was.phase == PHASE_BACKWARD_WEIGHT ||
                                      (segment_phase_is_backward(was.phase) && was.accumulate &&
                                       !(was.writes >> SPACE_INPUT_GRAD & 1)));
        if (!makes || adds)
            continue;
        memset(program->instr[i].buffer, -1, sizeof was.buffer);
        assert_wrong(program, "read before written|wrong operand", "nothing written", i);
        dropped[was.kind]++;
        program->instr[i] = was;
    }
    int loads = program_owns(program, 0) ||
                program_owns(program, program->units->count - 1); /* tokens or targets */
    assert_true(dropped[INSTR_LOAD] == program->micros * loads);
    assert_true(dropped[INSTR_RUN] > programs_share(program, 10));
    assert_right(program);
}

static void test_nothing_is_read_unwritten(void **state)
{
    programs_everywhere(check_missing_writes);
}

/* What forward keeps, a byte shorter or longer, and work a byte too short for a segment. */
static void check_sizes(struct program *program)
{
    int works = 0;
    for (int i = 0; i < program->instrs; i++) {
        const struct instr *instr = &program->instr[i];
        if (instr->kind != INSTR_RUN)
            continue;
        int saved = instr->buffer[SPACE_SAVED], work = instr->buffer[SPACE_WORK];
        for (int more = -1; saved >= 0 && more <= 1; more += 2) {
            program->buffer[saved].bytes += (size_t)more;
            assert_refused(verify_values, program, "wrong size", "what is kept", i);
            program->buffer[saved].bytes -= (size_t)more;
        }
        if (work < 0)
            continue;
        size_t was = program->buffer[work].bytes;
        program->buffer[work].bytes =
            program_segment(program, instr->unit, instr->phase)->work_bytes - 1;
        assert_refused(verify_values, program, "wrong size", "too little work", i);
        program->buffer[work].bytes = was;
        works++;
    }
    assert_true(works > programs_share(program, 10));
    assert_right(program);
}

static void test_kept_and_work_have_their_sizes(void **state)
{
    programs_everywhere(check_sizes);
}

/* Move what is received from each member onto what comes from each other one. */
static int check_parts_of(struct program *program, int i)
{
    const struct instr *instr = &program->instr[i];
    const int size = mesh_members(&program->layout->shape, instr->axes);
    struct comm_part *part = &program->part[instr->first_part];
    const int64_t space =
        (int64_t)(program->buffer[instr->buffer[SLOT_TO]].bytes / dtype_bytes(instr->dtype));
    int moved = 0;
    for (int k = 0; k < size; k++)
        for (int m = 0; m < size; m++) {
            const struct comm_part was = part[k];
            if (m == k || !part[m].recv_elems || part[m].recv_from + was.recv_elems > space)
                continue;
            part[k].recv_from = part[m].recv_from;
            if (was.recv_elems)
                assert_wrong(program, "parts overlap", "two parts at one place", i);
            else
                assert_right(program);
            moved += was.recv_elems > 0;
            part[k] = was;
        }
    return moved;
}

/* Ranks that send each other rows of the matrices that they own. */
static void test_received_parts_are_apart(void **state)
{
    const struct config config =
        programs_config(0, "parallel.strategy=FULL_SHARD train.optimizer=muon");
    struct fleet fleet;
    int moved = 0;
    fleet_open(&fleet, &config, 4, PROGRAM_TRAIN);
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < fleet.program[r]->instrs; i++)
            if (fleet.program[r]->instr[i].kind == INSTR_ALLTOALL)
                moved += check_parts_of(fleet.program[r], i);
    assert_true(moved > 0);
    fleet_close(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compiled_programs_are_right),
        cmocka_unit_test(test_every_wait_counts),
        cmocka_unit_test(test_waits_point_backward),
        cmocka_unit_test(test_live_buffers_do_not_share),
        cmocka_unit_test(test_state_does_not_share),
        cmocka_unit_test(test_all_lie_in_their_slab),
        cmocka_unit_test(test_a_release_is_missed),
        cmocka_unit_test(test_a_gather_is_missed),
        cmocka_unit_test(test_released_once),
        cmocka_unit_test(test_not_used_after_release),
        cmocka_unit_test(test_nothing_lives_longer_than_needed),
        cmocka_unit_test(test_nothing_is_read_unwritten),
        cmocka_unit_test(test_received_parts_are_apart),
        cmocka_unit_test(test_kept_and_work_have_their_sizes),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
