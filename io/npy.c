/* npy.c - see npy.h.
 *
 * A .npy file begins with \x93NUMPY, two bytes of version, the length of the header (16 bits in
 * version 1, 32 bits in 2 and 3), and the header: a Python dictionary such as
 *
 *     {'descr': '<u2', 'fortran_order': False, 'shape': (338025,), }
 *
 * (numpy.lib.format).  Only dictionaries as numpy itself writes them are read: these three keys, in
 * any order, without nesting.
 *
 * llm.c's .bin has a header of 256 numbers (magic, version, count, ...) before the ids.  Megatron's
 * .bin has ids alone; the .idx beside it says their type (megatron.h).
 */
#include "io/npy.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "io/disk.h"
#include "io/little_endian.h"
#include "io/megatron.h"

enum { MOST_HEADER = 1 << 16, LLMC_HEADER = 1024 };
_Static_assert((int)NPY_FRONT >= (int)MEGATRON_FRONT, "the front of a file shows an index");

static const char numpy_magic[] = "\x93NUMPY";

/* llm.c's kinds of token files.  width: bytes of an id. */
static const struct {
    uint32_t magic, version;
    int width;
} llmc[] = {{.magic = 20240520, .version = 1, .width = 2},
            {.magic = 20240801, .version = 7, .width = 4}};

enum npy_format npy_format(const void *bytes, int64_t count)
{
    if (count >= 6 && !memcmp(bytes, numpy_magic, 6))
        return NPY_NUMPY;
    if (megatron_is_index(bytes, count))
        return NPY_INDEX;
    for (size_t i = 0; count >= 8 && i < sizeof llmc / sizeof llmc[0]; i++)
        if (le32(bytes) == llmc[i].magic)
            return NPY_LLMC;
    return NPY_NONE;
}

/* .npy */

/* Set err: what is wrong, and what a file has to hold.  Returns -1. */
static int bad_header(const struct npy *npy, const char *what, struct error *err)
{
    return error_set(err,
                     "%s: %s; token ids are one dimension of uint16, uint32, int32 or int64: "
                     "numpy.save(FILE, ids.astype(\"u4\"))",
                     npy->path, what);
}

/* Returns where the value of a key begins in the header; NULL: the key is not there. */
static const char *value_of(const char *header, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(header, quoted);
    return at ? at + strlen(quoted) + strspn(at + strlen(quoted), " ") : NULL;
}

/* Read the type of the numbers.  Like all readers below, it returns 0, or -1 with err set. */
static int read_descr(struct npy *npy, const char *header, struct error *err)
{
    static const struct {
        const char *name;
        int width, is_signed;
    } types[] = {{.name = "u2", .width = 2},
                 {.name = "u4", .width = 4},
                 {.name = "i4", .width = 4, .is_signed = 1},
                 {.name = "i8", .width = 8, .is_signed = 1}};
    const char *descr = value_of(header, "descr");
    char what[64];
    if (!descr || *descr != '\'' || strlen(descr) < 5)
        return bad_header(npy, "no number format (descr) in its header", err);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strchr("<>", descr[1]) && !memcmp(descr + 2, types[i].name, 2) && descr[4] == '\'') {
            npy->width = types[i].width;
            npy->is_signed = types[i].is_signed;
            npy->is_swapped = descr[1] == '>';
            return 0;
        }
    snprintf(what, sizeof what, "its numbers are %.*s", (int)strcspn(descr + 1, "'\n") + 2, descr);
    return bad_header(npy, what, err);
}

/* Read the number of numbers. */
static int read_shape(struct npy *npy, const char *header, struct error *err)
{
    const char *shape = value_of(header, "shape");
    char *end;
    if (!shape || *shape != '(' || shape[1] < '0' || shape[1] > '9')
        return bad_header(npy, "no length (shape) in its header", err);
    errno = 0;
    npy->count = strtoll(shape + 1, &end, 10);
    if (errno || end[0] != ',' || end[1 + strspn(end + 1, " ")] != ')')
        return bad_header(npy, "its array has not one dimension", err);
    return 0;
}

