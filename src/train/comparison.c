/* comparison.c - see comparison.h.
 *
 * All ranks know from a step's number alone whether it is measured; only that a time has changed is
 * for rank 0 to say, by a broadcast.  Every rank's measurements go to rank 0, which decides. */
#include "train/comparison.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/median.h"
#include "comm/network.h"
#include "simulate/machine_fields.h"
#include "train/core_use.h"
#include "train/step_times.h"

enum {
    AFTER = 10, /* steps before ranks are compared, and between two looks at a step's time */
    RECENT = 8, /* a step's time is the median of the last so many */
    MOST_TRANSFERS = 1 << 20, /* of all ranks together that rank 0 looks at: 24 MiB */
    MOST_REPORTS = 64,        /* lines of different causes that are remembered */
    LINE = 640
};

/* A step's time has changed when it is more than this many times as long, or as short, as it was.
 */
static const double changed = 1.2;

/* What a printed line was about, and after how many steps of this start it was printed. */
struct reported {
    enum deviation_cause cause;
    int rank, node, kind, way;
    int64_t steps;
};

struct comparison {
    const struct session *s;
    const struct run_forecast *forecast;
    struct step_times *times;
    int64_t first;            /* first step of this start */
    int64_t from, to;         /* steps that are measured, or are to be */
    double recent_ms[RECENT]; /* of the last steps, in a ring; recents: how many were put in */
    int64_t recents;
    double compared_ms; /* a step's time when the ranks were last compared */
    struct reported reported[MOST_REPORTS];
    int reports, last; /* last: index of the one printed last; -1: none */
};

struct comparison *comparison_open(const struct session *s, const struct run_forecast *forecast,
                                   int64_t first)
{
    if (!strcmp(s->config.run.machine, "off") || (world_size(s->world) == 1 && !forecast->is_there))
        return NULL;
    struct comparison *c = array_make(1, sizeof *c);
    *c = (struct comparison){.s = s, .forecast = forecast, .first = first, .last = -1};
    c->times = step_times_create(s->train);
    c->to = first + AFTER - 1;
    c->from = c->to - STEP_TIMES + 1;
    return c;
}

void comparison_close(struct comparison *c)
{
    if (!c)
        return;
    step_times_free(c->times);
    free(c);
}

int comparison_measures(const struct comparison *c, int64_t step)
{
    return c && step >= c->from && step <= c->to;
}

/* ---- the facts ---- */

/* What rank 0 has of all ranks. */
struct gathered {
    struct deviation_rank *rank;
    struct step_times_transfer *transfer;
    size_t transfers;
};

static int gather(const struct comparison *c, int stride, struct gathered *all, struct error *err)
{
    struct world *world = c->s->world;
    struct deviation_rank own = step_times_rank(c->times);
    size_t *sizes = array_make((size_t)world_size(world), sizeof *sizes);
    int count, is_first = !world_rank(world);
    struct step_times_transfer *mine = step_times_transfers(c->times, stride, &count);
    char *ranks = NULL, *transfers = NULL;
    own.node = world_node(world);
    own.is_crowded = core_use_is_crowded(world);
    int rc = world_gather(world, &ranks, sizes, &own, sizeof own, 0, err) ||
             world_gather(world, &transfers, sizes, mine, (size_t)count * sizeof *mine, 0, err);
    for (int r = 0; r < world_size(world) && is_first && !rc; r++)
        all->transfers += sizes[r] / sizeof *mine;
    all->rank = (struct deviation_rank *)ranks;
    all->transfer = (struct step_times_transfer *)transfers;
    free(mine);
    free(sizes);
    return rc ? -1 : 0;
}

static int recent_steps(const struct comparison *c)
{
    return c->recents < RECENT ? (int)c->recents : RECENT;
}

static double recent_ms(const struct comparison *c)
{
    double value[RECENT];
    int count = recent_steps(c);
    memcpy(value, c->recent_ms, sizeof value);
    return median_higher(value, count);
}

/* A step's time: the median of the measured steps on CPUs.  On GPUs a measured step takes longer,
 * because the host waits for its end; there it is the median of the last steps that were not
 * measured. */
static double step_ms(const struct comparison *c)
{
    if (c->s->device->asynchronous && c->recents)
        return recent_ms(c);
    return 1e3 * step_times_step_s(c->times);
}

