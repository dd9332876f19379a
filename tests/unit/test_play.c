/* test_play.c - steps of all ranks played in time: against what others count of schedules, and what
 * holds of every program.
 *
 * With unit costs of the parts of stages and transfers that take no time, the programs of a
 * pipeline's ranks take as long as their schedule does by other generators.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/text.h"
#include "program/compile.h"
#include "program/schedule.h"
#include "simulate/play.h"
#include "tests/unit/by_hand.h"
#include "tests/unit/rig.h"

/* A step of all ranks of a fleet, on processors, with nothing slowed by what is beside it. */
static struct play_request request_of(const struct fleet *fleet,
                                      struct play_cost (*cost)(void *user, int rank, int instr),
                                      void *user)
{
    return (struct play_request){.ranks = fleet->ranks,
                                 .program = (const struct program *const *)fleet->program,
                                 .beside_compute = 1,
                                 .beside_transfer = 1,
                                 .host_is_compute = 1,
                                 .cost = cost,
                                 .user = user};
}

static void must_play(struct play *play, const struct play_request *request)
{
    struct error err = {0};
    if (play_step(play, request, &err))
        fail_msg("%s", err.text);
}

/* ---- schedules ---- */

struct counted {
    char name[24];
    int ranks, micros, chunks, makespan;
    struct schedule_costs costs;
};

/* The next row of schedules.csv; 0: none. */
static int next_row(FILE *file, struct counted *row)
{
    char line[256];
    long forward, input, weight;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%23[^,],%d,%d,%d,%ld,%ld,%ld,%d", row->name, &row->ranks, &row->micros,
                   &row->chunks, &forward, &input, &weight, &row->makespan) == 8) {
            row->costs = (struct schedule_costs){forward, input, weight};
            return 1;
        }
    return 0;
}

struct fleet_costs {
    const struct fleet *fleet;
    struct schedule_costs costs;
    char *seen; /* per rank, stage, micro-batch and phase */
};

/* The first RUN of an action takes all of its time. */
static struct play_cost of_action(void *user, int rank, int i)
{
    struct fleet_costs *c = user;
    const struct program *program = c->fleet->program[rank];
    const struct instr *instr = &program->instr[i];
    const struct schedule *schedule = c->fleet->layout.schedule;
    if (instr->kind != INSTR_RUN)
        return (struct play_cost){0};
    enum segment_phase phase = instr->phase;
    if (phase == PHASE_BOTH)
        phase = schedule->splits_backward ? PHASE_BACKWARD_INPUT : PHASE_BACKWARD;
    int stage = program->units->stage[instr->unit];
    char *seen = &c->seen[((stage * schedule->micros) + instr->micro) * PHASES + (int)phase];
    if (*seen)
        return (struct play_cost){0};
    *seen = 1;
    return (struct play_cost){.seconds = (double)schedule_cost(&c->costs, phase)};
}

static double played(const struct counted *row, int host_is_compute)
{
    char settings[256];
    int stages = row->ranks * row->chunks;
    snprintf(settings, sizeof settings,
             "model.preset=llama-tiny model.layers=%d data.seq_len=8 train.micro_batch=1 "
             "train.global_batch=%d parallel.pipeline=%d parallel.schedule=%s "
             "parallel.virtual_stages=%d data.train=none.h5",
             2 * stages, row->micros, row->ranks, row->name, row->chunks);
    struct config config = rig_config(settings);
    struct fleet fleet;
    fleet_open(&fleet, &config, row->ranks, PROGRAM_TRAIN);
    struct fleet_costs costs = {.fleet = &fleet, .costs = row->costs};
    costs.seen = array_make((size_t)(stages * row->micros) * PHASES, 1);
    struct play play;
    struct play_request request = request_of(&fleet, of_action, &costs);
    request.host_is_compute = host_is_compute;
    must_play(&play, &request);
    double step_s = play.step_s;
    play_free(&play);
    free(costs.seen);
    fleet_close(&fleet);
    return step_s;
}

static void test_schedules_take_what_others_count(void **state)
{
    FILE *file = fopen(TEST_FILES "/unit/schedules.csv", "r");
    struct counted row;
    int rows = 0;
    assert_non_null(file);
    while (next_row(file, &row))
        for (int host = 0; host < 2; host++, rows++) {
            double step_s = played(&row, host);
            if (step_s != row.makespan)
                fail_msg("%s, %d ranks, %d micro-batches, %d chunks, host %d: %g, not %d", row.name,
                         row.ranks, row.micros, row.chunks, host, step_s, row.makespan);
        }
    fclose(file);
    assert_true(rows > 1200);
}

