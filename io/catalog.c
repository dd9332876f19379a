/* catalog.c - the tables of a checkpoint: made from the ranks' pieces, written, read; see
 * catalog.h.
 *
 * The entries of all ranks are sorted by name, box and start.  Then entries of the same name make a
 * tensor, those of them with the same box a box, and each entry that is not empty a piece.
 * catalog_check.c checks whether the pieces cover every tensor once.
 */
#include "io/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/h5.h"

/* A column of a table, which holds a member of the row's struct: FIELD gives it the member's name,
 * NAMED_FIELD another one. */
#define FIELD(field_kind, type, member) NAMED_FIELD(#member, field_kind, type, member)
#define NAMED_FIELD(label, field_kind, type, member)                                \
    {                                                                               \
        .name = label, .kind = field_kind, .offset = offsetof(struct type, member), \
        .bytes = sizeof(((struct type *)0)->member)                                 \
    }
#define TABLE(path, type, columns)                                                    \
    {                                                                                 \
        .name = path, .fields = columns, .count = sizeof columns / sizeof columns[0], \
        .row_bytes = sizeof(struct type)                                              \
    }

static const struct h5_field tensor_fields[] = {
    FIELD(H5_FIELD_TEXT, catalog_tensor, name),
    FIELD(H5_FIELD_TEXT, catalog_tensor, dtype),
    FIELD(H5_FIELD_I64, catalog_tensor, rank),
    NAMED_FIELD("dim", H5_FIELD_I64_ARRAY, catalog_tensor, dims),
    FIELD(H5_FIELD_I64, catalog_tensor, elems),
    FIELD(H5_FIELD_I64, catalog_tensor, first),
    FIELD(H5_FIELD_I64, catalog_tensor, count),
};
static const struct h5_field box_fields[] = {
    FIELD(H5_FIELD_I64, catalog_box, tensor),
    FIELD(H5_FIELD_I64, catalog_box, first),
    FIELD(H5_FIELD_I64, catalog_box, pieces),
    NAMED_FIELD("start", H5_FIELD_I64_ARRAY, catalog_box, box.start),
    NAMED_FIELD("count", H5_FIELD_I64_ARRAY, catalog_box, box.count),
};
static const struct h5_field piece_fields[] = {
    FIELD(H5_FIELD_I64, catalog_piece, tensor), FIELD(H5_FIELD_I64, catalog_piece, shard),
    FIELD(H5_FIELD_I64, catalog_piece, offset), FIELD(H5_FIELD_I64, catalog_piece, start),
    FIELD(H5_FIELD_I64, catalog_piece, count),  FIELD(H5_FIELD_U64, catalog_piece, checksum),
};
static const struct h5_field file_fields[] = {
    FIELD(H5_FIELD_I64, catalog_file, bytes),
    FIELD(H5_FIELD_U64, catalog_file, rest),
};
static const struct h5_table tensor_table = TABLE("index/tensors", catalog_tensor, tensor_fields);
static const struct h5_table box_table = TABLE("index/boxes", catalog_box, box_fields);
static const struct h5_table piece_table = TABLE("index/pieces", catalog_piece, piece_fields);
static const struct h5_table file_table = TABLE("index/files", catalog_file, file_fields);

void catalog_shard_name(char name[SHARD_NAME], int64_t shard)
{
    snprintf(name, SHARD_NAME, "shard-%05lld.h5", (long long)shard);
}

char *catalog_shard_path(const char *folder, int64_t shard)
{
    char name[SHARD_NAME];
    catalog_shard_name(name, shard);
    return array_format("%s/%s", folder, name);
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

/* Building */

/* Compare two boxes of a tensor by their starts, then by their counts.  Returns a number less than,
 * equal to or greater than 0. */
static int compare_boxes(const struct box *x, const struct box *y)
{
    int order = 0;
    for (int i = 0; i < x->dims && !order; i++)
        order = (x->start[i] > y->start[i]) - (x->start[i] < y->start[i]);
    for (int i = 0; i < x->dims && !order; i++)
        order = (x->count[i] > y->count[i]) - (x->count[i] < y->count[i]);
    return order;
}

/* Compare entries for qsort(): by name, box, start, and last by their place in the array. */
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

/* Check that an entry has its tensor's dtype and dimensions.  Returns 0, or -1 with err set. */
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

/* Returns the tensor of an entry, with no pieces yet; its pieces will begin with index first. */
static struct catalog_tensor new_tensor(const struct catalog_entry *entry, int64_t first)
{
    struct catalog_tensor tensor = {.rank = entry->box.dims, .first = first};
    memcpy(tensor.name, entry->name, sizeof tensor.name);
    snprintf(tensor.dtype, sizeof tensor.dtype, "%s", dtype_name((enum dtype)entry->dtype));
    memcpy(tensor.dims, entry->box.whole, (size_t)tensor.rank * sizeof tensor.dims[0]);
    tensor.elems = h5_elems(tensor.rank, tensor.dims);
    return tensor;
}

/* Count the next piece, which is of the last tensor, in its box: the table's last one if that is
 * the same box, else a new row. */
static void add_to_box(struct catalog *catalog, const struct box *box)
{
    int64_t tensor = catalog->tensor_count - 1;
    struct catalog_box *last = catalog->box_count ? &catalog->boxes[catalog->box_count - 1] : NULL;
    if (!last || last->tensor != tensor || !box_equal(&last->box, box)) {
        last = &catalog->boxes[catalog->box_count++];
        *last = (struct catalog_box){.tensor = tensor, .first = catalog->piece_count, .box = *box};
    }
    last->pieces++;
}

/* Fill the tables from the sorted entries.  Returns 0, or -1 with err set: entries disagree. */
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
            .box = catalog->box_count - 1,
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

/* Compare a name with a tensor's, for bsearch(). */
static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct catalog_tensor *)tensor)->name);
}

