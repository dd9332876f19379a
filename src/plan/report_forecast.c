/* report_forecast.c - how long a step of a plan takes: it is played (simulate/play.h).
 *
 * What is played of the compiled ranks:
 *
 *   64 ranks of a job or fewer, all compiled    all
 *   else                                        the first at each coordinate along the pipeline
 *                                               axis, which stand for the others
 *
 * While the step is played, its waits are listed by the instructions waited for (exposed.h), and,
 * if the caller wants them, the start and end of each instruction are recorded.
 */
#include <stdlib.h>

#include "base/array.h"
#include "base/round.h"
#include "plan/report_private.h"
#include "plan/report_units.h"

/* What is recorded of a step that is played. */
struct recording {
    struct record *record; /* NULL: nothing is recorded */
    struct exposed exposed;
};

static void record_played(void *user, int rank, int i, double start_s, double end_s)
{
    record_instr(((struct recording *)user)->record, rank, i, start_s, end_s);
}

static void waited(void *user, int rank, int i, enum play_kind kind, double seconds)
{
    exposed_add(&((struct recording *)user)->exposed, rank, i, seconds);
}

/* Play the request, and record what is asked for. */
static void play(struct report_making *m, struct forecast_request *request)
{
    struct report *report = m->report;
    struct recording recording = {.record = m->record};
    request->user = &recording;
    request->watch = m->record ? record_played : NULL;
    request->waited = m->extent == EXTENT_WORLD ? waited : NULL;
    if (m->extent == EXTENT_WORLD)
        exposed_begin(&recording.exposed, request->program, request->ranks);
    if (m->record)
        record_begin(m->record, request);
    if (forecast_make(&report->forecast, request, NULL)) {
        report->forecast = (struct forecast){0};
        if (m->record)
            record_free(m->record);
    } else if (m->record)
        record_end(m->record, &report->forecast);
    if (report->forecast.ranks && m->extent == EXTENT_WORLD) {
        int busiest = (int)(forecast_busiest(&report->forecast) - report->forecast.rank);
        report->exposed_rows =
            exposed_list(&recording.exposed, request->program[busiest], busiest, report->exposed);
    }
    exposed_free(&recording.exposed);
}

/* What the files of a node's ranks need, if all need as much as the one that needs most. */
static struct machine_files files_of(const struct report_making *m)
{
    struct machine_files files = {.ranks =
                                      machine_ranks_per_node(m->report->ranks, m->report->nodes)};
    size_t memory = 0, disk = 0;
    for (int i = 0; i < m->ranks; i++) {
        memory = max_bytes(memory, m->need[i].host_bytes);
        disk = max_bytes(disk, m->need[i].pool_bytes[POOL_DISK]);
    }
    files.memory_bytes = (double)memory * files.ranks;
    files.bytes = (double)disk * files.ranks;
    return files;
}

void report_forecast_step(struct report_making *m)
{
    enum { FEW = 64 };
    struct report *report = m->report;
    int stages = m->shape.degree[MESH_PIPELINE], each = m->ranks / stages;
    int all = m->ranks == report->ranks && m->ranks <= FEW, count = all ? m->ranks : stages;
    const struct program **program = array_make((size_t)count, sizeof *program);
    for (int i = 0; i < count; i++)
        program[i] = m->program[all ? i : i * each];
    struct machine_files files = files_of(m);
    struct forecast_request request = {
        .machine = report->speeds,
        .device = m->device,
        .ranks = count,
        .program = program,
        .per_node = machine_ranks_per_node(report->ranks, report->nodes),
        .ns_steps = (int)report->config.train.muon.ns_steps,
        .files = &files,
    };
    play(m, &request);
    report_units_fill(report, &request);
    free(program);
}

double report_tokens_per_s(const struct report *report)
{
    double tokens = (double)layout_step_tokens(&report->layout, &report->config);
    return report->forecast.ranks ? tokens / report->forecast.step_s : 0;
}

double report_mfu(const struct report *report, int whole_attention)
{
    double flops = whole_attention ? report->whole_flops : report->flops;
    double peak = report->forecast.ranks ? machine_peak(report->speeds, report->layout.dtype) : 0;
    return peak > 0 ? flops / (report->forecast.step_s * report->ranks * peak) : 0;
}
