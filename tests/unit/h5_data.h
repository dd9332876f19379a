/* h5_data.h - writing and reading whole datasets through HDF5, which tests need and the product
 * does not. */
#ifndef TRIREME_TESTS_UNIT_H5_DATA_H
#define TRIREME_TESTS_UNIT_H5_DATA_H

#include "io/h5.h"

/* Make a file as other programs do, in which datasets begin at any byte.  Returns 0 and a file for
 * h5_close(), or -1. */
int h5_create_unaligned(struct h5 **file, const char *path);

/* Make a contiguous dataset and write it.  Returns 0, or -1 with err set. */
int h5_write(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
             const void *data, struct error *err);

/* Read a whole dataset as the type asked for, converted by HDF5; *data is free()d by the
 * caller.  dataset may be NULL. */
int h5_read(struct h5 *file, const char *name, int type, void **data, struct h5_dataset *dataset,
            struct error *err);

/* Make a link at path `name` to an object of another file.  Returns 0, or -1. */
int h5_link_outside(struct h5 *file, const char *name, const char *other, const char *object);

/* Write attribute `key` of the root: `count` times the text "a", in `bytes` bytes each; with bytes
 * 0 as texts of any length.  Returns 0, or -1. */
int h5_set_texts(struct h5 *file, const char *key, size_t bytes, int64_t count);

/* Count the mappings of a virtual dataset; 0: the dataset is not virtual. */
int64_t h5_mappings(struct h5 *file, const char *name);

#endif
