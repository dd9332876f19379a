/* test_verify_ranks.c - does verify_ranks() see that ranks do not fit together?  Each fault at
 * every collective of real programs, and small programs written by hand for what no real one has
 * yet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/by_hand.h"
#include "tests/unit/rig.h"
#include "verify/verify.h"

enum { RANKS = 3 };

/* Training programs of 3 ranks: strategies, tied and not, with each prefetch. */
static void everywhere(void (*check)(struct fleet *))
{
    for (int i = 0; i < 16; i++) {
        char text[512];
        struct fleet fleet;
        snprintf(text, sizeof text,
                 "model.layers=3 model.hidden=12 model.heads=2 model.kv_heads=1 model.ffn=20 "
                 "model.vocab=23 data.seq_len=7 train.global_batch=6 train.micro_batch=1 "
                 "model.tie_embeddings=%s parallel.forward_prefetch=%s "
                 "parallel.backward_prefetch=%s parallel.strategy=%s",
                 i & 1 ? "true" : "false", i & 2 ? "true" : "false",
                 i & 4 ? "BACKWARD_PRE" : "none",
                 i & 8 ? "NO_SHARD parallel.reduce_bucket_bytes=0" : "FULL_SHARD");
        struct config config = rig_config(text);
        fleet_open(&fleet, &config, RANKS, PROGRAM_TRAIN);
        check(&fleet);
        hand_fit(fleet.program, RANKS);
        fleet_close(&fleet);
    }
}

/* The next collective of the same stream after instruction i, or -1. */
static int next_collective(const struct program *program, int i)
{
    enum program_stream stream = program->instr[i].stream;
    for (i++; i < program->instrs; i++)
        if (program->instr[i].stream == stream && program->instr[i].axes)
            return i;
    return -1;
}

static int alike(const struct instr *a, const struct instr *b)
{
    return a->kind == b->kind && a->axes == b->axes && a->elems == b->elems &&
           a->dtype == b->dtype && a->flat == b->flat && a->micro == b->micro;
}

/* Exchange what two instructions do; their places in the order, and what they wait for, stay. */
static void swap(struct instr *a, struct instr *b)
{
    struct instr was = *a;
    *a = *b;
    *b = was;
    memcpy(b->wait, a->wait, sizeof b->wait);
    memcpy(a->wait, was.wait, sizeof a->wait);
}

/* Any two neighbours on a stream of any one rank. */
static void check_swaps(struct fleet *fleet)
{
    int swapped = 0;
    for (int r = 0; r < RANKS; r++) {
        struct program *program = fleet->program[r];
        for (int i = 0; i < program->instrs; i++) {
            struct instr *one = &program->instr[i];
            int next = one->axes ? next_collective(program, i) : -1;
            if (next < 0)
                continue;
            struct instr *other = &program->instr[next], keep[2] = {*one, *other};
            assert_false(alike(one, other));
            swap(one, other);
            hand_refused(fleet->program, RANKS, "collective mismatch|deadlock");
            *one = keep[0];
            *other = keep[1];
            swapped++;
        }
    }
    assert_true(swapped > 10);
}

static void test_swapped_collectives(void **state)
{
    everywhere(check_swaps);
}

static void refuse_changed(struct fleet *fleet, struct instr *instr, struct instr changed)
{
    struct instr was = *instr;
    *instr = changed;
    hand_refused(fleet->program, fleet->ranks, "collective mismatch");
    *instr = was;
}

/* The n-th of the changes of a collective after which it is another one: 1; 0: there are fewer. */
static int change(struct instr *instr, int n)
{
    switch (n) {
    case 0: instr->elems++; return 1;
    case 1: instr->dtype = DTYPE_U16; return 1;
    case 2: instr->flat += instr->flat > 0 ? -1 : 1; return 1;
    case 3: instr->micro++; return 1;
    case 4: instr->kind = instr->kind == INSTR_GATHER ? INSTR_REDUCE : INSTR_GATHER; return 1;
    case 5: instr->unit += instr->unit > 0 ? -1 : 1; return 1;
    case 6: instr->phase = instr->phase == PHASE_FORWARD ? PHASE_BACKWARD : PHASE_FORWARD; return 1;
    case 7: instr->piece++; return 1;
    case 8: instr->result = instr->result == DTYPE_BF16 ? DTYPE_F32 : DTYPE_BF16; return 1;
    case 9: instr->reduction = !instr->reduction; return 1;
    default: return 0;
    }
}

