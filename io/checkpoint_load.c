/* checkpoint_load.c - fills wanted pieces from stored pieces of any other layout; see checkpoint.h.
 *
 * A wanted piece is cut into extents, each of which is contiguous both in memory and in one shard
 * file: it is cut at the borders of the stored boxes (box_run()), then at those of the stored
 * pieces, and, where values are converted, also at the length of a buffer.
 *
 *   wanted, in memory    |--------------- 0 to 11 ---------------|
 *   stored               piece of shard 0: 0 to 7  | shard 1: 8 to 15
 *   extents              |----- shard 0, 8 -------|--- shard 1, 4 |
 *
 * The extents of all wanted pieces are gathered, sorted by file and offset, and read in that order.
 * One that is alone and not converted is read straight to its place; neighbours, and those that are
 * converted, are read by one disk_read() into the buffer and copied from there.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/round.h"
#include "io/checkpoint_private.h"
#include "io/disk.h"
#include "io/h5.h"

/* Extents up to RUN_BYTES are read together when no more than GAP_BYTES lie between them. */
enum { RUN_BYTES = 4 << 20, GAP_BYTES = 64 << 10 };

/* Most extents that are gathered before they are read: some columns of a matrix have one extent for
 * each row. */
enum { EXTENTS = 1 << 20 };

/* Elements that are contiguous in a file and in memory. */
struct extent {
    int64_t shard;  /* number of the file */
    int64_t offset; /* byte in the file */
    int64_t elems;
    enum dtype from; /* in the file */
    enum dtype into; /* in memory */
    char *to;
};

struct reader {
    const struct checkpoint *checkpoint;
    struct extent *extents;
    int count, capacity;
    char *buffer; /* [RUN_BYTES] */
    char *path;   /* of the file being read */
    int fd;
};

/* Returns the byte of the file after an extent. */
static int64_t end_of(const struct extent *extent)
{
    return extent->offset + extent->elems * (int64_t)dtype_bytes(extent->from);
}

/* Reading */

/* Compare extents for qsort(): by file, then by offset. */
static int by_place(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Returns element i of `from` as fp32. */
static float wide_of(const char *from, enum dtype dtype, int64_t i)
{
    uint16_t narrow;
    float wide;
    if (dtype == DTYPE_F32) {
        memcpy(&wide, from + i * 4, sizeof wide);
        return wide;
    }
    memcpy(&narrow, from + i * 2, sizeof narrow);
    return dtype == DTYPE_BF16 ? bf16_to_f32(narrow) : f16_to_f32(narrow);
}

/* Copy elements, converted from the stored dtype into another float dtype where they differ. */
static void convert(char *to, enum dtype into, const char *from, enum dtype stored, int64_t elems)
{
    if (into == stored) {
        memcpy(to, from, (size_t)elems * dtype_bytes(into));
        return;
    }
    for (int64_t i = 0; i < elems; i++) {
        float wide = wide_of(from, stored, i);
        if (into == DTYPE_F32)
            ((float *)to)[i] = wide;
        else
            ((uint16_t *)to)[i] = into == DTYPE_BF16 ? f32_to_bf16(wide) : f32_to_f16(wide);
    }
}

/* Find the extents from number `first` on that are read by one disk_read(), a run.  Returns the
 * number of the extent after the run; *end becomes the byte of the file at which the run ends. */
static int64_t find_run(const struct reader *reader, int64_t first, int64_t *end)
{
    const struct extent *head = &reader->extents[first];
    int64_t i = first + 1;
    *end = end_of(head);
    for (; i < reader->count; i++) {
        const struct extent *next = &reader->extents[i];
        int64_t reach = end_of(next) > *end ? end_of(next) : *end;
        if (next->shard != head->shard || next->offset > *end + GAP_BYTES ||
            reach - head->offset > RUN_BYTES)
            break;
        *end = reach;
    }
    return i;
}

/* Read the run that begins with extent number *next, and move *next past the run.  A run of one
 * extent that is not converted goes straight to its place, and may be longer than the buffer. */
static int read_run(struct reader *reader, int64_t *next, struct error *err)
{
    int64_t first = *next, end;
    const struct extent *head = &reader->extents[first];
    int64_t begin = head->offset;
    *next = find_run(reader, first, &end);
    int straight = *next == first + 1 && head->from == head->into;
    if (disk_read(reader->fd, straight ? head->to : reader->buffer, (size_t)(end - begin), begin,
                  reader->path, err))
        return -1;
    for (int64_t i = first; i < *next && !straight; i++) {
        const struct extent *extent = &reader->extents[i];
        convert(extent->to, extent->into, reader->buffer + (extent->offset - begin), extent->from,
                extent->elems);
    }
    return 0;
}

/* Read all extents of one file, which begin with number *next, and move *next past them. */
static int read_shard(struct reader *reader, int64_t *next, struct error *err)
{
    int64_t shard = reader->extents[*next].shard;
    reader->path = catalog_shard_path(reader->checkpoint->path, shard);
    reader->fd = disk_open(reader->path, O_RDONLY, err);
    int rc = reader->fd < 0 ? -1 : 0;
    while (!rc && *next < reader->count && reader->extents[*next].shard == shard)
        rc = read_run(reader, next, err);
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->path);
    return rc;
}

