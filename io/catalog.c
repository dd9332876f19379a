/* catalog.c - the tables of a checkpoint: made from the ranks' pieces, written, read; see
 * catalog.h.
 *
 * The entries of all ranks are sorted by tensor, box and start; each run of entries of one name
 * becomes a tensor, each of one box a box, and each entry that is not empty a piece.  Whether they
 * cover everything once is catalog_check.c's.
 */
#include "io/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alive.h"
#include "base/array.h"
#include "io/h5.h"

#define I64(type, member)                                       \
    {                                                           \
#member, H5_FIELD_I64, offsetof(struct type, member), 0 \
    }
#define U64(type, member)                                       \
    {                                                           \
#member, H5_FIELD_U64, offsetof(struct type, member), 0 \
    }
#define TEXT(type, member)                                                                        \
    {                                                                                             \
#member, H5_FIELD_TEXT, offsetof(struct type, member), sizeof(((struct type *)0)->member) \
    }
#define TABLE(path, type, fields)                                           \
    {                                                                       \
        path, fields, sizeof fields / sizeof fields[0], sizeof(struct type) \
    }

static const struct h5_field tensor_fields[] = {
    TEXT(catalog_tensor, name),
    TEXT(catalog_tensor, dtype),
    I64(catalog_tensor, rank),
    {"dim0", H5_FIELD_I64, offsetof(struct catalog_tensor, dims[0])},
    {"dim1", H5_FIELD_I64, offsetof(struct catalog_tensor, dims[1])},
    {"dim2", H5_FIELD_I64, offsetof(struct catalog_tensor, dims[2])},
    {"dim3", H5_FIELD_I64, offsetof(struct catalog_tensor, dims[3])},
    I64(catalog_tensor, elems),
    I64(catalog_tensor, first),
    I64(catalog_tensor, count),
};
static const struct h5_field box_fields[] = {
    I64(catalog_box, tensor),
    I64(catalog_box, first),
    I64(catalog_box, pieces),
    {"start0", H5_FIELD_I64, offsetof(struct catalog_box, start[0])},
    {"start1", H5_FIELD_I64, offsetof(struct catalog_box, start[1])},
    {"start2", H5_FIELD_I64, offsetof(struct catalog_box, start[2])},
    {"start3", H5_FIELD_I64, offsetof(struct catalog_box, start[3])},
    {"count0", H5_FIELD_I64, offsetof(struct catalog_box, count[0])},
    {"count1", H5_FIELD_I64, offsetof(struct catalog_box, count[1])},
    {"count2", H5_FIELD_I64, offsetof(struct catalog_box, count[2])},
    {"count3", H5_FIELD_I64, offsetof(struct catalog_box, count[3])},
};
static const struct h5_field piece_fields[] = {
    I64(catalog_piece, tensor), I64(catalog_piece, shard), I64(catalog_piece, offset),
    I64(catalog_piece, start),  I64(catalog_piece, count), U64(catalog_piece, checksum),
};
static const struct h5_field file_fields[] = {
    I64(catalog_file, bytes),
    U64(catalog_file, rest),
};
static const struct h5_table tensor_table = TABLE("index/tensors", catalog_tensor, tensor_fields);
static const struct h5_table box_table = TABLE("index/boxes", catalog_box, box_fields);
static const struct h5_table piece_table = TABLE("index/pieces", catalog_piece, piece_fields);
static const struct h5_table file_table = TABLE("index/files", catalog_file, file_fields);

void catalog_shard_name(char name[SHARD_NAME], int64_t shard)
{
    snprintf(name, SHARD_NAME, "shard-%05lld.h5", (long long)shard);
}

const char *catalog_name_box(const struct box *box, char text[BOX_TEXT])
{
    text[0] = 0;
    return box_is_whole(box) ? text : box_text(box, text);
}

char *catalog_dataset_name(const char *tensor, const struct box *box, int64_t start)
{
    char text[BOX_TEXT];
    return array_format("pieces/%s%s@%lld", tensor, catalog_name_box(box, text), (long long)start);
}

int64_t catalog_elems(int64_t rank, const int64_t *dims)
{
    int64_t elems = 1;
    for (int64_t i = 0; i < rank; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(elems, dims[i], &elems))
            return -1;
    return elems <= INT64_MAX / 8 ? elems : -1;
}

/* Building */

/* By the starts, then by the counts. */
static int compare_boxes(const struct box *x, const struct box *y)
{
    int order = 0;
    for (int i = 0; i < x->dims && !order; i++)
        order = (x->start[i] > y->start[i]) - (x->start[i] < y->start[i]);
    for (int i = 0; i < x->dims && !order; i++)
        order = (x->count[i] > y->count[i]) - (x->count[i] < y->count[i]);
    return order;
}