/* One collective of one rank with another size, type, flat, ... */
static void check_changes(struct fleet *fleet)
{
    for (int r = 0; r < fleet->ranks; r++)
        for (int i = 0; i < fleet->program[r]->instrs; i++) {
            struct instr *instr = &fleet->program[r]->instr[i], changed = *instr;
            for (int n = 0; instr->axes && change(&changed, n); n++) {
                refuse_changed(fleet, instr, changed);
                changed = *instr;
            }
        }
}

static void test_collectives_of_other_shape(void **state)
{
    everywhere(check_changes);
}

/* So it is of what ranks exchange within units. */
static void test_exchanges_of_other_shape(void **state)
{
    struct fleet fleet;
    struct config config =
        rig_config("model.layers=2 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 "
                   "data.seq_len=8 train.global_batch=2 train.micro_batch=1 parallel.tensor=2");
    fleet_open(&fleet, &config, 2, PROGRAM_TRAIN);
    check_changes(&fleet);
    hand_fit(fleet.program, 2);
    fleet_close(&fleet);
}

/* One collective left out on one rank. */
static void check_missing(struct fleet *fleet)
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < fleet->program[r]->instrs; i++) {
            struct instr *instr = &fleet->program[r]->instr[i], was = *instr;
            if (!instr->axes)
                continue;
            hand_idle(instr);
            hand_refused(fleet->program, RANKS, "collective mismatch|missing|deadlock");
            *instr = was;
        }
}

static void test_missing_collectives(void **state)
{
    everywhere(check_missing);
}

/* Three activations forward, three gradients back, each sent when the stage has computed it. */
static void pipeline(struct hand *pair)
{
    struct program *first = &pair->rank[0], *second = &pair->rank[1];
    hand_open(pair, 2, MESH_PIPELINE);
    for (int micro = 0; micro < 3; micro++) {
        int run = hand_add(first, INSTR_RUN, STREAM_COMPUTE, -1);
        hand_add(first, INSTR_SEND, STREAM_POINT, run);
        int got = hand_add(second, INSTR_RECV, STREAM_POINT, -1);
        run = hand_add(second, INSTR_RUN, STREAM_COMPUTE, got);
        hand_add(second, INSTR_SEND, STREAM_POINT, run);
        got = hand_add(first, INSTR_RECV, STREAM_POINT, -1);
        hand_add(first, INSTR_RUN, STREAM_COMPUTE, got);
    }
}

/* The n-th instruction of a kind. */
static struct instr *find(struct program *program, enum instr_kind kind, int n)
{
    for (int i = 0; i < program->instrs; i++)
        if (program->instr[i].kind == kind && !n--)
            return &program->instr[i];
    return NULL;
}

static void test_messages(void **state)
{
    struct hand pair;
    pipeline(&pair);
    hand_fit(pair.program, 2);
    hand_close(&pair);
    for (int n = 0; n < 3; n++)
        for (int r = 0; r < 2; r++) {
            pipeline(&pair);
            hand_idle(find(pair.program[r], INSTR_RECV, n));
            hand_refused(pair.program, 2, "missing RECV|deadlock");
            hand_close(&pair);
            pipeline(&pair);
            hand_idle(find(pair.program[r], INSTR_SEND, n));
            hand_refused(pair.program, 2, "missing SEND|deadlock");
            hand_close(&pair);
            pipeline(&pair);
            find(pair.program[r], INSTR_SEND, n)->elems++;
            hand_refused(pair.program, 2, "message size mismatch");
            hand_close(&pair);
            pipeline(&pair);
            find(pair.program[r], INSTR_SEND, n)->dtype = DTYPE_BF16;
            hand_refused(pair.program, 2, "message size mismatch");
            hand_close(&pair);
        }
}

