/* stages.c - see stages.h.
 *
 * A stage is consecutive units, at least one.  How many each has is given, or they are cut where
 * the most expensive stage costs as little as it can, by the floating point operations of its
 * units, the head among them; of cuts that are alike in this, the one with the fewest units in the
 * first stages, which keep the activations of most micro-batches.
 *
 * least[s][u] is the cost of the most expensive of the stages from s on, where stage s begins with
 * unit u; it is found from the last stage backward, and end[s][u] says where stage s then ends.
 */
#include "segment/stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "graph/op.h"

/* The cost of a unit, forward, over whole sequences and undivided layers, so that ranks which have
 * different parts of them cut alike. */
static int find_cost(const struct units *units, int unit, double *cost, struct error *err)
{
    const struct units_request *r = &units->request;
    struct model_graph whole = {
        .batch = r->batch, .dtype = r->dtype, .loss_factor = r->loss_factor};
    for (int s = 0; s < SEQUENCES; s++)
        whole.seq[s] = r->seq[s] * (r->context.size > 1 ? r->context.size : 1);
    struct graph *graph = model_unit_graph(units->model, unit, &whole, err);
    if (!graph)
        return -1;
    *cost = 0;
    for (int i = 0; i < graph->node_count; i++)
        *cost += op_flops(graph, &graph->nodes[i]);
    graph_destroy(graph);
    return 0;
}

/* Units of a kind cost the same. */
static int find_costs(struct units *units, struct error *err)
{
    double *cost = units->flops = array_make((size_t)units->count, sizeof *cost);
    for (int u = 0; u < units->count; u++) {
        if (u > 0 && units->kind_of[u] == units->kind_of[u - 1])
            cost[u] = cost[u - 1];
        else if (find_cost(units, u, &cost[u], err))
            return -1;
    }
    return 0;
}

/* The cuts for stages [s, stages) that begin with unit u. */
static void cut(const double *cost, int units, int stages, int s, int u, double *least, int *end)
{
    int after = stages - 1 - s, last = units - after; /* each stage after needs a unit */
    double own = 0, best = INFINITY;
    for (int e = u + 1; e <= last; e++) {
        own += cost[e - 1];
        double later = after ? least[(s + 1) * (units + 1) + e] : e == units ? 0 : INFINITY;
        double most = own > later ? own : later;
        if (most < best) {
            best = most;
            end[s * (units + 1) + u] = e;
        }
    }
    least[s * (units + 1) + u] = best;
}

void stages_cut(const double *cost, int count, int stages, int *stage)
{
    size_t places = (size_t)stages * (size_t)(count + 1);
    double *least = array_make(places, sizeof *least);
    int *end = array_make(places, sizeof *end);
    for (int s = stages - 1; s >= 0; s--)
        for (int u = 0; u < count; u++)
            cut(cost, count, stages, s, u, least, end);
    for (int s = 0, u = 0; s < stages; s++)
        for (int e = end[s * (count + 1) + u]; u < e; u++)
            stage[u] = s;
    free(least);
    free(end);
}

static int check_boundaries(const struct units *units, struct error *err)
{
    for (int u = 0; u < units->count; u++)
        for (int k = 0; k < units->boundary[u].inputs; k++) {
            int from = units->boundary[u].producer[k];
            if (units->stage[u] - units->stage[from] > 1)
                return error_set(err,
                                 "parallel.pipeline: unit %d, in stage %d, reads what unit %d puts "
                                 "out in stage %d; stages send to the next one only",
                                 u, units->stage[u], from, units->stage[from]);
        }
    return 0;
}

/* As many units for each stage as text says: "3,2,2,1". */
static int divide_by(struct units *units, int stages, const char *text, struct error *err)
{
    const char *at = text;
    int stage = 0, unit = 0, is_list = 1;
    for (char *end; is_list && *at; stage++, at = end + (*end != 0)) {
        long own = strtol(at, &end, 10);
        is_list =
            end > at && own > 0 && own <= units->count - unit && (!*end || (*end == ',' && end[1]));
        for (; is_list && own > 0; own--)
            units->stage[unit++] = stage;
    }
    if (is_list && stage == stages && unit == units->count)
        return 0;
    return error_set(err,
                     "parallel.stages \"%.40s\" is not how many units each of %d stages has of the "
                     "model's %d (embedding, layers, head), such as 3,2,2,1",
                     text, stages, units->count);
}

static int check_count(const struct units *units, int ranks, struct error *err)
{
    if (units->stages <= units->count)
        return 0;
    const int each = units->stages / ranks; /* stages of a rank */
    if (units->stages == ranks)
        return error_set(err,
                         "parallel.pipeline is %d, but the model has %d units (embedding, layers, "
                         "head), of which each stage has one at least; %d is the most that fits",
                         ranks, units->count, units->count);
    const int fits = units->count / ranks > 1; /* with fewer stages of a rank: several still */
    const char *one = "parallel.schedule=1f1b has one stage a rank, or ";
    return error_set(err,
                     "parallel.pipeline is %d with %d stages in all, but the model has %d units "
                     "(embedding, layers, head), of which each stage has one at least; "
                     "%s%s=%d is the most that fits",
                     ranks, units->stages, units->count, !fits && units->count >= ranks ? one : "",
                     fits ? "parallel.virtual_stages" : "parallel.pipeline",
                     fits ? units->count / ranks : units->count / each);
}

/* Ranks on the pipeline axis. */
static int count_ranks(const struct units_request *request, int stages)
{
    int ranks = 0;
    for (int stage = 0; stage < stages; stage++) {
        int rank = request->rank_of ? request->rank_of[stage] : stage;
        ranks = rank >= ranks ? rank + 1 : ranks;
    }
    return ranks;
}

int stages_find(struct units *units, struct error *err)
{
    const struct units_request *request = &units->request;
    const char *numbers = request->stage_units;
    size_t count = (size_t)units->count;
    units->stages = request->stages > 1 ? request->stages : 1;
    units->stage = array_make(count, sizeof *units->stage);
    units->rank = array_make(count, sizeof *units->rank);
    if (check_count(units, count_ranks(request, units->stages), err) || find_costs(units, err))
        return -1;
    if (!numbers || !*numbers)
        stages_cut(units->flops, units->count, units->stages, units->stage);
    else if (divide_by(units, units->stages, numbers, err))
        return -1;
    for (int u = 0; u < units->count; u++)
        units->rank[u] = request->rank_of ? request->rank_of[units->stage[u]] : units->stage[u];
    return check_boundaries(units, err);
}
