/* catalog_check.c - checks that a catalog's rows are possible, and that its pieces cover every
 * tensor exactly once; see catalog.h.
 *
 * catalog_check() walks the pieces of each box in order, so it sees every gap and every overlap:
 *
 *     box of 12 elements   |-- start 0, count 8 --|-- start 8, count 4 --|
 *
 * Then it compares the boxes of each tensor: boxes that do not overlap, and together have as many
 * elements as the tensor, cover all of it.
 *
 * A damaged file can hold any numbers.  Therefore catalog_check_tables() checks tables that were
 * read before anything uses them: each row by itself first, so that catalog_check() neither
 * overflows nor reads outside of a table.
 */
#include "io/catalog.h"

#include <string.h>

#include "io/h5.h"

/* Check that the pieces of box b follow one another from its first element to its last.  Returns 0,
 * or -1 with err naming the first element that is in no piece, or in two. */
static int check_pieces(const struct catalog *catalog, int64_t b, struct error *err)
{
    const struct catalog_box *row = &catalog->boxes[b];
    const struct catalog_piece *piece = &catalog->pieces[row->first];
    const char *name = catalog->tensors[row->tensor].name;
    char text[BOX_TEXT];
    int64_t covered = 0, holder = -1;
    for (int64_t i = 0; i <= row->pieces; i++) {
        int last = i == row->pieces;
        int64_t start = last ? box_elems(&row->box) : piece[i].start;
        if (start > covered)
            return error_set(err, "tensor %s%s: element %lld is held by no rank", name,
                             catalog_name_box(&row->box, text), (long long)covered);
        if (start < covered)
            return error_set(err, "tensor %s%s: element %lld is held twice, by ranks %lld and %lld",
                             name, catalog_name_box(&row->box, text), (long long)start,
                             (long long)holder, (long long)(last ? holder : piece[i].shard));
        if (last)
            break;
        covered = start + piece[i].count;
        holder = piece[i].shard;
    }
    return 0;
}

/* Check that box b overlaps none of the boxes b + 1 to end - 1, which are sorted by their start in
 * the first dimension.  Returns 0, or -1 with err naming two boxes. */
static int check_overlaps(const struct catalog *catalog, int64_t b, int64_t end, struct error *err)
{
    const struct catalog_box *row = &catalog->boxes[b];
    for (const struct catalog_box *other = row + 1; other < catalog->boxes + end; other++) {
        char text[2][BOX_TEXT];
        if (other->box.start[0] >= row->box.start[0] + row->box.count[0])
            break;
        if (box_overlaps(&row->box, &other->box))
            return error_set(err, "tensor %s: boxes %s and %s overlap, of ranks %lld and %lld",
                             catalog->tensors[row->tensor].name, box_text(&row->box, text[0]),
                             box_text(&other->box, text[1]),
                             (long long)catalog->pieces[row->first].shard,
                             (long long)catalog->pieces[other->first].shard);
    }
    return 0;
}

int catalog_check(const struct catalog *catalog, struct error *err)
{
    int64_t b = 0;
    for (int64_t t = 0; t < catalog->tensor_count; t++) {
        const struct catalog_tensor *tensor = &catalog->tensors[t];
        int64_t first = b, elems = 0;
        while (b < catalog->box_count && catalog->boxes[b].tensor == t)
            b++;
        if (b - first > CATALOG_BOXES)
            return error_set(err, "tensor %s is in %lld boxes; %d are possible", tensor->name,
                             (long long)(b - first), CATALOG_BOXES);
        for (int64_t i = first; i < b; i++) {
            elems += box_elems(&catalog->boxes[i].box);
            if (check_pieces(catalog, i, err) || check_overlaps(catalog, i, b, err))
                return -1;
        }
        if (first == b && tensor->elems)
            return error_set(err, "tensor %s: element 0 is held by no rank", tensor->name);
        if (elems < tensor->elems)
            return error_set(err, "tensor %s: %lld of its %lld elements are held by no rank",
                             tensor->name, (long long)(tensor->elems - elems),
                             (long long)tensor->elems);
    }
    return 0;
}

/* Tables from a file */

