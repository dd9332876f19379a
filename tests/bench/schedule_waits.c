/* schedule_waits.c - the share of a step that the ranks of a pipeline wait, measured, beside what
 * the schedule promises.  tests/bench/schedules starts it.
 *
 *   schedule_waits ROUNDS UNIT_MS     ranks whose products take UNIT_MS each, whatever the machine:
 *                                     a stage is one product, so that its forward, input and weight
 *                                     parts take a unit each, and the promise is schedule_play()'s
 *                                     for (1, 1, 1); within 0.02
 *   schedule_waits ROUNDS products    what a Llama's products take; the promise is that of a
 *                                     timeline with the times that the stages' parts took in this
 *                                     very step; within 0.05
 *
 * A step is the time from the first run on any rank to the end of the last; of ROUNDS steps the
 * fastest counts, as what disturbs only adds.  Waiting is what no run fills:
 * 1 - work / (ranks x step).  Exit status 1: a share is further from its promise.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/text.h"
#include "program/trace.h"
#include "graph/build.h"
#include "model/transformer.h"
#include "program/schedule.h"
#include "simulate/timeline.h"
#include "tests/mpi/check.h"
#include "tests/unit/rig.h"

enum { VOCAB = 24, MS = 1000000, ROWS_MOST = 32 };

/* ---- a model whose units are one product each, which takes a given time ---- */

static struct waiting {
    const struct device_ops *real;
    struct device_ops ops;
    int64_t unit_ns, products;
} waiting;

/* The product, and then sleep until a unit has passed since it began.  The embedding and the head,
 * of which one size is the vocabulary, take what they take. */
static int waiting_gemm(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    int64_t until = clock_ns() + waiting.unit_ns;
    struct timespec at = {.tv_sec = until / (1000 * MS), .tv_nsec = until % (1000 * MS)};
    int rc = waiting.real->gemm(d, g, scratch, err);
    if (rc || g->m == VOCAB || g->n == VOCAB || g->k == VOCAB)
        return rc;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
        ;
    waiting.products++;
    return 0;
}

static void make_wait(struct device *device, int64_t unit_ns)
{
    waiting.real = device->ops;
    waiting.ops = *device->ops;
    waiting.ops.gemm = waiting_gemm;
    waiting.unit_ns = unit_ns;
    device->ops = &waiting.ops;
}

static void graph_of(const struct model *model, int kind, enum model_purpose purpose,
                     float loss_factor, struct graph *graph)
{
    const struct config_model *c = &model->config;
    if (kind == TRANSFORMER_EMBED) {
        struct transformer_tensor embed = {"embed", c->vocab};
        int table = transformer_matrix(graph, &embed, 1, c->hidden, 0.1);
        build_output(graph, build_embedding(graph, build_tokens(graph), table));
        return;
    }
    int x = build_input(graph, c->hidden);
    if (kind == TRANSFORMER_BLOCK) {
        struct transformer_tensor own = {"w", c->hidden};
        int w = transformer_matrix(graph, &own, 1, c->hidden, 0.1);
        build_output(graph, build_linear(graph, x, w, -1));
        return;
    }
    transformer_head(c, x, purpose, loss_factor, graph);
}

static void no_table(const struct model *model, int64_t seq, float *table)
{
}

static const struct model_family one_product = {
    .name = "one_product", .units = transformer_units, .graph = graph_of, .table = no_table};

/* ---- a step, measured ---- */

struct bench {
    struct checks c;
    int rounds, worst; /* rows that are further from their promise than allowed */
    int64_t unit_ns;   /* 0: real products */
};

/* Of all ranks, in ns: from the first run to the end of the last, what runs took together, and what
 * an action of each stage took on average. */
struct measured {
    double step, work;
    struct schedule_costs *cost;
};

static int load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct session *s = user;
    int64_t rows = s->units->request.batch * s->units->request.seq[0];
    for (int64_t i = 0; i < rows && batch->tokens[0]; i++)
        batch->tokens[0][i] = (int32_t)((batch->micro * 31 + i * 7) % s->config.model.vocab);
    for (int64_t i = 0; i < rows && batch->targets; i++)
        batch->targets[i] = (int32_t)((i * 5 + 1) % s->config.model.vocab);
    return 0;
}

