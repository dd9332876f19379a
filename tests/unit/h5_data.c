/* h5_data.c - see h5_data.h. */
#include "tests/unit/h5_data.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "io/h5_private.h"

int h5_create_unaligned(struct h5 **out, const char *path)
{
    struct h5 *file = calloc(1, sizeof *file);
    file->path = strdup(path);
    file->id = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    *out = file;
    return file->id < 0 ? -1 : 0;
}

int h5_write(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
             const void *data, struct error *err)
{
    struct h5_dataset made;
    if (h5_reserve(file, name, type, rank, dims, &made, err))
        return -1;
    hid_t set = H5Dopen2(file->id, name, H5P_DEFAULT), memory = h5_make_type(type);
    int rc = 0;
    if (made.elems && H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        rc = h5_fail(file, err, "cannot write dataset %s", name);
    H5Tclose(memory);
    H5Dclose(set);
    return rc;
}

int h5_read(struct h5 *file, const char *name, int type, void **data, struct h5_dataset *dataset,
            struct error *err)
{
    struct h5_dataset own;
    struct h5_dataset *found = dataset ? dataset : &own;
    *data = NULL;
    if (h5_locate(file, name, found, err))
        return -1;
    hid_t set = H5Dopen2(file->id, name, H5P_DEFAULT), memory = h5_make_type(type);
    int rc = 0;
    if (found->type < 0)
        rc = error_set(err, "%s: dataset %s is not of numbers", file->path, name);
    else if (!(*data = malloc((size_t)found->elems * h5_type_bytes(type) + 1)))
        rc = error_set(err, "%s: out of memory reading %s", file->path, name);
    else if (found->elems && H5Dread(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, *data) < 0)
        rc = h5_fail(file, err, "cannot read dataset %s", name);
    if (rc) {
        free(*data);
        *data = NULL;
    }
    H5Tclose(memory);
    H5Dclose(set);
    return rc;
}

int h5_link_outside(struct h5 *file, const char *name, const char *other, const char *object)
{
    return H5Lcreate_external(other, object, file->id, name, H5P_DEFAULT, H5P_DEFAULT) < 0 ? -1 : 0;
}

int h5_set_texts(struct h5 *file, const char *key, size_t bytes, int64_t count)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = h5_make_space(1, &count);
    H5Tset_size(type, bytes ? bytes : H5T_VARIABLE);
    hid_t attribute = H5Acreate2(file->id, key, type, space, H5P_DEFAULT, H5P_DEFAULT);
    char *fixed = calloc((size_t)count, bytes + 1);
    const char **texts = calloc((size_t)count, sizeof *texts);
    for (int64_t i = 0; i < count; i++) {
        texts[i] = "a";
        fixed[(size_t)i * bytes] = 'a';
    }
    int rc = H5Awrite(attribute, type, bytes ? (const void *)fixed : texts) < 0 ? -1 : 0;
    free(texts);
    free(fixed);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    return rc;
}

int64_t h5_mappings(struct h5 *file, const char *name)
{
    size_t count = 0;
    hid_t set = H5Dopen2(file->id, name, H5P_DEFAULT), create = H5Dget_create_plist(set);
    if (H5Pget_layout(create) == H5D_VIRTUAL)
        H5Pget_virtual_count(create, &count);
    H5Pclose(create);
    H5Dclose(set);
    return (int64_t)count;
}
