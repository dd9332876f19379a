/* test_record.c - a forecast step as a trace and as a picture: what it shows is what was forecast.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "plan/report.h"
#include "plan/step_svg.h"
#include "simulate/machine_file.h"
#include "tests/unit/rig.h"

#define BASE "model.preset=llama-10m model.layers=3 data.seq_len=128 train.global_batch=16 "
#define GPU  BASE "device=cuda precision=bf16 train.micro_batch=2 "

static const struct layout_row {
    const char *settings;
    int ranks, nodes, recorded, offloads;
} rows[] = {
    {GPU "parallel.strategy=FULL_SHARD", 4, 2, 4, 0},
    {GPU "parallel.strategy=NO_SHARD recompute=full", 1, 1, 1, 0},
    {GPU "parallel.pipeline=2 parallel.tensor=2", 4, 1, 4, 0},
    {GPU "parallel.pipeline=2 parallel.schedule=zb_h1", 18, 3, 2, 0},
    {GPU "parallel.strategy=FULL_SHARD offload.optimizer=host offload.params=host "
         "offload.gradients=host",
     2, 1, 2, 1},
    {BASE "device=cpu train.micro_batch=2 parallel.strategy=SHARD_GRAD_OP", 2, 1, 2, 0},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

struct planned {
    struct machine machine;
    struct report report;
    struct record record;
    int on_gpu;
};

static void plan(struct planned *p, const struct layout_row *row)
{
    struct error err = {0};
    struct config config = rig_config(row->settings);
    if (machine_find(&p->machine, "h100", &err))
        fail_msg("%s", err.text);
    p->on_gpu = config.device == CONFIG_DEVICE_CUDA;
    struct report_request request = {.config = &config,
                                     .ranks = row->ranks,
                                     .nodes = row->nodes,
                                     .threads = 1,
                                     .speeds = &p->machine};
    if (report_make_recorded(&p->report, &p->record, &request, &err))
        fail_msg("%s: %s", row->settings, err.text);
    assert_true(p->report.forecast.ranks > 0);
    assert_int_equal(p->record.ranks, row->recorded);
}

static void unplan(struct planned *p)
{
    record_free(&p->record);
    report_free(&p->report);
    machine_free(&p->machine);
}

/* Which rank of the forecast a recorded one is: all are, or the first of each coordinate
 * along the pipeline axis. */
static const struct play_rank *played(const struct planned *p, int r)
{
    return &p->report.forecast.rank[r * p->report.forecast.ranks / p->record.ranks];
}

static int near(int64_t a, double b_ns)
{
    return (double)a > b_ns - 2 && (double)a < b_ns + 2;
}

/* The last instruction ends when the step does, but for the machine's time beside instructions. */
static void test_it_ends_with_the_step(void **state)
{
    for (int i = 0; i < ROWS; i++) {
        struct planned p;
        int64_t end = 0;
        plan(&p, &rows[i]);
        for (int r = 0; r < p.record.ranks; r++)
            for (int e = 0; e < p.record.rank[r].trace.events; e++) {
                const struct trace_event *event = &p.record.rank[r].trace.event[e];
                assert_true(event->start_ns >= 0 && event->end_ns >= event->start_ns);
                end = event->end_ns > end ? event->end_ns : end;
            }
        if (p.record.ranks == p.report.forecast.ranks &&
            !near(end, 1e9 * (p.report.forecast.step_s - p.machine.step_s)))
            fail_msg("%s: %lld ns of %g s", rows[i].settings, (long long)end,
                     p.report.forecast.step_s);
        assert_true(p.record.step_s == p.report.forecast.step_s);
        unplan(&p);
    }
}

