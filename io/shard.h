/* shard.h - one rank's file of a checkpoint.
 *
 * Its HDF5 skeleton is made first, with an empty contiguous dataset per piece and the views of some
 * tensors (see catalog_view.c), and closed; then the
 * bytes are put at their offsets by plain writes, which need no HDF5 and could be done by any
 * thread.  HDF5 cannot see whether the bytes arrived; checksums show it.
 */
#ifndef TRIREME_IO_SHARD_H
#define TRIREME_IO_SHARD_H

#include <stdint.h>

#include "io/catalog.h"
#include "io/checkpoint.h"

/* Where a piece was written, and its checksum; both are 0 for an empty one. */
struct shard_place {
    int64_t offset;
    uint64_t checksum;
};

/* Make the file at path, number `shard` of the catalog, with datasets for the pieces and with its
 * views, write the pieces there and fsync; fills in places[count] and the file's row. */
int shard_write(const char *path, const struct catalog *catalog, int64_t shard,
                const struct checkpoint_piece *pieces, int count, struct shard_place *places,
                struct catalog_file *row, struct error *err);

/* Has file number `shard` in the folder the size that the catalog says? */
int shard_check_size(const char *folder, const struct catalog *catalog, int64_t shard,
                     struct error *err);

/* The same, and recompute its checksums: of the pieces whose middle is among its bytes [from, to),
 * and of the rest if the last byte is.  shards is of catalog_shards_make(). */
int shard_verify(const char *folder, const struct catalog *catalog,
                 const struct catalog_shards *shards, int64_t shard, int64_t from, int64_t to,
                 struct error *err);

#endif
