/* test_deviation.c - what is off in a run is found, and only that: tables of measured steps with
 * one fault each, and none; transfers count by the member that waits least.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "program/sent.h"
#include "tests/unit/rig.h"
#include "train/deviation.h"
#include "train/step_times.h"

enum { RANKS = 8, LINKS = 4, NODES = 4, TEXT = 640 };

/* Eight ranks on four nodes, in a step of 1 s: 0.7 s of segments, 0.1 s of other work, 0.2 s of
 * waiting; gathers within nodes and sums between them. */
struct run {
    struct deviation_rank rank[RANKS];
    struct deviation_link link[LINKS + 1];
    struct deviation_planned planned[2];
    struct deviation_forecast forecast;
    struct deviation_facts facts;
};

static void make_run(struct run *run)
{
    *run = (struct run){.planned = {{0.7, 0.1, 0.05}, {0.7, 0.1, 0.05}}};
    for (int r = 0; r < RANKS; r++)
        run->rank[r] = (struct deviation_rank){.node = r / 2 * 2,
                                               .run_s = 0.7 + 0.001 * r,
                                               .update_s = 0.1,
                                               .wait_s = 0.2,
                                               .copy_s = 0.05,
                                               .core_share = 0.99,
                                               .flops = 1e9,
                                               .sent_bytes = 1e6,
                                               .plan_bytes = 1e6};
    for (int i = 0; i < LINKS; i++)
        run->link[i] = (struct deviation_link){.kind = MACHINE_GATHER,
                                               .way = FORECAST_WITHIN,
                                               .members = 2,
                                               .nodes = 1,
                                               .first_node = 2 * i,
                                               .last_node = 2 * i,
                                               .bytes = 1e9,
                                               .seconds = 0.1};
    run->link[LINKS] = (struct deviation_link){.kind = MACHINE_ALL_REDUCE,
                                               .way = FORECAST_BETWEEN,
                                               .members = RANKS,
                                               .nodes = NODES,
                                               .first_node = 0,
                                               .last_node = 6,
                                               .bytes = 1e9,
                                               .seconds = 0.2};
    run->forecast = (struct deviation_forecast){
        .machine = "m", .step_s = 1, .pipeline_ranks = 2, .planned = run->planned};
    run->forecast.transfers.of[MACHINE_GATHER][FORECAST_WITHIN] =
        (struct forecast_transfer){.count = 1, .bytes = 1e9, .seconds = 0.1};
    run->forecast.transfers.of[MACHINE_ALL_REDUCE][FORECAST_BETWEEN] =
        (struct forecast_transfer){.count = 1, .bytes = 1e9, .seconds = 0.2};
    run->facts = (struct deviation_facts){.step_s = 1,
                                          .ranks = RANKS,
                                          .links = LINKS + 1,
                                          .rank = run->rank,
                                          .link = run->link,
                                          .forecast = &run->forecast};
}

static const char *host_of(void *user, int node)
{
    static const char *const hosts[RANKS] = {"n0", "", "n1", "", "n2", "", "n3", ""};
    return hosts[node];
}

/* The cause is this one, and the line has these texts, "|" between them. */
static struct deviation must_find(const struct run *run, enum deviation_cause cause,
                                  const char *texts)
{
    char text[TEXT], *wanted = strdup(texts), *rest = wanted, *part;
    const struct deviation_names names = {.host = host_of, .network = "likely TCP over eth0"};
    struct deviation d = deviation_find(&run->facts);
    deviation_text(&run->facts, &d, &names, text, sizeof text);
    if (d.cause != cause)
        fail_msg("%s, not %s: %s", deviation_cause_name(d.cause), deviation_cause_name(cause),
                 text);
    while ((part = strsep(&rest, "|")))
        if (!strstr(text, part))
            fail_msg("\"%s\" does not have \"%s\"", text, part);
    assert_null(strchr(text, '\n'));
    free(wanted);
    return d;
}

/* A step that is so much longer, because all but some ranks wait so much longer. */
static void lengthen(struct run *run, double seconds, int but_from, int but_to)
{
    run->facts.step_s += seconds;
    for (int r = 0; r < RANKS; r++)
        if (r < but_from || r >= but_to)
            run->rank[r].wait_s += seconds;
}

