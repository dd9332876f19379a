/* search_bounds.c - see search_bounds.h.
 *
 *   plan_all_unit_times()    one plan for each combination of tensor and context ranks, micro-batch
 *                            and recomputation.  The first that succeeds is of the whole model; if
 *                            all its blocks are alike, a model of few layers is planned for the
 *                            other combinations
 *   find_cut()               which units a stage has, for each number of stages
 *   sum_ranks()              of a candidate: what each of its pipeline ranks computes, keeps and
 *                            exchanges
 *   set_bound()              the seconds and bytes of the rank that needs most
 */
#include "plan/search_bounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "program/layout.h"
#include "segment/optimizer.h"
#include "segment/stages.h"

/* Bounds are lowered by this factor: plans round, and transfers of two micro-batches may overlap.
 */
static const double SLACK = 0.98;

/* The times of the units of all candidates that have the tensor and context ranks, micro-batch and
 * recomputation of `like`. */
struct unit_times {
    const struct search_candidate *like;
    struct report_unit *unit; /* seconds are of one micro-batch, with the waits for exchanges;
                                 NULL: there is no plan */
};

/* The units of each stage, for a number of stages: the same in all layouts. */
struct cut {
    int stages, *stage;
};

struct bounds {
    const struct search_request *request;
    struct layout layout; /* resolved for one rank: only its formats are read */
    int units;            /* of the model */
    int64_t few_layers;   /* of the model that is planned for unit times; 0: all */
    int times_count, times_capacity;
    struct unit_times *times;
    int cuts, cut_capacity;
    struct cut *cut;
};

/* ---- times of units ---- */

static int have_same_unit_times(const struct search_candidate *a, const struct search_candidate *b)
{
    return a->tensor == b->tensor && a->context == b->context && a->micro == b->micro &&
           a->recompute == b->recompute;
}

/* MICROS: micro-batches in a plan for unit times, at most.  FEW_UNITS: units where a model of few
 * layers is planned in place of the whole one. */
enum { MICROS = 4, FEW_UNITS = 4 };

/* Micro-batches of a plan for unit times: MICROS; with 16-bit gradients one, as they allow no more.
 */
static int micros_of(const struct bounds *b)
{
    return b->request->config->train.grad_dtype == DTYPE_F32 ? MICROS : 1;
}

/* The configuration of a plan for unit times: without keys of data ranks and of offloaded state,
 * which do not change the times of the units, and some of which are refused where nothing is
 * sharded. */
static struct config unit_times_config(const struct bounds *b, int64_t batch)
{
    struct config config = *b->request->config;
    config.train.global_batch = batch;
    config.train.overlap_update = 0;
    config.parallel.persist_below = 0;
    config.comm.reduce_dtype = DTYPE_F32;
    config.comm.gpu = (struct config_comm_gpu){0};
    config.offload = (struct config_offload){0};
    if (b->few_layers)
        config.model.layers = b->few_layers;
    return config;
}

/* Plan the one stage that gives the unit times of a candidate, with so many micro-batches.  0 and a
 * report, or -1. */
static int plan_stage(const struct bounds *b, const struct search_candidate *like, int micros,
                      struct report *report)
{
    const struct search_request *request = b->request;
    struct search_candidate alone = *like;
    struct config config, base = unit_times_config(b, micros * like->micro);
    int ranks = alone.tensor * alone.context;
    int per_node = machine_ranks_per_node(request->ranks, request->nodes);
    alone.pipeline = alone.chunks = 1;
    alone.shard = alone.schedule = 0;
    alone.strategy = STRATEGY_NO_SHARD;
    alone.offload = "";
    struct report_request wanted = {.config = &config,
                                    .ranks = ranks,
                                    .nodes = (ranks + per_node - 1) / per_node,
                                    .threads = request->threads,
                                    .speeds = request->machine};
    if (search_candidate_config(&alone, &base, &config) || report_measure(report, &wanted, NULL))
        return -1;
    if (report->forecast.ranks)
        return 0;
    report_free(report);
    return -1;
}

/* Seconds of exchanges among tensor and context ranks, and how many of these the rank waits for. */
struct waits {
    double exchanges_s, waits_s;
};

