/* launch.h - what the launcher (mpirun, Slurm, torchrun) says in the environment.  For comm/, the
 * doctor, and what a signal is answered with. */
#ifndef TRIREME_COMM_LAUNCH_H
#define TRIREME_COMM_LAUNCH_H

#include "base/error.h"

/* Of Open MPI: the seconds of launch_kill_s(), 1 where it is not set. */
#define LAUNCH_KILL_VARIABLE "OMPI_MCA_odls_base_sigkill_timeout"

enum launch_kind {
    LAUNCH_NONE,
    LAUNCH_MPIRUN,
    LAUNCH_TORCHRUN, /* or its like */
    LAUNCH_SRUN,
    LAUNCH_PMI,
    LAUNCH_BATCH, /* a job's script, without srun */
    LAUNCH_KINDS
};

struct launch {
    enum launch_kind kind;
    const char *name; /* of it, for people: "mpirun", "Slurm without srun", "none" */
    int tasks;        /* tasks it started (or means to); 1 if it does not say */
    int task;         /* of this process, 0 if it does not say */
    int joined;       /* whether it offered a way for MPI to find the others */
    int one_node;     /* whether all tasks are on this node, as far as it says */
};

struct launch launch_read(void);

/* Compare with what MPI found (size; 0: before MPI is started, when only what cannot work
 * is refused).  Returns 0, or -1 with err set; its text is empty on tasks above 0. */
int launch_check(const struct launch *launch, int size, struct error *err);

/* Before MPI starts: settings that keep it from printing warnings that mean nothing here,
 * from ways of copying this container forbids, and from opening networks a job on one node
 * does not need (two thirds of the time it takes to start).  What the user has set stays.  And as
 * many open files as the hard limit allows. */
void launch_prepare(const struct launch *launch);

/* Seconds between SIGTERM and SIGKILL for a rank where the launcher is asked to end the job, as far
 * as the environment says; -1: no launcher is known to do so. */
int launch_kill_s(const struct launch *launch);

/* May ranks of a node copy straight out of one another's memory, as far as a process can find out
 * by itself? */
int launch_may_copy(void);

#endif