/* ---- what is reported ---- */

static const char *host_of(void *user, int node)
{
    return world_host_of_node(user, node);
}

static int find_report(const struct comparison *c, const struct reported *one)
{
    for (int i = 0; i < c->reports; i++) {
        const struct reported *r = &c->reported[i];
        if (r->cause == one->cause && r->rank == one->rank && r->node == one->node &&
            r->kind == one->kind && r->way == one->way)
            return i;
    }
    return -1;
}

/* Was it reported by the last line, or within the last half of the steps? */
static int was_reported(const struct comparison *c, const struct reported *one)
{
    int at = find_report(c, one);
    return at >= 0 && (at == c->last || one->steps < 2 * c->reported[at].steps);
}

/* Remember a report: in place of one with the same cause and place, else in a free entry, else in
 * place of the oldest. */
static void keep_report(struct comparison *c, const struct reported *one)
{
    int at = find_report(c, one);
    if (at < 0 && c->reports < MOST_REPORTS)
        at = c->reports++;
    if (at < 0)
        for (int i = at = 0; i < c->reports; i++)
            at = c->reported[i].steps < c->reported[at].steps ? i : at;
    c->reported[at] = *one;
    c->last = at;
}

static void report(struct comparison *c, const struct deviation_facts *facts,
                   const struct deviation *d, int64_t step, const char *text)
{
    const struct deviation_link *link = d->link >= 0 ? &facts->link[d->link] : NULL;
    struct reported one = {
        .cause = d->cause,
        .rank = d->cause == DEVIATION_RANK || d->cause == DEVIATION_CORES ? d->rank : -1,
        .node = d->node,
        .kind = link ? (int)link->kind : -1,
        .way = link ? link->way : -1,
        .steps = step - c->first + 1};
    int is_well = d->cause == DEVIATION_NONE || d->cause == DEVIATION_FASTER;
    int silent = was_reported(c, &one) || (is_well && !facts->forecast && c->last < 0);
    if (!silent)
        log_print(c->s->log, is_well ? LOG_INFO : LOG_WARN, "%s", text);
    if (!silent)
        keep_report(c, &one);
}

static struct js *transfers_json(const struct deviation_facts *facts)
{
    struct js *list = js_array();
    for (int kind = 0; kind < MACHINE_TRANSFERS; kind++)
        for (int way = 0; way < FORECAST_WAYS; way++) {
            double bytes = 0, seconds = 0;
            struct js *one = js_object();
            for (int i = 0; i < facts->links; i++)
                if ((int)facts->link[i].kind == kind && facts->link[i].way == way) {
                    bytes += facts->link[i].bytes;
                    seconds += facts->link[i].seconds;
                }
            js_add_string(one, "kind", machine_transfer_kinds[kind]);
            js_add_string(one, "where", way == FORECAST_BETWEEN ? "nodes" : "node");
            js_add_real(one, "bytes_per_s", seconds > 0 ? bytes / seconds : NAN);
            if (facts->forecast) {
                const struct forecast_transfer *p = &facts->forecast->transfers.of[kind][way];
                js_add_real(one, "planned_bytes_per_s", p->bytes / p->seconds);
            }
            if (bytes > 0)
                js_add(list, NULL, one);
            else
                js_free(one);
        }
    return list;
}

/* Add the shortest and the longest time that a rank computes, and the bytes sent by all ranks. */
static void add_ranks(struct js *js, const struct deviation_facts *facts)
{
    double least = INFINITY, most = 0, sent = 0, planned = 0;
    for (int r = 0; r < facts->ranks; r++) {
        const struct deviation_rank *rank = &facts->rank[r];
        least = fmin(least, rank->run_s + rank->update_s);
        most = fmax(most, rank->run_s + rank->update_s);
        sent += rank->sent_bytes;
        planned += rank->plan_bytes;
    }
    js_add_real(js, "compute_least_ms", round(1e6 * least) / 1e3);
    js_add_real(js, "compute_most_ms", round(1e6 * most) / 1e3);
    js_add_real(js, "sent_bytes", sent);
    js_add_real(js, "planned_sent_bytes", planned);
}