static void test_nothing_is_off(void **state)
{
    struct run run;
    make_run(&run);
    must_find(&run, DEVIATION_NONE, "step takes 1.00 s, as forecast (1.00 s)");
    run.facts.step_s = 1.19;
    must_find(&run, DEVIATION_NONE, "step takes 1.19 s, as forecast");
    run.facts.forecast = NULL;
    must_find(&run, DEVIATION_NONE, "no rank is slower");
    run.facts.ranks = 1;
    run.facts.links = 0;
    must_find(&run, DEVIATION_NONE, "step takes 1.19 s");
}

static void test_slow_rank(void **state)
{
    struct run run;
    for (int has_forecast = 0; has_forecast < 2; has_forecast++)
        for (int r = 0; r < RANKS; r++) {
            make_run(&run);
            run.facts.forecast = has_forecast ? &run.forecast : NULL;
            run.rank[r].run_s = 1.4;
            run.rank[r].core_share = 0.52;
            lengthen(&run, 0.7, r, r + 1);
            struct deviation d =
                must_find(&run, DEVIATION_RANK,
                          "step takes 1.70 s|computes 2.0 times as long as the others (1.40 s, "
                          "median 70|likely other programs: it had a core for 52 % of that time");
            assert_int_equal(d.rank, r);
            assert_true(fabs(d.excess_s - 0.7) < 0.01);
            run.rank[r].is_crowded = 1; /* it needs no other programs for that */
            must_find(&run, DEVIATION_RANK, " ms); there are more ranks than cores");
            run.rank[r].is_crowded = 0;
        }
    must_find(&run, DEVIATION_RANK, "forecast 1.00 s (+70 %)|rank 7 on node n3 computes");
    run.rank[7].core_share = 0.97;
    must_find(&run, DEVIATION_RANK, "; likely clocks, heat or other programs");
    run.rank[7].run_s = 0.7 * 1.19; /* within what is usual */
    run.facts.step_s = 1.1;
    must_find(&run, DEVIATION_NONE, "");
}

/* Of two ranks, too; and one that waits long is not the slow one. */
static void test_slow_rank_of_two(void **state)
{
    struct run run;
    make_run(&run);
    run.facts.ranks = 2;
    run.facts.links = 1;
    run.facts.forecast = NULL;
    run.facts.step_s = 1.6;
    run.rank[0].run_s = 1.3;
    run.rank[0].wait_s = 0.2;
    run.rank[1].wait_s = 0.8;
    assert_int_equal(must_find(&run, DEVIATION_RANK, "rank 0 on node n0 computes 1.9").rank, 0);
}

/* What it sends is slow as well, which is not the link's fault. */
static void test_slow_rank_before_its_transfers(void **state)
{
    struct run run;
    make_run(&run);
    run.rank[3].run_s = 1.2;
    lengthen(&run, 0.8, 3, 4);
    run.link[LINKS].seconds = 0.8;
    must_find(&run, DEVIATION_RANK, "rank 3 on node n1");
    run.rank[3].run_s = 0.9; /* but a slow link that costs far more is the cause */
    must_find(&run, DEVIATION_TRANSFER, "all-reduces between 4 nodes (n0 ... n3)");
}

static void test_slow_node(void **state)
{
    struct run run;
    make_run(&run);
    run.rank[4].run_s = run.rank[5].run_s = 1.05;
    run.rank[4].core_share = run.rank[5].core_share = 0;
    lengthen(&run, 0.35, 4, 6);
    must_find(&run, DEVIATION_NODE, "node n2 computes 1.5 times as long as the others");
    run.facts.forecast = NULL;
    must_find(&run, DEVIATION_NODE, "step takes 1.35 s: node n2 computes 1.5");
    run.rank[4].run_s = 0.7; /* one of its two ranks */
    assert_int_equal(must_find(&run, DEVIATION_RANK, "rank 5 on node n2").rank, 5);
}