/* Returns 1 if a piece of tensor number t lies within its box, of `elems` elements, and its file.
 */
static int piece_is_sound(const struct catalog *catalog, const struct catalog_piece *piece,
                          int64_t t, int64_t elems)
{
    if (piece->tensor != t || piece->shard < 0 || piece->shard >= catalog->file_count ||
        piece->start < 0 || piece->count < 1 || piece->count > elems - piece->start)
        return 0;
    int dtype = dtype_find(catalog->tensors[t].dtype);
    int64_t width = (int64_t)dtype_bytes((enum dtype)dtype);
    int64_t bytes = catalog->files[piece->shard].bytes;
    return piece->offset >= 0 && piece->offset <= bytes &&
           piece->count <= (bytes - piece->offset) / width;
}

/* Returns 1 if a tensor's row is possible, and its pieces begin with index `next`.  Ends the row's
 * texts with a 0. */
static int tensor_is_sound(const struct catalog *catalog, struct catalog_tensor *tensor,
                           int64_t next)
{
    tensor->name[sizeof tensor->name - 1] = 0;
    tensor->dtype[sizeof tensor->dtype - 1] = 0;
    return dtype_find(tensor->dtype) >= 0 && tensor->rank >= 1 &&
           tensor->rank <= CHECKPOINT_RANK_MAX && tensor->first == next && tensor->count >= 0 &&
           tensor->count <= catalog->piece_count - next && tensor->elems >= 0 &&
           tensor->elems == h5_elems(tensor->rank, tensor->dims);
}

/* Returns 1 if box b lies within its tensor, number t, does not begin before the box in front of
 * it, and its pieces begin with index `next`. */
static int box_row_is_sound(const struct catalog *catalog, int64_t b, int64_t t, int64_t next)
{
    const struct catalog_box *row = &catalog->boxes[b];
    const struct catalog_tensor *tensor = &catalog->tensors[t];
    return row->first == next && row->pieces >= 1 &&
           row->pieces <= tensor->first + tensor->count - next && box_is_sound(&row->box) &&
           (b == 0 || row[-1].tensor != t || row[-1].box.start[0] <= row->box.start[0]);
}

/* Check the boxes of tensor number t, from index *b on, and their pieces.  *b becomes the index
 * after its last box.  Sets pieces[].box.  Returns 0, or -1 with err naming the row. */
static int check_boxes(struct catalog *catalog, int64_t t, int64_t *b, struct error *err)
{
    const struct catalog_tensor *tensor = &catalog->tensors[t];
    int64_t next = tensor->first;
    for (; *b < catalog->box_count && catalog->boxes[*b].tensor == t; ++*b) {
        struct catalog_box *row = &catalog->boxes[*b];
        row->box.dims = (int)tensor->rank;
        memcpy(row->box.whole, tensor->dims, sizeof row->box.whole);
        if (!box_row_is_sound(catalog, *b, t, next))
            return error_set(err, "row %lld of index/boxes makes no sense", (long long)*b);
        for (; next < row->first + row->pieces; next++) {
            if (!piece_is_sound(catalog, &catalog->pieces[next], t, box_elems(&row->box)))
                return error_set(err, "row %lld of index/pieces makes no sense", (long long)next);
            catalog->pieces[next].box = *b;
        }
    }
    return next == tensor->first + tensor->count
               ? 0
               : error_set(err, "row %lld of index/pieces is of no box", (long long)next);
}

int catalog_check_tables(struct catalog *catalog, struct error *err)
{
    int64_t next = 0, b = 0;
    for (int64_t t = 0; t < catalog->tensor_count; t++) {
        struct catalog_tensor *tensor = &catalog->tensors[t];
        if (!tensor_is_sound(catalog, tensor, next))
            return error_set(err, "row %lld of index/tensors makes no sense", (long long)t);
        if (check_boxes(catalog, t, &b, err))
            return -1;
        next += tensor->count;
    }
    if (b < catalog->box_count)
        return error_set(err, "row %lld of index/boxes makes no sense", (long long)b);
    return next == catalog->piece_count ? catalog_check(catalog, err)
                                        : error_set(err, "index/pieces has rows of no tensor");
}
