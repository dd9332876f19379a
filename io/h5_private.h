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

/* A new dataspace id, and a link property list that makes the groups of a path. */
int64_t h5_make_space(int rank, const int64_t *dims);
int64_t h5_make_links(void);

#endif
