/* seal.h - a file that carries checksums of its own bytes, verified when they are read.
 *
 *     0         4096                                        table            file_bytes
 *     | front   | body: blocks of 16 KiB, the last shorter  | XXH3 of each block |
 *
 * The front says how long the file is, where the table begins, and which ranges of the body are
 * large; it ends in a checksum of itself.  Block i is hashed with seed i.  seal_open() verifies the
 * front and all blocks that are not in a large range; blocks of large ranges are verified when they
 * are read.  So a flipped bit anywhere is noticed before its byte is used, and opening a file is
 * fast however large it is.
 *
 * Numbers are little-endian.  What the body is does not matter here: token files have an HDF5
 * file there, for which the front is a user block.
 */
#ifndef TRIREME_IO_SEAL_H
#define TRIREME_IO_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { SEAL_FRONT = 4096, SEAL_BLOCK = 16 << 10, SEAL_VERSION = 2, SEAL_RANGES = 4 };

struct seal_range {
    int64_t offset, bytes; /* offset: byte in the file */
};

/* An open file, with checksums (sealed) or without.  One thread may use it. */
struct seal {
    int fd;             /* the caller's */
    const char *path;   /* the caller's, for messages */
    int is_sealed;      /* 1: the file has checksums */
    int64_t begin, end; /* the body is bytes [begin, end); not sealed: the whole file */
    struct seal_range large[SEAL_RANGES];
    /* private */
    char *buffer;       /* the blocks that were read last */
    int64_t held_at;    /* byte in the file at which they begin */
    int64_t held_bytes; /* their length */
};

/* Begin to read an open regular file.  Of a sealed file the front, and every block that is not
 * wholly in a large range, are verified now.  Returns 0 and a seal for seal_close(), or -1 with err
 * set: damaged, of another length than when it was written, of a later version, unreadable. */
int seal_open(struct seal *seal, int fd, const char *path, struct error *err);
void seal_close(struct seal *seal); /* leaves fd open */

/* Returns bytes of the body from byte `offset` of the file on, verified where the file is sealed;
 * *got becomes their number, 1 to `most`.  They are valid until the next call.  Returns NULL with
 * err set where offset is outside the body, the file cannot be read (code EXIT_NODE) or is shorter
 * than it was, or a checksum does not match. */
const void *seal_view(struct seal *seal, int64_t offset, int64_t most, int64_t *got,
                      struct error *err);

/* Read exactly `bytes` bytes of the body, from byte `offset` of the file on.  Returns 0, or -1 as
 * above. */
int seal_read(struct seal *seal, void *to, int64_t bytes, int64_t offset, struct error *err);

/* Verify every block.  Returns 0, or -1 with err naming the first damaged block. */
int seal_verify(struct seal *seal, struct error *err);

/* Seal a file whose body has been written to bytes [SEAL_FRONT, end): read the body, and write the
 * table and the front.  Does not fsync.  Returns 0, or -1 with err set. */
int seal_write(int fd, const char *path, int64_t end, const struct seal_range *large, int count,
               struct error *err);

#endif
