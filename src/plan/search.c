/* search.c - see search.h.
 *
 *   list      all candidates, with their bounds
 *   rounds    the few with the least bounds that are not yet known are planned, at the same time,
 *             by few of their micro-batches; until the next bound is above the best step
 *   end       the best is planned whole, and so is what comes close to it, until the best is one
 *             that was
 *
 * Whatever is planned in a round was chosen before it, so the outcome does not depend on threads.
 */
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "plan/search_bounds.h"
#include "plan/search_plan.h"

enum { ROUND = 16 }; /* planned at the same time */

struct finding {
    const struct search_request *request;
    const struct config *given; /* what a row's settings are to be added to */
    struct search *search;
    struct search_candidates list;
    struct search_candidate **by_bound;        /* the least first, then as they are listed */
    const struct search_candidate **too_large; /* lack a twentieth of the memory or more */
    int too_larges, too_large_capacity;
    struct search_outcome best[SEARCH_ROWS];
    int bests;
};

/* Are a's shards as many as b's, and does its strategy keep as little or less, as a later stage of
 * ZeRO does? */
static int shards_as_much(const struct search_candidate *a, const struct search_candidate *b)
{
    return a->shard == b->shard &&
           config_sharding[a->strategy].stage >= config_sharding[b->strategy].stage;
}

/* Does a, whose micro-batch is not larger than c's, need no more memory for that?  This is not
 * known where c's step has one micro-batch and a's has several: c's gradients take the place of
 * activations (layout_grads_pass()), a's lie beside them. */
static int micro_needs_less(const struct finding *f, const struct search_candidate *a,
                            const struct search_candidate *c)
{
    return c->pipeline > 1 || search_micros(f->request, c) > 1 || search_micros(f->request, a) == 1;
}

/* Was a candidate found to lack memory that needs less than c in every respect? */
static int is_dominated(const struct finding *f, const struct search_candidate *c)
{
    for (int i = 0; i < f->too_larges; i++) {
        const struct search_candidate *o = f->too_large[i];
        if (o->pipeline == c->pipeline && o->tensor == c->tensor && o->context == c->context &&
            o->schedule == c->schedule && o->chunks == c->chunks && shards_as_much(o, c) &&
            o->micro <= c->micro && o->recompute >= c->recompute && micro_needs_less(f, o, c))
            return 1;
    }
    return 0;
}

static int is_before(const struct search_outcome *a, const struct search_outcome *b)
{
    return a->step_s != b->step_s ? a->step_s < b->step_s : a->candidate < b->candidate;
}

static void keep(struct finding *f, const struct search_outcome *outcome)
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

static void drop(struct finding *f, int at)
{
    f->bests--;
    memmove(&f->best[at], &f->best[at + 1], (size_t)(f->bests - at) * sizeof f->best[0]);
}

/* The GPU's bytes, or, where ranks compute on CPUs, those of the node's memory. */
static double bytes_of(const struct memory_limits *memory)
{
    return (double)(memory->device_bytes ? memory->device_bytes : memory->host_bytes);
}

/* Does the lower bound of a candidate's memory exceed the limit? */
static int needs_too_much(const struct finding *f, const struct search_candidate *c)
{
    double limit = bytes_of(f->request->limits);
    return limit > 0 && c->least_bytes > limit;
}

/* ---- rounds ---- */

static double best_s(const struct finding *f)
{
    return f->bests ? f->best[0].step_s : INFINITY;
}

static void take_in(struct finding *f, const struct search_outcome *o)
{
    f->search->planned += o->fate != SEARCH_REFUSED;
    f->search->too_large += o->fate == SEARCH_TOO_LARGE;
    f->search->below_bound += o->fate == SEARCH_FITS && (o->step_s < o->candidate->least_s ||
                                                         needs_too_much(f, o->candidate));
    if (o->fate == SEARCH_FITS)
        keep(f, o);
    if (o->fate != SEARCH_TOO_LARGE || !o->is_far)
        return;
    f->too_large = array_grow(f->too_large, f->too_larges, &f->too_large_capacity,
                              sizeof(struct search_candidate *));
    f->too_large[f->too_larges++] = o->candidate;
}

