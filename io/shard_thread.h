/* shard_thread.h - the pieces of a checkpoint copied, and written to a rank's file by a thread
 * while the caller changes what they were copied from.
 */
#ifndef TRIREME_IO_SHARD_THREAD_H
#define TRIREME_IO_SHARD_THREAD_H

#include "io/shard.h"

struct shard_thread;

/* Returns the bytes that a copy of the pieces takes. */
size_t shard_thread_copy_bytes(const struct checkpoint_piece *pieces, int count);

/* Copy the pieces to `copy`, of shard_thread_copy_bytes(), and start a thread that does
 * shard_fill() from there; the file at path has been made by shard_make().  path, copy and places
 * stay the caller's and must outlive the thread; the pieces are not read after the return.  Not
 * collective.  Returns 0 and a thread for shard_thread_end(), or -1 with err set: a piece could not
 * be fetched, no thread could be started. */
int shard_thread_start(struct shard_thread **thread, const char *path,
                       const struct checkpoint_piece *pieces, int count, struct shard_place *places,
                       void *copy, struct error *err);

/* Has the thread done its work, or failed?  Any thread may ask. */
int shard_thread_is_done(const struct shard_thread *thread);

/* Wait for the thread and free it.  Returns what shard_fill() has returned, with *row and the
 * places, or err, set by it. */
int shard_thread_end(struct shard_thread *thread, struct catalog_file *row, struct error *err);

#endif