/* What it computes goes as fast as ever, but its threads queue for a core. */
static void test_lack_of_cores(void **state)
{
    struct run run;
    for (int has_forecast = 0; has_forecast < 2; has_forecast++) {
        make_run(&run);
        run.facts.forecast = has_forecast ? &run.forecast : NULL;
        for (int r = 0; r < RANKS; r++)
            run.rank[r].queue_s = r == 2 ? 0.6 : 0.05;
        lengthen(&run, 0.5, 2, 2);
        run.link[LINKS].seconds = 0.7; /* so that its transfers are slow */
        assert_int_equal(must_find(&run, DEVIATION_CORES,
                                   "rank 2 on node n1 waits 600 ms of it for a core (the others "
                                   "50.0 ms); likely other programs there")
                             .rank,
                         2);
        run.rank[2].is_crowded = 1;
        must_find(&run, DEVIATION_CORES, "50.0 ms); there are more ranks than cores");
        run.rank[2].is_crowded = 0;
        run.rank[3].queue_s = 0.6;
        must_find(&run, DEVIATION_CORES, "ranks on node n1 wait 600 ms of it for a core");
        for (int r = 0; r < RANKS; r++)
            run.rank[r].queue_s = 0.6;
        must_find(&run, has_forecast ? DEVIATION_CORES : DEVIATION_NONE,
                  has_forecast ? "all ranks wait 600 ms of it for a core; likely other programs "
                                 "there, or more threads than cores"
                               : "");
    }
}

/* All ranks alike: only the forecast shows it. */
static void test_slow_computing(void **state)
{
    struct run run;
    make_run(&run);
    for (int r = 0; r < RANKS; r++) {
        run.rank[r].run_s *= 1.6;
        run.rank[r].update_s *= 1.6;
        run.rank[r].core_share = 0.6;
    }
    run.facts.step_s = 1.48;
    must_find(
        &run, DEVIATION_COMPUTE,
        "forecast 1.00 s (+48 %)|all ranks compute at 62 % of the speed of m (1.28 s, planned "
        "800 ms)|other programs: none had a core for 60 %");
    run.facts.forecast = NULL;
    must_find(&run, DEVIATION_NONE, "");
}

static void test_slow_transfers(void **state)
{
    struct run run;
    make_run(&run);
    run.link[LINKS].seconds = 2;
    lengthen(&run, 1.8, 0, 0);
    must_find(&run, DEVIATION_TRANSFER,
              "forecast 1.00 s (+180 %): all-reduces between 4 nodes (n0 ... n3) move 500 MB/s, "
              "planned 5 GB/s; likely TCP over eth0");
    make_run(&run); /* all of a kind, within nodes */
    for (int i = 0; i < LINKS; i++)
        run.link[i].seconds = 0.6;
    lengthen(&run, 0.5, 0, 0);
    must_find(&run, DEVIATION_TRANSFER, "gathers within node|move 1.67 GB/s, planned 10 GB/s");
    for (int r = 0; r < RANKS; r++)
        run.rank[r].wait_s = 0.02; /* they lie under computing: not the cause */
    must_find(&run, DEVIATION_UNKNOWN, "neither computing (803 ms a rank) nor transfers");
}

/* One group of several, which is named; without a forecast by the others. */
static void test_slow_group(void **state)
{
    struct run run;
    for (int has_forecast = 0; has_forecast < 2; has_forecast++) {
        make_run(&run);
        run.facts.forecast = has_forecast ? &run.forecast : NULL;
        run.link[2].seconds = 0.8;
        lengthen(&run, 0.7, 0, 0);
        must_find(&run, DEVIATION_TRANSFER, "gathers within node n2 move 1.25 GB/s, ");
    }
    make_run(&run); /* a message between two nodes */
    for (int i = 0; i < LINKS; i++)
        run.link[i] = (struct deviation_link){.kind = MACHINE_MESSAGE,
                                              .way = FORECAST_BETWEEN,
                                              .members = 2,
                                              .nodes = 2,
                                              .first_node = 2 * i,
                                              .last_node = 2 * ((i + 1) % NODES),
                                              .bytes = 1e9,
                                              .seconds = i == 1 ? 0.9 : 0.1};
    run.facts.forecast = NULL;
    lengthen(&run, 0.8, 0, 0);
    must_find(&run, DEVIATION_TRANSFER,
              "messages between nodes n1 and n2 move 1.11 GB/s, others 10 GB/s");
}

/* Stages of other work: by the forecast, or by operations where a rank is alone at its pipeline
 * rank. */
