/* h5_index.c - tables of structs, and virtual datasets, of which index.h5 consists; see h5.h. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alive.h"
#include "base/round.h"
#include "io/h5.h"
#include "io/h5_private.h"

/* Add a column for each element of an array of int64_t: "dim0", "dim1", ... */
static void add_columns(hid_t row, const struct h5_field *field, hid_t type)
{
    char name[32];
    for (size_t i = 0; i < field->bytes / sizeof(int64_t); i++) {
        snprintf(name, sizeof name, "%s%zu", field->name, i);
        H5Tinsert(row, name, field->offset + i * sizeof(int64_t), type);
    }
}

/* Returns the compound type of a table's rows in memory, for H5Tclose(). */
static hid_t make_row(const struct h5_table *table)
{
    hid_t row = H5Tcreate(H5T_COMPOUND, table->row_bytes);
    for (int i = 0; i < table->count; i++) {
        const struct h5_field *field = &table->fields[i];
        hid_t type;
        if (field->kind == H5_FIELD_TEXT) {
            type = H5Tcopy(H5T_C_S1);
            H5Tset_size(type, field->bytes);
        } else {
            type = h5_make_type(field->kind == H5_FIELD_U64 ? H5_TYPE_U64 : H5_TYPE_I64);
        }
        if (field->kind == H5_FIELD_I64_ARRAY)
            add_columns(row, field, type);
        else
            H5Tinsert(row, field->name, field->offset, type);
        H5Tclose(type);
    }
    return row;
}

int h5_write_rows(struct h5 *file, const struct h5_table *table, const void *rows, int64_t count,
                  struct error *err)
{
    hid_t row = make_row(table), packed = H5Tcopy(row), transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Tpack(packed);
    /* HDF5 converts rows in a buffer, and clears all of it: have it no larger than the table. */
    H5Pset_buffer(transfer, (size_t)min_i64(count + 1, 4096) * table->row_bytes, NULL, NULL);
    hid_t set =
        h5_make_dataset_and_close_ids(file, "cannot write table", table->name, packed,
                                      h5_make_space(1, &count), H5Pcreate(H5P_DATASET_CREATE), err);
    int rc = set < 0 ? -1 : 0;
    if (!rc && count &&
        ALIVE_CALL("writing", file->path, H5Dwrite(set, row, H5S_ALL, H5S_ALL, transfer, rows)) < 0)
        rc = h5_fail(file, err, "cannot write table %s", table->name);
    if (set >= 0)
        H5Dclose(set);
    H5Pclose(transfer);
    H5Tclose(row);
    return rc;
}

/* Returns 1 if the table is stored as h5_write_rows() stores it.  HDF5 would convert other compound
 * types too, but it crashes where the stored description of a type is damaged. */
static int is_stored_as(hid_t set, hid_t row)
{
    hid_t packed = H5Tcopy(row), stored = H5Dget_type(set);
    H5Tpack(packed);
    int same = stored >= 0 && H5Tequal(packed, stored) > 0;
    H5Tclose(stored);
    H5Tclose(packed);
    return same;
}

int h5_read_rows(struct h5 *file, const struct h5_table *table, void **rows, int64_t *count,
                 struct error *err)
{
    struct h5_dataset dataset;
    *rows = NULL;
    if (h5_locate(file, table->name, &dataset, err))
        return -1;
    *count = dataset.elems;
    if (!dataset.elems)
        return 0;
    hid_t row = make_row(table);
    hid_t set = ALIVE_CALL("reading", file->path, H5Dopen2(file->id, table->name, H5P_DEFAULT));
    int rc = 0;
    if (!is_stored_as(set, row))
        rc =
            error_set(err, "%s: table %s has other columns than expected", file->path, table->name);
    else if (!(*rows = calloc((size_t)dataset.elems, table->row_bytes)))
        rc = error_set(err, "%s: out of memory reading %s", file->path, table->name);
    else if (ALIVE_CALL("reading", file->path,
                        H5Dread(set, row, H5S_ALL, H5S_ALL, H5P_DEFAULT, *rows)) < 0)
        rc = h5_fail(file, err, "cannot read table %s", table->name);
    if (rc) {
        free(*rows);
        *rows = NULL;
    }
    H5Tclose(row);
    H5Dclose(set);
    return rc;
}

