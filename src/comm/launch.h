/* launch.h - what the environment says about the launcher (mpirun, Slurm, torchrun).  Used by
 * comm/, by doctor/, and by train/, which learns how much time a signal leaves to save. */
#ifndef TRIREME_COMM_LAUNCH_H
#define TRIREME_COMM_LAUNCH_H

#include "base/error.h"

/* The variable of Open MPI 4 for the seconds of launch_kill(); 1 second where it is not set. */
#define LAUNCH_KILL_VARIABLE "OMPI_MCA_odls_base_sigkill_timeout"

enum launch_kind {
    LAUNCH_NONE,
    LAUNCH_MPIRUN,
    LAUNCH_TORCHRUN, /* torchrun, accelerate launch or deepspeed */
    LAUNCH_SRUN,
    LAUNCH_PMI,   /* another launcher that sets PMI_SIZE */
    LAUNCH_BATCH, /* a Slurm job's script, without srun */
    LAUNCH_KINDS
};

struct launch {
    enum launch_kind kind;
    const char *name; /* name of the launcher for people: "mpirun", "Slurm without srun", "none" */
    int tasks;        /* tasks that it started (or was to start); 1 if it does not say */
    int task;         /* number of this task, from 0; 0 if it does not say */
    int local_task;   /* number of this task on its node, from 0; 0 if it does not say */
    int joined;       /* 1: it offers MPI a way to find the other tasks */
    int one_node;     /* 1: all tasks are on this node, as far as it says */
};

/* Read the environment. */
struct launch launch_read(void);

/* Compare the launcher's number of tasks with the number of ranks that MPI found.  size 0: MPI is
 * not started yet; then only what cannot work is refused.  Returns 0, or -1 with err set, whose
 * text is empty on tasks above 0, so that one line is printed. */
int launch_check(const struct launch *launch, int size, struct error *err);

/* Returns a line to print before MPI starts where that may end the process in words of its own: of
 * srun --mpi=pmi2, by which an Open MPI starts that was built for it, and no other.  NULL: none,
 * and on tasks above 0. */
const char *launch_doubt(const struct launch *launch);

/* Refuse one process in a Slurm job of several nodes, which would train on one of them, or on the
 * login node from which salloc was called.  Returns 0, or -1 with err set. */
int launch_check_nodes(const struct launch *launch, struct error *err);

/* Refuse a limit of this process's address space (ulimit -v) in which the libraries that start with
 * MPI crash.  To be called before any of them.  host: the name of this node, for the message.
 * Returns 0, or -1 with err set, whose text is empty on all tasks of a node but one. */
int launch_check_memory(const struct launch *launch, const char *host, struct error *err);

/* Prepare the environment for the start of MPI, without changing what the user has set: no warnings
 * that mean nothing here, no ways of copying that this container forbids, and no networks that a
 * job on one node does not need (opening them is two thirds of the time that a start takes).  A
 * TMPDIR in which one process alone could make no folder is changed, because MPI would crash there.
 * In the only task of srun SLURM_NODELIST and PMIX_NAMESPACE are removed, so that it starts alone.
 * Also raises the limits of open files and of a file's size to the hard limits. */
void launch_prepare(const struct launch *launch);

struct launch_kill {
    int ms; /* milliseconds; -1: no launcher is known to kill ranks so */
    enum { LAUNCH_KILL_FIXED, LAUNCH_KILL_DEFAULT, LAUNCH_KILL_SET } source;
};

/* Returns the time between SIGTERM and SIGKILL for a rank where the launcher is asked to end the
 * job, and where it is from: nothing changes it, LAUNCH_KILL_VARIABLE could, or that did. */
struct launch_kill launch_kill(const struct launch *launch);

/* Returns 1 if ranks of a node may copy straight out of one another's memory, as far as a process
 * can find out by itself. */
int launch_may_copy(void);

#endif
