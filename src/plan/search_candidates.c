/* search_candidates.c - see search_candidates.h.
 *
 * Degrees are divisors of the ranks, tensor ranks of one node, micro-batches powers of two that a
 * data rank has.  Settings that the configuration's checks or the layout refuse (heads that tensor
 * ranks do not divide, more stages than units) are left out.
 *
 * What one micro-batch takes depends on tensor, context, micro-batch and recomputation alone, so
 * few plans of one rank of each such place make the bounds of all candidates.
 */
#include "plan/search_candidates.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "base/text.h"
#include "config/schema.h"
#include "plan/variant.h"

/* least_chunks to most_chunks stages of a rank; bubble: (micros + pipeline - 1) parts of a step are
 * needed where micros are computed. */
static const struct {
    const char *name;
    int least_chunks, most_chunks, bubble;
} schedules[] = {
    {.name = "1f1b", .least_chunks = 1, .most_chunks = 1, .bubble = 1},
    {.name = "interleaved_1f1b", .least_chunks = 2, .most_chunks = 8},
    {.name = "zb_h1", .least_chunks = 1, .most_chunks = 1},
    {.name = "zb_v", .least_chunks = 2, .most_chunks = 2},
};
enum { SCHEDULES = sizeof schedules / sizeof schedules[0], MICROS = 16, DEGREES = 24 };

/* Of the bounds: a plan's rounding, and the norm's sums that it counts in each micro-batch. */
static const double SLACK = 0.98;

static const char *recompute_name(enum config_recompute recompute)
{
    static const char *const names[] = {
        [RECOMPUTE_NONE] = "none", [RECOMPUTE_SELECTIVE] = "selective", [RECOMPUTE_FULL] = "full"};
    return names[recompute];
}

void search_candidate_text(const struct search_candidate *c, char text[SEARCH_SETTINGS])
{
    char strategy[CONFIG_TEXT];
    text[0] = 0;
    text_append(text, SEARCH_SETTINGS,
                "parallel.pipeline=%d parallel.tensor=%d parallel.context=%d parallel.strategy=%s",
                c->pipeline, c->tensor, c->context, variant_name(c->strategy, strategy));
    if (c->shard)
        text_append(text, SEARCH_SETTINGS, " parallel.shard=%d", c->shard);
    if (c->pipeline > 1)
        text_append(text, SEARCH_SETTINGS, " parallel.schedule=%s", schedules[c->schedule].name);
    if (c->pipeline > 1 && c->chunks > 1)
        text_append(text, SEARCH_SETTINGS, " parallel.virtual_stages=%d", c->chunks);
    text_append(text, SEARCH_SETTINGS, " train.micro_batch=%lld recompute=%s", (long long)c->micro,
                recompute_name(c->recompute));
    if (c->offload[0])
        text_append(text, SEARCH_SETTINGS, " %s", c->offload);
}

/* Set "key=value key=value". */
static int set(struct config *config, const char *settings)
{
    char text[SEARCH_SETTINGS], *rest = text, *one;
    snprintf(text, sizeof text, "%s", settings);
    while ((one = strsep(&rest, " "))) {
        char *value = strchr(one, '=');
        *value++ = 0;
        if (config_set(config, one, value, NULL))
            return -1;
    }
    return config_finish(config, NULL);
}

/* What the configuration says itself of degrees and stages would not go with others. */
int search_candidate_config(const struct search_candidate *c, const struct config *base,
                            struct config *config)
{
    char settings[SEARCH_SETTINGS];
    *config = *base;
    struct config_parallel *p = &config->parallel;
    p->shard = p->replicate = 0;
    p->virtual_stages = 0;
    p->stages[0] = 0;
    snprintf(p->schedule, sizeof p->schedule, "1f1b");
    search_candidate_text(c, settings);
    return set(config, settings);
}

/* ---- bounds ---- */

struct bound {
    int tensor, context;
    int64_t micro;
    enum config_recompute recompute;
    double seconds;
};

struct bounds {
    const struct search_request *request;
    struct bound *item;
    int count, capacity;
};

/* A micro-batch's forward and backward, with what its ranks exchange meanwhile where that is not
 * beside products; 0 where there is no such plan. */
static double micro_s(const struct search_request *request, const struct search_candidate *c)
{
    struct search_candidate alone = *c;
    struct config config;
    struct report report;
    int ranks = c->tensor * c->context;
    int per_node = (request->ranks + request->nodes - 1) / request->nodes;
    alone.pipeline = alone.chunks = 1;
    alone.shard = 0;
    alone.strategy = STRATEGY_NO_SHARD;
    struct config base = *request->config;
    base.train.global_batch = c->micro;
    base.parallel.persist_below = 0;
    if (search_candidate_config(&alone, &base, &config) ||
        report_measure(&report, &config, ranks, (ranks + per_node - 1) / per_node, request->threads,
                       request->machine, NULL))
        return 0;
    const double *seconds = report.forecast.rank[0].seconds;
    double sum = seconds[PLAY_FORWARD] + seconds[PLAY_BACKWARD];
    if (report.layout.tensor_parts == 1)
        sum += seconds[PLAY_GATHER] + seconds[PLAY_REDUCE];
    else
        sum *= request->machine->beside_compute > 0 ? request->machine->beside_compute : 1;
    report_free(&report);
    return sum;
}