static void test_pipeline_ranks(void **state)
{
    struct run run;
    make_run(&run);
    run.planned[1].run_s = 1.4;
    for (int r = 0; r < RANKS; r++)
        if ((run.rank[r].pipeline_rank = r % 2))
            run.rank[r].run_s = 1.4;
    must_find(&run, DEVIATION_NONE, "");
    run.rank[2].run_s = 1.4; /* as long as another stage, but its own takes half of that */
    assert_int_equal(must_find(&run, DEVIATION_RANK, "rank 2 on node n1").rank, 2);
    make_run(&run);
    run.facts.ranks = 4;
    run.facts.forecast = NULL;
    for (int r = 0; r < 4; r++) {
        run.rank[r].pipeline_rank = r;
        run.rank[r].flops = 1e9 * (r + 1);
        run.rank[r].run_s = 0.3 * (r + 1);
    }
    must_find(&run, DEVIATION_NONE, "");
    run.rank[1].run_s = 1.2;
    assert_int_equal(must_find(&run, DEVIATION_RANK, "rank 1 on node n0 computes 2.0").rank, 1);
}

static void test_data_copies_and_bytes(void **state)
{
    struct run run;
    make_run(&run);
    run.rank[6].data_s = 0.5;
    lengthen(&run, 0.5, 6, 7);
    must_find(&run, DEVIATION_DATA, "rank 6 on node n3 waits 500 ms for tokens");
    make_run(&run);
    run.rank[1].copy_s = 0.6;
    run.rank[1].wait_s = 0.75;
    run.facts.step_s = 1.55;
    must_find(&run, DEVIATION_COPIES,
              "copies of offloaded state take rank 1 on node n0 600 ms, planned 50.0 ms");
    make_run(&run);
    run.rank[5].sent_bytes = 1000001;
    must_find(&run, DEVIATION_BYTES,
              "rank 5 on node n2 sent 1000001 bytes, and its plan has 1000000");
}

static void test_neither(void **state)
{
    struct run run;
    make_run(&run);
    run.facts.step_s = 1.5;
    must_find(&run, DEVIATION_UNKNOWN, "(+50 %)|run.trace=STEP");
    run.facts.step_s = 0.5;
    must_find(&run, DEVIATION_FASTER, "forecast 1.00 s (-50 %): faster than machine m");
    /* a slow rank that explains little of it is not the cause */
    run.facts.step_s = 3;
    run.rank[2].run_s = 0.9;
    must_find(&run, DEVIATION_UNKNOWN, "(+200 %)");
}

/* ---- from what ranks measured ---- */

static int link_of(const struct deviation_link *link, int links, enum machine_transfer_kind kind,
                   int first_node)
{
    int found = -1;
    for (int i = 0; i < links; i++)
        if (link[i].kind == kind && link[i].first_node == first_node)
            found = i;
    return found;
}

/* Four ranks on two nodes: gathers of two pairs, whose members come late in turn, and messages. */
static void test_who_waits_least_counts(void **state)
{
    const struct mesh_shape shape = {.degree = {[MESH_PIPELINE] = 2,
                                                [MESH_REPLICATE] = 1,
                                                [MESH_SHARD] = 2,
                                                [MESH_CONTEXT] = 1,
                                                [MESH_TENSOR] = 1}};
    const int node[4] = {0, 0, 2, 2};
    struct step_times_transfer all[16];
    int count = 0, links;
    for (int pair = 0; pair < 2; pair++)
        for (int member = 0; member < 2; member++)
            for (int n = 0; n < 2; n++)
                all[count++] = (struct step_times_transfer){
                    .first = 2 * pair,
                    .last = -1,
                    .ordinal = n,
                    .kind = MACHINE_GATHER,
                    .axes = 1 << MESH_SHARD,
                    .bytes = 100,
                    .seconds = n == member ? 9 : 1 + (float)pair, /* it came first, and waited */
                };
    for (int end = 0; end < 2; end++)
        all[count++] = (struct step_times_transfer){.first = 0,
                                                    .last = 2,
                                                    .kind = MACHINE_MESSAGE,
                                                    .axes = 1 << MESH_PIPELINE,
                                                    .bytes = 7,
                                                    .seconds = end ? 8 : 0.5F};
    struct deviation_link *link = step_times_links(all, (size_t)count, 1, &shape, node, &links);
    assert_int_equal(links, 3);
    for (int pair = 0; pair < 2; pair++) {
        int i = link_of(link, links, MACHINE_GATHER, 2 * pair);
        assert_true(i >= 0);
        assert_int_equal(link[i].members, 2);
        assert_int_equal(link[i].nodes, 1);
        assert_int_equal(link[i].way, FORECAST_WITHIN);
        assert_true(link[i].bytes == 200 && link[i].seconds == 2.0 * (1 + pair));
    }
    int i = link_of(link, links, MACHINE_MESSAGE, 0);
    assert_true(i >= 0 && link[i].way == FORECAST_BETWEEN && link[i].last_node == 2);
    assert_true(link[i].bytes == 7 && link[i].seconds == 0.5);
    free(link);
}

