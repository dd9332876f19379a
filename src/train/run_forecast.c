/* run_forecast.c - see run_forecast.h.
 *
 * The forecast is that of trireme plan: report_measure() compiles the first rank of each
 * coordinate along the pipeline axis once more, and plays their programs in time. */
#include "train/run_forecast.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "plan/show.h"
#include "simulate/machine_fields.h"

/* Playing the ranks of a pipeline takes time in proportion to their instructions times their
 * number. No forecast is made where that is more than this, which takes some seconds. */
static const double most_work = 2e6;

/* ---- the machine ---- */

int run_forecast_open(struct run_forecast *f, const struct session *s, struct error *err)
{
    const char *gpu = s->device->kind == DEVICE_CUDA ? s->device->name : NULL;
    int rc = world_rank(s->world) ? 0 : run_machine_find(&f->on, &s->config, gpu, err);
    f->has_machine = f->on.is_known;
    if (world_agree(s->world, rc, err))
        return -1;
    world_broadcast(s->world, &f->has_machine, sizeof f->has_machine, 0);
    return 0;
}

void run_forecast_close(struct run_forecast *f)
{
    if (f->report.rank)
        report_free(&f->report);
    run_machine_free(&f->on);
    free((void *)f->steps.planned);
    *f = (struct run_forecast){0};
}

/* ---- the forecast ---- */

/* Fill f->steps: seconds of the first played rank of each coordinate along the pipeline axis, and
 * the sums of all played ranks' transfers. */
static void sum_up(struct run_forecast *f)
{
    const struct forecast *forecast = &f->report.forecast;
    int pipeline_ranks = f->report.layout.shape.degree[MESH_PIPELINE],
        each = forecast->ranks / pipeline_ranks;
    struct deviation_planned *planned = array_make((size_t)pipeline_ranks, sizeof *planned);
    f->steps = (struct deviation_forecast){.machine = f->on.machine.name,
                                           .step_s = forecast->step_s,
                                           .pipeline_ranks = pipeline_ranks,
                                           .planned = planned};
    for (int p = 0; p < pipeline_ranks; p++) {
        const struct play_rank *rank = &forecast->rank[p * each];
        planned[p].run_s = rank->seconds[PLAY_FORWARD] + rank->seconds[PLAY_BACKWARD];
        planned[p].update_s = rank->seconds[PLAY_UPDATE];
        for (int s = STREAM_FETCH; s <= STREAM_WRITE; s++)
            planned[p].copy_s += rank->busy_s[s];
    }
    for (int r = 0; r < forecast->ranks; r++)
        for (int kind = 0; kind < MACHINE_TRANSFERS; kind++)
            for (int way = 0; way < FORECAST_WAYS; way++) {
                const struct forecast_transfer *from = &forecast->transfers[r].of[kind][way];
                struct forecast_transfer *to = &f->steps.transfers.of[kind][way];
                to->count += from->count;
                to->bytes += from->bytes;
                to->seconds += from->seconds;
            }
}

static struct js *transfers_json(const struct forecast_transfers *transfers)
{
    struct js *list = js_array();
    for (int kind = 0; kind < MACHINE_TRANSFERS; kind++)
        for (int way = 0; way < FORECAST_WAYS; way++) {
            const struct forecast_transfer *t = &transfers->of[kind][way];
            struct js *one = js_object();
            js_add_string(one, "kind", machine_transfer_kinds[kind]);
            js_add_string(one, "where",
                          way == FORECAST_BETWEEN ? "between nodes" : "within a node");
            js_add_real(one, "count", t->count);
            js_add_real(one, "bytes", t->bytes);
            js_add_real(one, "seconds", t->seconds);
            js_add_real(one, "bytes_per_s", t->seconds > 0 ? t->bytes / t->seconds : 0);
            if (t->count > 0)
                js_add(list, NULL, one);
            else
                js_free(one);
        }
    return list;
}

