/* checkpoint_share.c - rank 0 reads a checkpoint's index and meta.json, and broadcasts them.
 *
 * The index of a large model on thousands of ranks has tens of megabytes.  If each rank read it,
 * the file system would have to deliver it thousands of times at the start of a run.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/checkpoint_private.h"

char *checkpoint_share_text(struct world *world, const char *text)
{
    int rank = world_rank(world);
    size_t bytes = rank ? 0 : strlen(text) + 1;
    world_broadcast(world, &bytes, sizeof bytes, 0);
    char *shared = rank ? array_make(bytes, 1) : array_text(text);
    world_broadcast(world, shared, bytes, 0);
    return shared;
}

/* On rank 0: open the checkpoint, and write its meta.json into *meta as a text, to be free()d.
 * Returns 0, or -1 with err set. */
static int open_first(struct checkpoint **checkpoint, char **meta, const char *path,
                      struct error *err)
{
    if (checkpoint_open(checkpoint, path, err))
        return -1;
    *meta = js_text((*checkpoint)->meta, JS_EXACT, err);
    if (*meta)
        return 0;
    checkpoint_close(*checkpoint);
    *checkpoint = NULL;
    return -1;
}

/* Copy the catalog and meta.json that rank 0 has read into the checkpoints of the other ranks. */
static int share(struct checkpoint *checkpoint, struct world *world, const char *meta,
                 struct error *err)
{
    int rc = 0;
    char *text = checkpoint_share_text(world, meta);
    catalog_broadcast(checkpoint->catalog, world);
    if (world_rank(world)) {
        checkpoint_count(checkpoint);
        checkpoint->meta = js_parse(text, err);
        rc = checkpoint->meta ? 0 : -1;
    }
    free(text);
    return world_agree(world, rc, err);
}

int checkpoint_open_shared(struct checkpoint **checkpoint, struct world *world, const char *path,
                           struct error *err)
{
    char *meta = NULL;
    int rank = world_rank(world), rc;
    *checkpoint = NULL;
    rc = rank ? checkpoint_check_committed(path, err) : open_first(checkpoint, &meta, path, err);
    int first = rc;
    /* If rank 0 fails, all ranks fail, so that world_agree() puts no "rank N" before the message.
     * It does so if rank 0 succeeds and another rank sees no COMMIT. */
    world_broadcast(world, &first, sizeof first, 0);
    rc = world_agree(world, first ? -1 : rc, err);
    if (!rc) {
        if (rank)
            *checkpoint = checkpoint_make(path);
        rc = share(*checkpoint, world, meta, err);
    }
    free(meta);
    if (rc) {
        checkpoint_close(*checkpoint);
        *checkpoint = NULL;
    }
    return rc;
}
