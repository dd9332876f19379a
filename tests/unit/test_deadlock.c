/* test_deadlock.c - when ranks wait for one another, does verify_ranks() show the cycle of
 * instructions, or the one that is missing?  Small programs written by hand, word for word, and
 * real programs of pipelines with each fault at every message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "verify/verify.h"
#include "tests/unit/by_hand.h"
#include "tests/unit/rig.h"

/* ---- by hand ---- */

/* Each stage waits for the other's message before it computes what it would send. */
static void test_receive_before_send(void **state)
{
    struct hand hand;
    hand_open(&hand, 2, MESH_PIPELINE);
    for (int r = 0; r < 2; r++) {
        int got = hand_add(hand.program[r], INSTR_RECV, STREAM_POINT, -1);
        int run = hand_add(hand.program[r], INSTR_RUN, STREAM_COMPUTE, got);
        hand_add(hand.program[r], INSTR_SEND, STREAM_POINT, run);
    }
    hand_refused_as(
        hand.program, 2,
        "verify: deadlock: rank 0 RECV (instruction 0, stream point) waits for rank 1 "
        "SEND (instruction 2, stream point), which comes after rank 1 RUN forward "
        "(instruction 1, stream compute), which waits for rank 1 RECV (instruction 0, "
        "stream point), which waits for rank 0 SEND (instruction 2, stream point), "
        "which comes after rank 0 RUN forward (instruction 1, stream compute), which waits "
        "for rank 0 RECV again");
    hand_close(&hand);
}

/* Both send before they receive, one message at a time. */
static void test_send_before_receive(void **state)
{
    struct hand hand;
    hand_open(&hand, 2, MESH_PIPELINE);
    for (int r = 0; r < 2; r++) {
        hand_add(hand.program[r], INSTR_SEND, STREAM_POINT, -1);
        hand_add(hand.program[r], INSTR_RECV, STREAM_POINT, -1);
    }
    hand_refused_as(hand.program, 2,
                    "verify: deadlock: rank 0 SEND (instruction 0, stream point) waits for rank 1 "
                    "RECV (instruction 1, stream point), which comes after rank 1 SEND "
                    "(instruction 0, stream point), which waits for rank 0 RECV (instruction 1, "
                    "stream point), which comes after rank 0 SEND again");
    hand_close(&hand);
}

/* Collectives of two streams, each rank waiting for another one first. */
static void test_collectives(void **state)
{
    struct hand hand;
    hand_open(&hand, 3, MESH_SHARD);
    for (int r = 0; r < 3; r++) {
        struct program *program = hand.program[r];
        int first = r == 1 ? hand_add(program, INSTR_REDUCE, STREAM_REDUCE, -1)
                           : hand_add(program, INSTR_GATHER, STREAM_GATHER, -1);
        if (r == 1)
            hand_add(program, INSTR_GATHER, STREAM_GATHER, first);
        else
            hand_add(program, INSTR_REDUCE, STREAM_REDUCE, first);
    }
    hand_refused_as(hand.program, 3,
                    "verify: deadlock: rank 0 GATHER (instruction 0, stream gather) waits for rank "
                    "1 GATHER (instruction 1, stream gather), which waits for rank 1 REDUCE "
                    "(instruction 0, stream reduce), which waits for rank 0 REDUCE (instruction 1, "
                    "stream reduce), which waits for rank 0 GATHER again");
    hand_close(&hand);
}

/* What comes later in the list is not issued, though its own stream is free. */
static void test_issued_in_order(void **state)
{
    struct hand hand;
    hand_open(&hand, 2, MESH_PIPELINE);
    struct program *first = hand.program[0], *second = hand.program[1];
    int got = hand_add(first, INSTR_RECV, STREAM_POINT, -1); /* a reply to what is sent below */
    hand_add(first, INSTR_RELEASE, STREAM_GATHER, got);
    hand_add(first, INSTR_SEND, STREAM_REDUCE, -1);
    got = hand_add(second, INSTR_RECV, STREAM_REDUCE, -1);
    hand_add(second, INSTR_SEND, STREAM_POINT, got);
    hand_refused_as(hand.program, 2,
                    "verify: deadlock: rank 0 RECV (instruction 0, stream point) waits for rank 1 "
                    "SEND (instruction 1, stream point), which waits for rank 1 RECV (instruction "
                    "0, stream reduce), which waits for rank 0 SEND (instruction 2, stream "
                    "reduce), which comes after rank 0 RELEASE (instruction 1, stream gather), "
                    "which waits for rank 0 RECV again");
    hand_close(&hand);
}