static struct waits waits_of(const struct report *report)
{
    const double *seconds = report->forecast.rank[0].seconds;
    struct waits waits = {.waits_s = seconds[PLAY_GATHER] + seconds[PLAY_REDUCE]};
    for (int u = 0; u < report->units; u++)
        waits.exchanges_s +=
            report->unit[u].forward_exchange_s + report->unit[u].backward_exchange_s;
    return waits;
}

/* The part of exchanges that a rank waits for: all of it where nothing is beside them. */
static double waited_share(const struct waits *waits)
{
    double share = waits->exchanges_s > 0 ? waits->waits_s / waits->exchanges_s : 0;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* Make the units' times those of one micro-batch: operations, and the waited share of the
 * exchanges. */
static void add_waits(struct report *report, double share, int micros)
{
    for (int u = 0; u < report->units; u++) {
        struct report_unit *unit = &report->unit[u];
        unit->forward_s = (unit->forward_s + share * unit->forward_exchange_s) / micros;
        unit->backward_s = (unit->backward_s + share * unit->backward_exchange_s) / micros;
    }
}

/* The units of the whole model, made from those of a model with few layers by repeating a block's.
 */
static struct report_unit *repeat_layers(const struct report *few, int units)
{
    enum { LAYER = 2 };
    struct report_unit *unit = array_make((size_t)units, sizeof *unit);
    for (int u = 0; u < units; u++)
        unit[u] = few->unit[!u ? 0 : u == units - 1 ? few->units - 1 : LAYER];
    return unit;
}

/* The part of exchanges that a rank waits for in each micro-batch: what two plans differ by, so
 * that what it waits for at the end of a step, such as sums of gradients over context ranks, is
 * left out.  Where only plans of one micro-batch can be made, that is not known, and 0 keeps the
 * bound low. */
static double share_of_micros(const struct bounds *b, const struct search_candidate *like,
                              const struct waits *all)
{
    struct report report;
    if (micros_of(b) == 1)
        return 0;
    if (all->exchanges_s <= 0 || plan_stage(b, like, MICROS / 2, &report))
        return waited_share(all);
    struct waits fewer = waits_of(&report), more = *all;
    more.exchanges_s -= fewer.exchanges_s;
    more.waits_s -= fewer.waits_s;
    report_free(&report);
    return fmin(waited_share(all), waited_share(&more));
}

/* The units with the times of a candidate; NULL where there is no plan. */
static struct report_unit *plan_unit_times(const struct bounds *b,
                                           const struct search_candidate *like, int *count)
{
    struct report report;
    struct report_unit *unit = NULL;
    if (plan_stage(b, like, micros_of(b), &report))
        return NULL;
    struct waits waits = waits_of(&report);
    add_waits(&report, share_of_micros(b, like, &waits), micros_of(b));
    if (!b->few_layers) {
        *count = report.units;
        unit = report.unit;
        report.unit = NULL;
    } else if (report.units == FEW_UNITS) {
        *count = b->units;
        unit = repeat_layers(&report, b->units);
    }
    report_free(&report);
    return unit;
}

/* Where all units between the first and the last are the same, let further plans be of a model of
 * FEW_UNITS units: two of them stand for all. */
static void look_at_layers(struct bounds *b, const struct report_unit *unit)
{
    int inner = b->units - 2, alike = inner > 2 && b->request->config->model.layers % inner == 0;
    for (int u = 2; u <= inner; u++)
        alike &= unit[u].flops == unit[1].flops && unit[u].params == unit[1].params &&
                 unit[u].trained == unit[1].trained && unit[u].kept_bytes == unit[1].kept_bytes;
    b->few_layers = alike ? 2 * (b->request->config->model.layers / inner) : 0;
}

/* The index of a candidate's unit times, which are added if it is the first that has them. */
static int find_unit_times(struct bounds *b, const struct search_candidate *c)
{
    for (int i = 0; i < b->times_count; i++)
        if (have_same_unit_times(b->times[i].like, c))
            return i;
    b->times = array_grow(b->times, b->times_count, &b->times_capacity, sizeof *b->times);
    b->times[b->times_count] = (struct unit_times){.like = c};
    return b->times_count++;
}

/* Find the unit times of all candidates by plans: one after another until one succeeds, which gives
 * the number of units, then the rest by all threads. */
static void plan_all_unit_times(struct bounds *b, struct search_candidates *list)
{
    for (int i = 0; i < list->count; i++)
        list->item[i].unit_times = find_unit_times(b, &list->item[i]);
    for (int i = 0; i < b->times_count && !b->units; i++) {
        b->times[i].unit = plan_unit_times(b, b->times[i].like, &b->units);
        if (b->times[i].unit)
            look_at_layers(b, b->times[i].unit);
    }
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < b->times_count; i++) {
        int units;
        if (!b->times[i].unit)
            b->times[i].unit = plan_unit_times(b, b->times[i].like, &units);
    }
}