static struct js *rank_json(const struct forecast *forecast, int r)
{
    struct js *rank = js_object();
    for (int kind = 0; kind < PLAY_KINDS; kind++) {
        char name[40];
        snprintf(name, sizeof name, "%s%s_s", play_kind_is_wait(kind) ? "wait_" : "",
                 play_kind_name(kind));
        for (char *c = name; *c; c++)
            *c = *c == ' ' || *c == '-' ? '_' : *c;
        js_add_real(rank, name, forecast->rank[r].seconds[kind]);
    }
    js_add(rank, "transfers", transfers_json(&forecast->transfers[r]));
    return rank;
}

/* Write forecast.json.  The rank that waits least stands for all, as its time is the step's. */
static int write_file(const struct run_forecast *f, const struct session *s, struct error *err)
{
    const struct report *report = &f->report;
    const struct forecast *forecast = &report->forecast;
    struct memory_limits most = report_most(report);
    struct js *js = js_object();
    char path[CONFIG_TEXT + 16];
    js_add_string(js, "machine", f->on.machine.name);
    js_add_string(js, "network", f->on.network);
    js_add_int(js, "ranks", report->ranks);
    js_add_int(js, "nodes", report->nodes);
    js_add_real(js, "step_s", forecast->step_s);
    js_add_real(js, "tokens_per_s", report_tokens_per_s(report));
    js_add_real(js, "mfu", report_mfu(report, 0));
    js_add_real(js, "mfu_full_attention", report_mfu(report, 1));
    js_add(js, "busiest_rank",
           rank_json(forecast, (int)(forecast_busiest(forecast) - forecast->rank)));
    js_add_int(js, "device_bytes", (int64_t)most.device_bytes);
    js_add_int(js, "host_bytes", (int64_t)most.host_bytes);
    snprintf(path, sizeof path, "%s/forecast.json", s->config.run.dir);
    int rc = js_write(js, JS_INDENTED, WHOLE_FILE_REPORT, path, err);
    js_free(js);
    return rc;
}

/* Make the forecast and its file, on rank 0. */
static int make(struct run_forecast *f, const struct session *s, struct error *err)
{
    struct config config = s->config;
    double pipeline_ranks = s->layout.shape.degree[MESH_PIPELINE],
           instrs = s->train->instrs * pipeline_ranks;
    if (instrs * pipeline_ranks > most_work) {
        log_info(
            s->log,
            "no forecast of the steps: %.3g instructions would take long before the first one; "
            "trireme plan --machine %s shows it",
            instrs, f->on.machine.name);
        return 0;
    }
    config.device = s->device->kind == DEVICE_CUDA ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
    struct report_request request = {.config = &config,
                                     .ranks = world_size(s->world),
                                     .nodes = world_nodes(s->world),
                                     .threads = s->device->threads,
                                     .speeds = &f->on.machine};
    if (report_measure(&f->report, &request, err))
        return -1;
    f->is_there = f->report.forecast.ranks > 0;
    if (!f->is_there)
        return 0;
    sum_up(f);
    return write_file(f, s, err);
}

int run_forecast_make(struct run_forecast *f, const struct session *s, struct error *err)
{
    if (!f->has_machine)
        return 0;
    if (world_agree(s->world, world_rank(s->world) ? 0 : make(f, s, err), err))
        return -1;
    world_broadcast(s->world, &f->is_there, sizeof f->is_there, 0);
    return 0;
}

void run_forecast_print(const struct run_forecast *f, const struct session *s)
{
    char step[32], mfu[32] = "";
    if (!f->is_there || world_rank(s->world))
        return;
    double share = report_mfu(&f->report, 0);
    if (share > 0 && s->device->kind == DEVICE_CUDA)
        snprintf(mfu, sizeof mfu, ", MFU %.1f %%", 100 * share);
    log_info(s->log, "forecast: %s a step, %.0f tokens/s%s (machine %s)",
             show_time(f->steps.step_s, step), report_tokens_per_s(&f->report), mfu,
             f->on.machine.name);
}
