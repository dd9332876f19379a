/* checkpoint_verify.c - comparing a checkpoint's files with its checksums and sizes; see
 * checkpoint.h. */
#include "io/checkpoint_private.h"
#include "io/shard.h"

/* Returns the byte at which part `part` begins, counted in all files laid end to end. */
static int64_t share_of(int64_t bytes, int part, int parts)
{
    return bytes / parts * part + bytes % parts * part / parts;
}

int checkpoint_verify(struct checkpoint *checkpoint, int part, int parts, struct error *err)
{
    int64_t from = share_of(checkpoint->bytes, part, parts);
    int64_t to = share_of(checkpoint->bytes, part + 1, parts), first = 0;
    struct catalog_shards shards = catalog_shards_make(checkpoint->catalog);
    int rc = 0;
    for (int64_t i = 0; i < checkpoint->catalog->file_count && !rc; i++) {
        int64_t bytes = checkpoint->catalog->files[i].bytes;
        if (from < first + bytes && to > first)
            rc = shard_verify(checkpoint->path, checkpoint->catalog, &shards, i, from - first,
                              to - first, err);
        first += bytes;
    }
    catalog_shards_free(&shards);
    return rc;
}

int checkpoint_sizes(const struct checkpoint *checkpoint, struct error *err)
{
    int rc = 0;
    for (int64_t i = 0; i < checkpoint->catalog->file_count && !rc; i++)
        rc = shard_check_size(checkpoint->path, checkpoint->catalog, i, err);
    return rc;
}
