/* deviation.c - see deviation.h.
 *
 * Each kind of cause is looked for by itself and says how many seconds of a step it costs, its
 * excess.  The one that costs most is the likely cause, but a slow rank comes first while it costs
 * half of that: on processors what it sends is slow as well.
 */
#include "train/deviation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/median.h"

/* A step, or what a rank computes, may differ by so much: forecasts are within a tenth of most
 * steps (doc/forecasts.md), and steps of one rank within a few percent of one another. */
static const double tolerance = 1.2;

/* Different ranks of a pipeline have different work, which is not known as well. */
static const double tolerance_of_pipeline = 1.5;

/* Transfers share links and processors with what is beside them, which forecasts know less well;
 * without a forecast, groups are only compared with one another. */
static const double tolerance_of_transfers = 1.5, tolerance_of_groups = 2;

/* What costs a smaller share of the step is not worth a line where nothing else is off. */
static const double significant = 0.1;

/* A cause explains so much of the time that a step is longer than its forecast, or it is none. */
static const double explains = 0.25;

/* A slow rank is named before what costs at most as many times as much. */
static const double rank_first = 2;

/* A rank waits so many times as long for cores as the others before that is its own. */
static const double queue_of_one = 1.5;

enum { GROUPS = 3 }; /* so many are compared where there is no forecast */

static const struct deviation nothing = {.rank = -1, .node = -1, .link = -1};

/* Medians in this file are the lower ones: of two ranks one may be slow. */

static double mean_wait_s(const struct deviation_facts *facts)
{
    double sum = 0;
    for (int r = 0; r < facts->ranks; r++)
        sum += facts->rank[r].wait_s;
    return facts->ranks ? sum / facts->ranks : 0;
}

/* ---- ranks against one another ---- */

/* What a rank's segments take if it is as fast as the others: the time of those of its pipeline
 * rank, or where it is alone there, its share of the work. */
struct expected {
    double *run_s;
    double tolerance;
};

static int pipeline_ranks_of(const struct deviation_facts *facts)
{
    int count = 1;
    for (int r = 0; r < facts->ranks; r++)
        count = facts->rank[r].pipeline_rank < count ? count : facts->rank[r].pipeline_rank + 1;
    return count;
}

static double work_of(const struct deviation_facts *facts, int r)
{
    const struct deviation_rank *rank = &facts->rank[r];
    const struct deviation_forecast *forecast = facts->forecast;
    return forecast && rank->pipeline_rank < forecast->pipeline_ranks
               ? forecast->planned[rank->pipeline_rank].run_s
               : rank->flops;
}

static struct expected expect_by_pipeline_rank(const struct deviation_facts *facts,
                                               int pipeline_ranks)
{
    struct expected e = {array_make((size_t)facts->ranks, sizeof *e.run_s), tolerance};
    double *value = array_make((size_t)facts->ranks, sizeof *value);
    for (int p = 0; p < pipeline_ranks; p++) {
        int count = 0;
        for (int r = 0; r < facts->ranks; r++)
            if (facts->rank[r].pipeline_rank == p)
                value[count++] = facts->rank[r].run_s;
        double median = median_lower(value, count);
        for (int r = 0; r < facts->ranks; r++)
            if (facts->rank[r].pipeline_rank == p)
                e.run_s[r] = median;
    }
    free(value);
    return e;
}

static struct expected expect_by_work(const struct deviation_facts *facts)
{
    struct expected e = {array_make((size_t)facts->ranks, sizeof *e.run_s), tolerance_of_pipeline};
    double *value = array_make((size_t)facts->ranks, sizeof *value);
    for (int r = 0; r < facts->ranks; r++)
        value[r] = work_of(facts, r) > 0 ? facts->rank[r].run_s / work_of(facts, r) : 0;
    double median = median_lower(value, facts->ranks);
    for (int r = 0; r < facts->ranks; r++)
        e.run_s[r] = median * work_of(facts, r);
    free(value);
    return e;
}