static struct js *json(const struct comparison *c, const struct deviation_facts *facts,
                       const struct deviation *d, const char *text)
{
    struct js *js = js_object();
    js_add_string(js, "cause", deviation_cause_name(d->cause));
    js_add_string(js, "text", text);
    if (d->rank >= 0)
        js_add_int(js, "rank", d->rank);
    if (d->node >= 0)
        js_add_string(js, "node", world_host_of_node(c->s->world, d->node));
    js_add_real(js, "measured_step_ms", round(1e6 * facts->step_s) / 1e3);
    if (facts->forecast)
        js_add_real(js, "forecast_step_ms", round(1e6 * facts->forecast->step_s) / 1e3);
    add_ranks(js, facts);
    js_add(js, "transfers", transfers_json(facts));
    return js;
}

/* On rank 0: find what is off in what was gathered, log it, and return the object for
 * metrics.jsonl. */
static struct js *decide(struct comparison *c, const struct gathered *all, int stride, int64_t step)
{
    const struct session *s = c->s;
    char text[LINE], network[NETWORK_TEXT];
    int ranks = world_size(s->world), links, on_gpu = s->device->kind == DEVICE_CUDA;
    int *node = array_make((size_t)ranks, sizeof *node);
    for (int r = 0; r < ranks; r++)
        node[r] = all->rank[r].node;
    struct deviation_link *link =
        step_times_links(all->transfer, all->transfers, stride, &s->layout.shape, node, &links);
    const struct deviation_facts facts = {
        .step_s = c->compared_ms / 1e3,
        .ranks = ranks,
        .links = links,
        .rank = all->rank,
        .link = link,
        .forecast = c->forecast->is_there ? &c->forecast->steps : NULL,
    };
    const struct deviation_names names = {.host = host_of,
                                          .user = s->world,
                                          .on_gpu = on_gpu,
                                          .network =
                                              network_text(world_host(s->world), on_gpu, network)};
    struct deviation d = deviation_find(&facts);
    deviation_text(&facts, &d, &names, text, sizeof text);
    report(c, &facts, &d, step, text);
    struct js *js = json(c, &facts, &d, text);
    free(link);
    free(node);
    return js;
}

static int compare(struct comparison *c, int64_t step, struct js **line, struct error *err)
{
    struct gathered all = {0};
    double transfers = step_times_transfer_count(c->times);
    world_all_reduce(c->s->world, &transfers, 1, WORLD_SUM);
    int stride = 1 + (int)(transfers / MOST_TRANSFERS);
    int rc = gather(c, stride, &all, err);
    c->compared_ms = step_ms(c);
    if (!rc && !world_rank(c->s->world))
        *line = decide(c, &all, stride, step);
    free(all.rank);
    free(all.transfer);
    step_times_reset(c->times);
    return rc;
}

/* ---- steps ---- */

static void note_time(struct comparison *c, int64_t step, double ms, int is_measured)
{
    if (!ms || step == c->first || (is_measured && c->s->device->asynchronous))
        return;
    c->recent_ms[c->recents++ % RECENT] = ms;
}

/* Let steps be measured again where rank 0 sees that a step's time has changed, or that as many
 * steps were done since the ranks were compared as before.  The next step may be under way on a
 * GPU, so that the first measured one is the one after it. */
static void look(struct comparison *c, int64_t step)
{
    double now_ms = recent_ms(c);
    int is_changed = now_ms > changed * c->compared_ms || changed * now_ms < c->compared_ms ||
                     step - c->to > c->to - c->first;
    world_broadcast(c->s->world, &is_changed, sizeof is_changed, 0);
    if (!is_changed)
        return;
    c->from = step + 2;
    c->to = c->from + STEP_TIMES - 1;
}

int comparison_step(struct comparison *c, int64_t step, double ms, const struct trace *trace,
                    double core_s, double queue_s, struct js **line, struct error *err)
{
    if (!c)
        return 0;
    note_time(c, step, ms, trace != NULL);
    if (trace)
        step_times_add(c->times, trace, ms / 1e3, core_s, queue_s);
    if (step == c->to)
        return step_times_count(c->times) ? compare(c, step, line, err) : 0;
    if (step > c->to && c->recents && (step - c->first + 1) % AFTER == 0)
        look(c, step);
    return 0;
}
