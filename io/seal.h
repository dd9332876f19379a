/* seal.h - a file that carries checksums of its own bytes, verified when they are read.
 *
 *     0         4096                                        table            file_bytes
 *     | front   | body: blocks of 16 KiB, the last shorter  | XXH3 of each block |
 *
 * The front says how long the file is, where the table begins, and which ranges of the body are
 * large and are not read when the file is opened; it ends in a checksum of itself.  Block i is
 * hashed with seed i.  A flipped bit anywhere is thus noticed before the byte it is in is used:
 * in the front on opening, in the body or the table when a block is read.  Nothing has to be read
 * whole at the start, however large the file is.
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
    int64_t offset, bytes; /* in the file */
};

/* An open file, sealed or not.  One thread reads. */
struct seal {
    int fd;           /* the caller's */
    const char *path; /* the caller's, for texts */
    int is_sealed;
    int64_t begin, end; /* the body; without a seal the whole file */
    struct seal_range large[SEAL_RANGES];
    char *buffer;       /* private: the blocks read last, */
    int64_t held_at;    /* which begin at this offset */
    int64_t held_bytes; /* and have so many bytes */
};

/* Look at an open regular file.  Of a sealed one the front, and every block that is not wholly in
 * a large range, are verified now.  Returns 0 and a seal for seal_close(), or -1 with err set:
 * damaged, of another length than it was written with, of a later version, unreadable. */
int seal_open(struct seal *seal, int fd, const char *path, struct error *err);
void seal_close(struct seal *seal); /* leaves fd open */

/* The bytes from offset on, verified: at least one, at most `most`; their number in *got.  They
 * stay until the next call.  NULL with err set: outside of the body, unreadable (code EXIT_NODE),
 * the file is shorter than it was, or a checksum does not match. */
const void *seal_view(struct seal *seal, int64_t offset, int64_t most, int64_t *got,
                      struct error *err);

/* Read exactly so many bytes.  Returns 0, or -1 as above. */
int seal_read(struct seal *seal, void *to, int64_t bytes, int64_t offset, struct error *err);

/* Verify every block.  Returns 0, or -1 with err naming the first that is damaged. */
int seal_verify(struct seal *seal, struct error *err);

/* Seal a file whose body is written from SEAL_FRONT up to end: read it, write table and front.  The
 * caller calls fsync.  Returns 0, or -1 with err set. */
int seal_write(int fd, const char *path, int64_t end, const struct seal_range *large, int count,
               struct error *err);

#endif