/* A candidate that is planned next. */
struct choice {
    struct search_candidate *candidate;
    enum search_extent extent;
};

static void plan_round(struct finding *f, const struct choice *choice, int count)
{
    struct search_outcome outcome[ROUND];
    double most_s = best_s(f);
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < count; i++)
        search_plan(&outcome[i], choice[i].candidate, f->request, choice[i].extent, most_s);
    for (int i = 0; i < count; i++)
        take_in(f, &outcome[i]);
}

/* The candidate of c's family that needs least memory among those that differ from c in strategy
 * and micro-batch alone: where it is too large, so is c. */
static struct search_candidate *least_of_family(struct finding *f, struct search_candidate *c)
{
    struct search_candidate *least = c;
    for (int i = c->family; i < f->list.count && f->list.item[i].family == c->family; i++) {
        struct search_candidate *o = &f->list.item[i];
        if (shards_as_much(o, least) && o->micro <= least->micro && micro_needs_less(f, o, c))
            least = o;
    }
    return least;
}

static int is_chosen(const struct choice *choice, int count, const struct search_candidate *c)
{
    for (int i = 0; i < count; i++)
        if (choice[i].candidate == c)
            return 1;
    return 0;
}

/* Choose up to ROUND candidates to plan next, in the order of their bounds, from *from on, which
 * moves past those that are done.  Before the first candidate of a family, the member that needs
 * least memory is planned for its memory alone; the others of the family wait for the next round,
 * when that is known.  Returns how many; 0: the next bound is above the best step, and the search
 * is over. */
static int choose(struct finding *f, int *from, struct choice *choice)
{
    int count = 0;
    while (*from < f->list.count && f->by_bound[*from]->is_planned)
        ++*from;
    for (int i = *from; i < f->list.count && count < ROUND; i++) {
        struct search_candidate *c = f->by_bound[i];
        if (c->least_s > best_s(f))
            break;
        if (c->is_planned)
            continue;
        c->is_planned = needs_too_much(f, c) || is_dominated(f, c);
        if (c->is_planned)
            continue;
        struct search_candidate *least = least_of_family(f, c);
        if (!least->is_probed)
            choice[count++] = (struct choice){.candidate = least, .extent = SEARCH_MEMORY};
        else if (!is_chosen(choice, count, least))
            choice[count++] = (struct choice){.candidate = c, .extent = SEARCH_FEW};
        else
            continue; /* the outcome of least is not known yet */
        least->is_probed = 1;
        c->is_planned = choice[count - 1].candidate == c && choice[count - 1].extent == SEARCH_FEW;
    }
    return count;
}

/* For an exhaustive search: choose the next ROUND candidates, to be planned whole. */
static int choose_any(struct finding *f, int *from, struct choice *choice)
{
    int count = 0;
    for (; *from < f->list.count && count < ROUND; ++*from)
        choice[count++] = (struct choice){.candidate = f->by_bound[*from], .extent = SEARCH_WHOLE};
    return count;
}

static int by_bound(const void *left, const void *right)
{
    const struct search_candidate *a = *(const struct search_candidate *const *)left;
    const struct search_candidate *b = *(const struct search_candidate *const *)right;
    if (a->least_s != b->least_s)
        return a->least_s < b->least_s ? -1 : 1;
    return (a > b) - (a < b);
}

static void sort_by_bound(struct finding *f)
{
    size_t count = (size_t)f->list.count;
    free(f->by_bound);
    f->by_bound = array_make(count, sizeof(struct search_candidate *));
    for (size_t i = 0; i < count; i++)
        f->by_bound[i] = &f->list.item[i];
    qsort(f->by_bound, count, sizeof(struct search_candidate *), by_bound);
}

/* ---- the end ---- */

/* Plan the best candidates whole, with all of their micro-batches, until the best one was planned
 * so. */