/* ---- stages ---- */

/* The stage of each unit where there are so many stages. */
static const int *find_cut(struct bounds *b, const struct unit_times *times, int stages)
{
    for (int i = 0; i < b->cuts; i++)
        if (b->cut[i].stages == stages)
            return b->cut[i].stage;
    double *flops = array_make((size_t)b->units, sizeof *flops);
    int *stage = array_make((size_t)b->units, sizeof *stage);
    for (int u = 0; u < b->units; u++)
        flops[u] = times->unit[u].flops;
    stages_cut(flops, b->units, stages, stage);
    free(flops);
    b->cut = array_grow(b->cut, b->cuts, &b->cut_capacity, sizeof *b->cut);
    b->cut[b->cuts++] = (struct cut){.stages = stages, .stage = stage};
    return stage;
}

/* ---- what data ranks exchange ---- */

/* Where the ranks of a group are. */
struct span {
    int ranks, nodes;
    int sharing; /* groups that use a node's network at once; 1: within a node */
};

/* The span of a group of so many ranks, each `step` ranks from the next. */
static struct span span_of(const struct search_request *request, int ranks, int step)
{
    int per_node = machine_ranks_per_node(request->ranks, request->nodes);
    int on_node = per_node / step < 1 ? 1 : per_node / step;
    on_node = on_node < ranks ? on_node : ranks;
    int nodes = ceil_div(ranks, on_node);
    return (struct span){
        .ranks = ranks, .nodes = nodes, .sharing = nodes > 1 ? per_node / on_node : 1};
}

/* What a pipeline rank exchanges with other data ranks in a step, in seconds by link: transfers on
 * one link share it. */
struct exchange {
    double node_s, network_s;
};

static void add_transfer(struct exchange *e, const struct search_request *request,
                         enum machine_transfer_kind kind, struct span span, double times,
                         double bytes)
{
    double seconds = times * machine_transfer_s(request->machine, kind, span.ranks, span.nodes,
                                                span.sharing, bytes);
    *(span.nodes > 1 ? &e->network_s : &e->node_s) += seconds;
}

/* The shards of a candidate's state, over data and context ranks. */
static int shards_of(const struct search_request *r, const struct search_candidate *c)
{
    int stage = config_sharding[c->strategy].stage, hybrid = config_sharding[c->strategy].hybrid;
    return !stage ? 1 : c->context * (hybrid ? c->shard : search_data_ranks(r, c));
}

/* Add what the strategy of a candidate transfers of a unit in a step: it gathers parameters
 * `gathers` times where each use does, and sums gradients once for each micro-batch or once. */
static void add_unit(struct exchange *e, const struct bounds *b, const struct search_candidate *c,
                     const struct report_unit *unit, double gathers, double micros)
{
    const struct search_request *r = b->request;
    int members = search_data_ranks(r, c) * c->context; /* that sum a gradient */
    int stage = config_sharding[c->strategy].stage;
    int shards = shards_of(r, c);
    double whole_bytes = (double)unit->trained * (double)dtype_bytes(b->layout.dtype);
    double grad_bytes = (double)dtype_bytes(r->config->train.grad_dtype);
    double sum_bytes =
        (double)unit->trained * fmin(grad_bytes, (double)dtype_bytes(b->layout.reduce_dtype));
    int at_each_use = stage == 3 && c->pipeline == 1;
    int at_each_micro = stage >= 2 && r->config->parallel.accumulate != ACCUMULATE_LOCAL;
    if (shards > 1) {
        struct span span = span_of(r, shards, c->tensor);
        add_transfer(e, r, MACHINE_GATHER, span, at_each_use ? gathers : 1, whole_bytes);
        add_transfer(e, r, MACHINE_REDUCE, span, at_each_micro ? micros : 1, sum_bytes);
    }
    if (members > shards)
        add_transfer(e, r, MACHINE_ALL_REDUCE, span_of(r, members / shards, c->tensor * shards), 1,
                     (double)unit->trained * grad_bytes / shards);
}

