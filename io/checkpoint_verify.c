/* checkpoint_verify.c - comparing a checkpoint's files with its checksums and sizes; see
 * checkpoint.h. */
#include <stdlib.h>
#include <sys/stat.h>

#include "base/array.h"
#include "io/checkpoint_private.h"
#include "io/shard.h"

static char *shard_path(const struct checkpoint *checkpoint, int64_t shard)
{
    char name[SHARD_NAME];
    catalog_shard_name(name, shard);
    return array_format("%s/%s", checkpoint->path, name);
}

/* Where part `part` of the bytes of all files, laid end to end, begins. */
static int64_t share_of(int64_t bytes, int part, int parts)
{
    return bytes / parts * part + bytes % parts * part / parts;
}

int checkpoint_verify(struct checkpoint *checkpoint, int part, int parts, struct error *err)
{
    int64_t from = share_of(checkpoint->bytes, part, parts);
    int64_t to = share_of(checkpoint->bytes, part + 1, parts), first = 0;
    int rc = 0;
    for (int64_t i = 0; i < checkpoint->catalog.file_count && !rc; i++) {
        int64_t bytes = checkpoint->catalog.files[i].bytes;
        if (from < first + bytes && to > first) {
            char *path = shard_path(checkpoint, i);
            rc = shard_verify(path, &checkpoint->catalog, i, from - first, to - first, err);
            free(path);
        }
        first += bytes;
    }
    return rc;
}

int checkpoint_sizes(const struct checkpoint *checkpoint, struct error *err)
{
    int rc = 0;
    for (int64_t i = 0; i < checkpoint->catalog.file_count && !rc; i++) {
        struct stat info;
        char *path = shard_path(checkpoint, i);
        if (stat(path, &info))
            rc = error_errno(err, "cannot look at %s", path);
        else if (info.st_size != checkpoint->catalog.files[i].bytes)
            rc = error_set(err, "%s has %lld bytes, %lld were written", path,
                           (long long)info.st_size, (long long)checkpoint->catalog.files[i].bytes);
        free(path);
    }
    return rc;
}