static int is_slow(const struct deviation_facts *facts, const struct expected *e, int r)
{
    return e->run_s[r] > 0 && facts->rank[r].run_s >= e->tolerance * e->run_s[r];
}

/* Do all ranks of a node deviate (is_one[rank] is 1), two at least, and has the job ranks on other
 * nodes? */
static int is_whole_node(const struct deviation_facts *facts, const char *is_one, int node)
{
    int ranks = 0, ones = 0;
    for (int r = 0; r < facts->ranks; r++) {
        ranks += facts->rank[r].node == node;
        ones += facts->rank[r].node == node && is_one[r];
    }
    return ranks > 1 && ones == ranks && ranks < facts->ranks;
}

static struct deviation find_slow_rank(const struct deviation_facts *facts)
{
    struct deviation found = nothing;
    int pipeline_ranks = pipeline_ranks_of(facts);
    if (facts->ranks < 2)
        return found;
    struct expected e = pipeline_ranks < facts->ranks
                            ? expect_by_pipeline_rank(facts, pipeline_ranks)
                            : expect_by_work(facts);
    char *slow = array_make((size_t)facts->ranks, 1);
    for (int r = 0; r < facts->ranks; r++) {
        const struct deviation_rank *rank = &facts->rank[r];
        slow[r] = (char)is_slow(facts, &e, r);
        if (!slow[r] || rank->run_s - e.run_s[r] <= found.excess_s)
            continue;
        found = (struct deviation){.cause = DEVIATION_RANK,
                                   .rank = r,
                                   .node = rank->node,
                                   .link = -1,
                                   .measured = rank->run_s,
                                   .expected = e.run_s[r],
                                   .excess_s = rank->run_s - e.run_s[r]};
    }
    if (found.rank >= 0 && is_whole_node(facts, slow, found.node))
        found.cause = DEVIATION_NODE;
    free(slow);
    free(e.run_s);
    return found;
}

static int is_queued(const struct deviation_facts *facts, double median_s, int r)
{
    double own_s = facts->rank[r].queue_s;
    return own_s >= queue_of_one * median_s && own_s - median_s >= significant * facts->step_s;
}

/* Ranks that wait for cores; where all do, only the forecast shows that it is too long.  What a
 * rank computes in little pieces may go fast all the same: its communication waits. */
static struct deviation find_lack_of_cores(const struct deviation_facts *facts)
{
    struct deviation found = nothing;
    double *value = array_make((size_t)facts->ranks, sizeof *value);
    for (int r = 0; r < facts->ranks; r++)
        value[r] = facts->rank[r].queue_s;
    double median_s = median_lower(value, facts->ranks);
    free(value);
    char *queued = array_make((size_t)facts->ranks, 1);
    for (int r = 0; r < facts->ranks && facts->ranks > 1; r++) {
        double own_s = facts->rank[r].queue_s;
        queued[r] = (char)is_queued(facts, median_s, r);
        if (!queued[r] || own_s - median_s <= found.excess_s)
            continue;
        found = (struct deviation){.cause = DEVIATION_CORES,
                                   .rank = r,
                                   .node = facts->rank[r].node,
                                   .link = -1,
                                   .measured = own_s,
                                   .expected = median_s,
                                   .excess_s = own_s - median_s};
    }
    if (found.rank >= 0 && is_whole_node(facts, queued, found.node))
        found.rank = -1;
    free(queued);
    if (!found.cause && facts->forecast && median_s >= significant * facts->step_s)
        found = (struct deviation){.cause = DEVIATION_CORES,
                                   .rank = -1,
                                   .node = -1,
                                   .link = -1,
                                   .measured = median_s,
                                   .excess_s = median_s};
    return found;
}

/* ---- against the forecast ---- */

