/* fit.c - the search for the nearest configuration that fits; see fit.h.
 *
 * Every axis has levels, each of which as a rule takes no more memory than those before it.  The
 * axes are settled from the costliest to the cheapest: an axis gets the lowest level that fits when
 * all cheaper axes are at their last level.  That takes a few plans per axis instead of one per
 * combination.
 *
 * Recomputation costs time in any case, smaller micro-batches on some machines hardly any: where
 * the machine's speeds are known, each level of recomputation is tried with the largest micro-batch
 * that fits with it, and the fastest of these counts (refine()).
 *
 * A step of one micro-batch, whose gradients take the place of activations (layout_grads_pass()),
 * may need less than one of several.  So the axes are settled twice: with smaller and smaller
 * micro-batches, and with all sequences of a rank at once.  The cheaper result is the nearest.
 */
#include "plan/fit.h"

#include <string.h>

#include "base/round.h"
#include "config/schema.h"
#include "plan/show.h"

enum axis { COPY, SCHEDULE, STRATEGY, RECOMPUTE, MICRO_BATCH, SHARDS, OFFLOAD, RANKS, AXES };

struct fit_search {
    const struct config *config;
    const struct memory_limits *limits;
    int ranks, nodes, threads;
    const struct machine *speeds; /* NULL: no times are forecast */
    int is_timed;                 /* 1: times are wanted of what is tried */
    int only_here;                /* 1: neither more ranks nor offload */
    int at_once;          /* 1: a step has one micro-batch, which is level 1 of MICRO_BATCH where it
                             has several as it is */
    struct layout layout; /* of the configuration as it is */
    int levels[AXES];
    int offload[SETTINGS_LEVELS]; /* of levels from 1 on, the level of settings.h */
};

struct candidate {
    struct settings as; /* the configuration, and how it differs from the request's */
    int ranks, nodes;
};

/* The strategy that is `stages` stages of sharding after the configuration's. */
static enum config_strategy further(const struct config *config, int stages)
{
    struct config_sharding own = config_sharding[config->parallel.strategy];
    enum config_strategy s = 0;
    while (config_sharding[s].hybrid != own.hybrid ||
           config_sharding[s].stage != own.stage + stages)
        s++;
    return s;
}

static int change_strategy(const struct fit_search *s, struct candidate *c, int level)
{
    char name[CONFIG_TEXT];
    enum config_strategy strategy = further(s->config, level);
    if (settings_strategy(&c->as.config, strategy, NULL))
        return -1;
    return settings_add(&c->as, "parallel.strategy", "%s", settings_strategy_name(strategy, name));
}

static int64_t halved(int64_t batch, int times)
{
    for (; times > 0; times--)
        batch = (batch + 1) / 2;
    return batch;
}

/* The level-th divisor of the data ranks above the configuration's shards; 0 when there is none. */
static int shards_at(const struct fit_search *s, int level)
{
    for (int n = s->layout.shape.degree[MESH_SHARD] + 1; n <= s->layout.data_ranks; n++)
        if (s->layout.data_ranks % n == 0 && !--level)
            return n;
    return 0;
}

/* Keep on the device what the configuration keeps on disk, unless a level of OFFLOAD has moved it
 * already. */
static int leave_disk(struct candidate *c)
{
    for (enum settings_part part = 0; part < SETTINGS_PARTS; part++)
        if (settings_keeps(&c->as.config, part) == OFFLOAD_DISK &&
            settings_move(&c->as, part, OFFLOAD_NONE))
            return -1;
    return c->as.config.offload.path[0] ? settings_add(&c->as, "offload.path", "%s", "") : 0;
}