/* A message of the same size that brings something else than the other end takes it for. */
static void test_messages_of_other_values(void **state)
{
    struct fleet fleet;
    struct config config =
        rig_config("model.layers=4 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 "
                   "data.seq_len=7 train.global_batch=3 train.micro_batch=1 parallel.pipeline=3 "
                   "model.tie_embeddings=true");
    fleet_open(&fleet, &config, RANKS, PROGRAM_TRAIN);
    for (int k = 0; k < RANKS * 4; k++) {
        struct program *program = fleet.program[k / 4];
        struct instr *sent;
        for (int n = 0; (sent = find(program, INSTR_SEND, n)); n++) {
            struct instr was = *sent;
            sent->unit += k % 4 == 0 ? (was.unit > 0 ? -1 : 1) : 0;
            sent->micro += k % 4 == 1;
            sent->phase = k % 4 == 2 ? PHASE_BACKWARD_INPUT : was.phase;
            sent->flat += k % 4 == 3 ? (was.flat > 0 ? -1 : 1) : 0;
            hand_refused(fleet.program, RANKS, "message mismatch");
            *sent = was;
        }
    }
    hand_fit(fleet.program, RANKS);
    fleet_close(&fleet);
}

/* One message, of which one end is missing: the end that is there is named. */
static void test_a_message_alone(void **state)
{
    for (int r = 0; r < 2; r++)
        for (int receives = 0; receives < 2; receives++) {
            struct hand pair;
            hand_open(&pair, 2, MESH_PIPELINE);
            hand_add(pair.program[!r], INSTR_RUN, STREAM_COMPUTE, -1);
            hand_add(pair.program[r], receives ? INSTR_RECV : INSTR_SEND, STREAM_POINT, -1);
            hand_refused(pair.program, 2, receives ? "missing SEND" : "missing RECV");
            const int nobody[] = {2, -1, r}; /* r: itself */
            for (int k = 0; k < 3; k++) {
                pair.rank[r].instr[0].peer = nobody[k];
                hand_refused(pair.program, 2, "message to no rank");
            }
            hand_close(&pair);
        }
}

/* Of two stages that exchange messages on one stream one has to receive first. */
static void test_messages_crossing(void **state)
{
    static const enum instr_kind order[2] = {INSTR_SEND, INSTR_RECV};
    for (int receives_first = 0; receives_first < 2; receives_first++) {
        struct hand pair;
        hand_open(&pair, 2, MESH_PIPELINE);
        for (int r = 0; r < 2; r++)
            for (int k = 0; k < 2; k++)
                hand_add(pair.program[r], order[k ^ (r && receives_first)], STREAM_POINT, -1);
        if (receives_first) {
            hand_fit(pair.program, 2);
            pair.program[1]->instr[1].elems++;
            hand_refused(pair.program, 2, "message size mismatch");
        } else
            hand_refused(pair.program, 2, "deadlock");
        hand_close(&pair);
    }
}

/* Each stage waits for the other's message before it computes what it would send. */
static void test_messages_in_a_cycle(void **state)
{
    struct hand pair;
    hand_open(&pair, 2, MESH_PIPELINE);
    for (int r = 0; r < 2; r++) {
        int got = hand_add(pair.program[r], INSTR_RECV, STREAM_POINT, -1);
        int run = hand_add(pair.program[r], INSTR_RUN, STREAM_COMPUTE, got);
        hand_add(pair.program[r], INSTR_SEND, STREAM_POINT, run);
    }
    hand_refused(pair.program, 2, "missing SEND|deadlock");
    hand_close(&pair);
}

