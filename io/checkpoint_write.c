/* checkpoint_write.c - checkpoints that are written in the background.
 *
 * checkpoint_begin() does step 1 of checkpoint_save.c, makes the shard files' HDF5 structure,
 * copies the pieces, and starts a thread that does the rest of step 2; checkpoint_end() does
 * step 3.  A kill in between leaves a .partial folder, as one in the middle of a save does.
 */
#include <stdlib.h>

#include "base/array.h"
#include "io/checkpoint_private.h"
#include "io/shard_thread.h"

struct checkpoint_writing {
    struct checkpoint_saving save; /* without pieces, once they are copied */
    char *dir;
    struct js *meta;
    struct shard_thread *thread; /* NULL: not started */
};

size_t checkpoint_copy_bytes(const struct checkpoint_piece *pieces, int count)
{
    return shard_thread_copy_bytes(pieces, count);
}

/* Free a checkpoint that was being written and whose thread has ended.  Takes and returns rc as
 * finish() does. */
static int close_writing(struct checkpoint_writing *w, int rc)
{
    rc = checkpoint_save_finish(&w->save, rc);
    js_free(w->meta);
    free(w->dir);
    free(w);
    return rc;
}

/* Make the shard file, copy the pieces and start the thread.  Collective.  Returns 0, or -1 with
 * err set on every rank, and no thread is running. */
static int start_shard(struct checkpoint_writing *w, void *copy, size_t bytes, struct error *err)
{
    struct checkpoint_saving *save = &w->save;
    struct catalog_file row;
    int rc = checkpoint_save_make_shard(save, err) ||
             shard_thread_start(&w->thread, save->shard, save->pieces, save->count,
                                save->places + 1, copy, bytes, err);
    rc = world_agree(save->world, rc ? -1 : 0, err);
    if (rc && w->thread)
        shard_thread_end(w->thread, &row, NULL); /* another rank has failed */
    return rc;
}

int checkpoint_begin(struct checkpoint_writing **writing, struct world *world, const char *dir,
                     int64_t step, const struct checkpoint_piece *pieces, int count,
                     struct js *meta, void *copy, size_t bytes, struct error *err)
{
    struct checkpoint_writing *w = array_make(1, sizeof *w);
    *w = (struct checkpoint_writing){.dir = array_text(dir), .meta = meta};
    w->save = (struct checkpoint_saving){
        .world = world, .dir = w->dir, .step = step, .pieces = pieces, .count = count};
    *writing = NULL;
    int rc = world_agree(world, checkpoint_save_begin(&w->save, err), err);
    if (rc || checkpoint_save_plan(&w->save, err) || start_shard(w, copy, bytes, err))
        return close_writing(w, -1);
    w->save.pieces = NULL;
    if (world_rank(world))
        catalog_free(&w->save.catalog); /* of all ranks' pieces; rank 0 writes the index from it */
    *writing = w;
    return 0;
}

int checkpoint_is_written(const struct checkpoint_writing *w)
{
    double done = shard_thread_is_done(w->thread);
    if (w->save.world)
        world_all_reduce(w->save.world, &done, 1, WORLD_MIN);
    return done > 0;
}

int checkpoint_end(struct checkpoint_writing *w, struct error *err)
{
    struct catalog_file row;
    int rc = shard_thread_end(w->thread, &row, err);
    rc = checkpoint_save_agree_on_shard(&w->save, rc, &row, err);
    return close_writing(w, rc || checkpoint_save_commit(&w->save, w->meta, err));
}