static int by_name(const void *a, const void *b)
{
    const struct catalog_entry *x = *(const struct catalog_entry *const *)a;
    const struct catalog_entry *y = *(const struct catalog_entry *const *)b;
    int order = strcmp(x->name, y->name);
    if (!order)
        order = compare_boxes(&x->box, &y->box);
    if (!order)
        order = (x->start > y->start) - (x->start < y->start);
    return order ? order : (x > y) - (x < y);
}

static int same_tensor(const struct catalog_tensor *tensor, const struct catalog_entry *entry,
                       struct error *err)
{
    if (strcmp(tensor->dtype, dtype_name((enum dtype)entry->dtype)))
        return error_set(err, "tensor %s is %s on one rank and %s on rank %lld", tensor->name,
                         tensor->dtype, dtype_name((enum dtype)entry->dtype),
                         (long long)entry->shard);
    if (tensor->rank != entry->box.dims ||
        memcmp(tensor->dims, entry->box.whole, (size_t)tensor->rank * sizeof tensor->dims[0]))
        return error_set(err, "tensor %s has other dimensions on rank %lld than elsewhere",
                         tensor->name, (long long)entry->shard);
    return 0;
}

static struct catalog_tensor new_tensor(const struct catalog_entry *entry, int64_t first)
{
    struct catalog_tensor tensor = {.rank = entry->box.dims, .first = first};
    memcpy(tensor.name, entry->name, sizeof tensor.name);
    snprintf(tensor.dtype, sizeof tensor.dtype, "%s", dtype_name((enum dtype)entry->dtype));
    memcpy(tensor.dims, entry->box.whole, (size_t)tensor.rank * sizeof tensor.dims[0]);
    tensor.elems = catalog_elems(tensor.rank, tensor.dims);
    return tensor;
}

/* The box of the next piece, which is of the last tensor: the last one, or a new one. */
static void add_to_box(struct catalog *catalog, const struct box *box)
{
    int64_t tensor = catalog->tensor_count - 1;
    struct catalog_box *last = catalog->box_count ? &catalog->boxes[catalog->box_count - 1] : NULL;
    if (!last || last->tensor != tensor || memcmp(last->start, box->start, sizeof last->start) ||
        memcmp(last->count, box->count, sizeof last->count)) {
        last = &catalog->boxes[catalog->box_count++];
        *last = (struct catalog_box){.tensor = tensor, .first = catalog->piece_count};
        memcpy(last->start, box->start, sizeof last->start);
        memcpy(last->count, box->count, sizeof last->count);
    }
    last->pieces++;
}

static int fill(struct catalog *catalog, const struct catalog_entry **sorted,
                const struct catalog_entry *entries, int64_t count, struct error *err)
{
    struct catalog_tensor *tensor = NULL;
    for (int64_t i = 0; i < count; i++) {
        const struct catalog_entry *entry = sorted[i];
        if (!tensor || strcmp(tensor->name, entry->name)) {
            tensor = &catalog->tensors[catalog->tensor_count++];
            *tensor = new_tensor(entry, catalog->piece_count);
        }
        if (same_tensor(tensor, entry, err))
            return -1;
        if (!entry->count)
            continue;
        add_to_box(catalog, &entry->box);
        catalog->pieces[catalog->piece_count++] = (struct catalog_piece){
            .tensor = tensor - catalog->tensors,
            .shard = entry->shard,
            .offset = entry - entries,
            .start = entry->start,
            .count = entry->count,
        };
        tensor->count++;
    }
    return 0;
}

int catalog_build(struct catalog *catalog, const struct catalog_entry *entries, int64_t count,
                  struct error *err)
{
    size_t most = (size_t)count;
    const struct catalog_entry **sorted = array_make(most, sizeof *sorted);
    *catalog = (struct catalog){0};
    catalog->tensors = array_make(most, sizeof *catalog->tensors);
    catalog->boxes = array_make(most, sizeof *catalog->boxes);
    catalog->pieces = array_make(most, sizeof *catalog->pieces);
    for (int64_t i = 0; i < count; i++)
        sorted[i] = &entries[i];
    qsort(sorted, (size_t)count, sizeof *sorted, by_name);
    int rc = fill(catalog, sorted, entries, count, err);
    free(sorted);
    if (rc)
        catalog_free(catalog);
    return rc;
}

