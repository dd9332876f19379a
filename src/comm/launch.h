/* launch.h - what the launcher (Slurm, mpirun) says in the environment.  Private to comm/
 * and the doctor. */
#ifndef TRIREME_COMM_LAUNCH_H
#define TRIREME_COMM_LAUNCH_H

#include "base/error.h"

struct launch {
    const char *by; /* "mpirun", "srun", "Slurm without srun", "PMI", "none" */
    int tasks;      /* tasks it started (or means to); 1 if it does not say */
    int task;       /* of this process, 0 if it does not say */
    int joined;     /* whether it offered a way for MPI to find the others */
};

struct launch launch_read(void);

/* Compare with what MPI found (size; 0: before MPI is started, when only what cannot work
 * is refused).  Returns 0, or -1 with err set; its text is empty on tasks above 0. */
int launch_check(const struct launch *launch, int size, struct error *err);

/* Settings that keep MPI from printing warnings that mean nothing here, and from ways of
 * copying this container forbids.  What the user has set stays.  Before MPI starts. */
void launch_quiet(void);

#endif
