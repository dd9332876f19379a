/* seal.c - reading and writing sealed files; seal.h draws them.
 *
 * A reader keeps one buffer of whole blocks.  seal_view() returns bytes from the buffer.  If the
 * wanted bytes are not in it, it reads the blocks that hold them, and compares their checksums with
 * the table.  Opening a file verifies the front in this way, and every block that is not wholly in
 * a large range.
 */
#include "io/seal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alive.h"
#include "base/hash.h"
#include "base/round.h"
#include "io/disk.h"

/* A buffer holds several blocks, which are read, and compared with the table, at once. */
enum { BUFFER_BLOCKS = 16, BUFFER_BYTES = BUFFER_BLOCKS * SEAL_BLOCK };

/* The end of line is damaged in copies that were made in a text mode. */
static const char magic[16] = "trireme tokens\r\n";

/* The front of a sealed file, as it is on the disk. */
struct front {
    char magic[16];
    uint32_t version, block_bytes;
    int64_t file_bytes;                   /* of the whole file */
    int64_t table;                        /* offset of the table of checksums: the body's end */
    struct seal_range large[SEAL_RANGES]; /* unused ones have 0 bytes */
    char zeros[SEAL_FRONT - 48 - SEAL_RANGES * 16];
    uint64_t checksum; /* of all before it */
};
_Static_assert(sizeof(struct front) == SEAL_FRONT, "the front fills its place");

/* The beginning of a sealed file.  A file whose magic bytes are damaged is still recognised by its
 * version and block size, so that it is not read as a file without checksums. */
enum { KNOWN_BY = offsetof(struct front, file_bytes) };

static uint64_t front_checksum(const struct front *front)
{
    return hash_bytes(front, offsetof(struct front, checksum));
}

/* Returns the number of blocks of a body. */
static int64_t blocks_of(int64_t body_bytes)
{
    return ceil_div(body_bytes, SEAL_BLOCK);
}

/* Returns the number of the block that holds the byte at offset. */
static int64_t block_at(int64_t offset)
{
    return (offset - SEAL_FRONT) / SEAL_BLOCK;
}

/* Returns the byte of the file at which a block begins. */
static int64_t block_offset(int64_t block)
{
    return SEAL_FRONT + block * SEAL_BLOCK;
}

/* Returns the checksum of the i-th block in a buffer of `bytes` bytes.  number: that of the block
 * in the file, a part of its checksum, so that blocks in the wrong order are noticed. */
static uint64_t block_checksum(const char *buffer, int64_t i, int64_t bytes, int64_t number)
{
    int64_t at = i * SEAL_BLOCK;
    return hash_bytes_seeded(buffer + at, (size_t)min_i64(SEAL_BLOCK, bytes - at),
                             (uint64_t)number);
}

/* Read bytes of the file.  Returns 0, or -1 with err set.  A failed read is taken for the node's
 * fault (EXIT_NODE), which a restart may cure; a file that is too short is not. */
static int read_bytes(const struct seal *seal, void *to, int64_t bytes, int64_t offset,
                      struct error *err)
{
    for (char *at = to; bytes;) {
        ssize_t got = ALIVE_CALL("reading", seal->path, pread(seal->fd, at, (size_t)bytes, offset));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            error_errno(err, "cannot read %s at byte %lld", seal->path, (long long)offset);
            if (err)
                err->code = EXIT_NODE;
            return -1;
        }
        if (!got)
            return error_set(err, "%s was truncated after it was opened: byte %lld is missing",
                             seal->path, (long long)offset);
        at += got;
        offset += got;
        bytes -= got;
    }
    return 0;
}

/* Opening */

/* Set err: the bytes from offset on are damaged.  Returns -1. */
static int damaged(const struct seal *seal, int64_t offset, struct error *err)
{
    return error_set(err,
                     "%s is damaged: the bytes from %lld on do not match their checksum; copy it "
                     "or make it again",
                     seal->path, (long long)offset);
}

/* Returns 1 if the large ranges lie in the body. */
static int ranges_are_sound(const struct front *front)
{
    for (int i = 0; i < SEAL_RANGES; i++) {
        const struct seal_range *range = &front->large[i];
        if (range->bytes &&
            (range->bytes < 0 || range->offset < SEAL_FRONT || range->offset > front->table ||
             range->bytes > front->table - range->offset))
            return 0;
    }
    return 1;
}

