/* h5_attribute.c - attributes of files, groups and datasets; see h5.h. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alive.h"
#include "base/array.h"
#include "io/h5_private.h"

int h5_has_attribute(struct h5 *file, const char *object, const char *key)
{
    int found = ALIVE_CALL("reading", file->path,
                           H5Aexists_by_name(file->id, object, key, H5P_DEFAULT)) > 0;
    H5Eclear2(H5E_DEFAULT);
    return found;
}

/* Write an attribute of a datatype, which is closed here.  Returns 0, or -1 with err set. */
static int set_attribute(struct h5 *file, const char *object, const char *key, hid_t type,
                         const void *value, struct error *err)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate_by_name(file->id, object, key, type, space, H5P_DEFAULT,
                                        H5P_DEFAULT, H5P_DEFAULT);
    int rc = 0;
    if (attribute < 0 || H5Awrite(attribute, type, value) < 0)
        rc = h5_fail(file, err, "cannot write attribute %s of %s", key, object);
    if (attribute >= 0)
        H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    return rc;
}

int h5_set_value(struct h5 *file, const char *object, const char *key, int type, const void *value,
                 struct error *err)
{
    return set_attribute(file, object, key, h5_make_type(type), value, err);
}

int h5_set_text(struct h5 *file, const char *object, const char *key, const char *text,
                struct error *err)
{
    return h5_set_text_of(file, object, key, text, strlen(text) + 1, err);
}

int h5_set_text_of(struct h5 *file, const char *object, const char *key, const char *text,
                   size_t size, struct error *err)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    char *bytes = array_make(size, 1);
    snprintf(bytes, size, "%s", text);
    H5Tset_size(type, size);
    int rc = set_attribute(file, object, key, type, bytes, err);
    free(bytes);
    return rc;
}

int h5_get_value(struct h5 *file, const char *object, const char *key, int type, void *value,
                 struct error *err)
{
    hid_t attribute = ALIVE_CALL("reading", file->path,
                                 H5Aopen_by_name(file->id, object, key, H5P_DEFAULT, H5P_DEFAULT));
    if (attribute < 0)
        return h5_fail(file, err, "no attribute %s of %s", key, object);
    hid_t memory = h5_make_type(type), space = H5Aget_space(attribute);
    hid_t stored = H5Aget_type(attribute);
    H5T_class_t class = H5Tget_class(stored);
    int rc = 0;
    if (class != H5T_INTEGER && class != H5T_FLOAT)
        rc = error_set(err, "%s: attribute %s of %s is not a number", file->path, key, object);
    else if (H5Sget_simple_extent_npoints(space) != 1)
        rc = error_set(err, "%s: attribute %s of %s is not one value", file->path, key, object);
    else if (H5Aread(attribute, memory, value) < 0)
        rc = h5_fail(file, err, "cannot read attribute %s of %s", key, object);
    H5Sclose(space);
    H5Aclose(attribute);
    H5Tclose(stored);
    H5Tclose(memory);
    return rc;
}

/* Returns the text of an attribute, to be free()d, or NULL.  A text of fixed size is read into one
 * byte more, so that a text which fills its size ends in a 0 too. */
static char *read_text(hid_t attribute, hid_t stored)
{
    char *text = NULL;
    hid_t memory = H5Tcopy(H5T_C_S1);
    H5Tset_cset(memory, H5Tget_cset(stored));
    if (H5Tis_variable_str(stored) > 0) {
        char *theirs = NULL;
        H5Tset_size(memory, H5T_VARIABLE);
        if (H5Aread(attribute, memory, &theirs) >= 0 && theirs)
            text = strdup(theirs);
        H5free_memory(theirs);
    } else {
        size_t size = H5Tget_size(stored) + 1;
        H5Tset_size(memory, size);
        text = calloc(1, size);
        if (text && H5Aread(attribute, memory, text) < 0) {
            free(text);
            text = NULL;
        }
    }
    H5Tclose(memory);
    return text;
}

int h5_get_text(struct h5 *file, const char *object, const char *key, char *text, size_t size,
                struct error *err)
{
    hid_t attribute = ALIVE_CALL("reading", file->path,
                                 H5Aopen_by_name(file->id, object, key, H5P_DEFAULT, H5P_DEFAULT));
    if (attribute < 0)
        return h5_fail(file, err, "no attribute %s of %s", key, object);
    hid_t stored = H5Aget_type(attribute), space = H5Aget_space(attribute);
    int is_text = H5Tget_class(stored) == H5T_STRING;
    int is_one = H5Sget_simple_extent_npoints(space) == 1; /* read_text() has space for one */
    char *found = is_text && is_one ? read_text(attribute, stored) : NULL;
    int rc = 0;
    if (is_text && !is_one)
        rc = error_set(err, "%s: attribute %s of %s is not one text", file->path, key, object);
    else if (!found)
        rc = error_set(err, "%s: attribute %s of %s is not a text", file->path, key, object);
    else if ((size_t)snprintf(text, size, "%s", found) >= size)
        rc = error_set(err, "%s: attribute %s of %s is too long", file->path, key, object);
    free(found);
    H5Sclose(space);
    H5Tclose(stored);
    H5Aclose(attribute);
    return rc;
}
