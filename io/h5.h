/* h5.h - HDF5's one home is h5.c: what token files and checkpoints need of it.
 *
 * Only the main thread may call these functions.  Those that take err return 0, or -1 with err set:
 * HDF5's own error stack is never printed, its innermost reason is put into err, after the file's
 * path.
 */
#ifndef TRIREME_IO_H5_H
#define TRIREME_IO_H5_H

#include <stddef.h>
#include <stdint.h>

#include "base/box.h"
#include "base/dtype.h"
#include "base/error.h"

enum { H5_RANK_MAX = 8, H5_ALIGN = 4096 };

/* The parameter `type` of a function is an enum dtype, or one of these, which tensors do not have.
 */
enum h5_type { H5_TYPE_I64 = DTYPE_COUNT, H5_TYPE_U64, H5_TYPE_COUNT };

/* Set HDF5 up for trireme's own programs: set HDF5_USE_FILE_LOCKING=FALSE in the environment,
 * unless the user has set it, and keep HDF5 from cleaning up when the program ends.  main() calls
 * it before it starts a thread and before any other function here.  A program that links the
 * library and does not call it has HDF5's defaults. */
void h5_setup(void);

/* Returns the version of the HDF5 library, "1.10.8" (HDF5 itself refuses to run with other
 * headers).
 */
const char *h5_version(void);

/* Returns the bytes of one element. */
size_t h5_type_bytes(int type);

/* Returns the number of elements in dims[rank]; -1 if a dimension is negative, or if the elements,
 * at 8 bytes each, are too many for a file. */
int64_t h5_elems(int64_t rank, const int64_t *dims);

struct h5; /* an open file */

/* Create the file at path, in place of an existing one, or open it read-only.  In a file so created
 * datasets of H5_ALIGN bytes or more begin at a multiple of H5_ALIGN.  Return 0 and a file for
 * h5_close(), or -1. */
int h5_create(struct h5 **file, const char *path, struct error *err);
int h5_open(struct h5 **file, const char *path, struct error *err);

/* Create a file, which must not exist, whose first front_bytes (0, or a power of two from 512 on)
 * belong to the caller; HDF5 calls them a user block.  All objects begin at a multiple of H5_ALIGN,
 * so that the offset of a dataset does not depend on its size.  Returns as h5_create(). */
int h5_create_after(struct h5 **file, const char *path, int64_t front_bytes, struct error *err);

/* Returns 1 if the file at path begins like an HDF5 file. */
int h5_is_file(const char *path);

/* Close the file and free the object (NULL allowed), on failure too.  Returns -1 with err set if
 * HDF5 could not write everything. */
int h5_close(struct h5 *file, struct error *err);

struct h5_dataset {
    int type; /* as stored; -1 for one that enum dtype and enum h5_type do not have */
    int rank; /* the number of dimensions */
    int64_t dims[H5_RANK_MAX];
    int64_t elems;
    int64_t offset; /* byte in the file at which its elements begin; -1: not contiguous, or empty */
};

/* Make a contiguous dataset without writing its elements: the caller writes them by pwrite() at
 * dataset->offset after the file is closed.  Groups in the path `name` are made as needed. dataset,
 * NULL allowed, becomes its description. */
int h5_reserve(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
               struct h5_dataset *dataset, struct error *err);

/* Put the description of the dataset at path `name` into *dataset.  A dataset of another file, to
 * which a link leads, is an error: its offset is not one of this file. */
int h5_locate(struct h5 *file, const char *name, struct h5_dataset *dataset, struct error *err);

/* Returns 1 if there is an object at path `name`, or a link that leads to none. */
int h5_has(struct h5 *file, const char *name);

/* Returns 1 if the object has attribute `key`, of any type. */
int h5_has_attribute(struct h5 *file, const char *object, const char *key);

/* Write or read attribute `key` of an object ("/" is the root), which is one number of `type`, or a
 * text.  h5_set_text_of() gives the text `size` bytes in the file, whatever its length, and cuts a
 * longer one.  Reading a text that does not fit into size bytes is an error. */
int h5_set_value(struct h5 *file, const char *object, const char *key, int type, const void *value,
                 struct error *err);
int h5_get_value(struct h5 *file, const char *object, const char *key, int type, void *value,
                 struct error *err);
int h5_set_text(struct h5 *file, const char *object, const char *key, const char *text,
                struct error *err);
int h5_set_text_of(struct h5 *file, const char *object, const char *key, const char *text,
                   size_t size, struct error *err);
int h5_get_text(struct h5 *file, const char *object, const char *key, char *text, size_t size,
                struct error *err);

/* A table is an array of C structs, stored as a dataset of compound type: a row per struct, a
 * column per field.  H5_FIELD_TEXT is a char array that ends in 0; H5_FIELD_I64_ARRAY is an array
 * of int64_t with a column for each element, named NAME0, NAME1 and so on. */
enum h5_field_kind { H5_FIELD_I64, H5_FIELD_U64, H5_FIELD_TEXT, H5_FIELD_I64_ARRAY };

struct h5_field {
    const char *name; /* of the column */
    enum h5_field_kind kind;
    size_t offset; /* in the struct, bytes */
    size_t bytes;  /* of the member; of an array all its bytes */
};

struct h5_table {
    const char *name; /* path of the dataset */
    const struct h5_field *fields;
    int count;        /* of fields */
    size_t row_bytes; /* of the struct */
};

/* h5_write_rows() writes count rows as a new table.  h5_read_rows() reads all rows of a table into
 * *rows, to be free()d, which is NULL where there is none, or on failure. */
int h5_write_rows(struct h5 *file, const struct h5_table *table, const void *rows, int64_t count,
                  struct error *err);
int h5_read_rows(struct h5 *file, const struct h5_table *table, void **rows, int64_t *count,
                 struct error *err);

/* A part of a virtual dataset.  Its elements [start, start + count) of box, in row-major order, are
 * all elements of a one-dimensional dataset in another file. */
struct h5_source {
    char file[32]; /* the other file, relative to the folder of the virtual dataset's file */
    char *dataset; /* path in it */
    int64_t start, count;
    struct box box;
};

/* Make a virtual dataset of `count` sources, with a mapping for each. */
int h5_virtual(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
               const struct h5_source *sources, int64_t count, struct error *err);

/* Make a virtual dataset that shows all of dataset `source`, of the same type and dimensions, in
 * file source_file, whose path is relative to the folder of this file.  source may be virtual too.
 */
int h5_virtual_whole(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
                     const char *source_file, const char *source, struct error *err);

/* Divide elements [start, start + count) of a row-major array into boxes, in order.  from[i] and
 * size[i] become start and count of box i in each dimension.  Returns the number of boxes, at most
 * 2 * rank - 1. */
int h5_boxes(int rank, const int64_t *dims, int64_t start, int64_t count,
             int64_t from[][H5_RANK_MAX], int64_t size[][H5_RANK_MAX]);

#endif