/* Move the candidate to a level above 0 of an axis.  0, or -1 where keys do not go together. */
static int change(const struct fit_search *s, struct candidate *c, enum axis axis, int level)
{
    static const char *const recompute[] = {"none", "gathered", "selective", "full"};
    switch (axis) {
    case COPY: return settings_add(&c->as, "checkpoint.async", "false");
    case SCHEDULE: return settings_add(&c->as, "parallel.schedule", "1f1b");
    case STRATEGY: return change_strategy(s, c, level);
    case RECOMPUTE:
        return settings_add(&c->as, "recompute", "%s", recompute[s->config->recompute + level]);
    case MICRO_BATCH:
        if (s->at_once)
            return settings_add(&c->as, "train.micro_batch", "0");
        return settings_add(&c->as, "train.micro_batch", "%lld",
                            (long long)halved(s->layout.micro_batch, level));
    case SHARDS:
        if (c->as.config.parallel.replicate && settings_add(&c->as, "parallel.replicate", "0"))
            return -1;
        return settings_add(&c->as, "parallel.shard", "%d", shards_at(s, level));
    case OFFLOAD: return settings_move_to_level(&c->as, s->offload[level]);
    case RANKS:
        c->ranks = s->ranks << level;
        c->nodes = s->nodes << level;
        return 0;
    case AXES: break;
    }
    return -1;
}

/* Make the candidate with every axis at its level.  0, or -1 where keys do not go together. */
static int candidate_at(const struct fit_search *s, const int level[AXES], struct candidate *c)
{
    *c = (struct candidate){.as.config = *s->config, .ranks = s->ranks, .nodes = s->nodes};
    for (int axis = 0; axis < AXES; axis++)
        if (level[axis] && change(s, c, axis, level[axis]))
            return -1;
    if (s->limits->no_disk && leave_disk(c))
        return -1;
    return config_finish(&c->as.config, NULL);
}

static int fits(const struct fit_search *s, const int level[AXES], struct fit *fit)
{
    struct candidate c;
    struct report report;
    if (candidate_at(s, level, &c))
        return 0;
    struct report_request request = {
        .config = &c.as.config, .ranks = c.ranks, .nodes = c.nodes, .threads = s->threads};
    if (s->is_timed)
        request.speeds = s->speeds;
    if (report_measure(&report, &request, NULL))
        return 0;
    struct memory_limits lack = report_lack(&report, s->limits);
    fit->tokens_per_s = report_tokens_per_s(&report);
    fit->ranks = c.ranks;
    fit->nodes = c.nodes;
    fit->takes = report_most(&report);
    memcpy(fit->settings, c.as.text, sizeof fit->settings);
    report_free(&report);
    return !lack.device_bytes && !lack.host_bytes;
}

/* Does a level of offload move state farther from the device, and none closer to it?  What is on a
 * disk that cannot be used counts as on the device. */
static int moves_away(const struct fit_search *s, int level)
{
    int more = 0;
    for (enum settings_part part = 0; part < SETTINGS_PARTS; part++) {
        enum config_offload_to from = settings_keeps(s->config, part);
        enum config_offload_to to = settings_level_keeps(level, part);
        if (from == OFFLOAD_DISK && s->limits->no_disk)
            from = OFFLOAD_NONE;
        if (to < from || (to == OFFLOAD_DISK && s->limits->no_disk))
            return 0;
        more |= to > from;
    }
    return more;
}

/* Does a level of offload go with this configuration? */
static int offloads_to(const struct fit_search *s, int level)
{
    struct report report;
    struct candidate c = {.as.config = *s->config};
    struct report_request request = {
        .config = &c.as.config, .ranks = s->ranks, .nodes = s->nodes, .threads = s->threads};
    if (settings_strategy(&c.as.config, STRATEGY_FULL_SHARD, NULL) ||
        settings_move_to_level(&c.as, level) || (s->limits->no_disk && leave_disk(&c)) ||
        config_finish(&c.as.config, NULL) || report_measure(&report, &request, NULL))
        return 0;
    report_free(&report);
    return 1;
}

static int offload_levels(struct fit_search *s)
{
    int levels = 1;
    for (int level = 1; level < SETTINGS_LEVELS; level++)
        if (moves_away(s, level) && offloads_to(s, level))
            s->offload[levels++] = level;
    return levels;
}