const struct catalog_tensor *catalog_find(const struct catalog *catalog, const char *name)
{
    int64_t low = 0, high = catalog->tensor_count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int order = strcmp(catalog->tensors[middle].name, name);
        if (!order)
            return &catalog->tensors[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int64_t catalog_find_box(const struct catalog *catalog, int64_t piece)
{
    int64_t low = 0, high = catalog->box_count;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (catalog->boxes[middle].first <= piece)
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct box catalog_get_box(const struct catalog *catalog, int64_t b)
{
    const struct catalog_box *row = &catalog->boxes[b];
    const struct catalog_tensor *tensor = &catalog->tensors[row->tensor];
    struct box box = {.dims = (int)tensor->rank};
    for (int i = 0; i < box.dims; i++) {
        box.whole[i] = tensor->dims[i];
        box.start[i] = row->start[i];
        box.count[i] = row->count[i];
    }
    return box;
}

enum catalog_format catalog_format(const struct catalog *catalog)
{
    for (int64_t b = 1; b < catalog->box_count; b++)
        if (catalog->boxes[b].tensor == catalog->boxes[b - 1].tensor)
            return FORMAT_BOXES;
    return FORMAT_WHOLE;
}

void catalog_free(struct catalog *catalog)
{
    free(catalog->tensors);
    free(catalog->boxes);
    free(catalog->pieces);
    free(catalog->files);
    *catalog = (struct catalog){0};
}

/* index.h5 */

static int write_view(struct h5 *file, const struct catalog *catalog,
                      const struct catalog_tensor *tensor, struct error *err)
{
    struct h5_source *sources = array_make((size_t)tensor->count, sizeof *sources);
    for (int64_t i = 0; i < tensor->count; i++) {
        const struct catalog_piece *piece = &catalog->pieces[tensor->first + i];
        catalog_shard_name(sources[i].file, piece->shard);
        sources[i].box = catalog_get_box(catalog, catalog_find_box(catalog, tensor->first + i));
        sources[i].start = piece->start;
        sources[i].count = piece->count;
        sources[i].dataset = catalog_dataset_name(tensor->name, &sources[i].box, piece->start);
    }
    int rc = h5_virtual(file, tensor->name, dtype_find(tensor->dtype), (int)tensor->rank,
                        tensor->dims, sources, tensor->count, err);
    for (int64_t i = 0; i < tensor->count; i++)
        free(sources[i].dataset);
    free(sources);
    return rc;
}

int catalog_write(const struct catalog *catalog, const char *path, struct error *err)
{
    struct h5 *file;
    int64_t format = catalog_format(catalog);
    if (h5_create(&file, path, err))
        return -1;
    int rc = h5_set_value(file, "/", "format", H5_TYPE_I64, &format, err) ||
             h5_set_value(file, "/", "step", H5_TYPE_I64, &catalog->step, err) ||
             h5_write_rows(file, &tensor_table, catalog->tensors, catalog->tensor_count, err) ||
             (format == FORMAT_BOXES &&
              h5_write_rows(file, &box_table, catalog->boxes, catalog->box_count, err)) ||
             h5_write_rows(file, &piece_table, catalog->pieces, catalog->piece_count, err) ||
             h5_write_rows(file, &file_table, catalog->files, catalog->file_count, err);
    for (int64_t t = 0; t < catalog->tensor_count && !rc; t++) {
        rc = write_view(file, catalog, &catalog->tensors[t], err);
        alive_note();
    }
    return h5_close(file, rc ? NULL : err) || rc ? -1 : 0;
}

/* Of tensors that are stored whole, each with pieces is one box.  The numbers may be any. */
static void make_boxes(struct catalog *catalog)
{
    catalog->boxes = array_make((size_t)catalog->tensor_count, sizeof *catalog->boxes);
    for (int64_t t = 0; t < catalog->tensor_count; t++) {
        const struct catalog_tensor *tensor = &catalog->tensors[t];
        if (!tensor->count)
            continue;
        struct catalog_box *box = &catalog->boxes[catalog->box_count++];
        *box = (struct catalog_box){.tensor = t, .first = tensor->first, .pieces = tensor->count};
        memcpy(box->count, tensor->dims, sizeof box->count);
    }
}

static int read_boxes(struct catalog *catalog, struct h5 *file, int64_t format, struct error *err)
{
    if (format == FORMAT_BOXES)
        return h5_read_rows(file, &box_table, (void **)&catalog->boxes, &catalog->box_count, err);
    make_boxes(catalog);
    return 0;
}

int catalog_read(struct catalog *catalog, const char *path, struct error *err)
{
    struct h5 *file;
    int64_t format = 0;
    *catalog = (struct catalog){0};
    if (h5_open(&file, path, err))
        return -1;
    int rc = h5_get_value(file, "/", "format", H5_TYPE_I64, &format, err);
    if (!rc && (format < FORMAT_WHOLE || format > FORMAT_BOXES))
        rc = error_set(err, "%s: checkpoint format %lld; this version reads %d and %d", path,
                       (long long)format, FORMAT_WHOLE, FORMAT_BOXES);
    rc = rc || h5_get_value(file, "/", "step", H5_TYPE_I64, &catalog->step, err) ||
         h5_read_rows(file, &tensor_table, (void **)&catalog->tensors, &catalog->tensor_count,
                      err) ||
         read_boxes(catalog, file, format, err) ||
         h5_read_rows(file, &piece_table, (void **)&catalog->pieces, &catalog->piece_count, err) ||
         h5_read_rows(file, &file_table, (void **)&catalog->files, &catalog->file_count, err);
    h5_close(file, NULL);
    if (!rc && catalog_check_tables(catalog, err))
        rc = error_prefix(err, "%s", path);
    if (rc)
        catalog_free(catalog);
    return rc ? -1 : 0;
}