static int by_start(const void *a, const void *b)
{
    const struct trace_event *x = a, *y = b;
    return x->lane != y->lane           ? x->lane - y->lane
           : x->start_ns != y->start_ns ? (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns)
                                        : (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

/* But for messages, of which several go at once. */
static void test_a_lane_does_one_thing_at_a_time(void **state)
{
    for (int i = 0; i < ROWS; i++) {
        struct planned p;
        plan(&p, &rows[i]);
        for (int r = 0; r < p.record.ranks; r++) {
            struct trace *trace = &p.record.rank[r].trace;
            qsort(trace->event, (size_t)trace->events, sizeof *trace->event, by_start);
            for (int e = 1; e < trace->events; e++) {
                const struct trace_event *before = &trace->event[e - 1], *event = &trace->event[e];
                int is_message =
                    !strncmp(event->name, "SEND", 4) || !strncmp(event->name, "RECV", 4);
                if (before->lane == event->lane && !is_message && before->end_ns > event->start_ns)
                    fail_msg("%s: %s and %s", rows[i].settings, before->name, event->name);
            }
        }
        unplan(&p);
    }
}

/* What the compute stream runs, by kind, is what the report says; with offload the host's updates
 * are waited for. */
static void test_sums_by_kind_are_the_reports(void **state)
{
    for (int i = 0; i < ROWS; i++) {
        struct planned p;
        plan(&p, &rows[i]);
        for (int r = 0; r < p.record.ranks; r++) {
            const struct record_rank *rank = &p.record.rank[r];
            int64_t sum[PLAY_KINDS] = {0};
            for (int e = 0; e < rank->trace.events; e++) {
                int lane = rank->trace.event[e].lane;
                if (lane == STREAM_COMPUTE || (!p.on_gpu && lane == STREAM_HOST))
                    sum[rank->kind[e]] +=
                        rank->trace.event[e].end_ns - rank->trace.event[e].start_ns;
            }
            for (int kind = PLAY_FORWARD; kind <= PLAY_UPDATE; kind++) {
                double wanted = 1e9 * played(&p, r)->seconds[kind],
                       off = (double)sum[kind] - wanted;
                double slack = rank->trace.events; /* each is rounded to a nanosecond */
                if (off > slack || (off < -slack && !(rows[i].offloads && kind == PLAY_UPDATE)))
                    fail_msg("%s: %s %lld ns, not %g", rows[i].settings, play_kind_name(kind),
                             (long long)sum[kind], wanted);
            }
        }
        unplan(&p);
    }
}

/* Transfers have the bytes that the plan counts; ops lie in the instruction that runs them, and
 * fill it. */
static void test_bytes_and_ops(void **state)
{
    for (int i = 0; i < ROWS; i++) {
        struct planned p;
        plan(&p, &rows[i]);
        for (int r = 0; r < p.record.ranks; r++) {
            const struct record_rank *rank = &p.record.rank[r];
            const struct report_rank *wanted = &p.report.rank[rank->rank];
            int64_t bytes = 0, copied = 0, moved = 0, runs = 0, ops = 0;
            for (int e = 0; e < rank->trace.events; e++) {
                const struct trace_event *event = &rank->trace.event[e];
                int64_t took = event->end_ns - event->start_ns;
                *(rank->kind[e] == PLAY_COPY ? &copied : &bytes) += event->bytes;
                ops += event->lane == TRACE_OPS ? took : 0;
                runs += !strncmp(event->name, "RUN ", 4) ? took : 0;
            }
            for (int s = 0; s < STREAMS; s++)
                moved += wanted->moved_bytes[s];
            assert_int_equal(bytes, wanted->sent_bytes);
            assert_int_equal(copied, moved);
            assert_true(runs > 0 && llabs(runs - ops) <= rank->trace.events);
        }
        unplan(&p);
    }
}

/* The waits by instruction are of the rank that waits least, and no more than it waits. */
static void test_longest_waits(void **state)
{
    for (int i = 0; i < ROWS; i++) {
        struct planned p;
        plan(&p, &rows[i]);
        const struct play_rank *busiest = forecast_busiest(&p.report.forecast);
        double waits = 0, listed = 0;
        for (int kind = PLAY_UPDATE; kind < PLAY_KINDS; kind++)
            waits += busiest->seconds[kind];
        for (int w = 0; w < p.report.exposed_rows; w++) {
            const struct exposed_row *row = &p.report.exposed[w];
            listed += row->seconds;
            assert_null(strstr(row->name, " micro "));
            assert_true(row->times >= 1 && row->seconds > 0);
            assert_true(!w || row->seconds <= p.report.exposed[w - 1].seconds);
        }
        assert_true(listed <= waits * (1 + 1e-9));
        assert_true(rows[i].ranks == 1 || p.report.exposed_rows > 0);
        unplan(&p);
    }
}

/* Boxes of the compute streams' rows are as wide as what they run, and lie within the row. */
static void test_the_picture(void **state)
{
    for (int i = 0; i < ROWS; i++) {
        struct planned p;
        char *text = NULL, *at;
        size_t size = 0;
        int labels = 0;
        plan(&p, &rows[i]);
        FILE *out = open_memstream(&text, &size);
        step_svg_print(&p.record, "a <step> & more", out);
        fclose(out);
        assert_non_null(strstr(text, "a &lt;step&gt; &amp; more"));
        for (at = text; (at = strstr(at, ">rank ")); at++)
            labels++;
        assert_int_equal(labels, p.record.ranks);
        double drawn = 0, wide = 0, wanted = 0, x, width;
        for (at = text; (at = strstr(at, "<rect class=\"")); at++) {
            int y, height;
            char style = at[13];
            if (sscanf(at + 14, "\" x=\"%lf\" y=\"%d\" width=\"%lf\" height=\"%d\"", &x, &y, &width,
                       &height) != 4 ||
                height != 24)
                continue;
            *(style == 'n' ? &wide : &drawn) += width;
            assert_true(x >= 90);
        }
        for (int r = 0; r < p.record.ranks; r++)
            for (int e = 0; e < p.record.rank[r].trace.events; e++) {
                const struct trace_event *event = &p.record.rank[r].trace.event[e];
                wanted +=
                    event->lane == STREAM_COMPUTE ? (double)(event->end_ns - event->start_ns) : 0;
            }
        wanted *= wide / p.record.ranks / (1e9 * p.record.step_s);
        if (!(drawn > 0.97 * wanted && drawn < 1.03 * wanted && drawn < wide))
            fail_msg("%s: %g of %g drawn, %g wanted", rows[i].settings, drawn, wide, wanted);
        free(text);
        unplan(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_ends_with_the_step),
        cmocka_unit_test(test_a_lane_does_one_thing_at_a_time),
        cmocka_unit_test(test_sums_by_kind_are_the_reports),
        cmocka_unit_test(test_bytes_and_ops),
        cmocka_unit_test(test_longest_waits),
        cmocka_unit_test(test_the_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