/* May a step have as many micro-batches as it has on this level? */
static int are_micros_allowed(const struct fit_search *s, int level)
{
    int64_t sequences = ceil_div(s->layout.global_batch, s->layout.data_ranks);
    return ceil_div(sequences, halved(s->layout.micro_batch, level)) <= LAYOUT_MOST_MICROS;
}

static void find_levels(struct fit_search *s)
{
    struct config_sharding own = config_sharding[s->config->parallel.strategy];
    for (int axis = 0; axis < AXES; axis++)
        s->levels[axis] = 1;
    s->levels[COPY] += s->config->checkpoint.async;
    const char *schedule = s->config->parallel.schedule;
    s->levels[SCHEDULE] += !strcmp(schedule, "gpipe") || !strcmp(schedule, "zb_h1");
    s->levels[STRATEGY] = STAGE_MOST - own.stage + 1;
    s->levels[RECOMPUTE] = RECOMPUTE_FULL - (int)s->config->recompute + 1;
    if (s->at_once)
        s->levels[MICRO_BATCH] += s->layout.micros > 1;
    while (!s->at_once &&
           s->config->train.grad_dtype == DTYPE_F32 && /* those in bf16 are of one micro-batch */
           halved(s->layout.micro_batch, s->levels[MICRO_BATCH] - 1) > 1 &&
           are_micros_allowed(s, s->levels[MICRO_BATCH]))
        s->levels[MICRO_BATCH]++;
    if (own.hybrid)
        while (shards_at(s, s->levels[SHARDS]))
            s->levels[SHARDS]++;
    if (s->only_here)
        return;
    s->levels[OFFLOAD] = offload_levels(s);
    while (s->ranks << s->levels[RANKS] <= FIT_RANKS_MOST)
        s->levels[RANKS]++;
}

/* The level of an axis that is tried first: at_once has only one of MICRO_BATCH. */
static int first_level(const struct fit_search *s, enum axis axis)
{
    return s->at_once && axis == MICRO_BATCH ? s->levels[axis] - 1 : 0;
}

/* Make fit the fastest of what fits with other levels of recomputation and of the micro-batch than
 * those found, which become the levels. */
static void refine(struct fit_search *s, int level[AXES], struct fit *fit)
{
    struct fit best = {0}, other;
    int trial[AXES];
    memcpy(trial, level, sizeof trial);
    int is_as_asked = !level[RECOMPUTE] && level[MICRO_BATCH] == first_level(s, MICRO_BATCH);
    s->is_timed = 1;
    for (int r = 0; r < (is_as_asked ? 1 : s->levels[RECOMPUTE]); r++) {
        trial[RECOMPUTE] = r;
        for (int m = first_level(s, MICRO_BATCH); m < s->levels[MICRO_BATCH]; m++) {
            trial[MICRO_BATCH] = m;
            if (!fits(s, trial, &other))
                continue;
            if (other.tokens_per_s > best.tokens_per_s) {
                best = other;
                memcpy(level, trial, sizeof trial);
            }
            break;
        }
    }
    s->is_timed = 0;
    best.found = best.tokens_per_s > 0;
    *fit = best.found ? best : *fit;
}

/* Settle the axes, with level[] as the result. */
static void settle(struct fit_search *s, int level[AXES], struct fit *fit)
{
    find_levels(s);
    for (int axis = 0; axis < AXES; axis++)
        level[axis] = s->levels[axis] - 1;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        for (level[axis] = first_level(s, axis); level[axis] < s->levels[axis]; level[axis]++)
            if ((fit->found = fits(s, level, fit)))
                break;
        if (!fit->found)
            return;
    }
    if (s->speeds)
        refine(s, level, fit);
}

/* Are levels a cheaper than b? */
static int is_cheaper(const int a[AXES], const int b[AXES])
{
    for (int axis = AXES - 1; axis >= 0; axis--)
        if (a[axis] != b[axis])
            return a[axis] < b[axis];
    return 0;
}

/* Is fit a, of levels, nearer than b?  Of the same ranks, offloads and shards the faster one is,
 * where times are known. */