/* A transfer behind another one on its stream has not started, and so does not what comes later in
 * the list on a stream that is free. */
static void test_started_in_order(void **state)
{
    for (int receives = 1; receives <= 2; receives++) {
        struct hand hand;
        hand_open(&hand, 2, MESH_PIPELINE);
        struct program *first = hand.program[0], *second = hand.program[1];
        for (int i = 0; i < receives; i++)
            hand_add(first, INSTR_RECV, STREAM_POINT, -1);
        hand_add(first, INSTR_SEND, STREAM_REDUCE, -1);
        int got = hand_add(second, INSTR_RECV, STREAM_REDUCE, -1);
        for (int i = 0; i < receives; i++)
            hand_add(second, INSTR_SEND, STREAM_POINT, i ? -1 : got);
        if (receives == 1)
            hand_fit(hand.program, 2);
        else
            hand_refused_as(
                hand.program, 2,
                "verify: deadlock: rank 0 RECV (instruction 0, stream point) waits for rank 1 SEND "
                "(instruction 1, stream point), which waits for rank 1 RECV (instruction 0, stream "
                "reduce), which waits for rank 0 SEND (instruction 2, stream reduce), which starts "
                "after rank 0 RECV (instruction 1, stream point), which comes after rank 0 RECV "
                "again");
        hand_close(&hand);
    }
}

/* A sum of 16 bits is several kernels: what comes later starts when the last of them does. */
static void test_sums_in_pieces(void **state)
{
    for (int of_16_bits = 0; of_16_bits < 2; of_16_bits++) {
        struct hand hand;
        hand_open(&hand, 2, MESH_PIPELINE);
        hand_add(hand.program[0], INSTR_REDUCE, STREAM_REDUCE, -1);
        hand_add(hand.program[0], INSTR_SEND, STREAM_POINT, -1);
        int got = hand_add(hand.program[1], INSTR_RECV, STREAM_POINT, -1);
        hand_add(hand.program[1], INSTR_REDUCE, STREAM_REDUCE, got);
        for (int r = 0; r < 2; r++) {
            hand.program[r]->instr[r].axes = 1u << MESH_PIPELINE;
            hand.program[r]->instr[r].dtype = of_16_bits ? DTYPE_BF16 : DTYPE_F32;
        }
        if (of_16_bits)
            hand_refused_as(
                hand.program, 2,
                "verify: deadlock: rank 0 REDUCE (instruction 0, stream reduce) waits for rank 1 "
                "REDUCE (instruction 1, stream reduce), which waits for rank 1 RECV (instruction "
                "0, stream point), which waits for rank 0 SEND (instruction 1, stream point), "
                "which starts after rank 0 REDUCE again");
        else
            hand_fit(hand.program, 2);
        hand_close(&hand);
    }
}

/* Each of eight stages receives of the one before it, then sends to the next, the last one to the
 * first: a long cycle, of which the beginning and the end are shown. */
static void test_long_cycle(void **state)
{
    struct hand hand;
    hand_open(&hand, HAND_RANKS, MESH_PIPELINE);
    for (int r = 0; r < HAND_RANKS; r++) {
        int got = hand_add(hand.program[r], INSTR_RECV, STREAM_POINT, -1);
        hand_add(hand.program[r], INSTR_SEND, STREAM_REDUCE, got);
        hand.program[r]->instr[0].peer = (r + HAND_RANKS - 1) % HAND_RANKS;
        hand.program[r]->instr[1].peer = (r + 1) % HAND_RANKS;
        hand.program[r]->instr[1].stream = STREAM_POINT;
        hand.program[r]->instr[1].wait[STREAM_POINT] = -1;
    }
    hand_refused_as(hand.program, HAND_RANKS,
                    "verify: deadlock: rank 0 RECV (instruction 0, stream point) waits for rank 7 "
                    "SEND (instruction 1, stream point), which comes after rank 7 RECV "
                    "(instruction 0, stream point), which waits for rank 6 SEND (instruction 1, "
                    "stream point), and so on through 10 more, to rank 1 RECV (instruction 0, "
                    "stream point), which waits for rank 0 SEND (instruction 1, stream point), "
                    "which comes after rank 0 RECV again");
    hand_close(&hand);
}

