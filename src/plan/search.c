/* search.c - see search.h. */
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "base/text.h"
#include "config/schema.h"
#include "plan/search_candidates.h"

/* One that was planned. */
struct outcome {
    const struct search_candidate *candidate;
    double step_s, seconds[PLAY_KINDS]; /* of its busiest rank */
    struct search_row row;
};

struct finding {
    const struct search_request *request;
    struct search *search;
    struct search_candidates list;
    const struct search_candidate **too_large; /* by a twentieth or more */
    int too_larges, too_large_capacity;
    struct outcome best[SEARCH_ROWS];
    int bests;
};

/* Does a candidate's strategy keep as little as another's, or less?  Among those with as many
 * shards a later stage does. */
static int shards_as_much(const struct search_candidate *a, const struct search_candidate *b)
{
    return a->shard == b->shard &&
           config_sharding[a->strategy].stage >= config_sharding[b->strategy].stage;
}

/* Is there one that lacks memory although it needs less in every respect? */
static int is_dominated(const struct finding *f, const struct search_candidate *c)
{
    for (int i = 0; i < f->too_larges; i++) {
        const struct search_candidate *o = f->too_large[i];
        if (o->pipeline == c->pipeline && o->tensor == c->tensor && o->context == c->context &&
            o->schedule == c->schedule && o->chunks == c->chunks && shards_as_much(o, c) &&
            o->micro <= c->micro && o->recompute >= c->recompute)
            return 1;
    }
    return 0;
}

static int is_before(const struct outcome *a, const struct outcome *b)
{
    return a->step_s != b->step_s ? a->step_s < b->step_s : a->candidate < b->candidate;
}

static void keep(struct finding *f, const struct outcome *outcome)
{
    int at = f->bests;
    while (at > 0 && is_before(outcome, &f->best[at - 1]))
        at--;
    if (at == SEARCH_ROWS)
        return;
    int moved = (f->bests < SEARCH_ROWS ? f->bests : SEARCH_ROWS - 1) - at;
    memmove(&f->best[at + 1], &f->best[at], (size_t)moved * sizeof f->best[0]);
    f->best[at] = *outcome;
    f->bests += f->bests < SEARCH_ROWS;
}

/* Does it lack a twentieth of what there is? */
static int is_far(size_t lack, size_t limit)
{
    return lack > limit / 20;
}

static void plan(struct finding *f, const struct search_candidate *c)
{
    const struct search_request *r = f->request;
    struct config config;
    struct report report;
    struct outcome outcome = {.candidate = c};
    if (search_candidate_config(c, r->config, &config) ||
        report_measure(&report, &config, r->ranks, r->nodes, r->threads, r->machine, NULL))
        return;
    f->search->planned++;
    struct memory_limits lack = report_lack(&report, r->limits);
    if (lack.device_bytes || lack.host_bytes) {
        f->search->too_large++;
        if (is_far(lack.device_bytes, r->limits->device_bytes) ||
            is_far(lack.host_bytes, r->limits->host_bytes)) {
            f->too_large = array_grow(f->too_large, f->too_larges, &f->too_large_capacity,
                                      sizeof(struct search_candidate *));
            f->too_large[f->too_larges++] = c;
        }
    } else if (report.forecast.ranks) {
        const struct play_rank *busiest = forecast_busiest(&report.forecast);
        memcpy(outcome.seconds, busiest->seconds, sizeof outcome.seconds);
        outcome.step_s = report.forecast.step_s;
        outcome.row = (struct search_row){.step_s = outcome.step_s,
                                          .tokens_per_s = report_tokens_per_s(&report),
                                          .mfu = report_mfu(&report, 0),
                                          .takes = report_most(&report)};
        search_candidate_text(c, outcome.row.settings);
        keep(f, &outcome);
    }
    report_free(&report);
}

/* What takes so much longer than in the best one. */
static void explain(const struct outcome *best, struct outcome *outcome)
{
    int most = 0;
    double longest = 0;
    for (int kind = 0; kind < PLAY_KINDS; kind++) {
        double more = outcome->seconds[kind] - best->seconds[kind];
        if (more > longest) {
            longest = more;
            most = kind;
        }
    }
    if (longest > 0)
        snprintf(outcome->row.why, sizeof outcome->row.why, "%s%s +%.1f %% of the best step",
                 play_kind_is_wait(most) ? "waits for " : "", play_kind_name(most),
                 100 * longest / best->step_s);
}

/* Of those that differ from c in strategy and micro-batch alone, the one that needs least, unless
 * it was planned: where it is too large, c is. */
static void plan_least(struct finding *f, struct search_candidate *c)
{
    struct search_candidate *least = c;
    for (int i = c->family; i < f->list.count && f->list.item[i].family == c->family; i++) {
        struct search_candidate *o = &f->list.item[i];
        if (shards_as_much(o, least) && o->micro <= least->micro)
            least = o;
    }
    if (!least->is_planned)
        plan(f, least);
    least->is_planned = 1;
}

static int search_with(struct finding *f, const char *offload, struct error *err)
{
    const struct search_request *r = f->request;
    if (search_candidates_make(&f->list, r, offload, err))
        return -1;
    f->search->candidates = f->list.count;
    f->search->planned = f->search->too_large = 0;
    for (int i = 0; i < f->list.count; i++) {
        struct search_candidate *c = f->list.by_bound[i];
        if (!r->exhaustive && f->bests && c->least_s > f->best[0].step_s)
            break;
        if (c->is_planned)
            continue;
        if (!r->exhaustive && is_dominated(f, c))
            continue;
        if (!r->exhaustive)
            plan_least(f, c);
        if (!c->is_planned && (r->exhaustive || !is_dominated(f, c)))
            plan(f, c);
        c->is_planned = 1;
    }
    return 0;
}

static int fill(struct finding *f, struct error *err)
{
    if (!f->bests)
        return error_set(
            err,
            "none of %d layouts of %d ranks fits the memory, not even with state in the "
            "host's memory",
            f->search->candidates, f->request->ranks);
    for (int i = 0; i < f->bests; i++) {
        if (i)
            explain(&f->best[0], &f->best[i]);
        f->search->row[i] = f->best[i].row;
    }
    f->search->rows = f->bests;
    return search_candidate_config(f->best[0].candidate, f->request->config, &f->search->best);
}

int search_find(struct search *search, const struct search_request *request, struct error *err)
{
    static const char *const offloads[] = {
        "", "offload.optimizer=host",
        "offload.optimizer=host offload.params=host offload.gradients=host"};
    struct finding f = {.request = request, .search = search};
    int rc = 0;
    *search = (struct search){0};
    for (int i = 0; i < 3 && !rc && !f.bests; i++) {
        search_candidates_free(&f.list);
        f.too_larges = 0;
        rc = search_with(&f, offloads[i], i ? NULL : err) && !i ? -1 : 0;
    }
    if (!rc)
        rc = fill(&f, err);
    search_candidates_free(&f.list);
    free(f.too_large);
    return rc;
}
