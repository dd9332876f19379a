/* search_candidates.c - see search_candidates.h.
 *
 * Degrees are divisors of the ranks, tensor ranks of one node, micro-batches powers of two that a
 * data rank has.  Settings that the configuration's checks or the layout refuse (heads that tensor
 * ranks do not divide) are left out.
 */
#include "plan/search_candidates.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/round.h"
#include "base/text.h"
#include "config/schema.h"
#include "plan/settings.h"

/* The schedules that are tried.  in_rounds: micro-batches pass in rounds of as many as there are
 * ranks. */
static const struct {
    const char *name;
    int in_rounds;
} schedules[] = {
    {.name = "1f1b"},
    {.name = "interleaved_1f1b", .in_rounds = 1},
    {.name = "zb_h1"},
    {.name = "zb_v"},
};
enum {
    SCHEDULES = sizeof schedules / sizeof schedules[0],
    CHUNKS_MOST = 8 /* stages of a rank that are tried where the schedule has no limit */
};

/* Write to text the name that the configuration has for a kind of recomputation; returns text. */
static const char *recompute_name(enum config_recompute recompute, char text[CONFIG_TEXT])
{
    struct config config = {.recompute = recompute};
    return config_value(&config, "recompute", text);
}

void search_candidate_text(const struct search_candidate *c, char text[SEARCH_SETTINGS])
{
    char strategy[CONFIG_TEXT], recompute[CONFIG_TEXT];
    text[0] = 0;
    text_append(text, SEARCH_SETTINGS,
                "parallel.pipeline=%d parallel.tensor=%d parallel.context=%d parallel.strategy=%s",
                c->pipeline, c->tensor, c->context, settings_strategy_name(c->strategy, strategy));
    if (c->shard)
        text_append(text, SEARCH_SETTINGS, " parallel.shard=%d", c->shard);
    if (c->pipeline > 1)
        text_append(text, SEARCH_SETTINGS, " parallel.schedule=%s", schedules[c->schedule].name);
    if (c->pipeline > 1 && c->chunks > 1)
        text_append(text, SEARCH_SETTINGS, " parallel.virtual_stages=%d", c->chunks);
    text_append(text, SEARCH_SETTINGS, " train.micro_batch=%lld recompute=%s", (long long)c->micro,
                recompute_name(c->recompute, recompute));
    if (c->offload[0])
        text_append(text, SEARCH_SETTINGS, " %s", c->offload);
}

/* Degrees and stages that base sets itself are unset first: they would not go with a layout's. */
int search_apply(struct config *config, const struct config *base, const char *settings)
{
    *config = *base;
    struct config_parallel *p = &config->parallel;
    p->shard = p->replicate = 0;
    p->virtual_stages = 0;
    p->stages[0] = 0;
    snprintf(p->schedule, sizeof p->schedule, "1f1b");
    return settings_set(config, settings);
}

int search_candidate_config(const struct search_candidate *c, const struct config *base,
                            struct config *config)
{
    char settings[SEARCH_SETTINGS];
    search_candidate_text(c, settings);
    return search_apply(config, base, settings);
}

/* ---- its schedule ---- */

int search_rank_of_stage(const struct search_candidate *c, int stage)
{
    return schedule_rank_of(c->row, c->pipeline, stage);
}

int search_splits_backward(const struct search_candidate *c)
{
    return c->pipeline > 1 && schedule_facts(c->row).splits_backward;
}

int search_period(const struct search_candidate *c, int64_t micros)
{
    if (c->pipeline == 1 || !schedules[c->schedule].in_rounds)
        return 1;
    return micros % c->pipeline ? 0 : c->pipeline;
}

int search_data_ranks(const struct search_request *request, const struct search_candidate *c)
{
    return request->ranks / (c->pipeline * c->tensor * c->context);
}