/* Where a run's time belongs among a stage's costs: forward, input (and what is not split), weight.
 */
static int part_of(enum segment_phase phase)
{
    return phase == PHASE_FORWARD ? 0 : phase == PHASE_BACKWARD_WEIGHT ? 2 : 1;
}

/* Add the times of the runs of a trace to `part`, by stage; and to edge: minus the start of the
 * first, and the end of the last. */
static void add_runs(const struct session *s, const struct trace *trace, double (*part)[3],
                     double edge[2])
{
    int e = 0;
    edge[0] = edge[1] = -INFINITY;
    for (int i = 0; i < s->train->instrs; i++) {
        const struct instr *instr = &s->train->instr[i];
        if (instr->stream != STREAM_COMPUTE || instr->kind == INSTR_RELEASE)
            continue;
        while (trace->event[e].lane != STREAM_COMPUTE)
            e++;
        const struct trace_event *event = &trace->event[e++];
        if (instr->kind != INSTR_RUN)
            continue;
        double start = (double)event->start_ns, end = (double)event->end_ns;
        part[s->units->stage[instr->unit]][part_of(instr->phase)] += end - start;
        edge[0] = fmax(edge[0], -start);
        edge[1] = fmax(edge[1], end);
    }
}

/* Take a step; the times are those of all ranks, on each of them. */
static void measure_step(struct bench *b, const struct session *s, int number, struct measured *m)
{
    struct error err = {0};
    struct trace trace = {0};
    struct step_input input = rig_input(s, number);
    size_t stages = (size_t)s->units->stages;
    double(*part)[3] = array_make(stages, sizeof *part), edge[2];
    input.load = load;
    input.user = (void *)s;
    waiting.products = 0;
    world_barrier(b->c.world);
    world_end_job_if_failed(
        b->c.world, executor_run_step(s->executor, s->train, &input, NULL, &trace, &err), &err);
    add_runs(s, &trace, part, edge);
    world_all_reduce(b->c.world, edge, 2, WORLD_MAX);
    world_all_reduce(b->c.world, part[0], 3 * (int)stages, WORLD_SUM);
    *m = (struct measured){.step = edge[1] + edge[0], .cost = array_make(stages, sizeof *m->cost)};
    for (size_t stage = 0; stage < stages; stage++) {
        m->cost[stage] =
            (struct schedule_costs){.forward = (int64_t)part[stage][0] / s->layout.micros,
                                    .input = (int64_t)part[stage][1] / s->layout.micros,
                                    .weight = (int64_t)part[stage][2] / s->layout.micros};
        m->work += part[stage][0] + part[stage][1] + part[stage][2];
    }
    trace_free(&trace);
    free(part);
}

/* The fastest of the rounds, after one that is not counted. */
static struct measured fastest(struct bench *b, const struct session *s)
{
    struct measured best = {.step = INFINITY};
    for (int round = 0; round <= b->rounds; round++) {
        struct measured m;
        measure_step(b, s, round + 1, &m);
        if (b->unit_ns) { /* the work is known, whatever sleeping took longer */
            int64_t own = 3 * s->layout.micros * s->units->stages / world_size(b->c.world);
            CHECK(&b->c, waiting.products == own);
            m.work = (double)(own * b->unit_ns * world_size(b->c.world));
            for (int stage = 0; stage < s->units->stages; stage++)
                m.cost[stage] = (struct schedule_costs){b->unit_ns, b->unit_ns, b->unit_ns};
        }
        if (round && m.step < best.step) {
            free(best.cost);
            best = m;
        } else {
            free(m.cost);
        }
    }
    return best;
}

/* ---- the table ---- */

static const struct row {
    const char *schedule;
    int chunks;
    int parts; /* theory, from as many micro-batches as ranks on: (p - 1) / (parts m + p - 1);
                  0: none */
} rows[] = {
    {"gpipe", 1, 1}, {"1f1b", 1, 1}, {"interleaved_1f1b", 2, 2}, {"zb_h1", 1, 3}, {"zb_v", 2, 0}};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* "2,1,1,2": layers of every stage, and the embedding and the head. */
static void stages_text(int stages, int each, char text[ROWS_MOST * 4])
{
    text[0] = 0;
    for (int stage = 0; stage < stages; stage++)
        text_join(text, ROWS_MOST * 4, ",", "%d", each + (stage == 0) + (stage == stages - 1));
}

