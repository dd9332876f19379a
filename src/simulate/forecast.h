/* forecast.h - how long a step takes on a machine: the costs of instructions, played in time. */
#ifndef TRIREME_SIMULATE_FORECAST_H
#define TRIREME_SIMULATE_FORECAST_H

#include "base/error.h"
#include "simulate/cost.h"
#include "simulate/play.h"

struct forecast_request {
    const struct machine *machine;
    const struct device *device; /* says how ops divide their work; it may be a planning one */
    int ranks;
    const struct program *const *program; /* of ranks whose groups the others of the job repeat:
                                             see play.h */
    int per_node;                         /* ranks of a node */
    int ns_steps;                         /* of muon */
    const struct machine_files *files;    /* of a node; NULL: nothing fits the page cache */
    play_watch *watch;                    /* or NULL: sees every instruction */
    play_waited *waited;                  /* or NULL: sees every wait */
    void *user;
};

/* Transfers of one kind that a rank takes part in (of messages, those that it sends): how many,
 * their bytes (as machine.h counts), and the seconds from the arrival of the last member to the
 * end, including what other work at the same time costs. */
struct forecast_transfer {
    double count, bytes, seconds;
};

/* A rank's, within a node and between nodes. */
enum { FORECAST_WITHIN, FORECAST_BETWEEN, FORECAST_WAYS };
struct forecast_transfers {
    struct forecast_transfer of[MACHINE_TRANSFERS][FORECAST_WAYS];
};

struct forecast {
    double step_s;
    int ranks;
    struct play_rank *rank;               /* in the order of the request's programs */
    struct forecast_transfers *transfers; /* the same */
};

/* Returns 0 and a forecast for forecast_free(), or -1 with err set: ranks that wait for one another
 * for ever.  Pure. */
int forecast_make(struct forecast *forecast, const struct forecast_request *request,
                  struct error *err);
void forecast_free(struct forecast *forecast); /* one that is all zero is allowed */

/* The rank whose compute stream waits least: it is what the step's time comes from. */
const struct play_rank *forecast_busiest(const struct forecast *forecast);

#endif