/* Collectives of two streams, each rank waiting for another one first. */
static void test_streams_in_a_cycle(void **state)
{
    for (int through_compute = 0; through_compute < 2; through_compute++) {
        struct hand pair;
        hand_open(&pair, 2, MESH_SHARD);
        for (int r = 0; r < 2; r++) {
            struct program *program = pair.program[r];
            int first = r ? hand_add(program, INSTR_REDUCE, STREAM_REDUCE, -1)
                          : hand_add(program, INSTR_GATHER, STREAM_GATHER, -1);
            if (through_compute)
                first = hand_add(program, INSTR_RUN, STREAM_COMPUTE, first);
            if (r)
                hand_add(program, INSTR_GATHER, STREAM_GATHER, first);
            else
                hand_add(program, INSTR_REDUCE, STREAM_REDUCE, first);
        }
        hand_refused(pair.program, 2, "deadlock");
        hand_close(&pair);
    }
}

static void add_parts(struct program *program, int64_t to, int64_t from)
{
    int index = hand_add(program, INSTR_ALLTOALL, STREAM_REDUCE, -1);
    program->instr[index].first_part =
        program_add_part(program, (struct comm_part){0, to, 0, from});
    program_add_part(program, (struct comm_part){to, from, from, to});
}

/* Each gets as much as the other gives. */
static void test_parts(void **state)
{
    for (int spoilt = 0; spoilt < 5; spoilt++) {
        struct hand pair;
        hand_open(&pair, 2, MESH_SHARD);
        add_parts(pair.program[0], 5, 5);
        add_parts(pair.program[1], 5, 5);
        struct program *one = pair.program[1];
        one->part[0].send_elems += spoilt == 1;
        one->part[0].recv_elems += spoilt == 2;
        one->instr[0].first_part += spoilt == 3;
        one->instr[0].first_part -= spoilt == 4;
        if (spoilt)
            hand_refused(pair.program, 2, "collective mismatch");
        else
            hand_fit(pair.program, 2);
        free(pair.rank[0].part);
        free(pair.rank[1].part);
        hand_close(&pair);
    }
}

/* In the n-th of four ways, let a part of an ALLTOALL, or all of one of its buffers, be of other
 * elements of the flat than the other end takes it for.  Returns 0 where the part is empty. */
static int move_part(struct instr *instr, struct comm_part *part, int n)
{
    switch (n) {
    case 0: part->send_from++; return part->send_elems > 0;
    case 1: part->recv_from++; return part->recv_elems > 0;
    case 2: instr->first_elem[SLOT_FROM]++; return part->send_elems > 0;
    case 3: instr->first_elem[SLOT_TO]++; return part->recv_elems > 0;
    default: return 0;
    }
}

/* Matrices on their way to their owners and back are the same elements of the flat at both ends: of
 * shards, and of whole flats between all data ranks, whose group has two axes. */
static void test_parts_of_flats(void **state)
{
    static const char *const layouts[] = {
        "parallel.strategy=FULL_SHARD",
        "parallel.strategy=HYBRID_SHARD parallel.shard=2 parallel.persist_below=100000"};
    for (int l = 0; l < 2; l++) {
        struct fleet fleet;
        char text[512];
        int ranks = l ? 6 : 3, tried = 0;
        snprintf(text, sizeof text,
                 "model.layers=3 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 "
                 "data.seq_len=7 train.global_batch=6 train.micro_batch=1 train.optimizer=muon %s",
                 layouts[l]);
        struct config config = rig_config(text);
        fleet_open(&fleet, &config, ranks, PROGRAM_TRAIN);
        hand_fit(fleet.program, ranks);
        for (int r = 0; r < ranks; r++)
            for (int i = 0; i < fleet.program[r]->instrs; i++) {
                struct instr *instr = &fleet.program[r]->instr[i], was = *instr;
                for (int k = 0; was.kind == INSTR_ALLTOALL && k < 4 * ranks; k++) {
                    struct comm_part *part = &fleet.program[r]->part[was.first_part + k / 4];
                    struct comm_part kept = *part;
                    int is_other_rank = k / 4 != r;
                    if (is_other_rank && move_part(instr, part, k % 4)) {
                        hand_refused(fleet.program, ranks, "collective mismatch");
                        tried++;
                    }
                    *instr = was;
                    *part = kept;
                }
            }
        print_message("%d parts\n", tried);
        assert_true(tried > 10);
        fleet_close(&fleet);
    }
}