/* Read the header of a .npy.  size: bytes of the file. */
static int read_numpy(struct npy *npy, int64_t size, struct error *err)
{
    unsigned char front[12];
    if (size < (int64_t)sizeof front)
        return error_set(err, "%s is truncated: it ends inside its header", npy->path);
    if (disk_read(npy->fd, front, sizeof front, 0, npy->path, err))
        return -1;
    int wide = front[6] > 1;
    int64_t bytes = wide ? (int64_t)le32(front + 8) : front[8] | front[9] << 8;
    npy->offset = (wide ? 12 : 10) + bytes;
    if (front[6] < 1 || front[6] > 3)
        return error_set(err, "%s: version %u of numpy's format is not known", npy->path, front[6]);
    if (bytes > MOST_HEADER || npy->offset > size)
        return error_set(err, "%s: its header of %lld bytes is %s", npy->path, (long long)bytes,
                         bytes > MOST_HEADER ? "too long" : "not whole: the file is truncated");
    char *header = array_make((size_t)bytes + 1, 1);
    int rc = disk_read(npy->fd, header, (size_t)bytes, npy->offset - bytes, npy->path, err) ||
             read_descr(npy, header, err) || read_shape(npy, header, err);
    free(header);
    return rc ? -1 : 0;
}

/* llm.c's .bin, and numbers alone */

/* Read the header of llm.c's .bin. */
static int read_llmc(struct npy *npy, int64_t size, struct error *err)
{
    unsigned char front[12];
    if (size < LLMC_HEADER)
        return error_set(err, "%s is truncated: it ends inside its header", npy->path);
    if (disk_read(npy->fd, front, sizeof front, 0, npy->path, err))
        return -1;
    for (size_t i = 0; i < sizeof llmc / sizeof llmc[0]; i++)
        if (le32(front) == llmc[i].magic && le32(front + 4) == llmc[i].version) {
            npy->width = llmc[i].width;
            npy->offset = LLMC_HEADER;
            npy->count = le32(front + 8);
            return 0;
        }
    return error_set(err,
                     "%s: magic %u, version %u: no token file of llm.c (%u and %u, or %u and %u)",
                     npy->path, le32(front), le32(front + 4), llmc[0].magic, llmc[0].version,
                     llmc[1].magic, llmc[1].version);
}

/* Find the type of a .bin of numbers alone: that of the .idx beside it, else uint16. */
static int read_raw(struct npy *npy, int64_t size, struct error *err)
{
    static const struct {
        int width, is_signed;
    } types[] = {[3] = {.width = 2, .is_signed = 1},
                 [4] = {.width = 4, .is_signed = 1},
                 [5] = {.width = 8, .is_signed = 1},
                 [8] = {.width = 2}};
    int type;
    if (megatron_type(npy->path, &type, err))
        return -1;
    if (type < 0)
        type = 8;
    if (type >= (int)(sizeof types / sizeof types[0]) || !types[type].width)
        return error_set(err,
                         "%s: by the .idx beside it its numbers are of Megatron's type %d; token "
                         "ids are int16 (3), int32 (4), int64 (5) or uint16 (8)",
                         npy->path, type);
    npy->width = types[type].width;
    npy->is_signed = types[type].is_signed;
    npy->count = size / npy->width;
    if (size % npy->width)
        return error_set(err, "%s: %lld bytes are no whole number of %d-bit ids", npy->path,
                         (long long)size, 8 * npy->width);
    return 0;
}

/* Refuse an .idx. */
static int refuse_index(struct npy *npy, int64_t size, struct error *err)
{
    (void)size;
    return error_set(
        err, "%s is an index of Megatron's; name the .bin beside it, which has the ids", npy->path);
}

