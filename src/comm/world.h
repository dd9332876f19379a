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
 * meant).  The text is filled on the launcher's first task and empty on the others.  Fails so, too,
 * before MPI starts, with an address space in which it would crash (launch_check_memory()). */
int world_start(struct world **world, struct mem *mem, struct error *err);

/* End MPI and free the world (NULL allowed).  Collective. */
void world_stop(struct world *world);

/* End every rank of the job at once with this exit code; any thread may call it.  Prints
 * nothing (mpirun adds its own notice).  world NULL: this process alone. */
void world_abort(struct world *world, int code) __attribute__((noreturn));

/* End the job after a failure of this rank alone, while the other ranks wait for it: print one line
 * that names rank and host, and end all ranks with err's code.  Any thread may call it. */
void world_fail(struct world *world, const struct error *err) __attribute__((noreturn));

/* Handle the outcome rc of something that may fail on one rank alone, such as an instruction of a
 * step.  If rc is not 0, calls world_fail() where there are other ranks, and returns -1 where there
 * are none.  Returns 0 if rc is 0. */
int world_end_job_if_failed(struct world *world, int rc, const struct error *err);

/* End the job with EXIT_HANG when operations have waited for peers this long without any progress,
 * and without a sign of life (base/alive.h) from these peers or from the ranks that they wait for
 * themselves.  0, as at the start: never.  Time in which the job was suspended does not count.  One
 * line on stderr names the rank that does not answer or does nothing, its host, and the operation
 * that waits. */
void world_watch(struct world *world, int seconds);

int world_rank(const struct world *world);  /* world may be NULL */
int world_size(const struct world *world);  /* world may be NULL */
int world_nodes(const struct world *world); /* number of nodes */
/* Number of this rank's node, from 0, in the order of the nodes' lowest ranks; world may be NULL.
 */
int world_node(const struct world *world);
int world_local_rank(const struct world *world);   /* number among the ranks of this node, from 0 */
int world_local_size(const struct world *world);   /* ranks on this node */
const char *world_host(const struct world *world); /* this node's host name */
/* The host name of a rank, or of a node by its number, cut to 63 characters; the world's.  Not
 * collective. */
const char *world_host_of(const struct world *world, int rank);
const char *world_host_of_node(const struct world *world, int node);

/* Cores this rank may keep busy: those it is bound to, divided by the ranks bound to the same
 * ones, and not more than its share of the container's quota; at least 1. */
int world_cores(const struct world *world);

/* How many ranks of this node, this one included, are bound to a core that this rank is bound to.
 */
int world_core_sharers(const struct world *world);

/* Returns the bytes of other ranks' memory that this rank has mapped, all of which /proc counts as
 * resident memory of this process too; world may be NULL. */
size_t world_mapped_bytes(const struct world *world);

/* Name and version of the MPI library, one line. */
const char *world_library(const struct world *world);

/* Agree on the outcome of a phase that can fail on one rank.  Collective.
 * rc is this rank's outcome (0 or -1) and err its text.  Returns 0 if all ranks had 0;
 * else -1 on every rank, with err (text and code) of the lowest failing rank.  Where only some
 * ranks failed, that rank's number and host are put before the text.  world may be NULL. */
int world_agree(struct world *world, int rc, struct error *err);

/* ---- small collectives on host memory, for control; a failure of MPI itself ends the job ---- */

/* Copy rank root's data to all ranks.  world may be NULL. */
void world_broadcast(struct world *world, void *data, size_t bytes, int root);
enum world_reduction { WORLD_SUM, WORLD_MIN, WORLD_MAX };
/* Replace each of the values by its sum, minimum or maximum over all ranks, the same bits on all.
 */
void world_all_reduce(struct world *world, double *values, int count, enum world_reduction how);
/* Gather every rank's `bytes` bytes of mine in all[world_size * bytes], in rank order, on every
 * rank. */
void world_all_gather(struct world *world, void *all, const void *mine, size_t bytes);
/* Gather every rank's bytes on rank root, end to end in rank order, in *all (free() it), and their
 * sizes in sizes[world_size].  bytes may differ between ranks.  On other ranks *all becomes NULL,
 * and sizes is not written.  world may be NULL.  Returns 0, or -1 on every rank with err set (out
 * of memory on root). */
int world_gather(struct world *world, char **all, size_t *sizes, const void *mine, size_t bytes,
                 int root, struct error *err);
/* Wait until every rank has called this. */
void world_barrier(struct world *world);

/* ---- messages of host memory ----
 *
 * Not collective; a failure of MPI ends the job.  Messages from one rank to another are received in
 * the order in which they were sent, each in its size.  A rank sends none to itself. */

struct world_message {
    int rank; /* that receives it */
    const void *data;
    size_t bytes;
};
/* Send all messages of a list, side by side, at most GROUP_MESSAGES at a time (group.h); returns
 * when the memory of each may be changed. */
void world_send(struct world *world, const struct world_message *messages, int count);
/* Receive the next message of a rank, which has exactly this many bytes. */
void world_recv(struct world *world, void *data, size_t bytes, int rank);

#endif