/* Check the front of a sealed file, and set the seal's fields from it.  Returns 0, or -1 with err
 * set.
 */
static int check_front(struct seal *seal, const struct front *front, int64_t file_bytes,
                       struct error *err)
{
    if (front->checksum != front_checksum(front))
        return damaged(seal, 0, err);
    if (front->version != SEAL_VERSION || front->block_bytes != SEAL_BLOCK)
        return error_set(err, "%s: token file format %u; this version reads 1 and %d", seal->path,
                         front->version, SEAL_VERSION);
    if (file_bytes != front->file_bytes)
        return error_set(err, "%s %s: it has %lld bytes, and %lld were written", seal->path,
                         file_bytes < front->file_bytes ? "is truncated" : "has grown",
                         (long long)file_bytes, (long long)front->file_bytes);
    if (front->table < SEAL_FRONT || front->table > file_bytes || (file_bytes - front->table) % 8 ||
        (file_bytes - front->table) / 8 != blocks_of(front->table - SEAL_FRONT) ||
        !ranges_are_sound(front))
        return error_set(err, "%s: its front makes no sense", seal->path);
    seal->is_sealed = 1;
    seal->begin = SEAL_FRONT;
    seal->end = front->table;
    memcpy(seal->large, front->large, sizeof seal->large);
    return 0;
}

/* Returns the offset of the first block, from the one at offset on, that does not lie wholly in one
 * large range. */
static int64_t skip_large(const struct seal *seal, int64_t offset)
{
    for (int i = 0; i < SEAL_RANGES; i++) {
        const struct seal_range *range = &seal->large[i];
        if (range->bytes < SEAL_BLOCK || offset < range->offset ||
            offset - range->offset > range->bytes - SEAL_BLOCK)
            continue;
        return block_offset(block_at(range->offset + range->bytes));
    }
    return offset;
}

/* Verify all blocks that do not lie wholly in a large range.  Returns 0, or -1 with err set. */
static int verify_small(struct seal *seal, struct error *err)
{
    int64_t got;
    for (int64_t at = seal->begin; at < seal->end; at += SEAL_BLOCK) {
        at = skip_large(seal, at);
        if (at < seal->end && !seal_view(seal, at, 1, &got, err))
            return -1;
    }
    return 0;
}

int seal_open(struct seal *seal, int fd, const char *path, struct error *err)
{
    struct front front = {0};
    struct stat info;
    *seal = (struct seal){.fd = fd, .path = path};
    if (fstat(fd, &info))
        return error_errno(err, "cannot look at %s", path);
    seal->end = info.st_size;
    seal->buffer = malloc(BUFFER_BYTES);
    if (!seal->buffer)
        return error_set(err, "%s: out of memory", path);
    if (info.st_size >= KNOWN_BY && read_bytes(seal, &front, KNOWN_BY, 0, err))
        goto fail;
    if (memcmp(front.magic, magic, sizeof magic)) {
        if (front.version != SEAL_VERSION || front.block_bytes != SEAL_BLOCK)
            return 0;
        damaged(seal, 0, err);
        goto fail;
    }
    if (info.st_size < SEAL_FRONT) {
        error_set(err, "%s is truncated: it has %lld bytes", path, (long long)info.st_size);
        goto fail;
    }
    if (read_bytes(seal, &front, sizeof front, 0, err) ||
        check_front(seal, &front, info.st_size, err) || verify_small(seal, err))
        goto fail;
    return 0;
fail:
    seal_close(seal);
    return -1;
}

void seal_close(struct seal *seal)
{
    free(seal->buffer);
    *seal = (struct seal){0};
}

/* Reading */

/* Read blocks [first, first + count) into the buffer, and compare their checksums with the table.
 * Returns 0, or -1 with err set and the buffer empty. */
