/* shard.h - one rank's file of a checkpoint.
 *
 * HDF5 makes its skeleton first: an unwritten contiguous dataset per piece and the views of some
 * tensors (catalog_view.c).  The file is closed, and the bytes of the pieces are written at the
 * offsets of their datasets by pwrite(), which needs no HDF5, so that a thread may do it beside the
 * steps (shard_thread.h).  HDF5 cannot see whether these bytes are on the disk; checksums show it.
 */
#ifndef TRIREME_IO_SHARD_H
#define TRIREME_IO_SHARD_H

#include <stdint.h>

#include "io/catalog.h"
#include "io/checkpoint.h"

/* Where a piece was written, and its checksum; both are 0 for an empty piece. */
struct shard_place {
    int64_t offset;    /* byte in the file */
    uint64_t checksum; /* XXH3 of its bytes */
};

/* Make the file at path, number `shard` of the catalog, with its views and with datasets of the
 * right sizes for the pieces, but without their bytes.  Sets places[count], one per piece, to where
 * these belong; of the pieces only names, boxes and sizes are read.  For the one thread that calls
 * HDF5.  Not collective.  Returns 0, or -1 with err set; part of a file may then be there. */
int shard_make(const char *path, const struct catalog *catalog, int64_t shard,
               const struct checkpoint_piece *pieces, int count, struct shard_place *places,
               struct error *err);

/* Write the bytes of the pieces into the file that shard_make() made, at their places, and fsync
 * it.  Sets the checksums of places[count], and *row.  Any thread may call it.  Not collective.
 * Returns 0, or -1 with err set; a file that is not whole is then there. */
int shard_fill(const char *path, const struct checkpoint_piece *pieces, int count,
               struct shard_place *places, struct catalog_file *row, struct error *err);

/* Compare the size of file number `shard` in folder with the catalog.  Returns 0, or -1 with err
 * set. */
int shard_check_size(const char *folder, const struct catalog *catalog, int64_t shard,
                     struct error *err);

/* Do shard_check_size(), then recompute and compare the checksums of the pieces whose middle byte
 * is in [from, to) of the file, and that of the bytes outside the pieces if the file's last byte is
 * in [from, to).  shards is of catalog_shards_make().  Returns 0, or -1 with err naming the first
 * mismatch. */
int shard_verify(const char *folder, const struct catalog *catalog,
                 const struct catalog_shards *shards, int64_t shard, int64_t from, int64_t to,
                 struct error *err);

#endif
