/* shard_thread.h - a thread that writes a rank's file of a checkpoint from a copy of its pieces,
 * while the caller changes what they were copied from.
 */
#ifndef TRIREME_IO_SHARD_THREAD_H
#define TRIREME_IO_SHARD_THREAD_H

#include "io/shard.h"

struct shard_thread;

/* Returns the bytes that a copy of the pieces takes. */
size_t shard_thread_copy_bytes(const struct checkpoint_piece *pieces, int count);

/* Copy the pieces to `copy`, of `bytes` bytes, and start a thread that does
 * shard_fill() from there; the file at path has been made by shard_make().  path, copy and places
 * stay the caller's and must outlive the thread; the pieces are not read after the return.  Not
 * collective.  Returns 0 and a thread for shard_thread_end(), or -1 with err set: a piece could not
 * be fetched, bytes are fewer than shard_thread_copy_bytes(), no thread could be started. */
int shard_thread_start(struct shard_thread **thread, const char *path,
                       const struct checkpoint_piece *pieces, int count, struct shard_place *places,
                       void *copy, size_t bytes, struct error *err);

/* Has the thread done its work, or failed?  Any thread may ask. */
int shard_thread_is_done(const struct shard_thread *thread);

/* Wait for the thread and free it.  Sets *row, the places and err (NULL allowed) as shard_fill()
 * did in the thread, and returns what it returned. */
int shard_thread_end(struct shard_thread *thread, struct catalog_file *row, struct error *err);

#endif