/* Read what is before the numbers, and check that the file holds all of them. */
static int read_front(struct npy *npy, enum npy_format format, struct error *err)
{
    static int (*const readers[])(struct npy *, int64_t,
                                  struct error *) = {[NPY_NUMPY] = read_numpy,
                                                     [NPY_LLMC] = read_llmc,
                                                     [NPY_RAW] = read_raw,
                                                     [NPY_INDEX] = refuse_index};
    struct stat info;
    if (fstat(npy->fd, &info))
        return error_errno(err, "cannot read input %s", npy->path);
    if (!S_ISREG(info.st_mode))
        return error_set(err, "%s is no regular file: numbers are read from files alone",
                         npy->path);
    if (format == NPY_NONE)
        return error_set(err, "%s is neither numpy's .npy nor llm.c's .bin", npy->path);
    if (readers[format](npy, info.st_size, err))
        return -1;
    int64_t there = (info.st_size - npy->offset) / npy->width;
    if (npy->count > there)
        return error_set(err, "%s is truncated: %lld numbers in its header, %lld in the file",
                         npy->path, (long long)npy->count, (long long)there);
    int64_t after = info.st_size - npy->offset - npy->count * npy->width;
    if (after)
        return error_set(err,
                         "%s: %lld bytes follow the %lld numbers that its header counts, and would "
                         "be left out; write a file for each array, with the count of its numbers",
                         npy->path, (long long)after, (long long)npy->count);
    return 0;
}

int npy_open(struct npy *npy, const char *path, enum npy_format format, struct error *err)
{
    *npy = (struct npy){.path = array_text(path)};
    npy->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (npy->fd < 0) {
        error_errno(err, "cannot open input %s", path);
        npy_close(npy);
        return -1;
    }
    if (read_front(npy, format, err)) {
        npy_close(npy);
        return -1;
    }
    npy->buffer = array_make(NPY_MOST, 8);
    return 0;
}

void npy_close(struct npy *npy)
{
    if (npy->path && npy->fd >= 0)
        close(npy->fd);
    free(npy->path);
    free(npy->buffer);
    *npy = (struct npy){.fd = -1};
}

/* Returns the i-th number of the buffer. */
static int64_t number(const struct npy *npy, int64_t i)
{
    uint16_t narrow;
    uint32_t middle;
    uint64_t wide;
    const char *at = (const char *)npy->buffer + i * npy->width;
    switch (npy->width) {
    case 2:
        memcpy(&narrow, at, sizeof narrow);
        narrow = npy->is_swapped ? be16toh(narrow) : le16toh(narrow);
        return npy->is_signed ? (int64_t)(int16_t)narrow : (int64_t)narrow;
    case 4:
        memcpy(&middle, at, sizeof middle);
        middle = npy->is_swapped ? be32toh(middle) : le32toh(middle);
        return npy->is_signed ? (int64_t)(int32_t)middle : (int64_t)middle;
    default:
        memcpy(&wide, at, sizeof wide);
        return (int64_t)(npy->is_swapped ? be64toh(wide) : le64toh(wide));
    }
}

int npy_read(struct npy *npy, int64_t first, int64_t count, int64_t vocab, uint32_t *ids,
             struct error *err)
{
    if (first < 0 || count < 0 || count > NPY_MOST || first > npy->count - count)
        return error_set(err, "%s: numbers %lld to %lld of %lld", npy->path, (long long)first,
                         (long long)(first + count), (long long)npy->count);
    if (disk_read(npy->fd, npy->buffer, (size_t)count * (size_t)npy->width,
                  npy->offset + first * npy->width, npy->path, err))
        return -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t id = number(npy, i);
        if (id < 0 || id >= vocab)
            return error_set(err, "%s: number %lld is %lld, outside the vocabulary of %lld",
                             npy->path, (long long)(first + i), (long long)id, (long long)vocab);
        ids[i] = (uint32_t)id;
    }
    return 0;
}