/* A trace in which every instruction takes 1 ms, one after the other; RUNs take `run_ms`. */
static void trace_program(struct trace *trace, const struct program *program, int64_t run_ms)
{
    int64_t at = 1000000;
    trace_begin(trace);
    trace->origin_ns = 0;
    for (int i = 0; i < program->instrs; i++) {
        const struct instr *instr = &program->instr[i];
        int64_t ns = 1000000 * (instr->kind == INSTR_RUN ? run_ms : 1);
        int64_t sent = instr_is_transfer(instr)
                           ? sent_elems(program, instr, program->state->coord) *
                                 (int64_t)dtype_bytes(instr->dtype)
                           : 0;
        if (instr->kind == INSTR_RELEASE)
            continue;
        trace_add(trace, "op", TRACE_OPS, at, at + ns, 0); /* is not counted */
        trace_add(trace, "", (int)instr->stream, at, at + ns, sent)->instr = i;
        at += ns;
    }
}

static void test_times_of_a_program(void **state)
{
    struct fleet fleet;
    struct trace trace = {0};
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=16 train.micro_batch=1 "
                                      "train.global_batch=8 data.train=none.h5");
    fleet_open(&fleet, &config, 4, PROGRAM_TRAIN);
    const struct program *program = fleet.program[1];
    struct step_times *times = step_times_create(program);
    static const int64_t run_ms[STEP_TIMES + 1] = {3, 90, 2, 3, 1, 1000};
    int of[INSTR_KINDS] = {0}, transfers = 0, count;
    for (int i = 0; i < program->instrs; i++) {
        of[program->instr[i].kind]++;
        transfers += instr_is_transfer(&program->instr[i]);
    }
    for (int s = 0; s <= STEP_TIMES; s++) {
        trace_program(&trace, program, run_ms[s]);
        step_times_add(times, &trace, 0.5, 0, 0.1);
    }
    struct deviation_rank rank = step_times_rank(times);
    assert_int_equal(step_times_count(times), STEP_TIMES);
    assert_true(rank.queue_s == 0.1 && step_times_step_s(times) == 0.5);
    assert_true(fabs(rank.run_s - 0.003 * of[INSTR_RUN]) < 1e-9); /* the median */
    assert_true(fabs(rank.data_s - 0.001 * of[INSTR_LOAD]) < 1e-9);
    assert_true(rank.update_s >= 0.001 * of[INSTR_UPDATE] - 1e-9);
    assert_true(fabs(rank.wait_s - 0.001 * transfers) < 1e-9);
    assert_true(rank.flops > 0 && rank.plan_bytes > 0 && rank.sent_bytes == rank.plan_bytes);
    assert_int_equal(step_times_transfer_count(times), transfers);
    for (int stride = 1; stride < 4; stride++) {
        struct step_times_transfer *one = step_times_transfers(times, stride, &count);
        assert_true(stride == 1 ? count == transfers
                                : count >= transfers / stride / 2 && count < transfers);
        for (int i = 0; i < count; i++)
            assert_true(one[i].first == 0 && one[i].last == -1 && one[i].ordinal % stride == 0 &&
                        fabsf(one[i].seconds - 0.001F) < 1e-7F);
        free(one);
    }
    step_times_free(times);
    trace_free(&trace);
    fleet_close(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_off),
        cmocka_unit_test(test_slow_rank),
        cmocka_unit_test(test_slow_rank_of_two),
        cmocka_unit_test(test_slow_rank_before_its_transfers),
        cmocka_unit_test(test_slow_node),
        cmocka_unit_test(test_lack_of_cores),
        cmocka_unit_test(test_slow_computing),
        cmocka_unit_test(test_slow_transfers),
        cmocka_unit_test(test_slow_group),
        cmocka_unit_test(test_pipeline_ranks),
        cmocka_unit_test(test_data_copies_and_bytes),
        cmocka_unit_test(test_neither),
        cmocka_unit_test(test_who_waits_least_counts),
        cmocka_unit_test(test_times_of_a_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