/* An executor issues the list in order, and stands still where an instruction has to wait: what
 * comes later in the list is not on its way, though its own stream is free. */
static void test_issued_in_order(void **state)
{
    struct hand pair;
    hand_open(&pair, 2, MESH_PIPELINE);
    pair.layout.shape.degree[MESH_SHARD] = 1;
    struct program *first = pair.program[0], *second = pair.program[1];
    int got = hand_add(first, INSTR_RECV, STREAM_POINT, -1); /* a reply to what is sent below */
    hand_add(first, INSTR_RELEASE, STREAM_GATHER, got);
    int sent = hand_add(first, INSTR_SEND, STREAM_REDUCE, -1);
    got = hand_add(second, INSTR_RECV, STREAM_REDUCE, -1);
    hand_add(second, INSTR_SEND, STREAM_POINT, got);
    hand_refused(pair.program, 2, "missing SEND|deadlock");
    first->instr[1].wait[STREAM_POINT] = -1; /* without the wait in between it works */
    hand_fit(pair.program, 2);
    assert_int_equal(sent, 2);
    hand_close(&pair);
}

/* What is no transfer has no kernel that would wait, and what was issued with a transfer that waits
 * has started as well. */
static void test_what_holds_up_nothing(void **state)
{
    struct hand pair;
    hand_open(&pair, 2, MESH_PIPELINE);
    hand_add(pair.program[0], INSTR_RECV, STREAM_POINT, -1); /* a reply to what is sent below */
    hand_add(pair.program[0], INSTR_RELEASE, STREAM_POINT, -1);
    hand_add(pair.program[0], INSTR_SEND, STREAM_REDUCE, -1);
    int got = hand_add(pair.program[1], INSTR_RECV, STREAM_REDUCE, -1);
    hand_add(pair.program[1], INSTR_SEND, STREAM_POINT, got);
    hand_fit(pair.program, 2);
    hand_close(&pair);
    hand_open(&pair, 2, MESH_PIPELINE);
    got = hand_add(pair.program[0], INSTR_RECV, STREAM_POINT, -1);
    hand_add(pair.program[0], INSTR_RUN, STREAM_COMPUTE, got);
    hand_add(pair.program[0], INSTR_RECV, STREAM_POINT, -1); /* a reply again */
    hand_add(pair.program[0], INSTR_SEND, STREAM_REDUCE, -1);
    hand_add(pair.program[1], INSTR_SEND, STREAM_POINT, -1);
    got = hand_add(pair.program[1], INSTR_RECV, STREAM_REDUCE, -1);
    hand_add(pair.program[1], INSTR_SEND, STREAM_POINT, got);
    hand_fit(pair.program, 2);
    hand_close(&pair);
}

/* ---- some ranks of a mesh ---- */

/* Ranks of two shards of four, and two replicas of three: of 12. */
static const struct mesh_shape some = {.degree = {1, 2, 2, 1, 1}};
enum { SOME = 4, ALL = 12 };

static int verify_some(struct fleet *fleet, struct error *err)
{
    const struct program *program[SOME];
    *err = (struct error){0};
    for (int i = 0; i < SOME; i++)
        program[i] = fleet->program[mesh_rank(&fleet->layout.shape, mesh_coord_of_rank(&some, i))];
    return verify_some_ranks(program, &some, err);
}

static void open_some(struct fleet *fleet, const char *more)
{
    char text[512];
    snprintf(text, sizeof text,
             "model.layers=3 model.hidden=12 model.heads=2 model.kv_heads=1 model.ffn=20 "
             "model.vocab=23 data.seq_len=7 train.global_batch=12 train.micro_batch=1 "
             "parallel.strategy=HYBRID_SHARD parallel.shard=4 parallel.replicate=3 %s",
             more);
    struct config config = rig_config(text);
    fleet_open(fleet, &config, ALL, PROGRAM_TRAIN);
}

