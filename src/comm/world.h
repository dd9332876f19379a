/* world.h - all ranks of the job: start, who is where, failing together.
 *
 * MPI is used only in comm/.  One thread, the communication thread, makes every MPI
 * call of the process, from MPI_Init to MPI_Finalize; the functions below hand it work.
 * So no MPI build with threads is needed, and communication advances while the caller
 * computes.
 *
 * Where a function says "world may be NULL", NULL means this process alone, without MPI.
 */
#ifndef TRIREME_COMM_WORLD_H
#define TRIREME_COMM_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"

struct world;

/* Start MPI and the communication thread.  Collective over the job.  Works under srun
 * --mpi=pmix, mpirun, and alone (a world of one).  mem counts the transport's staging
 * (POOL_COMM) and outlives the world.  Returns 0 and a world for world_stop(), or -1 with err set;
 * once MPI runs with several ranks, a rank that fails ends the job instead.
 *
 * Fails with EXIT_USAGE if a launcher started several tasks but MPI sees one: under srun
 * without --mpi=pmix, and also in a batch script or allocation of several tasks without
 * srun, where training on one of them would waste the rest ("srun -n 1" says that one is
 * meant).  The text is filled on the launcher's first task and empty on the others. */
int world_start(struct world **world, struct mem *mem, struct error *err);

/* End MPI and free the world (NULL allowed).  Collective. */
void world_stop(struct world *world);

/* End every rank of the job at once with this exit code; any thread may call it.  Prints
 * nothing (mpirun adds its own notice).  world NULL: this process alone. */
void world_abort(struct world *world, int code) __attribute__((noreturn));

/* This rank alone failed in the midst of what all do: print one line that names rank and host, and
 * end the job with err's code, as the others wait for what will not come. */
void world_fail(struct world *world, const struct error *err) __attribute__((noreturn));

/* What by contract fails on one rank alone, such as an instruction of a step: with rc other than
 * 0, world_fail() if there are other ranks, else -1.  Returns 0 with rc 0. */
int world_must(struct world *world, int rc, const struct error *err);

/* End the job with EXIT_HANG when operations have waited for peers this long without any advance
 * and without a sign of life (base/alive.h) of those peers, or of those that the peers wait for (0,
 * as at the start: never).  Time in which the job was suspended does not count.  One line on stderr
 * names the rank that does not answer or does nothing, its host, and the operation that waits. */
void world_watch(struct world *world, int seconds);

int world_rank(const struct world *world);       /* world may be NULL */
int world_size(const struct world *world);       /* world may be NULL */
int world_nodes(const struct world *world);      /* how many; numbered in order of lowest ranks */
int world_node(const struct world *world);       /* this rank's, from 0; may be NULL */
int world_local_rank(const struct world *world); /* within the node */
int world_local_size(const struct world *world); /* ranks on this node */
const char *world_host(const struct world *world);
/* The host of a rank, or of a node by its number, cut to 63 characters; the world's.  Not
 * collective. */
const char *world_host_of(const struct world *world, int rank);
const char *world_host_of_node(const struct world *world, int node);

/* Cores this rank may keep busy: those it is bound to, shared out evenly among the ranks
 * bound to the same ones, and not more than the container's quota; at least 1. */
int world_cores(const struct world *world);

/* Ranks of this node, itself included, that are bound to a core which this rank is bound to. */
int world_core_sharers(const struct world *world);

/* Name and version of the MPI library, one line. */
const char *world_library(const struct world *world);

/* Agree on the outcome of a phase that can fail on one rank.  Collective.
 * rc is this rank's outcome (0 or -1) and err its text.  Returns 0 if all ranks had 0;
 * else -1 on every rank, with err (text and code) of the lowest failing rank.  Where only some
 * ranks failed, that rank's number and host are put before the text.  world may be NULL. */
int world_agree(struct world *world, int rc, struct error *err);

/* Small host-side collectives for control; values of every rank, the same bits on all.  A failure
 * of MPI itself ends the job.  For world_broadcast() and world_gather(), world may be NULL. */
void world_broadcast(struct world *world, void *data, size_t bytes, int root);
enum world_reduction { WORLD_SUM, WORLD_MIN, WORLD_MAX };
void world_all_reduce(struct world *world, double *values, int count, enum world_reduction how);
/* all[world_size * bytes] on every rank, in rank order */
void world_all_gather(struct world *world, void *all, const void *mine, size_t bytes);
/* Rank root receives every rank's bytes end to end in *all (free() it) and their sizes
 * in sizes[world_size]; on other ranks *all is NULL and sizes untouched.
 * Returns 0, or -1 with err set (out of memory on root), agreed. */
int world_gather(struct world *world, char **all, size_t *sizes, const void *mine, size_t bytes,
                 int root, struct error *err);
void world_barrier(struct world *world);

/* Messages of host memory to other ranks.  Not collective; a failure of MPI ends the job.  Those
 * from one rank to another are received in order, in the sizes in which they were sent.
 * world_send() sends all of a list side by side and returns when the memory of each may be changed.
 * A rank sends none to itself. */
struct world_message {
    int rank;
    const void *data;
    size_t bytes;
};
void world_send(struct world *world, const struct world_message *messages, int count);
void world_recv(struct world *world, void *data, size_t bytes, int rank);

#endif
