/* doctor.h - what was found on this machine, and what is wrong with it. */
#ifndef TRIREME_DOCTOR_DOCTOR_H
#define TRIREME_DOCTOR_DOCTOR_H

#include "comm/world.h"

/* Print facts and problems, on rank 0.  Starts the world, after the checks that have to come before
 * MPI starts.  *world, NULL before, is for world_stop(), also after a failure; it stays NULL where
 * MPI does not start, which is then one of the problems.  Collective where there is a world.
 * Returns 0, or -1: with err set on all ranks when a measurement failed, without a text when the
 * list has a problem that keeps trireme from running. */
int doctor_run(struct world **world, struct mem *mem, struct error *err);

/* Check the kernels of the ranks' GPUs and print a line for each family, of rank 0, and for what is
 * wrong on others; keep what was found (device/self_check.h).  world as above.  Collective.
 * Returns 0, or -1 with err set on all ranks: there is no GPU, or a family is wrong that nothing
 * can replace. */
int doctor_self_check(struct world **world, struct mem *mem, struct error *err);

#endif