static double micro_bound(struct bounds *b, const struct search_candidate *c)
{
    for (int i = 0; i < b->count; i++) {
        const struct bound *o = &b->item[i];
        if (o->tensor == c->tensor && o->context == c->context && o->micro == c->micro &&
            o->recompute == c->recompute)
            return o->seconds;
    }
    b->item = array_grow(b->item, b->count, &b->capacity, sizeof *b->item);
    b->item[b->count] = (struct bound){.tensor = c->tensor,
                                       .context = c->context,
                                       .micro = c->micro,
                                       .recompute = c->recompute,
                                       .seconds = micro_s(b->request, c)};
    return b->item[b->count++].seconds;
}

static int64_t data_ranks_of(const struct search_request *request, const struct search_candidate *c)
{
    return request->ranks / (c->pipeline * c->tensor * c->context);
}

static void set_bound(struct bounds *b, struct search_candidate *c)
{
    int64_t each = ceil_div(b->request->config->train.global_batch, data_ranks_of(b->request, c));
    double micros = (double)ceil_div(each, c->micro);
    double parts = schedules[c->schedule].bubble ? micros + c->pipeline - 1 : micros;
    c->least_s = SLACK * micro_bound(b, c) * parts / c->pipeline;
}

/* ---- the list ---- */

static void add(struct search_candidates *list, const struct search_candidate *candidate)
{
    list->item = array_grow(list->item, list->count, &list->capacity, sizeof *list->item);
    list->item[list->count++] = *candidate;
}

static void add_micros(struct search_candidates *list, const struct search_request *request,
                       struct search_candidate c)
{
    int64_t each = ceil_div(request->config->train.global_batch, data_ranks_of(request, &c));
    for (c.micro = 1; c.micro <= each; c.micro *= 2)
        add(list, &c);
}

/* Of one data rank all strategies are the same; a hybrid's copies are of a node's ranks each. */
static void add_strategies(struct search_candidates *list, const struct search_request *request,
                           struct search_candidate c)
{
    int64_t data_ranks = data_ranks_of(request, &c);
    int per_node = (request->ranks + request->nodes - 1) / request->nodes;
    int of_node = per_node / (c.tensor * c.context);
    for (int s = 0; s < CONFIG_STRATEGIES; s++) {
        int hybrid = config_sharding[s].hybrid;
        if ((data_ranks == 1 && s != STRATEGY_NO_SHARD) ||
            (hybrid && (of_node < 2 || of_node >= data_ranks || data_ranks % of_node)))
            continue;
        c.strategy = s;
        c.shard = hybrid ? of_node : 0;
        add_micros(list, request, c);
    }
}

static void add_schedules(struct search_candidates *list, const struct search_request *request,
                          struct search_candidate c)
{
    for (c.schedule = 0; c.schedule < (c.pipeline > 1 ? SCHEDULES : 1); c.schedule++)
        for (c.chunks = schedules[c.schedule].least_chunks;
             c.chunks <= schedules[c.schedule].most_chunks; c.chunks *= 2)
            for (c.recompute = RECOMPUTE_NONE; c.recompute <= RECOMPUTE_FULL; c.recompute++)
                add_strategies(list, request, c);
}

static int by_bound(const void *left, const void *right)
{
    const struct search_candidate *a = *(const struct search_candidate *const *)left;
    const struct search_candidate *b = *(const struct search_candidate *const *)right;
    if (a->least_s != b->least_s)
        return a->least_s < b->least_s ? -1 : 1;
    return (a > b) - (a < b);
}

static void list_degrees(struct search_candidates *list, const struct search_request *request,
                         const char *offload)
{
    int ranks = request->ranks, per_node = (ranks + request->nodes - 1) / request->nodes;
    for (int p = 1; p <= ranks; p++)
        for (int t = 1; ranks % p == 0 && t <= per_node; t++)
            for (int c = 1; ranks / p % t == 0 && c <= ranks / p / t; c++)
                if (ranks / p / t % c == 0)
                    add_schedules(
                        list, request,
                        (struct search_candidate){
                            .pipeline = p, .tensor = t, .context = c, .offload = offload});
}

static int is_family(const struct search_candidate *a, const struct search_candidate *b)
{
    return a->pipeline == b->pipeline && a->tensor == b->tensor && a->context == b->context &&
           a->schedule == b->schedule && a->chunks == b->chunks && a->recompute == b->recompute;
}

int search_candidates_make(struct search_candidates *list, const struct search_request *request,
                           const char *offload, struct error *err)
{
    struct bounds bounds = {.request = request};
    struct config config;
    *list = (struct search_candidates){0};
    list_degrees(list, request, offload);
    int kept = 0;
    for (int i = 0; i < list->count; i++) {
        struct search_candidate *c = &list->item[kept];
        *c = list->item[i];
        if (search_candidate_config(c, request->config, &config))
            continue;
        set_bound(&bounds, c);
        c->family = kept && is_family(c, c - 1) ? c[-1].family : kept;
        kept += c->least_s > 0;
    }
    free(bounds.item);
    list->count = kept;
    list->by_bound = array_make((size_t)kept, sizeof(struct search_candidate *));
    for (int i = 0; i < kept; i++)
        list->by_bound[i] = &list->item[i];
    qsort(list->by_bound, (size_t)kept, sizeof(struct search_candidate *), by_bound);
    if (kept)
        return 0;
    search_candidates_free(list);
    return error_set(err, "the configuration allows no layout of %d ranks", request->ranks);
}

void search_candidates_free(struct search_candidates *list)
{
    free(list->item);
    free(list->by_bound);
    *list = (struct search_candidates){0};
}
