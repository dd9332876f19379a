/* shard_thread.c - see shard_thread.h.
 *
 * The thread takes 1.5 s of a core for 1.5 GB, nearly all of it in the kernel.  Where steps compute
 * on all cores, the other cores wait for the one that it takes.  So it works in the background
 * (base/background.h): with about a tenth of such a core, and all of one that is free.
 *
 * The copies lie one after the other, in the order of the pieces.  The thread calls neither HDF5
 * nor MPI nor CUDA: only pwrite() and fsync().  What it writes notes signs of life (base/alive.h),
 * so that a rank at a slow disk, for which the others wait at the end, is not taken for a stuck
 * one.
 */
#include "io/shard_thread.h"

#include <stdlib.h>
#include <string.h>

#include "base/alive.h"
#include "base/array.h"
#include "base/background.h"
#include "base/quiet_thread.h"

struct shard_thread {
    pthread_t id;
    const char *path;
    struct checkpoint_piece *piece; /* [count] with data in the copy */
    int count;
    struct shard_place *places; /* [count] the caller's */
    struct catalog_file row;
    int rc; /* of shard_fill() */
    struct error err;
    int is_done;
};

static size_t bytes_of(const struct checkpoint_piece *piece)
{
    return (size_t)piece->count * dtype_bytes(piece->dtype);
}

size_t shard_thread_copy_bytes(const struct checkpoint_piece *pieces, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += bytes_of(&pieces[i]);
    return bytes;
}

/* Copy the pieces, and let the thread's pieces lead to the copies.  Returns 0, or -1 with err set.
 */
static int copy_pieces(struct shard_thread *t, const struct checkpoint_piece *pieces, char *to,
                       size_t space, struct error *err)
{
    size_t need = shard_thread_copy_bytes(pieces, t->count);
    if (need > space)
        return error_set(err, "%s: a copy of its tensors takes %zu bytes, and %zu were planned",
                         t->path, need, space);
    for (int i = 0; i < t->count; i++) {
        size_t bytes = bytes_of(&pieces[i]);
        t->piece[i] = (struct checkpoint_piece){
            .dtype = pieces[i].dtype, .count = pieces[i].count, .data = to};
        if (bytes && !pieces[i].fetch)
            memcpy(to, pieces[i].data, bytes);
        else if (bytes && pieces[i].fetch(&pieces[i], to, 0, bytes, err))
            return -1;
        to += bytes;
        alive_note();
    }
    return 0;
}

static void *write_file(void *arg)
{
    struct shard_thread *t = arg;
    background_begin();
    t->rc = shard_fill(t->path, t->piece, t->count, t->places, &t->row, &t->err);
    background_end();
    __atomic_store_n(&t->is_done, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void destroy(struct shard_thread *t)
{
    free(t->piece);
    free(t);
}

int shard_thread_start(struct shard_thread **thread, const char *path,
                       const struct checkpoint_piece *pieces, int count, struct shard_place *places,
                       void *copy, size_t bytes, struct error *err)
{
    struct shard_thread *t = array_make(1, sizeof *t);
    *t = (struct shard_thread){.path = path, .count = count, .places = places};
    t->piece = array_make((size_t)count, sizeof *t->piece);
    *thread = NULL;
    int rc = copy_pieces(t, pieces, copy, bytes, err);
    int failed = rc ? 0 : quiet_thread_start(&t->id, "checkpoint", write_file, t);
    if (failed)
        rc = error_set(err, "cannot start a thread that writes %s: %s", path, strerror(failed));
    if (rc) {
        destroy(t);
        return -1;
    }
    *thread = t;
    return 0;
}

int shard_thread_is_done(const struct shard_thread *t)
{
    return __atomic_load_n(&t->is_done, __ATOMIC_ACQUIRE);
}

int shard_thread_end(struct shard_thread *t, struct catalog_file *row, struct error *err)
{
    pthread_join(t->id, NULL);
    int rc = t->rc;
    *row = t->row;
    if (rc && err)
        *err = t->err;
    destroy(t);
    return rc;
}