static int read_blocks(struct seal *seal, int64_t first, int64_t count, struct error *err)
{
    uint64_t sums[BUFFER_BLOCKS];
    int64_t from = block_offset(first), to = min_i64(block_offset(first + count), seal->end);
    seal->held_bytes = 0;
    if (read_bytes(seal, seal->buffer, to - from, from, err) ||
        read_bytes(seal, sums, count * 8, seal->end + first * 8, err))
        return -1;
    for (int64_t i = 0; i < count; i++)
        if (block_checksum(seal->buffer, i, to - from, first + i) != sums[i])
            return damaged(seal, from + i * SEAL_BLOCK, err);
    seal->held_at = from;
    seal->held_bytes = to - from;
    return 0;
}

/* Read into the buffer: bytes from offset on, `most` if they fit; in a sealed file whole blocks.
 * Returns 0, or -1 with err set. */
static int fill_buffer(struct seal *seal, int64_t offset, int64_t most, struct error *err)
{
    most = min_i64(most, seal->end - offset);
    if (seal->is_sealed) {
        int64_t first = block_at(offset), last = block_at(offset + most - 1);
        return read_blocks(seal, first, min_i64(last - first + 1, BUFFER_BLOCKS), err);
    }
    seal->held_bytes = 0;
    most = min_i64(most, BUFFER_BYTES);
    if (read_bytes(seal, seal->buffer, most, offset, err))
        return -1;
    seal->held_at = offset;
    seal->held_bytes = most;
    return 0;
}

const void *seal_view(struct seal *seal, int64_t offset, int64_t most, int64_t *got,
                      struct error *err)
{
    if (offset < seal->begin || offset >= seal->end) {
        error_set(err, "%s: byte %lld is not in it", seal->path, (long long)offset);
        return NULL;
    }
    if ((offset < seal->held_at || offset - seal->held_at >= seal->held_bytes) &&
        fill_buffer(seal, offset, most, err))
        return NULL;
    *got = min_i64(most, seal->held_at + seal->held_bytes - offset);
    return seal->buffer + (offset - seal->held_at);
}

int seal_read(struct seal *seal, void *to, int64_t bytes, int64_t offset, struct error *err)
{
    for (char *at = to; bytes;) {
        int64_t got;
        const void *from = seal_view(seal, offset, bytes, &got, err);
        if (!from)
            return -1;
        memcpy(at, from, (size_t)got);
        at += got;
        offset += got;
        bytes -= got;
    }
    return 0;
}

int seal_verify(struct seal *seal, struct error *err)
{
    int64_t got;
    for (int64_t at = seal->begin; at < seal->end; at += got)
        if (!seal_view(seal, at, BUFFER_BYTES, &got, err))
            return -1;
    return 0;
}

/* Writing */

/* Compute the checksums of all blocks of the body, which ends at byte `end`, and write the table
 * there.  Returns 0, or -1 with err set. */
static int write_table(int fd, const char *path, int64_t end, char *buffer, struct error *err)
{
    const struct seal file = {.fd = fd, .path = path};
    uint64_t sums[BUFFER_BLOCKS];
    int64_t blocks = blocks_of(end - SEAL_FRONT);
    for (int64_t first = 0; first < blocks; first += BUFFER_BLOCKS) {
        int64_t count = min_i64(BUFFER_BLOCKS, blocks - first), from = block_offset(first);
        int64_t bytes = min_i64(count * SEAL_BLOCK, end - from);
        if (read_bytes(&file, buffer, bytes, from, err))
            return -1;
        for (int64_t i = 0; i < count; i++)
            sums[i] = block_checksum(buffer, i, bytes, first + i);
        if (disk_write(fd, sums, (size_t)count * 8, end + first * 8, path, err))
            return -1;
    }
    return 0;
}

int seal_write(int fd, const char *path, int64_t end, const struct seal_range *large, int count,
               struct error *err)
{
    struct front front = {
        .version = SEAL_VERSION,
        .block_bytes = SEAL_BLOCK,
        .file_bytes = end + 8 * blocks_of(end - SEAL_FRONT),
        .table = end,
    };
    memcpy(front.magic, magic, sizeof magic);
    for (int i = 0; i < count && i < SEAL_RANGES; i++)
        front.large[i] = large[i];
    front.checksum = front_checksum(&front);
    char *buffer = malloc(BUFFER_BYTES);
    if (!buffer)
        return error_set(err, "%s: out of memory", path);
    int rc = write_table(fd, path, end, buffer, err);
    free(buffer);
    return rc ? -1 : disk_write(fd, &front, sizeof front, 0, path, err);
}
