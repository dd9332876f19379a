/* catalog.c - the tables of a checkpoint: made from the ranks' pieces, written, read; see
 * catalog.h.
 *
 * The entries of all ranks are sorted by tensor and start; each run of entries of one name becomes
 * a tensor, and each entry that is not empty a piece. catalog_check() then walks the pieces of each
 * tensor in order, which shows every gap and every overlap.  Tables that are read are checked in
 * full before anything uses them, because a damaged file can hold any numbers.
 */
#include "io/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alive.h"
#include "base/array.h"
#include "io/h5.h"

enum { FORMAT = 1 };

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
static const struct h5_field piece_fields[] = {
    I64(catalog_piece, tensor), I64(catalog_piece, shard), I64(catalog_piece, offset),
    I64(catalog_piece, start),  I64(catalog_piece, count), U64(catalog_piece, checksum),
};
static const struct h5_field file_fields[] = {
    I64(catalog_file, bytes),
    U64(catalog_file, rest),
};
static const struct h5_table tensor_table = TABLE("index/tensors", catalog_tensor, tensor_fields);
static const struct h5_table piece_table = TABLE("index/pieces", catalog_piece, piece_fields);
static const struct h5_table file_table = TABLE("index/files", catalog_file, file_fields);

void catalog_shard_name(char name[SHARD_NAME], int64_t shard)
{
    snprintf(name, SHARD_NAME, "shard-%05lld.h5", (long long)shard);
}