/* ---- a rank's step ---- */

struct rank_work {
    double arrive_s, leave_s; /* it waits at least, before and after its own work */
    double micro_s;           /* of one micro-batch */
    double trained;           /* parameters */
    double kept_bytes;        /* of all micro-batches that it has in work */
    struct exchange exchange;
};

/* The seconds of a step in which a rank works, waits and has transfers on one link for so long. */
static double step_s(const struct machine *m, double work_s, double wait_s, double transfer_s)
{
    double compute = m->beside_compute > 0 ? m->beside_compute : 1;
    double transfer = m->beside_transfer > 0 ? m->beside_transfer : 1;
    double both = (transfer_s - wait_s) / transfer; /* work and transfers together */
    both = both < 0 ? 0 : both > work_s / compute ? work_s / compute : both;
    double alone = transfer_s - transfer * both;
    return work_s + (1 - compute) * both + (alone > wait_s ? alone : wait_s);
}

/* The seconds of an update of `trained` parameters at least: masters and moments are read and
 * written once; of matrices that muon updates the masters alone count. */
static double update_s(const struct bounds *b, const struct search_candidate *c, double trained)
{
    const struct search_request *r = b->request;
    const struct optimizer *rule = optimizer_row(r->config->train.optimizer);
    double each = 2 * (double)dtype_bytes(b->layout.no_masters ? b->layout.dtype : DTYPE_F32);
    if (!rule->of_matrices)
        each += 2 * optimizer_bytes_each(rule, b->layout.optimizer_dtype);
    if (c->offload[0] || r->config->offload.optimizer != OFFLOAD_NONE)
        return 0;
    return machine_memory_s(r->machine, "UPDATE", DTYPE_F32, each * trained / shards_of(r, c));
}

/* The micro-batches that a stage has in work when its rank has most of them, by the order in which
 * schedule_rows.c lists actions. */
static double in_flight(const struct search_candidate *c, int stage, double micros)
{
    int rank = search_rank_of_stage(c, stage), after = c->pipeline - 1 - rank;
    double most = c->pipeline;
    if (c->chunks == 1)
        most = after + 1;
    else if (search_splits_backward(c))
        most = stage < c->pipeline ? c->pipeline + after : rank;
    else if (stage / c->pipeline == c->chunks - 1)
        most = fmin(most, 2 * after + 1);
    return fmin(most, micros);
}

/* The bytes of a rank's parameters and optimizer state between their uses, where they are not
 * offloaded; padding and buffers are beside them. */
static double state_bytes(const struct bounds *b, const struct search_candidate *c,
                          const struct rank_work *rank)
{
    const struct config *config = b->request->config;
    const struct optimizer *rule = optimizer_row(config->train.optimizer);
    int stage = config_sharding[c->strategy].stage, shards = shards_of(b->request, c);
    int keeps_whole = stage < 3 || (c->pipeline > 1 && !config->parallel.pipeline_reshard);
    double master = (double)dtype_bytes(b->layout.no_masters ? b->layout.dtype : DTYPE_F32);
    double slots = optimizer_bytes_each(rule, b->layout.optimizer_dtype);
    double copy = b->layout.no_masters || b->layout.dtype == DTYPE_F32
                      ? 0
                      : (double)dtype_bytes(b->layout.dtype);
    double bytes = 0;
    if (!c->offload[0] && config->offload.optimizer == OFFLOAD_NONE)
        bytes += (master + slots) * rank->trained / shards;
    if (!c->offload[0] && config->offload.params == OFFLOAD_NONE && keeps_whole)
        bytes += copy * rank->trained; /* FULL_SHARD gathers it from the masters */
    return bytes;
}

/* The bytes of a rank's gradients, where they are not offloaded: whole or in shards. */
static double gradient_bytes(const struct bounds *b, const struct search_candidate *c,
                             const struct rank_work *rank)
{
    const struct config *config = b->request->config;
    /* In 16 bits they are of one micro-batch, and may be sent to their shards one by one. */
    int are_whole = config_sharding[c->strategy].stage < 2 && config->train.grad_dtype == DTYPE_F32;
    if (c->offload[0] || config->offload.gradients != OFFLOAD_NONE)
        return 0;
    return (double)dtype_bytes(config->train.grad_dtype) * rank->trained /
           (are_whole ? 1 : shards_of(b->request, c));
}