static struct deviation find_slow_computing(const struct deviation_facts *facts)
{
    struct deviation found = nothing;
    const struct deviation_forecast *forecast = facts->forecast;
    if (!forecast)
        return found;
    double *ratio = array_make((size_t)facts->ranks, sizeof *ratio), most_s = 0;
    for (int r = 0; r < facts->ranks; r++) {
        const struct deviation_rank *rank = &facts->rank[r];
        const struct deviation_planned *planned = &forecast->planned[rank->pipeline_rank];
        double planned_s = planned->run_s + planned->update_s;
        ratio[r] = planned_s > 0 ? (rank->run_s + rank->update_s) / planned_s : 0;
        most_s = fmax(most_s, planned_s);
    }
    double median = median_lower(ratio, facts->ranks);
    free(ratio);
    if (median < tolerance)
        return found;
    found.cause = DEVIATION_COMPUTE;
    found.expected = most_s;
    found.measured = median * most_s;
    found.excess_s = found.measured - found.expected;
    return found;
}

static struct deviation find_slow_copies(const struct deviation_facts *facts)
{
    struct deviation found = nothing;
    const struct deviation_forecast *forecast = facts->forecast;
    if (!forecast)
        return found;
    for (int r = 0; r < facts->ranks; r++) {
        double own_s = facts->rank[r].copy_s,
               planned_s = forecast->planned[facts->rank[r].pipeline_rank].copy_s;
        double excess_s = fmin(own_s - planned_s, facts->rank[r].wait_s);
        if (planned_s <= 0 || own_s < tolerance_of_transfers * planned_s ||
            excess_s <= found.excess_s)
            continue;
        found = (struct deviation){.cause = DEVIATION_COPIES,
                                   .rank = r,
                                   .node = facts->rank[r].node,
                                   .link = -1,
                                   .measured = own_s,
                                   .expected = planned_s,
                                   .excess_s = excess_s};
    }
    return found;
}

/* ---- transfers ---- */

/* The transfers of one kind and way, summed up. */
struct transfers {
    int links, slowest;            /* slowest: of facts->link */
    double bytes, seconds, each_s; /* each_s: summed over the members */
    double median;                 /* seconds per byte of the links */
};

static double per_byte(const struct deviation_link *link)
{
    return link->bytes > 0 ? link->seconds / link->bytes : 0;
}

static struct transfers sum_transfers(const struct deviation_facts *facts,
                                      enum machine_transfer_kind kind, int way)
{
    struct transfers t = {.slowest = -1};
    double *value = array_make((size_t)facts->links + 1, sizeof *value);
    for (int i = 0; i < facts->links; i++) {
        const struct deviation_link *link = &facts->link[i];
        if (link->kind != kind || link->way != way || link->bytes <= 0)
            continue;
        value[t.links++] = per_byte(link);
        t.bytes += link->bytes;
        t.seconds += link->seconds;
        t.each_s += link->seconds * (kind == MACHINE_MESSAGE ? 1 : link->members);
        if (t.slowest < 0 || per_byte(link) > per_byte(&facts->link[t.slowest]))
            t.slowest = i;
    }
    t.median = median_lower(value, t.links);
    free(value);
    return t;
}

/* Find slow transfers of one kind and way: one group that is slower than the others, or all of them
 * compared with the forecast. */
static struct deviation find_slow_kind(const struct deviation_facts *facts,
                                       enum machine_transfer_kind kind, int way)
{
    struct deviation found = nothing;
    struct transfers t = sum_transfers(facts, kind, way);
    if (!t.links)
        return found;
    const struct deviation_link *slowest = &facts->link[t.slowest];
    int is_one = t.links > 1 && per_byte(slowest) >= tolerance_of_transfers * t.median;
    double own = is_one ? per_byte(slowest) : t.seconds / t.bytes;
    double planned = 0, least = tolerance_of_transfers;
    if (facts->forecast) {
        const struct forecast_transfer *p = &facts->forecast->transfers.of[kind][way];
        planned = p->bytes > 0 ? p->seconds / p->bytes : 0;
    } else if (t.links >= GROUPS) {
        planned = t.median;
        least = tolerance_of_groups;
    }
    if (planned <= 0 || own < least * planned)
        return found;
    double seconds = is_one ? slowest->seconds : t.each_s / facts->ranks;
    return (struct deviation){.cause = DEVIATION_TRANSFER,
                              .rank = -1,
                              .node = -1,
                              .link = t.slowest,
                              .measured = 1 / own,
                              .expected = 1 / planned,
                              .excess_s = seconds * (1 - planned / own)};
}

