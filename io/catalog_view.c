/* catalog_view.c - virtual datasets, which show every tensor whole to any HDF5 program; see
 * catalog.h.
 *
 * HDF5 takes 10 us and more for each piece that such a view maps, and thousands of ranks save
 * hundreds of thousands of pieces.  Therefore all ranks write views at the same time, each those of
 * some tensors into its own shard file, and index.h5 has one mapping for each tensor, of its view:
 *
 *   index.h5            shard-00002.h5            shard-00000.h5
 *   model/attn.q  --->  views/model/attn.q  --->  pieces/model/attn.q@0
 *                                           --->  shard-00001.h5
 *                                                 pieces/model/attn.q@1000
 */
#include <stdlib.h>

#include "base/alive.h"
#include "base/array.h"
#include "io/catalog.h"
#include "io/h5.h"

int64_t catalog_view_shard(const struct catalog *catalog, const struct catalog_tensor *tensor)
{
    return tensor->count ? tensor->first * catalog->file_count / catalog->piece_count : -1;
}

/* Returns the path of a tensor's view in its shard file, to be free()d. */
static char *name_view(const struct catalog_tensor *tensor)
{
    return array_format("views/%s", tensor->name);
}

/* Write a tensor's view, with a mapping for each piece.  Returns 0, or -1 with err set. */
static int write_view(const struct catalog *catalog, const struct catalog_tensor *tensor,
                      struct h5 *file, struct error *err)
{
    struct h5_source *sources = array_make((size_t)tensor->count, sizeof *sources);
    char *name = name_view(tensor);
    for (int64_t i = 0; i < tensor->count; i++) {
        const struct catalog_piece *piece = &catalog->pieces[tensor->first + i];
        catalog_shard_name(sources[i].file, piece->shard);
        sources[i].box = catalog->boxes[piece->box].box;
        sources[i].start = piece->start;
        sources[i].count = piece->count;
        sources[i].dataset = catalog_dataset_name(tensor->name, &sources[i].box, piece->start);
    }
    int rc = h5_virtual(file, name, dtype_find(tensor->dtype), (int)tensor->rank, tensor->dims,
                        sources, tensor->count, err);
    for (int64_t i = 0; i < tensor->count; i++)
        free(sources[i].dataset);
    free(sources);
    free(name);
    return rc;
}

int catalog_write_views(const struct catalog *catalog, struct h5 *file, int64_t shard,
                        struct error *err)
{
    int rc = 0;
    for (int64_t t = 0; t < catalog->tensor_count && !rc; t++) {
        const struct catalog_tensor *tensor = &catalog->tensors[t];
        if (catalog_view_shard(catalog, tensor) != shard)
            continue;
        rc = write_view(catalog, tensor, file, err);
        alive_note();
    }
    return rc;
}

/* Write a tensor into index.h5: a virtual dataset of its view, or an empty dataset.  Returns 0, or
 * -1 with err set. */
static int show_view(const struct catalog *catalog, const struct catalog_tensor *tensor,
                     struct h5 *file, struct error *err)
{
    int type = dtype_find(tensor->dtype), rank = (int)tensor->rank;
    int64_t shard = catalog_view_shard(catalog, tensor);
    char source[SHARD_NAME];
    if (shard < 0)
        return h5_reserve(file, tensor->name, type, rank, tensor->dims, NULL, err);
    catalog_shard_name(source, shard);
    char *view = name_view(tensor);
    int rc = h5_virtual_whole(file, tensor->name, type, rank, tensor->dims, source, view, err);
    free(view);
    return rc;
}

int catalog_show_views(const struct catalog *catalog, struct h5 *file, struct error *err)
{
    int rc = 0;
    for (int64_t t = 0; t < catalog->tensor_count && !rc; t++) {
        rc = show_view(catalog, &catalog->tensors[t], file, err);
        alive_note();
    }
    return rc;
}