/* Read all gathered extents, and empty the list. */
static int read_extents(struct reader *reader, struct error *err)
{
    int rc = 0;
    if (reader->count)
        qsort(reader->extents, (size_t)reader->count, sizeof *reader->extents, by_place);
    for (int64_t next = 0; !rc && next < reader->count;)
        rc = read_shard(reader, &next, err);
    reader->count = 0;
    return rc;
}

/* Cutting */

/* Check that a wanted piece is of the stored tensor (NULL: there is none).  Returns 0, or -1 with
 * err set. */
static int check_wanted(const struct reader *reader, const struct checkpoint_piece *wanted,
                        const struct catalog_tensor *tensor, struct error *err)
{
    const char *path = reader->checkpoint->path;
    if (!tensor)
        return error_set(err, "%s has no tensor %s", path, wanted->name);
    if (wanted->rank != tensor->rank ||
        memcmp(wanted->dims, tensor->dims, (size_t)wanted->rank * sizeof wanted->dims[0]))
        return error_set(err,
                         "%s: tensor %s has other dimensions (%lld elements) than wanted "
                         "(%lld elements)",
                         path, wanted->name, (long long)tensor->elems,
                         (long long)h5_elems(wanted->rank, wanted->dims));
    enum dtype stored = (enum dtype)dtype_find(tensor->dtype);
    int convertible = dtype_is_narrow_float(stored) && dtype_is_narrow_float(wanted->dtype);
    if (stored != wanted->dtype && !convertible)
        return error_set(err, "%s: tensor %s is %s, which is not read as %s", path, wanted->name,
                         tensor->dtype, dtype_name(wanted->dtype));
    struct box box = checkpoint_box(wanted);
    char text[BOX_TEXT];
    if (!checkpoint_box_fits(wanted))
        return error_set(err, "%s: a box %s is not in tensor %s", path, box_text(&box, text),
                         wanted->name);
    if (wanted->start < 0 || wanted->count < 0 || wanted->start > box_elems(&box) - wanted->count)
        return error_set(err, "%s: elements %lld to %lld are not in tensor %s%s", path,
                         (long long)wanted->start, (long long)(wanted->start + wanted->count - 1),
                         wanted->name, catalog_name_box(&box, text));
    return 0;
}

/* Returns the stored piece that holds element `start` of the box. */
static const struct catalog_piece *first_piece(const struct catalog *catalog,
                                               const struct catalog_box *box, int64_t start)
{
    int64_t low = box->first, high = box->first + box->pieces;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (catalog->pieces[middle].start + catalog->pieces[middle].count <= start)
            low = middle + 1;
        else
            high = middle;
    }
    return &catalog->pieces[low];
}