const struct catalog_tensor *catalog_find(const struct catalog *catalog, const char *name)
{
    if (!catalog->tensor_count)
        return NULL;
    return bsearch(name, catalog->tensors, (size_t)catalog->tensor_count, sizeof *catalog->tensors,
                   compare_name);
}

enum catalog_format catalog_format(const struct catalog *catalog)
{
    for (int64_t b = 1; b < catalog->box_count; b++)
        if (catalog->boxes[b].tensor == catalog->boxes[b - 1].tensor)
            return FORMAT_BOXES;
    return FORMAT_WHOLE;
}

/* A counting sort: count the pieces of each file, add the counts up to first[], and put the index
 * of each piece at its file's next free place. */
struct catalog_shards catalog_shards_make(const struct catalog *catalog)
{
    struct catalog_shards shards = {
        .first = array_make((size_t)catalog->file_count + 1, sizeof *shards.first),
        .numbers = array_make((size_t)catalog->piece_count, sizeof *shards.numbers),
    };
    int64_t *next = array_make((size_t)catalog->file_count, sizeof *next);
    for (int64_t i = 0; i < catalog->piece_count; i++)
        shards.first[catalog->pieces[i].shard + 1]++;
    for (int64_t s = 0; s < catalog->file_count; s++) {
        next[s] = shards.first[s];
        shards.first[s + 1] += shards.first[s];
    }
    for (int64_t i = 0; i < catalog->piece_count; i++)
        shards.numbers[next[catalog->pieces[i].shard]++] = i;
    free(next);
    return shards;
}

void catalog_shards_free(struct catalog_shards *shards)
{
    free(shards->first);
    free(shards->numbers);
    *shards = (struct catalog_shards){0};
}

/* Broadcast a table of rank 0.  rows: the table on rank 0.  Returns the table: a new one on other
 * ranks; NULL on them if it has no rows. */
static void *share_rows(struct world *world, void *rows, int64_t count, size_t row_bytes)
{
    if (!count)
        return rows;
    if (world_rank(world))
        rows = array_make((size_t)count, row_bytes);
    world_broadcast(world, rows, (size_t)count * row_bytes, 0);
    return rows;
}

void catalog_broadcast(struct catalog *catalog, struct world *world)
{
    struct catalog shared = *catalog;
    world_broadcast(world, &shared, sizeof shared, 0);
    if (world_rank(world)) /* rank 0's pointers mean nothing here */
        shared.tensors = NULL, shared.boxes = NULL, shared.pieces = NULL, shared.files = NULL;
    shared.tensors = share_rows(world, shared.tensors, shared.tensor_count, sizeof *shared.tensors);
    shared.boxes = share_rows(world, shared.boxes, shared.box_count, sizeof *shared.boxes);
    shared.pieces = share_rows(world, shared.pieces, shared.piece_count, sizeof *shared.pieces);
    shared.files = share_rows(world, shared.files, shared.file_count, sizeof *shared.files);
    *catalog = shared;
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
    rc = rc || catalog_show_views(catalog, file, err);
    return h5_close(file, rc ? NULL : err) || rc ? -1 : 0;
}

/* Make the table of boxes of FORMAT_WHOLE, whose file has none: one box for each tensor that has
 * pieces.  The tensors' rows are not checked yet. */
static void make_boxes(struct catalog *catalog)
{
    catalog->boxes = array_make((size_t)catalog->tensor_count, sizeof *catalog->boxes);
    for (int64_t t = 0; t < catalog->tensor_count; t++) {
        const struct catalog_tensor *tensor = &catalog->tensors[t];
        if (!tensor->count)
            continue;
        struct catalog_box *row = &catalog->boxes[catalog->box_count++];
        *row = (struct catalog_box){.tensor = t, .first = tensor->first, .pieces = tensor->count};
        memcpy(row->box.count, tensor->dims, sizeof row->box.count);
    }
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
         (format == FORMAT_BOXES &&
          h5_read_rows(file, &box_table, (void **)&catalog->boxes, &catalog->box_count, err)) ||
         h5_read_rows(file, &piece_table, (void **)&catalog->pieces, &catalog->piece_count, err) ||
         h5_read_rows(file, &file_table, (void **)&catalog->files, &catalog->file_count, err);
    h5_close(file, NULL);
    if (!rc && format == FORMAT_WHOLE)
        make_boxes(catalog);
    if (!rc && catalog_check_tables(catalog, err))
        rc = error_prefix(err, "%s", path);
    if (rc)
        catalog_free(catalog);
    return rc ? -1 : 0;
}
