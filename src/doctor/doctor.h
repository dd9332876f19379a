/* doctor.h - trireme doctor: what this machine has, how fast it is, and what is wrong with it. */
#ifndef TRIREME_DOCTOR_DOCTOR_H
#define TRIREME_DOCTOR_DOCTOR_H

#include "comm/world.h"

/* Print facts and a list of problems, on rank 0.  Starts the world, after the checks that have to
 * come before MPI starts.  *world, NULL before, is for world_stop(), also after a failure; it stays
 * NULL where MPI does not start, which is then one of the problems.  Collective over all processes.
 * Returns 0, or -1: with err set on all ranks where a measurement failed; with err->code alone, and
 * no text, where the list has a problem that keeps trireme from running. */
int doctor_run(struct world **world, struct mem *mem, struct error *err);

/* Check the kernels of the ranks' GPUs.  Print a line for each family of kernels on rank 0's GPU,
 * and for each family that is wrong on another rank's; store the results for later runs
 * (device/self_check.h).  Starts the world; *world, NULL before, is for world_stop(), also after a
 * failure.  Collective.  Returns 0, or -1 with err set on all ranks: there is no GPU, or a family
 * is wrong that no other kernels can replace. */
int doctor_self_check(struct world **world, struct mem *mem, struct error *err);

#endif
