/* h5.c - HDF5's home: files and contiguous datasets; see h5.h.
 *
 * Every function closes each HDF5 id that it opened before it returns; only struct h5 keeps one.  A
 * failing call's reason is on HDF5's error stack until the next call: h5_fail() takes it from
 * there.
 */
#include "io/h5.h"

#include <hdf5.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alive.h"
#include "base/array.h"
#include "base/special_file.h"
#include "io/h5_private.h"

_Static_assert(sizeof(hid_t) == sizeof(int64_t), "HDF5 1.10 or newer");

/* File locks are switched off: they fail on many parallel file systems, and no two processes of
 * trireme ever write the same file.  So is HDF5's clean-up at exit, which crashes where closing a
 * file has failed (disk full); trireme closes all files itself. */
void h5_setup(void)
{
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
    H5dont_atexit();
}

const char *h5_version(void)
{
    static const char built[] = H5_VERS_INFO; /* "HDF5 library version 1.10.8" */
    return strrchr(built, ' ') + 1;
}

/* Copy the description of the innermost error into reason, of 512 bytes; for H5Ewalk2(). */
static herr_t innermost(unsigned n, const H5E_error2_t *entry, void *reason)
{
    if (n == 0 && entry->desc)
        snprintf(reason, 512, "%s", entry->desc);
    return 0;
}

/* Cut HDF5's text "file write failed: time = ..., error message = 'No space left on device', buf =
 * ..." down to the message in quotes. */
static const char *shorten(char *reason)
{
    static const char before[] = "error message = '";
    char *from = strstr(reason, before);
    if (!from)
        return reason;
    from += sizeof before - 1;
    from[strcspn(from, "'")] = 0;
    return from;
}

int h5_fail(const struct h5 *file, struct error *err, const char *fmt, ...)
{
    static const char number_before[] = "errno = "; /* where a call of the system failed */
    char what[256], reason[512] = "no reason given";
    va_list args;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, reason);
    H5Eclear2(H5E_DEFAULT);
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    const char *number = strstr(reason, number_before);
    int by_system = number && error_is_system(atoi(number + sizeof number_before - 1));
    error_set(err, "%s: %s: %s", file->path, what, shorten(reason));
    if (err)
        err->by_system = by_system;
    return -1;
}

/* Types */

/* Returns a float type of 1 or 2 bytes, for H5Tclose().  HDF5 has no bfloat16, but it can describe
 * one by its fields, and readers convert it like any other float. */
static hid_t make_float(size_t bytes, size_t mantissa_bits, size_t exponent_bias)
{
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    size_t sign = 8 * bytes - 1;
    H5Tset_fields(type, sign, mantissa_bits, sign - mantissa_bits, 0, mantissa_bits);
    H5Tset_precision(type, 8 * bytes);
    H5Tset_size(type, bytes);
    H5Tset_ebias(type, exponent_bias);
    return type;
}

int64_t h5_make_type(int type)
{
    switch (type) {
    case DTYPE_F32: return H5Tcopy(H5T_IEEE_F32LE);
    case DTYPE_BF16: return make_float(2, 7, 127);
    case DTYPE_F16: return make_float(2, 10, 15); /* IEEE binary16 */
    case DTYPE_F8: return make_float(1, 3, 7);    /* E4M3 */
    case DTYPE_F64: return H5Tcopy(H5T_IEEE_F64LE);
    case DTYPE_I32: return H5Tcopy(H5T_STD_I32LE);
    case DTYPE_U16: return H5Tcopy(H5T_STD_U16LE);
    case DTYPE_U32: return H5Tcopy(H5T_STD_U32LE);
    case DTYPE_U8: return H5Tcopy(H5T_STD_U8LE);
    case H5_TYPE_I64: return H5Tcopy(H5T_STD_I64LE);
    default: return H5Tcopy(H5T_STD_U64LE);
    }
}

/* Returns the type (enum dtype or H5_TYPE_*) that a datatype is, or -1. */
static int find_type(hid_t stored)
{
    for (int type = 0; type < H5_TYPE_COUNT; type++) {
        hid_t ours = h5_make_type(type);
        int same = H5Tequal(ours, stored) > 0;
        H5Tclose(ours);
        if (same)
            return type;
    }
    return -1;
}