/* ---- updates beside forward ---- */

static struct play_cost one_second(void *user, int rank, int i)
{
    const struct fleet *fleet = user;
    enum instr_kind kind = fleet->program[rank]->instr[i].kind;
    return (struct play_cost){.seconds = kind == INSTR_RUN || kind == INSTR_UPDATE};
}

/* What is computed on two streams of a GPU at once takes as long as one after the other, as long as
 * nobody has measured it. */
static void test_updates_beside_forward_share_the_gpu(void **state)
{
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=8 "
                                      "train.overlap_update=true");
    struct fleet fleet;
    double work = 0;
    int beside = 0;
    fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
    fleet.layout.host_apart = 1; /* as on a GPU */
    program_destroy(fleet.program[0]);
    fleet.program[0] = program_create(fleet.state[0], PROGRAM_TRAIN);
    for (int i = 0; i < fleet.program[0]->instrs; i++) {
        work += one_second(&fleet, 0, i).seconds;
        beside += fleet.program[0]->instr[i].stream == STREAM_UPDATE;
    }
    struct play play;
    struct play_request request = request_of(&fleet, one_second, &fleet);
    request.host_is_compute = 0;
    must_play(&play, &request);
    assert_int_equal(beside, fleet.units->flats);
    assert_true(fabs(play.step_s - work) < 1e-9);
    assert_true(fabs(play.rank[0].busy_s[STREAM_UPDATE] - beside) > 1); /* they took longer */
    play_free(&play);
    fleet_close(&fleet);
}

/* ---- any program ---- */

static const char *const layouts[] = {
    "parallel.strategy=NO_SHARD",
    "parallel.strategy=SHARD_GRAD_OP",
    "parallel.strategy=FULL_SHARD",
    "parallel.strategy=FULL_SHARD parallel.forward_prefetch=true",
    "parallel.strategy=FULL_SHARD offload.optimizer=disk offload.params=disk offload.path=/tmp",
    "parallel.strategy=HYBRID_SHARD parallel.shard=2",
    "parallel.tensor=2",
    "parallel.tensor=2 parallel.tensor_overlap=2 recompute=full",
    "parallel.pipeline=2 parallel.schedule=zb_h1",
    "parallel.pipeline=2 parallel.tensor=2 parallel.schedule=interleaved_1f1b",
    "parallel.context=2",
    "train.optimizer=muon parallel.strategy=FULL_SHARD",
    "train.overlap_update=true parallel.strategy=FULL_SHARD",
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], RANKS = 4 };

static void open_layout(struct fleet *fleet, const char *layout)
{
    char settings[320];
    snprintf(settings, sizeof settings,
             "model.preset=llama-tiny model.layers=4 data.seq_len=8 train.micro_batch=1 "
             "train.global_batch=16 data.train=none.h5 %s",
             layout);
    struct config config = rig_config(settings);
    fleet_open(fleet, &config, RANKS, PROGRAM_TRAIN);
}

/* Seconds that look random; the same for all ranks of one coordinate along the pipeline. */
struct drawn {
    const struct fleet *fleet;
    int longer;          /* this instruction of all ranks takes longer; -1: none */
    int by_rank;         /* 1: ranks differ */
    enum play_link link; /* of transfers */
};

static struct play_cost draw(void *user, int rank, int i)
{
    const struct drawn *d = user;
    const struct instr *instr = &d->fleet->program[rank]->instr[i];
    int is_transfer = instr_is_transfer(instr);
    unsigned seed = (unsigned)(instr->kind * 7919 + (instr->unit + 2) * 104729 +
                               (instr->micro + 2) * 1299709 + (instr->flat + 2) * 15485863);
    if (d->by_rank && !is_transfer)
        seed += (unsigned)rank * 32452843;
    if (instr->kind == INSTR_RELEASE)
        return (struct play_cost){0};
    seed = (seed ^ seed >> 13) * 1274126177;
    return (struct play_cost){.seconds = 1 + seed % 64 + (i == d->longer ? 5 : 0),
                              .link = is_transfer ? d->link : LINK_NONE};
}

