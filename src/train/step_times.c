/* step_times.c - see step_times.h.
 *
 * A step's trace gives each instruction's start and end.  On the compute stream these are sums by
 * kind of work, and what is between them is waiting.  Transfers are kept one by one, because of
 * each the member that comes last waits least, and its time alone is that of moving:
 *
 *   rank 0 |GATHER ........======|      4 + 3 ms
 *   rank 1 | computes      |=====|          3 ms   this counts
 */
#include "train/step_times.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/median.h"
#include "base/round.h"
#include "program/sent.h"
#include "simulate/cost.h"

/* What was measured of one step. */
struct step_time {
    double step_s, run_s, update_s, data_s, wait_s, copy_s, core_share, queue_s, sent_bytes;
};

struct step_times {
    const struct program *program;
    struct step_time step[STEP_TIMES];
    int steps;
    int transfers;
    int *transfer_of;             /* per instruction: its number among transfers, or -1 */
    float (*seconds)[STEP_TIMES]; /* per transfer and step */
};

struct step_times *step_times_create(const struct program *program)
{
    struct step_times *t = array_make(1, sizeof *t);
    t->program = program;
    t->transfer_of = array_make((size_t)program->instrs + 1, sizeof *t->transfer_of);
    for (int i = 0; i < program->instrs; i++)
        t->transfer_of[i] = instr_is_transfer(&program->instr[i]) ? t->transfers++ : -1;
    t->seconds = array_make((size_t)t->transfers + 1, sizeof *t->seconds);
    return t;
}

void step_times_free(struct step_times *t)
{
    if (!t)
        return;
    free(t->transfer_of);
    free(t->seconds);
    free(t);
}

void step_times_reset(struct step_times *t)
{
    t->steps = 0;
}

int step_times_count(const struct step_times *t)
{
    return t->steps;
}

int step_times_transfer_count(const struct step_times *t)
{
    return t->transfers;
}

/* ---- a step ---- */

static int is_computed(const struct trace_event *event)
{
    return event->lane == STREAM_COMPUTE || event->lane == STREAM_HOST;
}

/* Seconds of an UPDATE beside forward in which nothing else was computed. */
static double alone_s(const struct trace *trace, const struct trace_event *update)
{
    int64_t alone_ns = update->end_ns - update->start_ns;
    for (int e = 0; e < trace->events; e++) {
        const struct trace_event *event = &trace->event[e];
        int64_t from = max_i64(event->start_ns, update->start_ns);
        int64_t to = min_i64(event->end_ns, update->end_ns);
        if (event->instr >= 0 && is_computed(event) && from < to)
            alone_ns -= to - from;
    }
    return (double)max_i64(alone_ns, 0) / 1e9;
}

static void add_event(struct step_times *t, struct step_time *step, const struct trace *trace,
                      const struct trace_event *event)
{
    const struct instr *instr = &t->program->instr[event->instr];
    double seconds = (double)(event->end_ns - event->start_ns) / 1e9;
    if (instr_is_transfer(instr)) {
        t->seconds[t->transfer_of[event->instr]][t->steps] = (float)seconds;
        step->sent_bytes += (double)event->bytes;
    } else if (instr->kind == INSTR_FETCH || instr->kind == INSTR_SPILL) {
        step->copy_s += seconds;
    } else if (event->lane == STREAM_UPDATE) {
        step->update_s += alone_s(trace, event);
    } else if (is_computed(event)) {
        *(instr_is_of_phase(instr)    ? &step->run_s
          : instr->kind == INSTR_LOAD ? &step->data_s
                                      : &step->update_s) += seconds;
    }
}

void step_times_add(struct step_times *t, const struct trace *trace, double step_s, double core_s,
                    double queue_s)
{
    struct step_time step = {.step_s = step_s, .queue_s = fmin(queue_s, step_s)};
    int64_t begin_ns = INT64_MAX, end_ns = 0;
    if (t->steps == STEP_TIMES)
        return;
    for (int e = 0; e < trace->events; e++) {
        const struct trace_event *event = &trace->event[e];
        if (event->instr < 0)
            continue;
        add_event(t, &step, trace, event);
        begin_ns = event->start_ns < begin_ns ? event->start_ns : begin_ns;
        end_ns = event->end_ns > end_ns ? event->end_ns : end_ns;
    }
    double computed_s = step.run_s + step.update_s + step.data_s;
    step.wait_s = fmax(0, (double)(end_ns - begin_ns) / 1e9 - computed_s);
    step.core_share = computed_s > 0 ? fmin(1, core_s / computed_s) : 0;
    t->step[t->steps++] = step;
}

/* ---- medians ---- */

static double median_of(const struct step_times *t, size_t offset)
{
    double value[STEP_TIMES];
    for (int s = 0; s < t->steps; s++)
        value[s] = *(const double *)(const void *)((const char *)&t->step[s] + offset);
    return median_mean(value, t->steps);
}

double step_times_step_s(const struct step_times *t)
{
    return median_of(t, offsetof(struct step_time, step_s));
}

struct deviation_rank step_times_rank(const struct step_times *t)
{
    const struct program *p = t->program;
    struct deviation_rank rank = {
        .pipeline_rank = p->state->coord.at[MESH_PIPELINE],
        .run_s = median_of(t, offsetof(struct step_time, run_s)),
        .update_s = median_of(t, offsetof(struct step_time, update_s)),
        .data_s = median_of(t, offsetof(struct step_time, data_s)),
        .wait_s = median_of(t, offsetof(struct step_time, wait_s)),
        .copy_s = median_of(t, offsetof(struct step_time, copy_s)),
        .core_share = median_of(t, offsetof(struct step_time, core_share)),
        .queue_s = median_of(t, offsetof(struct step_time, queue_s)),
        .sent_bytes = median_of(t, offsetof(struct step_time, sent_bytes)),
    };
    for (int i = 0; i < p->instrs; i++) {
        const struct instr *instr = &p->instr[i];
        if (instr->kind == INSTR_RUN)
            rank.flops += program_segment(p, instr->unit, instr->phase)->piece[instr->piece].flops;
        if (instr_is_transfer(instr))
            rank.plan_bytes += (double)sent_bytes(p, instr);
    }
    return rank;
}

