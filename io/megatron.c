/* megatron.c - reading an .idx of Megatron from front to back; see megatron.h.
 *
 * After the header are three columns of numbers, little-endian:
 *
 *     length    int32 [sequences]   ids of each sequence
 *     pointer   int64 [sequences]   byte of the .bin at which it begins
 *     bound     int64 [bounds]      first sequence of each document, and the number of sequences
 *
 * An .idx of a large corpus has gigabytes; a block of each column is held at a time.
 */
#include "io/megatron.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "io/disk.h"
#include "io/little_endian.h"

/* Bytes of the header at which its members begin; BLOCK: numbers of a column that are held. */
enum {
    AT_VERSION = 9,
    AT_TYPE = 17,
    AT_COUNTS = 18, /* sequences, then bounds */
    FRONT = 34,     /* bytes before the columns */
    BLOCK = 8192,
};

static const char magic[AT_VERSION] = "MMIDIDX\0";

/* A column of the file. */
struct column {
    int64_t offset;     /* byte of the file at which it begins */
    int64_t count;      /* numbers */
    int width;          /* bytes of a number: 4 or 8 */
    int64_t first, end; /* numbers [first, end) are in the block */
    char block[BLOCK * sizeof(int64_t)];
};

struct megatron_index {
    char *path;
    int fd;
    int64_t ids; /* in the .bin */
    int width;   /* bytes of an id */
    struct column length, pointer, bound;
    int64_t document; /* the next document */
    int64_t sequence; /* the first sequence of it */
    int64_t before;   /* ids before it */
};

int megatron_is_index(const void *bytes, int64_t count)
{
    return count >= MEGATRON_FRONT && !memcmp(bytes, magic, sizeof magic);
}

/* Returns the path of the .idx beside a .bin, to be free()d; NULL: bin does not end in ".bin". */
static char *path_beside(const char *bin)
{
    if (!text_ends_with(bin, ".bin"))
        return NULL;
    return array_format("%.*s.idx", (int)(strlen(bin) - strlen(".bin")), bin);
}

int megatron_type(const char *bin, int *type, struct error *err)
{
    char front[MEGATRON_FRONT] = "", *path = path_beside(bin);
    int fd = path ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1, rc = 0;
    *type = -1;
    ssize_t count = fd < 0 ? 0 : read(fd, front, sizeof front);
    if (path && ((fd < 0 && errno != ENOENT) || count < 0))
        rc = error_errno(err, "cannot read %s, which would say what numbers %s has", path, bin);
    else if (megatron_is_index(front, count))
        *type = (unsigned char)front[AT_TYPE];
    else if (count >= AT_VERSION && !memcmp(front, magic, sizeof magic))
        rc = error_set(err, "%s is truncated: it ends inside its header", path);
    if (fd >= 0)
        close(fd);
    free(path);
    return rc;
}

static void set_column(struct column *c, int64_t offset, int64_t count, int width)
{
    c->offset = offset;
    c->count = count;
    c->width = width;
}

/* Read the header, and check that the file holds all three columns.  Returns 0, or -1 with err set.
 */
static int read_front(struct megatron_index *x, struct error *err)
{
    struct stat info;
    char front[FRONT];
    if (fstat(x->fd, &info))
        return error_errno(err, "cannot read %s", x->path);
    if (info.st_size < FRONT)
        return error_set(err, "%s is truncated: it ends inside its header", x->path);
    if (disk_read(x->fd, front, sizeof front, 0, x->path, err))
        return -1;
    int64_t version = (int64_t)le64(front + AT_VERSION);
    int64_t sequences = (int64_t)le64(front + AT_COUNTS);
    int64_t bounds = (int64_t)le64(front + AT_COUNTS + 8), columns = info.st_size - FRONT;
    if (version != 1)
        return error_set(err, "%s: version %lld of Megatron's index; known is version 1", x->path,
                         (long long)version);
    if (sequences < 0 || bounds < 1)
        return error_set(err,
                         "%s: by its header it has %lld sequences and %lld bounds of documents",
                         x->path, (long long)sequences, (long long)bounds);
    if (sequences > columns / 12 || bounds > (columns - 12 * sequences) / 8)
        return error_set(err,
                         "%s is truncated: by its header it has %lld sequences and %lld bounds of "
                         "documents, and it has %lld bytes",
                         x->path, (long long)sequences, (long long)bounds, (long long)info.st_size);
    set_column(&x->length, FRONT, sequences, 4);
    set_column(&x->pointer, FRONT + 4 * sequences, sequences, 8);
    set_column(&x->bound, FRONT + 12 * sequences, bounds, 8);
    return 0;
}

