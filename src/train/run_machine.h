/* run_machine.h - the machine that a run is on, as the key run.machine says. */
#ifndef TRIREME_TRAIN_RUN_MACHINE_H
#define TRIREME_TRAIN_RUN_MACHINE_H

#include "config/config.h"
#include "simulate/machine.h"

struct run_machine {
    int is_known; /* 1: machine is set */
    struct machine machine;
    const char *network; /* the network that run.machine names after @, or ""; the config's text */
};

/* Find the machine of run.machine.  gpu: the name of the GPU of a run on GPUs; NULL: it is on
 * processors.  config must outlive machine.  Not collective.  Returns 0 and a machine, known or
 * not, for run_machine_free(), or -1 with err set: no such machine, or one that does not fit the
 * run. */
int run_machine_find(struct run_machine *machine, const struct config *config, const char *gpu,
                     struct error *err);
void run_machine_free(struct run_machine *machine); /* one that is all zero is allowed */

#endif