/* A rank's compute stream works or waits all of the step, and no stream works longer. */
static void test_times_add_up(void **state)
{
    for (int k = 0; k < 4 * LAYOUTS; k++) {
        struct fleet fleet;
        struct play play;
        open_layout(&fleet, layouts[k / 4]);
        struct drawn drawn = {.fleet = &fleet, .longer = -1, .by_rank = 1, .link = LINK_NODE};
        struct play_request request = request_of(&fleet, draw, &drawn);
        request.host_is_compute = k & 1;
        request.beside_compute = k & 2 ? 0.75 : 1;
        request.beside_transfer = k & 2 ? 0.5 : 1;
        must_play(&play, &request);
        for (int r = 0; r < RANKS; r++) {
            double sum = 0;
            for (int kind = 0; kind < PLAY_KINDS; kind++)
                sum += play.rank[r].seconds[kind];
            if (fabs(sum - play.step_s) > 1e-9 * play.step_s)
                fail_msg("%s: %g of %g s on rank %d", layouts[k / 4], sum, play.step_s, r);
            for (int s = 0; s < STREAMS; s++)
                assert_true(s >= STREAM_POINT || play.rank[r].busy_s[s] <= play.step_s);
        }
        play_free(&play);
        fleet_close(&fleet);
    }
}

/* Without anything slowed, no step is shorter because one of its instructions is longer. */
static void test_longer_work_is_no_shorter_step(void **state)
{
    for (int k = 0; k < LAYOUTS; k++) {
        struct fleet fleet;
        struct play play;
        open_layout(&fleet, layouts[k]);
        struct drawn drawn = {.fleet = &fleet, .longer = -1};
        struct play_request request = request_of(&fleet, draw, &drawn);
        must_play(&play, &request);
        double step_s = play.step_s;
        play_free(&play);
        int count = fleet.program[0]->instrs, grown = 0;
        for (drawn.longer = 0; drawn.longer < count; drawn.longer += 3) {
            must_play(&play, &request);
            assert_true(play.step_s >= step_s);
            grown += play.step_s > step_s;
            play_free(&play);
        }
        assert_true(grown > 0);
        fleet_close(&fleet);
    }
}

/* Where ranks do the same, the first one of each coordinate along the pipeline stands for all. */
static void test_one_rank_stands_for_those_like_it(void **state)
{
    for (int k = 0; k < LAYOUTS; k++) {
        struct fleet fleet;
        struct play all, few;
        open_layout(&fleet, layouts[k]);
        struct drawn drawn = {.fleet = &fleet, .longer = -1};
        struct play_request request = request_of(&fleet, draw, &drawn);
        if (strstr(layouts[k], "muon")) { /* each rank owns other matrices */
            fleet_close(&fleet);
            continue;
        }
        must_play(&all, &request);
        int stages = fleet.layout.shape.degree[MESH_PIPELINE];
        struct fleet first = fleet;
        struct program *program[RANKS];
        for (int r = 0; r < stages; r++)
            program[r] = fleet.program[r * RANKS / stages];
        first.program = program;
        first.ranks = stages;
        drawn.fleet = &first;
        request = request_of(&first, draw, &drawn);
        must_play(&few, &request);
        assert_true(few.step_s == all.step_s);
        play_free(&all);
        play_free(&few);
        fleet_close(&fleet);
    }
}

/* ---- what is beside what ---- */

/* The first unit's forward takes 10 s; the gather of the second runs beside it and takes 4, and so
 * it does again, beside nothing, for backward. */
static struct play_cost two(void *user, int rank, int i)
{
    const struct fleet *fleet = user;
    const struct instr *instr = &fleet->program[rank]->instr[i];
    if (instr->kind == INSTR_RUN && instr->phase == PHASE_FORWARD && instr->unit == 0)
        return (struct play_cost){.seconds = 10};
    if (instr->kind == INSTR_GATHER && fleet->units->flat[instr->flat].unit == 1)
        return (struct play_cost){.seconds = 4, .link = LINK_NODE};
    return (struct play_cost){0};
}

static void test_beside_each_other_both_are_slower(void **state)
{
    static const struct {
        double compute, transfer, step_s;
    } cases[] = {
        {1, 1, 14},
        {0.5, 1, 16},    /* 4 s at half speed: 12 */
        {1, 0.5, 14},    /* the gather takes 8 s */
        {0.5, 0.25, 22}, /* 16 s of gather, meanwhile 8 s of compute, and the 2 s left: 18 */
    };
    struct fleet fleet;
    struct config config =
        rig_config("model.preset=llama-tiny model.layers=4 data.seq_len=8 train.micro_batch=1 "
                   "train.global_batch=2 data.train=none.h5 parallel.strategy=FULL_SHARD "
                   "parallel.forward_prefetch=true");
    fleet_open(&fleet, &config, 2, PROGRAM_TRAIN);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct play play;
        struct play_request request = request_of(&fleet, two, &fleet);
        request.beside_compute = cases[k].compute;
        request.beside_transfer = cases[k].transfer;
        must_play(&play, &request);
        assert_true(fabs(play.step_s - cases[k].step_s) < 1e-9);
        play_free(&play);
    }
    fleet_close(&fleet);
}