static int is_nearer(const struct fit *a, const int level_a[AXES], const struct fit *b,
                     const int level_b[AXES])
{
    int is_as_costly = a->tokens_per_s > 0 && b->tokens_per_s > 0;
    for (int axis = SHARDS; axis < AXES; axis++)
        is_as_costly &= level_a[axis] == level_b[axis];
    return is_as_costly ? a->tokens_per_s > b->tokens_per_s : is_cheaper(level_a, level_b);
}

/* May a step of one micro-batch need less than one of several, and has that not been tried yet?
 * level: what settle() has found. */
static int tries_at_once(const struct fit_search *s, const int level[AXES], const struct fit *fit)
{
    struct layout one = s->layout;
    one.micros = 1;
    int is_as_it_was = fit->found; /* from the micro-batch on */
    for (int axis = MICRO_BATCH; axis < AXES; axis++)
        is_as_it_was &= !level[axis];
    int is_tried = s->layout.micros == 1 && (s->levels[MICRO_BATCH] == 1 || is_as_it_was);
    return layout_grads_pass(&one) && !is_tried;
}

static void find(struct fit_search *s, struct fit *fit)
{
    int level[AXES], at_once[AXES];
    *fit = (struct fit){.node_is_taken = s->limits->host_bytes == REPORT_NODE_TAKEN};
    if (fit->node_is_taken)
        return;
    enum device_kind device = s->config->device == CONFIG_DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU;
    if (layout_resolve(&s->layout, s->config, s->ranks,
                       s->ranks % s->nodes ? 0 : s->ranks / s->nodes, device, NULL))
        return;
    settle(s, level, fit);
    if (tries_at_once(s, level, fit)) {
        struct fit other = {0};
        s->at_once = 1;
        settle(s, at_once, &other);
        at_once[MICRO_BATCH] = 0; /* larger micro-batches cost no time */
        if (other.found && (!fit->found || is_nearer(&other, at_once, fit, level)))
            *fit = other;
    }
    layout_release(&s->layout);
}

void fit_find(struct fit *fit, const struct config *config, int ranks, int nodes, int threads,
              const struct memory_limits *limits, const struct machine *speeds)
{
    find(&(struct fit_search){.config = config,
                              .limits = limits,
                              .ranks = ranks,
                              .nodes = nodes,
                              .threads = threads,
                              .speeds = speeds},
         fit);
}

void fit_find_here(struct fit *fit, const struct config *config, int ranks, int nodes, int threads,
                   const struct memory_limits *limits)
{
    find(&(struct fit_search){.config = config,
                              .limits = limits,
                              .ranks = ranks,
                              .nodes = nodes,
                              .threads = threads,
                              .only_here = 1},
         fit);
}

const char *fit_text(const struct fit *fit, int ranks, char *text, size_t size)
{
    char device[32], host[32], more[64] = "", speed[48] = "";
    if (fit->node_is_taken) {
        snprintf(text, size,
                 "fewer ranks on a node, or larger micro-batches, leave memory of it "
                 "for training");
        return text;
    }
    if (!fit->found) {
        snprintf(text, size, "nothing fits on up to %d ranks", FIT_RANKS_MOST);
        return text;
    }
    if (fit->ranks != ranks)
        snprintf(more, sizeof more, "%d ranks on %d node%s%s", fit->ranks, fit->nodes,
                 fit->nodes > 1 ? "s" : "", fit->settings[0] ? " with " : "");
    if (fit->tokens_per_s > 0)
        snprintf(speed, sizeof speed, "; %.0f tokens/s by forecast", fit->tokens_per_s);
    show_bytes((double)fit->takes.device_bytes, device, sizeof device);
    show_bytes((double)fit->takes.host_bytes, host, sizeof host);
    snprintf(text, size, "nearest that fits: %s%s (a rank takes %s%s%s%s%s%s)", more, fit->settings,
             fit->takes.device_bytes ? device : "", fit->takes.device_bytes ? " of its GPU" : "",
             fit->takes.device_bytes ? " and " : "", fit->takes.host_bytes ? host : "",
             fit->takes.host_bytes ? " of the node" : "", speed);
    return text;
}
