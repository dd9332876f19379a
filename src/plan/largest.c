/* largest.c - see largest.h.
 *
 * Memory grows nearly in proportion to the sequences.  So the next to try is where the line through
 * the last two that were planned meets the limit, between the largest known to fit and the smallest
 * known not to; and, every third time, half way between, which ends in any case.
 *
 * With one micro-batch a step, which is of all sequences that a rank has of it, gradients take the
 * place of activations (layout_grads_pass()): so many sequences may fit where fewer do not.  These
 * are searched first, and fewer if none of them fits.
 *
 * A list is as long as a step has micro-batches, but memory grows with the first few alone: with
 * most schedules a rank has at most twice as many at work as there are pipeline ranks.  So a search
 * plans steps of so few, and then what it found with all of them; if that does not fit, it begins
 * again with all.
 */
#include "plan/largest.h"

#include <math.h>
#include <stdio.h>

#include "base/round.h"

struct largest_search {
    const struct config *config;
    int ranks, nodes, threads, evaluates;
    const struct memory_limits *limits;
    int beside_one; /* 1: evaluation is beside training in micro-batches of one sequence */
    int few;        /* 1: of the micro-batches of a step only the first few are planned */
};

struct point {
    int64_t sequences;
    double share;   /* of the limit that is nearest; above 1, or where there is no plan: they do not
                       fit */
    int is_partial; /* 1: not all micro-batches of a step were planned */
};

/* The configuration with so many sequences at a time.  Gradients in bf16 are those of one
 * micro-batch a step. */
static struct config with(const struct largest_search *s, int64_t sequences)
{
    struct config config = *s->config;
    int is_one = config.train.grad_dtype != DTYPE_F32;
    if (is_one && !s->evaluates) {
        config.train.global_batch = sequences;
        config.train.split_batches = 0;
    }
    if (!s->evaluates)
        config.train.micro_batch = sequences;
    else if (!is_one && s->beside_one)
        config.train.micro_batch = 1;
    config.train.eval_micro_batch = s->evaluates ? sequences : 0;
    if (s->evaluates && !config.data.valid[0])
        snprintf(config.data.valid, sizeof config.data.valid, "valid.h5"); /* it is not opened */
    return config;
}

/* Resolve the layout of a configuration.  0, or -1: there is none. */
static int resolve(const struct largest_search *s, const struct config *config,
                   struct layout *layout)
{
    int per_node = s->ranks % s->nodes ? 0 : s->ranks / s->nodes;
    enum device_kind device = config->device == CONFIG_DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU;
    return layout_resolve(layout, config, s->ranks, per_node, device, NULL);
}

/* Set the global batch of a configuration of so many sequences at a time: in training one
 * micro-batch of each data rank at least.  0, or -1: there is no such layout. */
static int set_batch(const struct largest_search *s, struct point *point, struct config *config)
{
    struct layout layout;
    struct config_train *t = &config->train;
    if (resolve(s, config, &layout))
        return -1;
    int64_t sharing = t->split_batches ? layout.data_ranks : 1;
    int64_t few = 2 * layout.shape.degree[MESH_PIPELINE];
    point->is_partial = s->few && layout.micros > few;
    if (point->is_partial)
        t->global_batch = few * layout.micro_batch * sharing;
    else if (!s->evaluates)
        t->global_batch = max_i64(t->global_batch, point->sequences * sharing);
    layout_release(&layout);
    return 0;
}

/* Plan so many sequences at a time. */
static struct point plan(const struct largest_search *s, int64_t sequences)
{
    struct config config = with(s, sequences);
    struct point point = {.sequences = sequences, .share = INFINITY};
    struct report report;
    struct report_request request = {
        .config = &config, .ranks = s->ranks, .nodes = s->nodes, .threads = s->threads};
    if (set_batch(s, &point, &config) || report_measure(&report, &request, NULL))
        return point;
    struct memory_limits most = report_most(&report), limit = *s->limits;
    report_free(&report);
    double device = limit.device_bytes ? (double)most.device_bytes / (double)limit.device_bytes : 0;
    double host = limit.host_bytes ? (double)most.host_bytes / (double)limit.host_bytes : 0;
    point.share = fmax(device, host);
    return point;
}

/* The sequences, in whole ones, at which the line through two points of finite shares meets 1. */
static int64_t meets_limit(const struct point *a, const struct point *b)
{
    double slope = (b->share - a->share) / (double)(b->sequences - a->sequences);
    double at = slope > 0 ? (double)a->sequences + (1 - a->share) / slope : LARGEST_MOST;
    return at < 1 ? 1 : at > LARGEST_MOST ? LARGEST_MOST : (int64_t)at;
}

/* The most sequences that fit, of `first` to `end`; none: the point before. */
static struct point search(const struct largest_search *s, int64_t first, int64_t end)
{
    struct point most = {.sequences = first - 1}, last[2] = {0};
    int64_t too_many = end + 1, next = first;
    for (int plans = 1; too_many - most.sequences > 1; plans++) {
        last[0] = last[1];
        last[1] = plan(s, next);
        if (last[1].share <= 1)
            most = last[1];
        else
            too_many = next;
        int is_line = isfinite(last[0].share) && isfinite(last[1].share) && plans % 3;
        next = plans == 1 ? first + 1
               : is_line  ? meets_limit(&last[0], &last[1])
                          : (most.sequences + too_many) / 2;
        next = next <= most.sequences ? most.sequences + 1 : next >= too_many ? too_many - 1 : next;
    }
    return most;
}

/* Return the sequences that a data rank has of the configuration's global batch; 1 where gradients
 * in bf16 let each number of sequences have a batch of its own, or there is no layout. */
static int64_t share_of_batch(const struct largest_search *s)
{
    struct config config = with(s, 1);
    struct layout layout;
    if (s->evaluates || resolve(s, &config, &layout))
        return 1;
    int64_t share = layout.micros * layout.micro_batch;
    layout_release(&layout);
    return share;
}

static int64_t largest(struct largest_search s)
{
    int64_t first = share_of_batch(&s), end = LARGEST_MOST;
    s.few = 1;
    struct point most = search(&s, first, end);
    if (most.sequences < first && first > 1) {
        end = first - 1 < LARGEST_MOST ? first - 1 : LARGEST_MOST;
        first = 1;
        most = search(&s, first, end);
    }
    s.few = 0;
    if (most.is_partial && plan(&s, most.sequences).share > 1)
        most = search(&s, first, end);
    return most.sequences;
}

int64_t largest_training(const struct config *config, int ranks, int nodes, int threads,
                         const struct memory_limits *limits)
{
    return largest((struct largest_search){
        .config = config, .ranks = ranks, .nodes = nodes, .threads = threads, .limits = limits});
}

int64_t largest_evaluation(const struct config *config, int ranks, int nodes, int threads,
                           const struct memory_limits *limits)
{
    struct largest_search s = {.config = config,
                               .ranks = ranks,
                               .nodes = nodes,
                               .threads = threads,
                               .evaluates = 1,
                               .limits = limits};
    int64_t most = largest(s);
    s.beside_one = 1;
    return most ? most : largest(s);
}