/* As two() has it, but the transfer waits for a processor: it has a share of its own. */
static struct play_cost waiting(void *user, int rank, int i)
{
    struct play_cost cost = two(user, rank, i);
    cost.beside = cost.link == LINK_NODE ? 0.25 : 0;
    return cost;
}

static void test_what_only_waits_slows_nothing_down(void **state)
{
    struct fleet fleet;
    struct config config =
        rig_config("model.preset=llama-tiny model.layers=4 data.seq_len=8 train.micro_batch=1 "
                   "train.global_batch=2 data.train=none.h5 parallel.strategy=FULL_SHARD "
                   "parallel.forward_prefetch=true");
    fleet_open(&fleet, &config, 2, PROGRAM_TRAIN);
    struct play play;
    struct play_request request = request_of(&fleet, waiting, &fleet);
    request.beside_compute = request.beside_transfer = 0.5;
    must_play(&play, &request);
    /* 10 s at full speed, in which 2.5 s of the gather are done; the rest of it, and the second */
    assert_true(fabs(play.step_s - (10 + 1.5 + 4)) < 1e-9);
    play_free(&play);
    fleet_close(&fleet);
}

/* Computing takes 10 s, and beside it a copy from the page cache and one to it, which share it. */
static struct play_cost files(void *user, int rank, int i)
{
    const struct fleet *fleet = user;
    const struct instr *instr = &fleet->program[rank]->instr[i];
    if (instr->kind == INSTR_RUN && instr->phase == PHASE_FORWARD && instr->unit == 0)
        return (struct play_cost){.seconds = 10};
    if (instr->stream == STREAM_GATHER && fleet->units->flat[instr->flat].unit == 1)
        return (struct play_cost){.seconds = 4, .link = LINK_FILE};
    return (struct play_cost){0};
}

static void test_copies_of_files_beside_compute(void **state)
{
    static const struct {
        double compute, copy, step_s;
    } cases[] = {
        {1, 1, 14}, {0.5, 1, 16}, {1, 0.5, 14}, {0.5, 0.25, 22}, /* as a transfer's shares are */
    };
    struct fleet fleet;
    struct config config =
        rig_config("model.preset=llama-tiny model.layers=4 data.seq_len=8 train.micro_batch=1 "
                   "train.global_batch=2 data.train=none.h5 parallel.strategy=FULL_SHARD "
                   "parallel.forward_prefetch=true");
    fleet_open(&fleet, &config, 2, PROGRAM_TRAIN);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct play play;
        struct play_request request = request_of(&fleet, files, &fleet);
        request.beside_compute = request.beside_transfer = 0.01; /* of transfers: there is none */
        request.beside_file_compute = cases[k].compute;
        request.beside_file = cases[k].copy;
        must_play(&play, &request);
        assert_true(fabs(play.step_s - cases[k].step_s) < 1e-9);
        play_free(&play);
    }
    fleet_close(&fleet);
}

/* A message that nobody sends ends the play with an error. */
static void test_waiting_for_ever_is_an_error(void **state)
{
    struct fleet fleet;
    struct play play;
    struct error err = {0};
    open_layout(&fleet, "parallel.pipeline=2 parallel.schedule=1f1b");
    struct drawn drawn = {.fleet = &fleet, .longer = -1};
    struct play_request request = request_of(&fleet, draw, &drawn);
    struct program *program = fleet.program[0];
    int last = program->instrs - 1;
    while (program->instr[last].kind != INSTR_SEND)
        last--;
    program->instr[last].kind = INSTR_RELEASE;
    program->instr[last].axes = 0;
    assert_int_equal(play_step(&play, &request, &err), -1);
    assert_non_null(strstr(err.text, "waits for ever for RECV"));
    fleet_close(&fleet);
}

static struct play_cost a_second(void *user, int rank, int i)
{
    return (struct play_cost){.seconds = 1};
}

