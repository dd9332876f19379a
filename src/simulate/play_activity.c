/* play_activity.c - what is in progress in a step that is played, and how fast.
 *
 * An activity has left_s seconds of work left at full speed, as of since_s, and a rate of 1 or
 * less. When something begins or ends on a rank, the rates of all that runs there are found anew:
 * what was done since since_s at the old rate is taken off left_s, and end_s is since_s + left_s /
 * rate.
 *
 *   compute    slower beside a transfer and beside copies from or to files, and shared equally by
 *              all that computes on the rank
 *   transfer,  slower beside compute, and what a rank does through one link at the same time shares
 *   copy       it equally; of several ranks, the slowest one sets the rate
 */
#include <stdlib.h>

#include "base/array.h"
#include "simulate/play_private.h"

static double beside_of(const struct play_request *request, const struct play_cost *cost)
{
    return cost->beside > 0          ? cost->beside
           : cost->link == LINK_FILE ? request->beside_file
                                     : request->beside_transfer;
}

struct play_activity *play_begin(struct play_engine *e, struct play_cost cost, int is_compute)
{
    struct play_activity *a = e->spares ? e->spare[--e->spares] : array_make(1, sizeof *a);
    a->members = 0;
    a->link = cost.link;
    a->beside = beside_of(e->request, &cost);
    a->only_waits = cost.beside > 0;
    a->is_compute = is_compute;
    a->start_s = a->since_s = e->now;
    a->left_s = cost.seconds;
    a->rate = 1;
    a->end_s = e->now + cost.seconds;
    e->running = array_grow(e->running, e->count, &e->capacity, sizeof(struct play_activity *));
    a->at = e->count;
    e->running[e->count++] = a;
    return a;
}

void play_join(struct play_engine *e, struct play_activity *a, int rank, int instr)
{
    struct play_progress *r = &e->rank[rank];
    a->member = array_grow(a->member, a->members, &a->capacity, sizeof *a->member);
    a->member[a->members++] = (struct play_member){.rank = rank, .instr = instr};
    r->active[r->actives++] = a;
    r->computes += a->is_compute;
}

static int count_on(const struct play_progress *r, enum play_link link)
{
    int count = 0;
    for (int i = 0; i < r->actives; i++)
        count += r->active[i]->link == link;
    return count;
}

/* Does a transfer slow down what a rank computes? */
static int slows(const struct play_progress *r)
{
    for (int i = 0; i < r->actives; i++) {
        const struct play_activity *a = r->active[i];
        if ((a->link == LINK_NODE || a->link == LINK_NETWORK) && !a->only_waits)
            return 1;
    }
    return 0;
}

/* What is computed at once on several streams shares the device: together it takes as long as one
 * after the other. */
static double compute_rate(const struct play_request *request, const struct play_progress *r)
{
    return (slows(r) ? request->beside_compute : 1) *
           (count_on(r, LINK_FILE) ? request->beside_file_compute : 1) / r->computes;
}

/* The rate of a transfer, or of a copy from or to the page cache, as far as one of its ranks limits
 * it. */
static double link_rate(const struct play_progress *r, const struct play_activity *a)
{
    return (r->computes ? a->beside : 1) / count_on(r, a->link);
}

static double rate_of(const struct play_engine *e, const struct play_activity *a)
{
    double rate = 1;
    for (int m = 0; m < a->members; m++) {
        const struct play_progress *r = &e->rank[a->member[m].rank];
        double here = 1;
        if (a->is_compute)
            here = compute_rate(e->request, r);
        else if (a->link != LINK_NONE)
            here = link_rate(r, a);
        rate = here < rate ? here : rate;
    }
    return rate;
}

/* Something began or ended on a rank. */
void play_set_rates(struct play_engine *e, int rank)
{
    struct play_progress *r = &e->rank[rank];
    for (int i = 0; i < r->actives; i++) {
        struct play_activity *a = r->active[i];
        double rate = rate_of(e, a);
        if (rate == a->rate)
            continue;
        a->left_s -= (e->now - a->since_s) * a->rate;
        a->since_s = e->now;
        a->rate = rate;
        a->end_s = e->now + (a->left_s > 0 ? a->left_s / rate : 0);
    }
}

void play_end(struct play_engine *e, struct play_activity *a)
{
    for (int m = 0; m < a->members; m++) {
        struct play_progress *r = &e->rank[a->member[m].rank];
        int i = 0;
        while (r->active[i] != a)
            i++;
        r->active[i] = r->active[--r->actives];
        r->computes -= a->is_compute;
    }
    e->running[a->at] = e->running[--e->count];
    e->running[a->at]->at = a->at;
    e->spare = array_grow(e->spare, e->spares, &e->spare_capacity, sizeof(struct play_activity *));
    e->spare[e->spares++] = a;
}

void play_set_rates_of_members(struct play_engine *e, const struct play_activity *a)
{
    for (int m = 0; m < a->members; m++)
        play_set_rates(e, a->member[m].rank);
}

void play_activity_free(struct play_activity *a)
{
    free(a->member);
    free(a);
}