static struct session *open_row(struct bench *b, const struct row *row, int micros)
{
    enum { REAL_LAYERS = 8 };
    int ranks = world_size(b->c.world), stages = ranks * row->chunks;
    int layers = b->unit_ns ? stages : REAL_LAYERS;
    char text[1024], cut[ROWS_MOST * 4];
    stages_text(stages, layers / stages, cut);
    snprintf(text, sizeof text,
             "model.layers=%d %s train.global_batch=%d train.micro_batch=1 device=cpu "
             "precision=fp32 run.threads=1 parallel.pipeline=%d parallel.schedule=%s "
             "parallel.stages=%s",
             layers,
             b->unit_ns ? "model.hidden=16 model.heads=2 model.ffn=16 model.vocab=24 data.seq_len=8"
                        : "model.hidden=256 model.heads=4 model.ffn=688 model.vocab=256 "
                          "data.seq_len=256",
             micros, ranks, row->schedule, cut);
    struct config config = rig_config(text);
    struct model *model = NULL;
    struct error err = {0};
    if (b->unit_ns)
        model = model_make(&one_product, &config.model);
    else
        world_end_job_if_failed(b->c.world, layout_model(&model, &config, &err), &err);
    struct session *s = rig_open_model(&b->c.mem, &config, model, b->c.world, NULL, 0);
    if (b->unit_ns)
        make_wait(s->device, b->unit_ns);
    rig_init(s);
    return s;
}

static void measure_row(struct bench *b, const struct row *row, int micros)
{
    int ranks = world_size(b->c.world);
    double bound = b->unit_ns ? 0.02 : 0.05;
    struct timeline timeline;
    char theory[32] = "";
    struct session *s = open_row(b, row, micros);
    struct measured m = fastest(b, s);
    timeline_fill(&timeline, s->layout.schedule, m.cost);
    double promise = timeline_idle_mean(&timeline), share = 1 - m.work / (ranks * m.step);
    int is_within = fabs(share - promise) <= bound;
    if (b->unit_ns && row->parts && micros >= ranks) {
        double of_theory = (ranks - 1.0) / (row->parts * micros + ranks - 1);
        CHECK(&b->c, fabs(of_theory - promise) < 1e-9);
        snprintf(theory, sizeof theory, "%.4f", of_theory);
    }
    b->worst += !is_within;
    if (!world_rank(b->c.world)) {
        printf("%-17s %6d %13d %9.1f %9s %9.4f %9.4f %11.4f%s\n", row->schedule, row->chunks,
               micros, m.step / MS, theory, promise, share, share - promise,
               is_within ? "" : "  BEYOND");
        fflush(stdout);
    }
    timeline_free(&timeline);
    free(m.cost);
    if (b->unit_ns)
        s->device->ops = waiting.real;
    session_close(s);
}

int main(int argc, char **argv)
{
    static const int micros[] = {2, 4, 8}, real[] = {8};
    struct bench b = {0};
    if (checks_start(&b.c))
        return 1;
    b.rounds = argc > 1 ? atoi(argv[1]) : 0;
    b.unit_ns = argc > 2 ? (int64_t)(atof(argv[2]) * MS) : 0; /* 0: "products" */
    int is_real = argc > 2 && !strcmp(argv[2], "products");
    if (b.rounds < 1 || (!is_real && b.unit_ns < MS / 10)) {
        if (!world_rank(b.c.world))
            fprintf(stderr, "schedule_waits ROUNDS UNIT_MS | products\n");
        b.c.failed++;
        return checks_finish(&b.c);
    }
    prctl(PR_SET_TIMERSLACK, 1);
    if (!world_rank(b.c.world))
        printf("%-17s %6s %13s %9s %9s %9s %9s %11s\n", "schedule", "chunks", "micro-batches",
               "step ms", "theory", "promised", "measured", "difference");
    for (int k = 0; k < (is_real ? 1 : 3); k++)
        for (int r = 0; r < ROWS; r++)
            measure_row(&b, &rows[r], is_real ? real[k] : micros[k]);
    b.c.failed += b.worst;
    return checks_finish(&b.c);
}