/* The bytes that gradients and what is kept for backward take together: with one micro-batch
 * backward frees what was kept as it makes gradients (layout_grads_pass()). */
static double kept_and_gradient_bytes(const struct bounds *b, const struct search_candidate *c,
                                      const struct rank_work *rank, double micros)
{
    double gradients = gradient_bytes(b, c, rank);
    int pass = micros < 2 && c->pipeline == 1 && !b->request->config->train.overlap_update;
    return pass ? fmax(gradients, rank->kept_bytes) : gradients + rank->kept_bytes;
}

/* Set rank[0 .. pipeline): the sums over the units of each. */
static void sum_ranks(struct bounds *b, const struct search_candidate *c,
                      const struct unit_times *times, double micros, struct rank_work *rank)
{
    const int *stage = find_cut(b, times, c->pipeline * c->chunks);
    double forward_s = 0, backward_s = 0;
    for (int at = 0; at < c->pipeline; at++)
        rank[at] = (struct rank_work){.arrive_s = -1};
    for (int u = 0; u < b->units; u++) {
        const struct report_unit *unit = &times->unit[u];
        struct rank_work *r = &rank[search_rank_of_stage(c, stage[u])];
        if (r->arrive_s < 0) {
            r->arrive_s = forward_s;
            r->leave_s = backward_s;
        }
        r->micro_s += unit->forward_s + unit->backward_s;
        r->trained += (double)unit->trained;
        r->kept_bytes += (double)unit->kept_bytes * in_flight(c, stage[u], micros);
        int ends = u == 0 || u == b->units - 1; /* used twice one after the other */
        if (search_data_ranks(b->request, c) * c->context > 1)
            add_unit(&r->exchange, b, c, unit, ends ? micros : 2 * micros, micros);
        forward_s += unit->forward_s;
        backward_s += unit->backward_s;
    }
}

/* Set least_s, micro_s and least_bytes of a candidate.  rank: scratch memory, one of each rank. */
static void set_bound(struct bounds *b, struct search_candidate *c, struct rank_work *rank)
{
    const struct unit_times *times = &b->times[c->unit_times];
    const struct machine *machine = b->request->machine;
    double micros = (double)search_micros(b->request, c);
    c->least_s = b->units && c->pipeline * c->chunks > b->units ? INFINITY : 0;
    if (!times->unit || c->least_s > 0) /* without a plan it has no bound */
        return;
    sum_ranks(b, c, times, micros, rank);
    c->least_s = c->micro_s = c->least_bytes = 0;
    for (int at = 0; at < c->pipeline; at++) {
        const struct rank_work *r = &rank[at];
        double work = micros * r->micro_s, update = update_s(b, c, r->trained);
        double wait = r->arrive_s + (search_splits_backward(c) ? 0 : r->leave_s);
        if (b->request->config->train.overlap_update)
            wait = fmax(wait, update); /* it is made while the rank waits for others */
        else
            work += update;
        c->least_s = fmax(c->least_s, step_s(machine, work, wait, r->exchange.node_s));
        c->least_s = fmax(c->least_s, step_s(machine, work, wait, r->exchange.network_s));
        c->micro_s = fmax(c->micro_s, SLACK * r->micro_s);
        c->least_bytes =
            fmax(c->least_bytes, state_bytes(b, c, r) + kept_and_gradient_bytes(b, c, r, micros));
    }
    c->least_s *= SLACK;
}

void search_bounds_set(struct search_candidates *list, const struct search_request *request)
{
    struct bounds b = {.request = request};
    struct rank_work *rank = array_make((size_t)request->ranks, sizeof *rank);
    b.layout = (struct layout){.dtype = layout_dtype(request->config),
                               .no_masters = request->config->precision == PRECISION_BF16_PURE,
                               .reduce_dtype = request->config->comm.reduce_dtype,
                               .optimizer_dtype = request->config->train.optimizer_dtype};
    plan_all_unit_times(&b, list);
    for (int i = 0; i < list->count; i++)
        set_bound(&b, &list->item[i], rank);
    for (int i = 0; i < b.times_count; i++)
        free(b.times[i].unit);
    for (int i = 0; i < b.cuts; i++)
        free(b.cut[i].stage);
    free(b.times);
    free(b.cut);
    free(rank);
}