/* Each collective of the last of them, and of the first, of another size, or left for one of
 * another group: the others notice as if all were there. */
static void test_some_ranks(void **state)
{
    struct fleet fleet;
    struct error err;
    int tried = 0;
    open_some(&fleet, "");
    if (verify_some(&fleet, &err))
        fail_msg("%s", err.text);
    hand_fit(fleet.program, ALL);
    for (int i = 0; i < SOME; i += SOME - 1) {
        struct program *p =
            fleet.program[mesh_rank(&fleet.layout.shape, mesh_coord_of_rank(&some, i))];
        for (int k = 0; k < p->instrs; k++) {
            struct instr was = p->instr[k];
            if (!was.axes)
                continue;
            p->instr[k].elems++;
            assert_int_equal(verify_some(&fleet, &err), -1);
            assert_non_null(strstr(err.text, "collective mismatch"));
            p->instr[k] = was;
            p->instr[k].axes =
                was.axes == 1u << MESH_SHARD ? 1u << MESH_REPLICATE : 1u << MESH_SHARD;
            assert_int_equal(verify_some(&fleet, &err), -1);
            p->instr[k] = was;
            tried++;
        }
    }
    assert_true(tried > 2 * 10);
    assert_int_equal(verify_some(&fleet, &err), 0);
    fleet_close(&fleet);
}

/* The stages of a pipeline are all there, of each some shards. */
static void test_some_ranks_of_stages(void **state)
{
    static const struct mesh_shape two = {.degree = {2, 1, 2, 1, 1}};
    struct fleet fleet;
    struct error err = {0};
    const struct program *program[4];
    struct config config = rig_config(
        "model.layers=3 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 data.seq_len=7 "
        "train.global_batch=8 train.micro_batch=1 parallel.pipeline=2");
    fleet_open(&fleet, &config, 8, PROGRAM_TRAIN);
    for (int i = 0; i < 4; i++)
        program[i] = fleet.program[mesh_rank(&fleet.layout.shape, mesh_coord_of_rank(&two, i))];
    assert_int_equal(verify_some_ranks(program, &two, &err), 0);
    struct instr *sent = find(fleet.program[4], INSTR_SEND, 0);
    assert_ptr_equal(program[2], fleet.program[4]);
    sent->elems++;
    assert_int_equal(verify_some_ranks(program, &two, &err), -1);
    assert_non_null(strstr(err.text, "message size mismatch"));
    fleet_close(&fleet);
}

/* Matrices have owners: no rank's all-to-all is like another's. */
static void test_some_owners(void **state)
{
    struct fleet fleet;
    struct error err;
    open_some(&fleet, "train.optimizer=muon");
    hand_fit(fleet.program, ALL);
    assert_int_equal(verify_some(&fleet, &err), -1);
    assert_non_null(strstr(err.text, "that are not looked at"));
    fleet_close(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swapped_collectives),
        cmocka_unit_test(test_collectives_of_other_shape),
        cmocka_unit_test(test_exchanges_of_other_shape),
        cmocka_unit_test(test_missing_collectives),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_messages_of_other_values),
        cmocka_unit_test(test_a_message_alone),
        cmocka_unit_test(test_messages_crossing),
        cmocka_unit_test(test_messages_in_a_cycle),
        cmocka_unit_test(test_streams_in_a_cycle),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_of_flats),
        cmocka_unit_test(test_what_holds_up_nothing),
        cmocka_unit_test(test_issued_in_order),
        cmocka_unit_test(test_some_ranks),
        cmocka_unit_test(test_some_ranks_of_stages),
        cmocka_unit_test(test_some_owners),
    };
    return cmocka_run_group_tests_name("verify_ranks", tests, NULL, NULL);
}
