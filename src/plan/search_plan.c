/* search_plan.c - see search_plan.h. */
#include "plan/search_plan.h"

#include <string.h>

#include "base/alive.h"

/* Is what lacks a twentieth of the limit or more? */
static int is_far(size_t lack, size_t limit)
{
    return lack > limit / 20;
}

/* Make the configuration with so many micro-batches a step.  0, or -1: it is not allowed. */
static int with_micros(const struct search_candidate *c, const struct search_request *request,
                       int64_t micros, struct config *config)
{
    struct config base = *request->config;
    if (micros < search_micros(request, c))
        base.train.global_batch = micros * c->micro * search_data_ranks(request, c);
    return search_candidate_config(c, &base, config);
}

/* Do the ranks of a report need more than the limits?  If so, the outcome says that and by how
 * much. */
static int is_too_large(struct search_outcome *o, const struct report *report,
                        const struct memory_limits *limits)
{
    struct memory_limits lack = report_lack(report, limits);
    if (!lack.device_bytes && !lack.host_bytes)
        return 0;
    o->fate = SEARCH_TOO_LARGE;
    o->is_far = is_far(lack.device_bytes, limits->device_bytes) ||
                is_far(lack.host_bytes, limits->host_bytes);
    return 1;
}

/* Are the first ranks or the last of a long pipeline too large?  They need most, or nearly, and are
 * planned in less time than all. */
static int ends_are_too_large(struct search_outcome *o, const struct search_request *request,
                              int64_t micros)
{
    struct config config;
    struct report report;
    struct report_request wanted = {.config = &config,
                                    .ranks = request->ranks,
                                    .nodes = request->nodes,
                                    .threads = request->threads};
    if (with_micros(o->candidate, request, micros, &config) || report_probe(&report, &wanted, NULL))
        return 0;
    int too_large = is_too_large(o, &report, request->limits);
    report_free(&report);
    return too_large;
}

/* Plan so many micro-batches of a step; 0, or -1 where there is no such plan. */
static int plan_micros(struct search_outcome *o, const struct search_request *request,
                       int64_t micros)
{
    struct config config;
    struct report report;
    o->fate = SEARCH_REFUSED;
    struct report_request wanted = {.config = &config,
                                    .ranks = request->ranks,
                                    .nodes = request->nodes,
                                    .threads = request->threads,
                                    .speeds = request->machine};
    if (with_micros(o->candidate, request, micros, &config) ||
        report_measure(&report, &wanted, NULL))
        return -1;
    o->takes = report_most(&report);
    if (!is_too_large(o, &report, request->limits) && report.forecast.ranks) {
        const struct play_rank *busiest = forecast_busiest(&report.forecast);
        memcpy(o->seconds, busiest->seconds, sizeof o->seconds);
        o->fate = SEARCH_FITS;
        o->step_s = report.forecast.step_s;
        o->tokens_per_s = report_tokens_per_s(&report);
        o->mfu = report_mfu(&report, 0);
    }
    report_free(&report);
    return o->fate == SEARCH_FITS ? 0 : -1;
}

/* Make of the outcome of a plan of `planned` micro-batches, and of that of a period fewer, the one
 * of all. */
static void extrapolate(struct search_outcome *o, const struct search_outcome *fewer,
                        double planned, double period, double micros)
{
    double periods = (micros - planned) / period;
    double step_s = o->step_s + periods * (o->step_s - fewer->step_s);
    double growth = micros / planned * o->step_s / step_s; /* of tokens by time */
    for (int kind = 0; kind < PLAY_KINDS; kind++)
        o->seconds[kind] += periods * (o->seconds[kind] - fewer->seconds[kind]);
    o->step_s = step_s;
    o->tokens_per_s *= growth;
    o->mfu *= growth;
}

/* The number of micro-batches from which on the order of work repeats and no rank's memory grows: a
 * rank has at most as many in work as there are ranks, with several stages twice as many. */
static int64_t warm_up(const struct search_candidate *c)
{
    enum { MORE = 8 };
    return c->pipeline + (c->chunks == 1 && c->pipeline > MORE ? MORE : c->pipeline);
}

/* The number of micro-batches that are planned first, from which the step of all is extrapolated;
 * all of them, where the order of work does not repeat or a plan of all is hardly longer. */
static int64_t few_micros(const struct search_candidate *c, int64_t micros, int64_t period)
{
    if (!period)
        return micros;
    int64_t few = warm_up(c);
    few += (micros - few) % period;
    return micros <= few + 2 * period ? micros : few;
}

/* Extrapolate a step of `micros` micro-batches from plans of `few` and of a period more; the second
 * is not made where the first shows that the step takes longer than most_s.  Returns 0, or -1 where
 * there is no plan of `few`, or it does not fit: the outcome says which. */
static int plan_from_few(struct search_outcome *o, const struct search_request *request,
                         int64_t micros, int64_t few, int64_t period, double most_s)
{
    if (plan_micros(o, request, few))
        return -1;
    struct search_outcome fewer = *o;
    o->fate = SEARCH_SLOW;
    if (fewer.step_s + (double)(micros - few) * o->candidate->micro_s <= most_s &&
        !plan_micros(o, request, few + period))
        extrapolate(o, &fewer, (double)(few + period), (double)period, (double)micros);
    return 0;
}

void search_plan(struct search_outcome *outcome, const struct search_candidate *candidate,
                 const struct search_request *request, enum search_extent extent, double most_s)
{
    /* From LONG pipeline ranks on, looking at the ends first pays; a plan of more than MANY
     * micro-batches, of all ranks together, takes longer than a search should. */
    enum { LONG = 4, MANY = 1 << 14 };
    int64_t micros = search_micros(request, candidate), period = search_period(candidate, micros);
    int64_t few = few_micros(candidate, micros, period);
    int probes = extent == SEARCH_MEMORY || (extent == SEARCH_FEW && candidate->pipeline >= LONG);
    *outcome = (struct search_outcome){.candidate = candidate, .fate = SEARCH_SLOW};
    alive_note(); /* a search takes minutes, in which the other ranks of a start wait */
    if ((probes && ends_are_too_large(outcome, request, few)) || extent == SEARCH_MEMORY)
        return;
    outcome->is_whole = 1;
    if (few == micros || (extent == SEARCH_WHOLE && micros * candidate->pipeline <= MANY))
        plan_micros(outcome, request, micros);
    else if (!plan_from_few(outcome, request, micros, few, period, most_s))
        outcome->is_whole = extent == SEARCH_WHOLE;
}
