/* forecast.c - see forecast.h. */
#include "simulate/forecast.h"

#include <stdlib.h>

#include "base/array.h"

struct costs {
    struct cost **of; /* per rank */
    struct forecast_transfers *transfers;
    const struct forecast_request *request;
};

static struct play_cost cost_of(void *user, int rank, int i)
{
    const struct costs *costs = user;
    struct play_cost cost = {.seconds = cost_instr_s(costs->of[rank], i)};
    cost.beside = cost_beside(costs->of[rank], i);
    if (instr_is_transfer(&costs->request->program[rank]->instr[i]))
        cost.link = cost_group(costs->of[rank], i).nodes > 1 ? LINK_NETWORK : LINK_NODE;
    else if (cost_is_cached(costs->of[rank], i))
        cost.link = LINK_FILE;
    return cost;
}

/* Add a transfer to the sums of a rank.  A message is counted by its sender alone, as both ends see
 * it. */
static void count_transfer(const struct costs *costs, int rank, int i, double seconds)
{
    const struct program *program = costs->request->program[rank];
    const struct instr *instr = &program->instr[i];
    if (!instr_is_transfer(instr) || instr->kind == INSTR_RECV)
        return;
    int way = cost_group(costs->of[rank], i).nodes > 1 ? FORECAST_BETWEEN : FORECAST_WITHIN;
    struct forecast_transfer *to = &costs->transfers[rank].of[cost_transfer_kind(instr)][way];
    to->count++;
    to->bytes += cost_transfer_bytes(program, instr);
    to->seconds += seconds;
}

static void watch(void *user, int rank, int i, double start_s, double end_s)
{
    const struct costs *costs = user;
    count_transfer(costs, rank, i, end_s - start_s);
    if (costs->request->watch)
        costs->request->watch(costs->request->user, rank, i, start_s, end_s);
}

static void waited(void *user, int rank, int i, enum play_kind kind, double seconds)
{
    const struct costs *costs = user;
    costs->request->waited(costs->request->user, rank, i, kind, seconds);
}

static double share(double value)
{
    return value > 0 ? value : 1;
}

int forecast_make(struct forecast *forecast, const struct forecast_request *request,
                  struct error *err)
{
    struct costs costs = {.request = request};
    struct play play;
    for (int r = 0; r < request->ranks; r++)
        if (!request->program[r]->has_waits)
            return error_set(err, "forecast: a program was compiled without waits");
    costs.of = array_make((size_t)request->ranks, sizeof *costs.of);
    costs.transfers = array_make((size_t)request->ranks, sizeof *costs.transfers);
    for (int r = 0; r < request->ranks; r++)
        costs.of[r] = cost_create(&(struct cost_request){.machine = request->machine,
                                                         .program = request->program[r],
                                                         .device = request->device,
                                                         .per_node = request->per_node,
                                                         .ns_steps = request->ns_steps,
                                                         .files = request->files});
    int rc = play_step(&play,
                       &(struct play_request){
                           .ranks = request->ranks,
                           .program = request->program,
                           .beside_compute = share(request->machine->beside_compute),
                           .beside_transfer = share(request->machine->beside_transfer),
                           .beside_file_compute = share(request->machine->beside_file_compute),
                           .beside_file = share(request->machine->beside_file),
                           .host_is_compute = !request->device->asynchronous,
                           .step_s = request->machine->step_s,
                           .cost = cost_of,
                           .watch = watch,
                           .waited = request->waited ? waited : NULL,
                           .user = &costs,
                       },
                       err);
    for (int r = 0; r < request->ranks; r++)
        cost_destroy(costs.of[r]);
    free(costs.of);
    if (rc) {
        free(costs.transfers);
        return -1;
    }
    *forecast = (struct forecast){.step_s = play.step_s,
                                  .ranks = play.ranks,
                                  .rank = play.rank,
                                  .transfers = costs.transfers};
    return 0;
}

void forecast_free(struct forecast *forecast)
{
    free(forecast->rank);
    free(forecast->transfers);
    *forecast = (struct forecast){0};
}

static double waits_s(const struct play_rank *rank)
{
    double sum = 0;
    for (int kind = PLAY_GATHER; kind < PLAY_KINDS; kind++)
        sum += rank->seconds[kind];
    return sum;
}

const struct play_rank *forecast_busiest(const struct forecast *forecast)
{
    const struct play_rank *busiest = &forecast->rank[0];
    for (int r = 1; r < forecast->ranks; r++)
        if (waits_s(&forecast->rank[r]) < waits_s(busiest))
            busiest = &forecast->rank[r];
    return busiest;
}