/* Rank 0 receives two messages on one stream, and sends three on another one:
 *
 *   processors   RECV RECV           GPU   RECV RECV
 *                SEND SEND SEND                 SEND SEND SEND
 *
 * because the second RECV, which NCCL starts before the first SEND, is behind the first one. */
static void test_transfers_of_gpus_start_in_order(void **state)
{
    struct hand hand;
    struct play play;
    hand_open(&hand, 2, MESH_PIPELINE);
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 2; i++)
            hand_add(hand.program[r], r ? INSTR_SEND : INSTR_RECV, STREAM_POINT, -1);
        for (int i = 0; i < 3; i++)
            hand_add(hand.program[r], r ? INSTR_RECV : INSTR_SEND, STREAM_REDUCE, -1);
    }
    for (int host_is_compute = 0; host_is_compute < 2; host_is_compute++) {
        struct play_request request = {.ranks = 2,
                                       .program = (const struct program *const *)hand.program,
                                       .beside_compute = 1,
                                       .beside_transfer = 1,
                                       .host_is_compute = host_is_compute,
                                       .cost = a_second};
        must_play(&play, &request);
        assert_true(fabs(play.step_s - (host_is_compute ? 3 : 4)) < 1e-9);
        play_free(&play);
    }
    hand_close(&hand);
}

/* Seconds of the kinds of instruction of test_the_end_is_of_what_works_longest(), and the wait that
 * it was told of. */
struct ending {
    const struct program *program;
    int waits, instr;
    double seconds;
};

static struct play_cost of_ending(void *user, int rank, int i)
{
    static const double seconds[INSTR_KINDS] = {
        [INSTR_RUN] = 1, [INSTR_FETCH] = 3, [INSTR_SPILL] = 2};
    const struct ending *ending = user;
    return (struct play_cost){.seconds = seconds[ending->program->instr[i].kind]};
}

static void note_wait(void *user, int rank, int instr, enum play_kind kind, double seconds)
{
    struct ending *ending = user;
    assert_int_equal(kind, PLAY_COPY);
    ending->waits++;
    ending->instr = instr;
    ending->seconds = seconds;
}

/* After the last work a rank waits for the stream that works longest, not for the last of the
 * streams, and not for an instruction that takes no time:
 *
 *   compute   RUN
 *   fetch         FETCH            RELEASE
 *   spill         SPILL
 *   host                           RELEASE
 */
static void test_the_end_is_of_what_works_longest(void **state)
{
    struct hand hand;
    struct play play;
    hand_open(&hand, 1, MESH_SHARD);
    int run = hand_add(hand.program[0], INSTR_RUN, STREAM_COMPUTE, -1);
    int fetch = hand_add(hand.program[0], INSTR_FETCH, STREAM_FETCH, run);
    hand_add(hand.program[0], INSTR_SPILL, STREAM_SPILL, run);
    hand_add(hand.program[0], INSTR_RELEASE, STREAM_FETCH, fetch);
    hand_add(hand.program[0], INSTR_RELEASE, STREAM_HOST, fetch);
    struct ending ending = {.program = hand.program[0]};
    struct play_request request = {.ranks = 1,
                                   .program = (const struct program *const *)hand.program,
                                   .beside_compute = 1,
                                   .beside_transfer = 1,
                                   .cost = of_ending,
                                   .waited = note_wait,
                                   .user = &ending};
    must_play(&play, &request);
    assert_true(fabs(play.step_s - 4) < 1e-9);
    assert_true(fabs(play.rank[0].seconds[PLAY_COPY] - 3) < 1e-9);
    assert_int_equal(ending.waits, 1);
    assert_int_equal(ending.instr, fetch);
    assert_true(fabs(ending.seconds - 3) < 1e-9);
    play_free(&play);
    hand_close(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules_take_what_others_count),
        cmocka_unit_test(test_updates_beside_forward_share_the_gpu),
        cmocka_unit_test(test_times_add_up),
        cmocka_unit_test(test_longer_work_is_no_shorter_step),
        cmocka_unit_test(test_one_rank_stands_for_those_like_it),
        cmocka_unit_test(test_beside_each_other_both_are_slower),
        cmocka_unit_test(test_what_only_waits_slows_nothing_down),
        cmocka_unit_test(test_copies_of_files_beside_compute),
        cmocka_unit_test(test_transfers_of_gpus_start_in_order),
        cmocka_unit_test(test_the_end_is_of_what_works_longest),
        cmocka_unit_test(test_waiting_for_ever_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