size_t h5_type_bytes(int type)
{
    return type >= DTYPE_COUNT ? 8 : dtype_bytes((enum dtype)type);
}

/* Files */

/* Returns a file that is not open, for h5_close(); HDF5 prints no errors from now on. */
static struct h5 *make_file(const char *path)
{
    struct h5 *file = array_make(1, sizeof *file);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    file->path = array_text(path);
    file->id = -1;
    return file;
}

/* Give the file to the caller (*out) if HDF5 has opened it.  Returns 0; or -1 with the failure and
 * HDF5's reason in err, and *out NULL.  The next call of HDF5 clears the reason, so callers close
 * their property lists after this. */
static int hand_over(struct h5 **out, struct h5 *file, const char *failure, struct error *err)
{
    *out = file->id >= 0 ? file : NULL;
    if (*out)
        return 0;
    h5_fail(file, err, "%s", failure);
    h5_close(file, NULL);
    return -1;
}

/* HDF5 keeps the descriptions of a file's objects until the file is closed, in a cache that it
 * counts by their bytes in the file, 32 MiB at most.  In memory that of a virtual dataset is 20
 * times as large: with 2000 of them, 80 layers of a model, 50 MiB. */
static void limit_cache(hid_t access)
{
    enum { CACHE_BYTES = 256 << 10 };
    H5AC_cache_config_t cache = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
    if (H5Pget_mdc_config(access, &cache) < 0)
        return;
    cache.set_initial_size = 1;
    cache.initial_size = cache.min_size = cache.max_size = CACHE_BYTES;
    cache.incr_mode = H5C_incr__off;
    cache.decr_mode = H5C_decr__off;
    cache.flash_incr_mode = H5C_flash_incr__off;
    H5Pset_mdc_config(access, &cache);
}

int h5_create(struct h5 **out, const char *path, struct error *err)
{
    struct h5 *file = make_file(path);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_alignment(access, H5_ALIGN, H5_ALIGN);
    limit_cache(access);
    file->id = ALIVE_CALL("creating", path, H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access));
    int rc = hand_over(out, file, "cannot create the file", err);
    H5Pclose(access);
    return rc;
}

/* HDF5 would put small objects together into blocks; that is off, so that each object is an
 * allocation of its own. */
int h5_create_after(struct h5 **out, const char *path, int64_t front_bytes, struct error *err)
{
    struct h5 *file = make_file(path);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), create = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_alignment(access, 1, H5_ALIGN);
    H5Pset_meta_block_size(access, 0);
    H5Pset_small_data_block_size(access, 0);
    H5Pset_userblock(create, (hsize_t)front_bytes);
    file->id = ALIVE_CALL("creating", path, H5Fcreate(path, H5F_ACC_EXCL, create, access));
    int rc = hand_over(out, file, "cannot create the file", err);
    H5Pclose(create);
    H5Pclose(access);
    return rc;
}

int h5_is_file(const char *path)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    int is = !special_file_kind(path) && ALIVE_CALL("opening", path, H5Fis_hdf5(path)) > 0;
    H5Eclear2(H5E_DEFAULT);
    return is;
}

int h5_open(struct h5 **out, const char *path, struct error *err)
{
    *out = NULL;
    if (special_file_refuse(path, err))
        return -1;
    struct h5 *file = make_file(path);
    file->id = ALIVE_CALL("opening", path, H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT));
    int rc = hand_over(out, file, "cannot open the file", err);
    if (rc && H5Fis_hdf5(path) == 0)
        error_set(err, "%s is not an HDF5 file", path);
    return rc;
}

int h5_close(struct h5 *file, struct error *err)
{
    if (!file)
        return 0;
    int rc = 0;
    if (file->id >= 0 && ALIVE_CALL("closing", file->path, H5Fclose(file->id)) < 0)
        rc = h5_fail(file, err, "cannot close");
    free(file->path);
    free(file);
    return rc;
}

/* Datasets */

int64_t h5_make_space(int rank, const int64_t *dims)
{
    hsize_t size[H5_RANK_MAX] = {0};
    for (int i = 0; i < rank && i < H5_RANK_MAX; i++)
        size[i] = (hsize_t)dims[i];
    return H5Screate_simple(rank, size, NULL);
}