char *catalog_dataset_name(const char *tensor, int64_t start)
{
    return array_format("pieces/%s@%lld", tensor, (long long)start);
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

static int by_name(const void *a, const void *b)
{
    const struct catalog_entry *x = *(const struct catalog_entry *const *)a;
    const struct catalog_entry *y = *(const struct catalog_entry *const *)b;
    int order = strcmp(x->name, y->name);
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
    if (tensor->rank != entry->rank ||
        memcmp(tensor->dims, entry->dims, (size_t)entry->rank * sizeof entry->dims[0]))
        return error_set(err, "tensor %s has other dimensions on rank %lld than elsewhere",
                         tensor->name, (long long)entry->shard);
    return 0;
}

static struct catalog_tensor new_tensor(const struct catalog_entry *entry, int64_t first)
{
    struct catalog_tensor tensor = {.rank = entry->rank, .first = first};
    memcpy(tensor.name, entry->name, sizeof tensor.name);
    snprintf(tensor.dtype, sizeof tensor.dtype, "%s", dtype_name((enum dtype)entry->dtype));
    memcpy(tensor.dims, entry->dims, (size_t)entry->rank * sizeof tensor.dims[0]);
    tensor.elems = catalog_elems(tensor.rank, tensor.dims);
    return tensor;
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

int catalog_check(const struct catalog *catalog, struct error *err)
{
    for (int64_t t = 0; t < catalog->tensor_count; t++) {
        const struct catalog_tensor *tensor = &catalog->tensors[t];
        int64_t covered = 0, holder = -1;
        for (int64_t i = 0; i <= tensor->count; i++) {
            const struct catalog_piece *piece = &catalog->pieces[tensor->first + i];
            int last = i == tensor->count;
            int64_t start = last ? tensor->elems : piece->start;
            if (start > covered)
                return error_set(err, "tensor %s: element %lld is held by no rank", tensor->name,
                                 (long long)covered);
            if (start < covered)
                return error_set(err,
                                 "tensor %s: element %lld is held twice, by ranks %lld "
                                 "and %lld",
                                 tensor->name, (long long)start, (long long)holder,
                                 (long long)(last ? holder : piece->shard));
            if (last)
                break;
            covered = start + piece->count;
            holder = piece->shard;
        }
    }
    return 0;
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

void catalog_free(struct catalog *catalog)
{
    free(catalog->tensors);
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
        sources[i].start = piece->start;
        sources[i].count = piece->count;
        sources[i].dataset = catalog_dataset_name(tensor->name, piece->start);
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
    int64_t format = FORMAT;
    if (h5_create(&file, path, err))
        return -1;
    int rc = h5_set_value(file, "/", "format", H5_TYPE_I64, &format, err) ||
             h5_set_value(file, "/", "step", H5_TYPE_I64, &catalog->step, err) ||
             h5_write_rows(file, &tensor_table, catalog->tensors, catalog->tensor_count, err) ||
             h5_write_rows(file, &piece_table, catalog->pieces, catalog->piece_count, err) ||
             h5_write_rows(file, &file_table, catalog->files, catalog->file_count, err);
    for (int64_t t = 0; t < catalog->tensor_count && !rc; t++) {
        rc = write_view(file, catalog, &catalog->tensors[t], err);
        alive_note();
    }
    return h5_close(file, rc ? NULL : err) || rc ? -1 : 0;
}

/* Is the piece, a row of tensor number t, within its tensor and within its file? */
static int piece_is_sound(const struct catalog *catalog, const struct catalog_piece *piece,
                          int64_t t)
{
    const struct catalog_tensor *tensor = &catalog->tensors[t];
    if (piece->tensor != t || piece->shard < 0 || piece->shard >= catalog->file_count ||
        piece->start < 0 || piece->count < 1 || piece->count > tensor->elems - piece->start)
        return 0;
    int64_t width = (int64_t)dtype_bytes((enum dtype)dtype_find(tensor->dtype));
    int64_t bytes = catalog->files[piece->shard].bytes;
    return piece->offset >= 0 && piece->offset <= bytes &&
           piece->count <= (bytes - piece->offset) / width;
}

static int tensor_is_sound(const struct catalog *catalog, struct catalog_tensor *tensor,
                           int64_t next)
{
    tensor->name[sizeof tensor->name - 1] = 0;
    tensor->dtype[sizeof tensor->dtype - 1] = 0;
    return dtype_find(tensor->dtype) >= 0 && tensor->rank >= 1 &&
           tensor->rank <= CHECKPOINT_RANK_MAX && tensor->first == next && tensor->count >= 0 &&
           tensor->count <= catalog->piece_count - next && tensor->elems >= 0 &&
           tensor->elems == catalog_elems(tensor->rank, tensor->dims);
}

/* Check what later code relies on in tables that come from a file. */
static int check_tables(const struct catalog *catalog, struct error *err)
{
    int64_t next = 0;
    for (int64_t t = 0; t < catalog->tensor_count; t++) {
        struct catalog_tensor *tensor = &catalog->tensors[t];
        if (!tensor_is_sound(catalog, tensor, next))
            return error_set(err, "row %lld of index/tensors makes no sense", (long long)t);
        for (; next < tensor->first + tensor->count; next++)
            if (!piece_is_sound(catalog, &catalog->pieces[next], t))
                return error_set(err, "row %lld of index/pieces makes no sense", (long long)next);
    }
    return next == catalog->piece_count ? catalog_check(catalog, err)
                                        : error_set(err, "index/pieces has rows of no tensor");
}

int catalog_read(struct catalog *catalog, const char *path, struct error *err)
{
    struct h5 *file;
    int64_t format = 0;
    *catalog = (struct catalog){0};
    if (h5_open(&file, path, err))
        return -1;
    int rc = h5_get_value(file, "/", "format", H5_TYPE_I64, &format, err);
    if (!rc && format != FORMAT)
        rc = error_set(err, "%s: checkpoint format %lld; this version reads %d", path,
                       (long long)format, FORMAT);
    rc = rc || h5_get_value(file, "/", "step", H5_TYPE_I64, &catalog->step, err) ||
         h5_read_rows(file, &tensor_table, (void **)&catalog->tensors, &catalog->tensor_count,
                      err) ||
         h5_read_rows(file, &piece_table, (void **)&catalog->pieces, &catalog->piece_count, err) ||
         h5_read_rows(file, &file_table, (void **)&catalog->files, &catalog->file_count, err);
    h5_close(file, NULL);
    if (!rc && check_tables(catalog, err))
        rc = error_prefix(err, "%s", path);
    if (rc)
        catalog_free(catalog);
    return rc ? -1 : 0;
}