static void plan_best_whole(struct finding *f)
{
    static const double CLOSE = 1.002; /* forecasts by few micro-batches are off by less */
    int is_whole = 0;
    while (f->bests && !is_whole) {
        struct search_outcome whole[SEARCH_ROWS];
        int close = 0;
        while (close < f->bests && f->best[close].step_s <= CLOSE * best_s(f))
            close++;
#pragma omp parallel for schedule(dynamic)
        for (int i = 0; i < close; i++) {
            whole[i] = f->best[i];
            if (!whole[i].is_whole)
                search_plan(&whole[i], whole[i].candidate, f->request, SEARCH_WHOLE, INFINITY);
        }
        for (int i = close - 1; i >= 0; i--)
            drop(f, i);
        for (int i = 0; i < close; i++)
            if (whole[i].fate == SEARCH_FITS)
                keep(f, &whole[i]);
        is_whole = f->bests && f->best[0].is_whole;
    }
}

static int search_with(struct finding *f, const char *offload, struct error *err)
{
    int (*next)(struct finding *, int *, struct choice *) =
        f->request->exhaustive ? choose_any : choose;
    struct choice choice[ROUND];
    int from = 0, count;
    if (search_candidates_make(&f->list, f->request, offload, err))
        return -1;
    search_bounds_set(&f->list, f->request);
    sort_by_bound(f);
    f->search->candidates = f->list.count;
    f->search->planned = f->search->too_large = 0;
    while ((count = next(f, &from, choice)))
        plan_round(f, choice, count);
    plan_best_whole(f);
    return 0;
}

/* Say in row->why what takes longer in this outcome than in the best one. */
static void explain(const struct search_outcome *best, const struct search_outcome *outcome,
                    struct search_row *row)
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
        snprintf(row->why, sizeof row->why, "%s%s +%.1f %% of the best step",
                 play_kind_is_wait(most) ? "waits for " : "", play_kind_name(most),
                 100 * longest / best->step_s);
}

/* Set a row's settings: the layout, and what else differs from the given configuration. */
static void set_settings(const struct finding *f, const struct search_candidate *candidate,
                         char settings[SEARCH_SETTINGS])
{
    struct config config;
    search_candidate_text(candidate, settings);
    if (search_candidate_config(candidate, f->request->config, &config))
        return;
    config.parallel.layout = PARALLEL_LAYOUT_GIVEN;
    if (config.train.global_batch == f->given->train.global_batch)
        config.train.global_batch_tokens = f->given->train.global_batch_tokens;
    settings_complete(settings, f->given, &config);
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
        const struct search_outcome *o = &f->best[i];
        struct search_row *row = &f->search->row[i];
        *row = (struct search_row){
            .step_s = o->step_s, .tokens_per_s = o->tokens_per_s, .mfu = o->mfu, .takes = o->takes};
        set_settings(f, o->candidate, row->settings);
        if (i)
            explain(&f->best[0], o, row);
    }
    f->search->rows = f->bests;
    return search_candidate_config(f->best[0].candidate, f->request->config, &f->search->best);
}

int search_find(struct search *search, const struct search_request *request, struct error *err)
{
    static const char *const offloads[] = {
        "", "offload.optimizer=host",
        "offload.optimizer=host offload.params=host offload.gradients=host"};
    struct config config = *request->config;
    struct search_request own = *request;
    struct finding f = {.request = &own,
                        .given = request->given ? request->given : request->config,
                        .search = search};
    int rc = 0;
    own.config = &config;
    config.train.global_batch_tokens = 0; /* bounds and plans are of other batches, too */
    *search = (struct search){0};
    if (!request->config->train.split_batches)
        return error_set(err, "a search compares layouts of the same global batch, and with "
                              "train.split_batches=false that depends on the layout; set "
                              "train.global_batch to the sequences of all ranks together");
    for (size_t i = 0; i < sizeof offloads / sizeof offloads[0] && !rc && !f.bests; i++) {
        search_candidates_free(&f.list);
        f.too_larges = 0;
        if (search_with(&f, offloads[i], i == 0 ? err : NULL) && i == 0)
            rc = -1; /* only without offload must the search itself succeed */
    }
    if (!rc)
        rc = fill(&f, err);
    search->best.train.global_batch_tokens = request->config->train.global_batch_tokens;
    search_candidates_free(&f.list);
    free(f.by_bound);
    free(f.too_large);
    return rc;
}