/* What slow transfers of all kinds cost together, but not more than ranks wait; the kind that costs
 * most is named. */
static struct deviation find_slow_transfers(const struct deviation_facts *facts)
{
    struct deviation found = nothing;
    double sum_s = 0;
    for (int way = 0; way < FORECAST_WAYS; way++)
        for (int kind = 0; kind < MACHINE_TRANSFERS; kind++) {
            struct deviation one = find_slow_kind(facts, kind, way);
            sum_s += one.excess_s;
            if (one.excess_s > found.excess_s)
                found = one;
        }
    found.excess_s = fmin(sum_s, mean_wait_s(facts));
    return found;
}

/* ---- data, and bytes ---- */

static struct deviation find_late_data(const struct deviation_facts *facts)
{
    struct deviation found = nothing;
    for (int r = 0; r < facts->ranks; r++) {
        double own_s = facts->rank[r].data_s;
        if (own_s < significant * facts->step_s || own_s <= found.excess_s)
            continue;
        found = (struct deviation){.cause = DEVIATION_DATA,
                                   .rank = r,
                                   .node = facts->rank[r].node,
                                   .link = -1,
                                   .measured = own_s,
                                   .excess_s = own_s};
    }
    return found;
}

static struct deviation find_other_bytes(const struct deviation_facts *facts)
{
    struct deviation found = nothing;
    for (int r = 0; r < facts->ranks && found.rank < 0; r++)
        if (facts->rank[r].sent_bytes != facts->rank[r].plan_bytes)
            found = (struct deviation){.cause = DEVIATION_BYTES,
                                       .rank = r,
                                       .node = facts->rank[r].node,
                                       .link = -1,
                                       .measured = facts->rank[r].sent_bytes,
                                       .expected = facts->rank[r].plan_bytes};
    return found;
}

/* ---- the likely cause ---- */

/* The rank or node that computes longer than the others, or waits for cores where that costs much
 * more. */
static struct deviation find_rank(const struct deviation_facts *facts,
                                  const struct deviation *cores)
{
    struct deviation rank = find_slow_rank(facts);
    return cores->node < 0 || rank_first * rank.excess_s >= cores->excess_s ? rank : *cores;
}

static struct deviation find_costliest(const struct deviation_facts *facts)
{
    struct deviation cores = find_lack_of_cores(facts);
    struct deviation rank = find_rank(facts, &cores), found = rank;
    struct deviation others[] = {find_slow_computing(facts), cores, find_slow_transfers(facts),
                                 find_late_data(facts), find_slow_copies(facts)};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].excess_s > found.excess_s)
            found = others[i];
    return rank.cause && rank_first * rank.excess_s >= found.excess_s ? rank : found;
}

/* Is what was found worth a line though the step is no longer than its forecast? */
static int is_worth_a_line(const struct deviation *found, int is_forecast)
{
    return !is_forecast || found->cause == DEVIATION_RANK || found->cause == DEVIATION_NODE ||
           found->cause == DEVIATION_DATA || (found->cause == DEVIATION_CORES && found->node >= 0);
}

struct deviation deviation_find(const struct deviation_facts *facts)
{
    struct deviation found = find_other_bytes(facts);
    if (found.cause)
        return found;
    found = find_costliest(facts);
    double planned_s = facts->forecast ? facts->forecast->step_s : 0;
    if (planned_s > 0 && facts->step_s >= tolerance * planned_s) {
        if (found.excess_s >= explains * (facts->step_s - planned_s))
            return found;
        found = nothing;
        found.cause = DEVIATION_UNKNOWN;
        return found;
    }
    if (is_worth_a_line(&found, planned_s > 0) && found.excess_s >= significant * facts->step_s)
        return found;
    found = nothing;
    if (planned_s > 0 && tolerance * facts->step_s <= planned_s)
        found.cause = DEVIATION_FASTER;
    return found;
}