/* Take boxes off the front of the interval: each time the largest box that begins at `start` and
 * lies in the interval, a run of whole slices along one axis.  Elements 3 to 10 of a 3 x 4 matrix:
 *
 *     .  .  .  0        box 0: from 0,3, size 1 x 1
 *     1  1  1  1        box 1: from 1,0, size 1 x 4
 *     2  2  2  .        box 2: from 2,0, size 1 x 3
 */
int h5_boxes(int rank, const int64_t *dims, int64_t start, int64_t count,
             int64_t from[][H5_RANK_MAX], int64_t size[][H5_RANK_MAX])
{
    int n = 0;
    for (; count > 0; n++) {
        int64_t slice = 1, left = start;
        int axis = rank - 1;
        while (axis > 0 && start % (slice * dims[axis]) == 0 && slice * dims[axis] <= count)
            slice *= dims[axis--];
        for (int i = rank - 1; i >= 0; left /= dims[i--]) {
            from[n][i] = left % dims[i];
            size[n][i] = i > axis ? dims[i] : 1;
        }
        int64_t run = dims[axis] - from[n][axis];
        if (run > count / slice)
            run = count / slice;
        size[n][axis] = run;
        start += run * slice;
        count -= run * slice;
    }
    return n;
}

/* Set err to HDF5's reason, which its next call clears.  Returns -1. */
static int fail_virtual(const struct h5 *file, const char *name, struct error *err)
{
    return h5_fail(file, err, "cannot create virtual dataset %s", name);
}

/* Add the mapping of a source of dataset `name` to the list `create`: its elements fill the boxes
 * into which the interval [start, start + count) of source->box is divided.  Returns 0, or -1 with
 * err set. */
static int map_source(const struct h5 *file, const char *name, hid_t create, int rank,
                      const int64_t *dims, const struct h5_source *source, struct error *err)
{
    int64_t from[2 * H5_RANK_MAX][H5_RANK_MAX], size[2 * H5_RANK_MAX][H5_RANK_MAX];
    int boxes = h5_boxes(rank, source->box.count, source->start, source->count, from, size);
    hid_t whole = h5_make_space(rank, dims), flat = h5_make_space(1, &source->count);
    int rc = 0;
    for (int b = 0; b < boxes && !rc; b++) {
        hsize_t corner[H5_RANK_MAX], extent[H5_RANK_MAX];
        for (int i = 0; i < rank; i++) {
            corner[i] = (hsize_t)(source->box.start[i] + from[b][i]);
            extent[i] = (hsize_t)size[b][i];
        }
        rc = H5Sselect_hyperslab(whole, b ? H5S_SELECT_OR : H5S_SELECT_SET, corner, NULL, extent,
                                 NULL) < 0;
    }
    if (rc || H5Pset_virtual(create, whole, source->file, source->dataset, flat) < 0)
        rc = fail_virtual(file, name, err);
    H5Sclose(flat);
    H5Sclose(whole);
    return rc;
}

/* Make a virtual dataset of the mappings in the property list create, which is closed here. Returns
 * 0, or -1 with err set. */
static int make_virtual(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
                        hid_t create, struct error *err)
{
    hid_t set =
        h5_make_dataset_and_close_ids(file, "cannot create virtual dataset", name,
                                      h5_make_type(type), h5_make_space(rank, dims), create, err);
    if (set >= 0)
        H5Dclose(set);
    return set < 0 ? -1 : 0;
}

int h5_virtual(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
               const struct h5_source *sources, int64_t count, struct error *err)
{
    if (!count)
        return h5_reserve(file, name, type, rank, dims, NULL, err);
    hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    for (int64_t i = 0; i < count; i++)
        if (map_source(file, name, create, rank, dims, &sources[i], err)) {
            H5Pclose(create);
            return -1;
        }
    return make_virtual(file, name, type, rank, dims, create, err);
}

int h5_virtual_whole(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
                     const char *source_file, const char *source, struct error *err)
{
    hid_t create = H5Pcreate(H5P_DATASET_CREATE), all = h5_make_space(rank, dims);
    int rc = 0;
    if (H5Pset_virtual(create, all, source_file, source, all) < 0)
        rc = fail_virtual(file, name, err);
    H5Sclose(all);
    if (!rc)
        return make_virtual(file, name, type, rank, dims, create, err);
    H5Pclose(create);
    return rc;
}