/* Gather extents for elements [at, end) of a stored box, which go to memory at `to`.  The pieces of
 * a box follow each other without gaps: checkpoint_open() has checked it. */
static void cut_run(struct reader *reader, const struct catalog_box *box, int64_t at, int64_t end,
                    enum dtype into, char *to)
{
    const struct catalog *catalog = reader->checkpoint->catalog;
    enum dtype stored = (enum dtype)dtype_find(catalog->tensors[box->tensor].dtype);
    int64_t width = (int64_t)dtype_bytes(stored), most = end - at;
    if (stored != into) /* converted extents have to fit into the buffer */
        most = RUN_BYTES / width;
    const struct catalog_piece *piece = first_piece(catalog, box, at);
    while (at < end) {
        int64_t stop = min_i64(min_i64(piece->start + piece->count, end), at + most);
        reader->extents =
            array_grow(reader->extents, reader->count, &reader->capacity, sizeof *reader->extents);
        reader->extents[reader->count++] = (struct extent){
            .shard = piece->shard,
            .offset = piece->offset + (at - piece->start) * width,
            .elems = stop - at,
            .from = stored,
            .into = into,
            .to = to,
        };
        to += (stop - at) * (int64_t)dtype_bytes(into);
        at = stop;
        if (at == piece->start + piece->count)
            piece++;
    }
}

/* Gather extents for the elements of the wanted piece that are in stored box number b.  Returns 0,
 * or -1 with err set. */
static int cut_box(struct reader *reader, const struct checkpoint_piece *wanted, int64_t b,
                   struct error *err)
{
    const struct catalog *catalog = reader->checkpoint->catalog;
    const struct catalog_box *stored = &catalog->boxes[b];
    struct box want = checkpoint_box(wanted);
    int64_t at = wanted->start, end = at + wanted->count, place;
    if (!box_overlaps(&want, &stored->box))
        return 0;
    for (int64_t run; at < end; at += run) {
        run = min_i64(box_run(&want, &stored->box, at, &place), end - at);
        if (place < 0)
            continue;
        int64_t done = (at - wanted->start) * (int64_t)dtype_bytes(wanted->dtype);
        cut_run(reader, stored, place, place + run, wanted->dtype, (char *)wanted->data + done);
        if (reader->count >= EXTENTS && read_extents(reader, err))
            return -1;
    }
    return 0;
}

/* Gather extents for a wanted piece, from all stored boxes of its tensor.  Returns 0, or -1 with
 * err set. */
static int cut(struct reader *reader, const struct checkpoint_piece *wanted, struct error *err)
{
    const struct catalog *catalog = reader->checkpoint->catalog;
    const struct catalog_tensor *tensor = catalog_find(catalog, wanted->name);
    int rc = check_wanted(reader, wanted, tensor, err);
    if (rc || !wanted->count)
        return rc;
    for (int64_t b = catalog->pieces[tensor->first].box;
         !rc && b < catalog->box_count && &catalog->tensors[catalog->boxes[b].tensor] == tensor;
         b++)
        rc = cut_box(reader, wanted, b, err);
    return rc;
}

int checkpoint_load(struct checkpoint *checkpoint, const struct checkpoint_piece *wanted, int count,
                    struct error *err)
{
    struct reader reader = {.checkpoint = checkpoint, .buffer = malloc(RUN_BYTES)};
    int rc = reader.buffer ? 0 : error_set(err, "out of memory reading a checkpoint");
    for (int i = 0; i < count && !rc; i++)
        rc = cut(&reader, &wanted[i], err);
    if (!rc)
        rc = read_extents(&reader, err);
    free(reader.extents);
    free(reader.buffer);
    return rc;
}