/* Ranks that wait for those in the cycle are no part of it. */
static void test_who_waits_for_the_cycle(void **state)
{
    struct hand hand;
    hand_open(&hand, 3, MESH_PIPELINE);
    hand_add(hand.program[0], INSTR_RECV, STREAM_REDUCE, -1);
    for (int r = 1; r < 3; r++) {
        hand_add(hand.program[r], INSTR_RECV, STREAM_POINT, -1);
        hand_add(hand.program[r], INSTR_SEND, STREAM_POINT, -1);
        hand.program[r]->instr[0].peer = hand.program[r]->instr[1].peer = 3 - r;
    }
    hand_add(hand.program[1], INSTR_SEND, STREAM_REDUCE, 1);
    hand_refused_as(hand.program, 3,
                    "verify: deadlock: rank 1 RECV (instruction 0, stream point) waits for rank 2 "
                    "SEND (instruction 1, stream point), which comes after rank 2 RECV "
                    "(instruction 0, stream point), which waits for rank 1 SEND (instruction 1, "
                    "stream point), which comes after rank 1 RECV again");
    hand_close(&hand);
}

/* The text of a deadlock names what is waited for: waits of which one is complete already, and two
 * messages that each rank sends first, which are no mismatch. */
static void test_what_is_waited_for(void **state)
{
    struct hand hand;
    hand_open(&hand, 2, MESH_PIPELINE);
    int done = hand_add(hand.program[0], INSTR_RELEASE, STREAM_GATHER, -1);
    int got = hand_add(hand.program[0], INSTR_RECV, STREAM_POINT, -1);
    hand_add(hand.program[0], INSTR_RUN, STREAM_COMPUTE, got);
    hand.program[0]->instr[2].wait[STREAM_GATHER] = done;
    hand_add(hand.program[0], INSTR_SEND, STREAM_REDUCE, -1);
    got = hand_add(hand.program[1], INSTR_RECV, STREAM_REDUCE, -1);
    hand_add(hand.program[1], INSTR_SEND, STREAM_POINT, got);
    hand_refused_as(
        hand.program, 2,
        "verify: deadlock: rank 0 RECV (instruction 1, stream point) waits for rank 1 SEND "
        "(instruction 1, stream point), which waits for rank 1 RECV (instruction 0, stream "
        "reduce), which waits for rank 0 SEND (instruction 3, stream reduce), which comes after "
        "rank 0 RUN forward (instruction 2, stream compute), which waits for rank 0 RECV again");
    hand_close(&hand);
    hand_open(&hand, 2, MESH_PIPELINE);
    for (int r = 0; r < 2; r++) {
        hand_add(hand.program[r], INSTR_SEND, STREAM_POINT, -1);
        hand_add(hand.program[r], INSTR_RECV, STREAM_POINT, -1);
        hand.program[r]->instr[0].micro = r;
        hand.program[r]->instr[1].micro = !r;
    }
    hand_refused_as(hand.program, 2,
                    "verify: deadlock: rank 0 SEND micro 0 (instruction 0, stream point) waits for "
                    "rank 1 RECV micro 0 (instruction 1, stream point), which comes after rank 1 "
                    "SEND micro 1 (instruction 0, stream point), which waits for rank 0 RECV micro "
                    "1 (instruction 1, stream point), which comes after rank 0 SEND micro 0 again");
    hand_close(&hand);
}

/* Some members of a group stand at collectives that do not match, while another never comes. */
static void test_mismatch_before_all_are_there(void **state)
{
    struct hand hand;
    hand_open(&hand, 3, MESH_SHARD);
    for (int r = 0; r < 2; r++)
        hand_add(hand.program[r], INSTR_GATHER, STREAM_GATHER, -1);
    hand.program[1]->instr[0].elems++;
    hand_add(hand.program[2], INSTR_RUN, STREAM_COMPUTE, -1);
    hand_refused_as(
        hand.program, 3,
        "verify: collective mismatch: rank 0 is at instruction 0 (GATHER), rank 1 at 0 (GATHER)");
    hand_close(&hand);
}

/* What is like the missing one, but of another group, to another rank or of another micro-batch, is
 * not taken for it. */