int megatron_open(struct megatron_index **index, const char *bin, int64_t ids, int width,
                  struct error *err)
{
    struct megatron_index *x = array_make(1, sizeof *x);
    *index = NULL;
    x->path = path_beside(bin);
    x->ids = ids;
    x->width = width;
    x->fd = x->path ? disk_open(x->path, O_RDONLY | O_CLOEXEC, err)
                    : error_set(err, "%s is no .bin: there is no .idx beside it", bin);
    if (x->fd < 0 || read_front(x, err)) {
        megatron_close(x);
        return -1;
    }
    *index = x;
    return 0;
}

void megatron_close(struct megatron_index *x)
{
    if (!x)
        return;
    if (x->fd >= 0)
        close(x->fd);
    free(x->path);
    free(x);
}

/* Read number i of a column.  Returns 0 with *number, or -1 with err set. */
static int get(struct megatron_index *x, struct column *c, int64_t i, int64_t *number,
               struct error *err)
{
    if (i < c->first || i >= c->end) {
        int64_t end = c->count - i < BLOCK ? c->count : i + BLOCK;
        c->first = c->end = i;
        if (disk_read(x->fd, c->block, (size_t)((end - i) * c->width), c->offset + i * c->width,
                      x->path, err))
            return -1;
        c->end = end;
    }
    const char *at = c->block + (i - c->first) * c->width;
    *number = c->width == 4 ? (int32_t)le32(at) : (int64_t)le64(at);
    return 0;
}

/* Count the next sequence, whose ids have to follow those of the sequence before it.  Returns 0, or
 * -1 with err set. */
static int add_sequence(struct megatron_index *x, struct error *err)
{
    int64_t length, pointer, n = x->sequence;
    if (get(x, &x->length, n, &length, err) || get(x, &x->pointer, n, &pointer, err))
        return -1;
    if (pointer != x->before * x->width)
        return error_set(err,
                         "%s: sequence %lld begins at byte %lld of the .bin, and the one before it "
                         "ends at byte %lld",
                         x->path, (long long)n, (long long)pointer,
                         (long long)(x->before * x->width));
    if (length < 0 || length > x->ids - x->before)
        return error_set(err, "%s: sequence %lld has %lld ids from id %lld on; the .bin has %lld",
                         x->path, (long long)n, (long long)length, (long long)x->before,
                         (long long)x->ids);
    x->before += length;
    x->sequence++;
    return 0;
}

int64_t megatron_next_end(struct megatron_index *x, struct error *err)
{
    int64_t first, end;
    if (x->document + 1 >= x->bound.count)
        return error_set(err, "%s: its %lld documents have %lld ids; the .bin has %lld", x->path,
                         (long long)x->document, (long long)x->before, (long long)x->ids);
    if (get(x, &x->bound, x->document, &first, err) ||
        get(x, &x->bound, x->document + 1, &end, err))
        return -1;
    if (first != x->sequence || end < first || end > x->length.count)
        return error_set(err,
                         "%s: document %lld begins with sequence %lld and ends before sequence "
                         "%lld, of %lld; the document before it ends before sequence %lld",
                         x->path, (long long)x->document, (long long)first, (long long)end,
                         (long long)x->length.count, (long long)x->sequence);
    while (x->sequence < end)
        if (add_sequence(x, err))
            return -1;
    x->document++;
    return x->before;
}

int64_t megatron_finish(struct megatron_index *x, struct error *err)
{
    int64_t left = 0;
    for (; x->document + 1 < x->bound.count; left++)
        if (megatron_next_end(x, err) < 0)
            return -1;
    if (x->before != x->ids || x->sequence != x->length.count)
        return error_set(
            err,
            "%s: its %lld documents have %lld of its %lld sequences, and %lld ids; the "
            ".bin has %lld ids",
            x->path, (long long)x->document, (long long)x->sequence, (long long)x->length.count,
            (long long)x->before, (long long)x->ids);
    return left;
}