int64_t search_micros(const struct search_request *request, const struct search_candidate *c)
{
    int64_t each = ceil_div(request->config->train.global_batch, search_data_ranks(request, c));
    return ceil_div(each, c->micro);
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
    int64_t each = ceil_div(request->config->train.global_batch, search_data_ranks(request, &c));
    for (c.micro = 1; c.micro < each; c.micro *= 2)
        add(list, &c);
    c.micro = each; /* all at once, which masks none */
    add(list, &c);
}

/* The strategy for one data and context rank, where all are the same: NO_SHARD, or FULL_SHARD where
 * other keys need parameters or gradients in shards. */
static int strategy_of_one(const struct search_request *request, struct search_candidate c)
{
    struct config config;
    c.strategy = STRATEGY_NO_SHARD;
    c.micro = 1;
    return search_candidate_config(&c, request->config, &config) ? STRATEGY_FULL_SHARD
                                                                 : STRATEGY_NO_SHARD;
}

/* Add a candidate with each strategy; a copy of a hybrid has the ranks of a node. */
static void add_strategies(struct search_candidates *list, const struct search_request *request,
                           struct search_candidate c)
{
    int64_t data_ranks = search_data_ranks(request, &c);
    int per_node = machine_ranks_per_node(request->ranks, request->nodes);
    int of_node = per_node / (c.tensor * c.context);
    int only = data_ranks * c.context == 1 ? strategy_of_one(request, c) : -1;
    for (int s = 0; s < CONFIG_STRATEGIES; s++) {
        int hybrid = config_sharding[s].hybrid;
        if ((only >= 0 && s != only) || (hybrid && (of_node < 1 || of_node * c.context < 2 ||
                                                    of_node >= data_ranks || data_ranks % of_node)))
            continue;
        c.strategy = s;
        c.shard = hybrid ? of_node : 0;
        add_micros(list, request, c);
    }
}

static void add_schedules(struct search_candidates *list, const struct search_request *request,
                          struct search_candidate c)
{
    for (c.schedule = 0; c.schedule < (c.pipeline > 1 ? SCHEDULES : 1); c.schedule++) {
        c.row = schedule_row(schedules[c.schedule].name);
        struct schedule_facts facts = schedule_facts(c.row);
        int most = facts.chunks_most ? facts.chunks_most : CHUNKS_MOST;
        for (c.chunks = facts.chunks; c.chunks <= most; c.chunks *= 2)
            for (c.recompute = RECOMPUTE_NONE; c.recompute <= RECOMPUTE_FULL; c.recompute++)
                if (c.recompute != RECOMPUTE_GATHERED || c.tensor > 1 || c.context > 1)
                    add_strategies(list, request, c);
    }
}

static void list_degrees(struct search_candidates *list, const struct search_request *request,
                         const char *offload)
{
    int ranks = request->ranks, per_node = machine_ranks_per_node(ranks, request->nodes);
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

/* Does the configuration allow it?  Of candidates that differ in micro-batch alone the first is
 * asked. */
static int is_allowed(const struct search_candidate *c, const struct search_candidate *before,
                      int was_allowed, const struct config *base)
{
    struct config config;
    if (before && is_family(c, before) && c->strategy == before->strategy)
        return was_allowed;
    return !search_candidate_config(c, base, &config);
}

int search_candidates_make(struct search_candidates *list, const struct search_request *request,
                           const char *offload, struct error *err)
{
    struct search_candidate before;
    int kept = 0, allowed = 0;
    *list = (struct search_candidates){0};
    list_degrees(list, request, offload);
    for (int i = 0; i < list->count; i++) {
        struct search_candidate *c = &list->item[kept], one = list->item[i];
        allowed = is_allowed(&one, i ? &before : NULL, allowed, request->config);
        before = *c = one;
        c->family = kept && is_family(c, c - 1) ? c[-1].family : kept;
        kept += allowed;
    }
    list->count = kept;
    if (kept)
        return 0;
    search_candidates_free(list);
    return error_set(err, "the configuration allows no layout of %d ranks", request->ranks);
}

void search_candidates_free(struct search_candidates *list)
{
    free(list->item);
    *list = (struct search_candidates){0};
}