static void test_others_are_not_the_missing_one(void **state)
{
    struct hand hand;
    hand_open(&hand, 2, MESH_SHARD);
    hand_add(hand.program[0], INSTR_GATHER, STREAM_GATHER, -1);
    int first = hand_add(hand.program[1], INSTR_REDUCE, STREAM_REDUCE, -1);
    hand_add(hand.program[1], INSTR_GATHER, STREAM_GATHER, first);
    hand.program[1]->instr[1].axes = 1u << MESH_REPLICATE;
    hand_refused_as(hand.program, 2,
                    "verify: missing GATHER: rank 0 waits for ever at instruction 0 (GATHER) for "
                    "rank 1, which has no such GATHER left");
    hand_close(&hand);
    hand_open(&hand, 3, MESH_PIPELINE);
    hand_add(hand.program[0], INSTR_RECV, STREAM_POINT, -1);
    hand_add(hand.program[1], INSTR_SEND, STREAM_POINT, -1);
    hand.program[0]->instr[0].peer = 1;
    hand.program[1]->instr[0].peer = 2;
    hand_add(hand.program[2], INSTR_RUN, STREAM_COMPUTE, -1);
    hand_refused_as(hand.program, 3,
                    "verify: missing SEND: rank 0 waits for ever at instruction 0 (RECV) for rank "
                    "1, which has no such SEND left");
    hand_close(&hand);
    hand_open(&hand, 2, MESH_PIPELINE);
    hand_add(hand.program[0], INSTR_RECV, STREAM_POINT, -1);
    hand_add(hand.program[1], INSTR_RECV, STREAM_POINT, -1);
    hand_add(hand.program[1], INSTR_SEND, STREAM_POINT, -1);
    hand.program[1]->instr[1].micro = 2;
    hand_refused_as(hand.program, 2,
                    "verify: missing SEND: rank 0 waits for ever at instruction 0 (RECV) for rank "
                    "1, which has no such SEND left");
    hand_close(&hand);
}

/* What another rank does not have, or has no more, is missing: no cycle. */
static void test_missing(void **state)
{
    static const struct {
        enum mesh_axis axis;
        enum instr_kind mine, theirs; /* theirs: once less often; of another kind: never */
        const char *text;
    } cases[] = {
        {MESH_PIPELINE, INSTR_SEND, INSTR_RECV,
         "verify: missing RECV: rank 0 waits for ever at instruction 1 (SEND) for rank 1, which "
         "has no such RECV left"},
        {MESH_PIPELINE, INSTR_RECV, INSTR_SEND,
         "verify: missing SEND: rank 0 waits for ever at instruction 1 (RECV) for rank 1, which "
         "has no such SEND left"},
        {MESH_SHARD, INSTR_GATHER, INSTR_GATHER,
         "verify: missing GATHER: rank 0 waits for ever at instruction 1 (GATHER) for rank 1, "
         "which has no such GATHER left"},
        {MESH_PIPELINE, INSTR_SEND, INSTR_SEND,
         "verify: missing RECV: rank 0 waits for ever at instruction 0 (SEND) for rank 1, which "
         "has no such RECV left"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hand hand;
        hand_open(&hand, 2, cases[i].axis);
        for (int k = 0; k < 2; k++)
            hand_add(hand.program[0], cases[i].mine, STREAM_POINT, -1);
        hand_add(hand.program[1], cases[i].theirs, STREAM_POINT, -1);
        hand_add(hand.program[1], INSTR_RUN, STREAM_COMPUTE, -1);
        hand_refused_as(hand.program, 2, cases[i].text);
        hand_close(&hand);
    }
}

/* ---- real programs ---- */

#define SIZES                                                                                  \
    "model.layers=4 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 data.seq_len=7 " \
    "train.micro_batch=1 train.global_batch=4 parallel.strategy=NO_SHARD "

/* Refused in one line that names what is missing or does not match, or a cycle that closes. */
static void assert_explained(const struct fleet *fleet, const struct program *program, int i,
                             const char *what)
{
    struct error err = {0};
    char text[128];
    if (!verify_ranks((const struct program *const *)fleet->program, fleet->ranks, &err))
        fail_msg("instruction %d (%s) %s was not noticed", i,
                 instr_text(program, i, text, sizeof text), what);
    if (strchr(err.text, '\n') || strlen(err.text) > 700)
        fail_msg("long: \"%s\"", err.text);
    if (strstr(err.text, "deadlock: rank ") && strstr(err.text, " again"))
        return;
    if (!strstr(err.text, "missing ") && !strstr(err.text, "message mismatch") &&
        !strstr(err.text, "message size mismatch") && !strstr(err.text, "collective mismatch"))
        fail_msg("not explained: \"%s\"", err.text);
}

/* The next message of the same stream, to or from the same rank, after instruction i, or -1. */
static int next_message(const struct program *program, int i)
{
    const struct instr *one = &program->instr[i];
    for (i++; i < program->instrs; i++)
        if (instr_is_message(&program->instr[i]) && program->instr[i].stream == one->stream &&
            program->instr[i].peer == one->peer)
            return i;
    return -1;
}

/* Each message of a rank: left out, taken for the other end, and exchanged with the next one. */
static int spoil_messages(struct fleet *fleet, struct program *program)
{
    int spoilt = 0;
    for (int i = 0; i < program->instrs; i++) {
        struct instr *one = &program->instr[i], was = *one;
        if (!instr_is_message(one))
            continue;
        hand_idle(one);
        assert_explained(fleet, program, i, "left out");
        *one = was;
        one->kind = was.kind == INSTR_SEND ? INSTR_RECV : INSTR_SEND;
        memcpy(one->buffer, (int[]){was.buffer[1], was.buffer[0]}, 2 * sizeof(int));
        assert_explained(fleet, program, i, "the other way");
        *one = was;
        int next = next_message(program, i);
        if (next >= 0) {
            struct instr *two = &program->instr[next], keep = *two;
            *one = keep;
            *two = was;
            memcpy(one->wait, was.wait, sizeof was.wait);
            memcpy(two->wait, keep.wait, sizeof was.wait);
            assert_explained(fleet, program, i, "exchanged");
            *one = was;
            *two = keep;
        }
        spoilt++;
    }
    return spoilt;
}

static void test_faults_of_messages(void **state)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "zb_h1", "naive"};
    for (int i = 0; i < 8; i++) {
        char text[512];
        struct fleet fleet;
        int stages = 2 + i / 4;
        snprintf(text, sizeof text,
                 SIZES "model.tie_embeddings=%s parallel.pipeline=%d parallel.schedule=%s",
                 i % 2 ? "true" : "false", stages, schedules[i % 4]);
        struct config config = rig_config(text);
        fleet_open(&fleet, &config, stages, PROGRAM_TRAIN);
        for (int r = 0; r < stages; r++)
            assert_true(spoil_messages(&fleet, fleet.program[r]) >= 8);
        hand_fit(fleet.program, stages);
        fleet_close(&fleet);
    }
}