int64_t h5_make_dataset_and_close_ids(struct h5 *file, const char *failure, const char *name,
                                      int64_t type, int64_t space, int64_t create,
                                      struct error *err)
{
    hid_t links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    H5Pset_obj_track_times(create, 0); /* the same data make the same file */
    hid_t set = ALIVE_CALL("writing", file->path,
                           H5Dcreate2(file->id, name, type, space, links, create, H5P_DEFAULT));
    if (set < 0)
        h5_fail(file, err, "%s %s", failure, name);
    H5Pclose(links);
    H5Pclose(create);
    H5Sclose(space);
    H5Tclose(type);
    return set;
}

int64_t h5_elems(int64_t rank, const int64_t *dims)
{
    int64_t elems = 1;
    for (int64_t i = 0; i < rank; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(elems, dims[i], &elems))
            return -1;
    return elems <= INT64_MAX / 8 ? elems : -1;
}

/* Fill *dataset from an open dataset.  Returns 0, or -1: its dimensions are too many or too large.
 */
static int describe(hid_t set, struct h5_dataset *dataset)
{
    hsize_t dims[H5_RANK_MAX];
    hid_t space = H5Dget_space(set), type = H5Dget_type(set);
    *dataset = (struct h5_dataset){.type = find_type(type), .elems = -1};
    int rank = H5Sget_simple_extent_ndims(space);
    if (rank >= 0 && rank <= H5_RANK_MAX && H5Sget_simple_extent_dims(space, dims, NULL) == rank) {
        for (int i = 0; i < rank; i++)
            dataset->dims[i] = (int64_t)dims[i];
        dataset->elems = h5_elems(rank, dataset->dims);
    }
    dataset->rank = rank;
    haddr_t offset = H5Dget_offset(set);
    dataset->offset = offset == HADDR_UNDEF ? -1 : (int64_t)offset;
    H5Tclose(type);
    H5Sclose(space);
    return dataset->elems >= 0 ? 0 : -1;
}

int h5_reserve(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
               struct h5_dataset *dataset, struct error *err)
{
    hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(create, H5D_CONTIGUOUS);
    H5Pset_alloc_time(create, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(create, H5D_FILL_TIME_NEVER);
    hid_t set =
        h5_make_dataset_and_close_ids(file, "cannot create dataset", name, h5_make_type(type),
                                      h5_make_space(rank, dims), create, err);
    if (set < 0)
        return -1;
    if (dataset)
        describe(set, dataset);
    H5Dclose(set);
    return 0;
}

/* Returns 1 if an open object lies in the file itself: external links lead to other files. */
static int lies_in_file(const struct h5 *file, hid_t object)
{
    ssize_t bytes = H5Fget_name(file->id, NULL, 0);
    if (bytes < 0 || H5Fget_name(object, NULL, 0) != bytes)
        return 0;
    char *name = array_make((size_t)bytes + 1, 1), *other = array_make((size_t)bytes + 1, 1);
    H5Fget_name(file->id, name, (size_t)bytes + 1);
    H5Fget_name(object, other, (size_t)bytes + 1);
    int same = !strcmp(name, other);
    free(name);
    free(other);
    return same;
}

int h5_locate(struct h5 *file, const char *name, struct h5_dataset *dataset, struct error *err)
{
    hid_t set = ALIVE_CALL("reading", file->path, H5Dopen2(file->id, name, H5P_DEFAULT));
    if (set < 0)
        return h5_fail(file, err, "no dataset %s", name);
    int rc = describe(set, dataset), is_here = lies_in_file(file, set);
    H5Dclose(set);
    if (!is_here)
        return error_set(err,
                         "%s: dataset %s lies in another file, to which an external link of HDF5's "
                         "leads; copy it into this one",
                         file->path, name);
    return rc ? error_set(err,
                          "%s: dataset %s has more than %d dimensions, or is larger than any file",
                          file->path, name, H5_RANK_MAX)
              : 0;
}

int h5_has(struct h5 *file, const char *name)
{
    int found = ALIVE_CALL("reading", file->path, H5Lexists(file->id, name, H5P_DEFAULT)) > 0;
    H5Eclear2(H5E_DEFAULT);
    return found;
}
