/* h5_private.h - what h5.c shares with h5_attribute.c and h5_index.c.  Ids are HDF5's hid_t, 64
 * bits wide. */
#ifndef TRIREME_IO_H5_PRIVATE_H
#define TRIREME_IO_H5_PRIVATE_H

#include "io/h5.h"

struct h5 {
    int64_t id; /* of the open file */
    char *path;
};

/* Set err to "PATH: TEXT: REASON", where REASON is HDF5's innermost one.  Returns -1. */
int h5_fail(const struct h5 *file, struct error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns a new datatype id for a type, for H5Tclose(). */
int64_t h5_make_type(int type);

/* Returns a new dataspace id, for H5Sclose(). */
int64_t h5_make_space(int rank, const int64_t *dims);

/* Make a dataset and the groups in its path.  Closes the ids type (as stored), space and create
 * (the creation property list), on failure too.  Returns the dataset's id for H5Dclose(), or a
 * negative number with err set: "FAILURE NAME". */
int64_t h5_make_dataset_and_close_ids(struct h5 *file, const char *failure, const char *name,
                                      int64_t type, int64_t space, int64_t create,
                                      struct error *err);

#endif