/* ---- a rank's transfers ---- */

/* Have two transfers the same members and stream, within which ordinals count? */
static int are_alike(const struct step_times_transfer *a, const struct step_times_transfer *b)
{
    return a->first == b->first && a->last == b->last && a->axes == b->axes &&
           a->stream == b->stream;
}

/* The next ordinal of these members; a rank has few kinds of them. */
static int32_t next_ordinal(struct step_times_transfer **seen, int *count, int *capacity,
                            const struct step_times_transfer *of)
{
    for (int i = 0; i < *count; i++)
        if (are_alike(&(*seen)[i], of))
            return (*seen)[i].ordinal++;
    *seen = array_grow(*seen, *count, capacity, sizeof **seen);
    (*seen)[*count] = *of;
    (*seen)[(*count)++].ordinal = 1;
    return 0;
}

static int member_rank(const struct program *p, const struct instr *instr, int member)
{
    const struct mesh_shape *shape = &p->layout->shape;
    return mesh_rank(shape, mesh_coord_of_member(shape, p->state->coord, instr->axes, member));
}

static struct step_times_transfer describe(const struct program *p, const struct instr *instr)
{
    int own = mesh_rank(&p->layout->shape, p->state->coord);
    struct step_times_transfer d = {.first = -1,
                                    .last = -1,
                                    .kind = (uint8_t)cost_transfer_kind(instr),
                                    .axes = (uint8_t)instr->axes,
                                    .stream = (uint8_t)instr->stream,
                                    .bytes = (float)cost_transfer_bytes(p, instr)};
    if (!instr_is_message(instr)) {
        d.first = member_rank(p, instr, 0);
        return d;
    }
    int peer = member_rank(p, instr, instr->peer);
    d.first = instr->kind == INSTR_SEND ? own : peer;
    d.last = instr->kind == INSTR_SEND ? peer : own;
    return d;
}

struct step_times_transfer *step_times_transfers(const struct step_times *t, int stride, int *count)
{
    const struct program *p = t->program;
    struct step_times_transfer *seen = NULL;
    struct step_times_transfer *all = array_make((size_t)t->transfers + 1, sizeof *all);
    int kinds = 0, capacity = 0;
    *count = 0;
    for (int i = 0; i < p->instrs; i++) {
        if (t->transfer_of[i] < 0)
            continue;
        struct step_times_transfer one = describe(p, &p->instr[i]);
        one.ordinal = next_ordinal(&seen, &kinds, &capacity, &one);
        if (one.ordinal % stride)
            continue;
        double value[STEP_TIMES];
        for (int s = 0; s < t->steps; s++)
            value[s] = t->seconds[t->transfer_of[i]][s];
        one.seconds = (float)median_mean(value, t->steps);
        all[(*count)++] = one;
    }
    free(seen);
    return all;
}

/* ---- all ranks' transfers ---- */

static int by_members(const void *x, const void *y)
{
    const struct step_times_transfer *a = x, *b = y;
    if (a->kind != b->kind)
        return a->kind - b->kind;
    if (a->axes != b->axes)
        return a->axes - b->axes;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->last != b->last)
        return a->last < b->last ? -1 : 1;
    if (a->stream != b->stream)
        return a->stream - b->stream;
    return (a->ordinal > b->ordinal) - (a->ordinal < b->ordinal);
}

/* Make the link of a transfer's members, without bytes and seconds. */
static struct deviation_link place_link(const struct step_times_transfer *of,
                                        const struct mesh_shape *shape, const int *node)
{
    struct deviation_link link = {.kind = (enum machine_transfer_kind)of->kind,
                                  .first_node = node[of->first]};
    int before = -1;
    struct mesh_coord first = mesh_coord_of_rank(shape, of->first);
    link.members = of->last >= 0 ? 2 : mesh_members(shape, of->axes);
    for (int m = 0; m < link.members; m++) {
        int rank = of->last < 0 ? mesh_rank(shape, mesh_coord_of_member(shape, first, of->axes, m))
                   : m          ? of->last
                                : of->first;
        link.nodes += node[rank] != before;
        before = link.last_node = node[rank];
    }
    link.way = link.nodes > 1 ? FORECAST_BETWEEN : FORECAST_WITHIN;
    return link;
}

struct deviation_link *step_times_links(struct step_times_transfer *transfer, size_t count,
                                        int stride, const struct mesh_shape *shape, const int *node,
                                        int *links)
{
    struct deviation_link *link = NULL;
    int capacity = 0;
    *links = 0;
    if (count)
        qsort(transfer, count, sizeof *transfer, by_members);
    for (size_t i = 0, end; i < count; i = end) {
        const struct step_times_transfer *of = &transfer[i];
        float least = of->seconds;
        for (end = i + 1; end < count && !by_members(of, &transfer[end]); end++)
            least = fminf(least, transfer[end].seconds);
        if (!i || of[-1].kind != of->kind || of[-1].axes != of->axes || of[-1].first != of->first ||
            of[-1].last != of->last) {
            link = array_grow(link, *links, &capacity, sizeof *link);
            link[(*links)++] = place_link(of, shape, node);
        }
        link[*links - 1].bytes += (double)of->bytes * stride;
        link[*links - 1].seconds += (double)least * stride;
    }
    return link;
}
