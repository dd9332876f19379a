/* h5_private.h - what h5.c shares with h5_index.c.  Ids are HDF5's hid_t, 64 bits wide. */
#ifndef TRIREME_IO_H5_PRIVATE_H
#define TRIREME_IO_H5_PRIVATE_H

#include "io/h5.h"

struct h5 {
    int64_t id;
    char *path;
};

/* err becomes "PATH: TEXT: HDF5's innermost reason".  Returns -1. */
int h5_fail(const struct h5 *file, struct error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A new datatype id for a type. */
int64_t h5_make_type(int type);

/* A new dataspace id. */
int64_t h5_make_space(int rank, const int64_t *dims);

/* A new dataset, and the groups of its path.  Takes over three ids and closes them, on failure too:
 * of its type as stored, its space, and its creation property list.  Returns its id, or a negative
 * one with err set: "FAILURE NAME". */
int64_t h5_make_dataset_and_close_ids(struct h5 *file, const char *failure, const char *name,
                                      int64_t type, int64_t space, int64_t create,
                                      struct error *err);

#endif