/* A stage that takes micro-batches one after the other, and one that takes them all forward first:
 * each is right, and together they wait for one another. */
static void test_two_schedules(void **state)
{
    struct fleet fleet[2];
    static const char *const schedules[] = {"naive", "gpipe"};
    for (int k = 0; k < 2; k++) {
        char text[512];
        struct error err = {0};
        snprintf(text, sizeof text, SIZES "parallel.pipeline=2 parallel.schedule=%s", schedules[k]);
        struct config config = rig_config(text);
        fleet_open(&fleet[k], &config, 2, PROGRAM_TRAIN);
        hand_fit(fleet[k].program, 2);
        assert_int_equal(verify_program(fleet[k].program[k], &err), 0);
    }
    struct program *both[] = {fleet[0].program[0], fleet[1].program[1]};
    struct error err = {0};
    assert_int_equal(verify_ranks((const struct program *const *)both, 2, &err), -1);
    print_message("%s\n", err.text);
    static const char *const parts[] = {"verify: deadlock: rank 0 RECV backward layers.1 micro 0",
                                        " waits for rank 1 SEND backward layers.1 micro 0",
                                        "rank 1 RECV forward layers.1 micro 1", " again"};
    for (int k = 0; k < 4; k++)
        if (!strstr(err.text, parts[k]))
            fail_msg("no \"%s\" in \"%s\"", parts[k], err.text);
    fleet_close(&fleet[0]);
    fleet_close(&fleet[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_receive_before_send),
        cmocka_unit_test(test_send_before_receive),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_issued_in_order),
        cmocka_unit_test(test_started_in_order),
        cmocka_unit_test(test_sums_in_pieces),
        cmocka_unit_test(test_long_cycle),
        cmocka_unit_test(test_who_waits_for_the_cycle),
        cmocka_unit_test(test_what_is_waited_for),
        cmocka_unit_test(test_mismatch_before_all_are_there),
        cmocka_unit_test(test_others_are_not_the_missing_one),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_faults_of_messages),
        cmocka_unit_test(test_two_schedules),
    };
    return cmocka_run_group_tests_name("deadlock", tests, NULL, NULL);
}
