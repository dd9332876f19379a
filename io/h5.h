/* h5.h - HDF5's one home is h5.c: what token files and checkpoints need of it.
 *
 * Only the thread that started the program calls these.  HDF5's own error stack is never
 * printed; its innermost reason is put into err, after the file's path.
 */
#ifndef TRIREME_IO_H5_H
#define TRIREME_IO_H5_H

#include <stddef.h>
#include <stdint.h>

#include "base/box.h"
#include "base/dtype.h"
#include "base/error.h"

enum { H5_RANK_MAX = 8, H5_ALIGN = 4096 };

/* A type is an enum dtype or one of these, which tensors do not have. */
enum h5_type { H5_TYPE_I64 = DTYPE_COUNT, H5_TYPE_U64, H5_TYPE_COUNT };

/* Set HDF5 up for a program that is trireme's: HDF5_USE_FILE_LOCKING=FALSE in the environment,
 * unless the user set it, and no clean-up by HDF5 when the program ends.  To be called by main(),
 * before it starts a thread and before the first of the functions below; a program that does not
 * call it keeps HDF5's own ways. */
void h5_setup(void);

/* Version of the library, "1.10.8" (HDF5 itself refuses to run with other headers). */
const char *h5_version(void);

/* Bytes of one element. */
size_t h5_type_bytes(int type);

/* Elements in dims; -1 if one is negative, or if a file could not hold them (8 bytes each). */
int64_t h5_elems(int64_t rank, const int64_t *dims);

struct h5; /* an open file */

/* Create (truncating) or open read-only.  Datasets of H5_ALIGN bytes or more begin at a multiple
 * of H5_ALIGN.  Returns 0 and a file for h5_close(), or -1. */
int h5_create(struct h5 **file, const char *path, struct error *err);
int h5_open(struct h5 **file, const char *path, struct error *err);

/* Create a file that must not be there yet, whose first front_bytes (0, or a power of two from 512
 * on) are the caller's: HDF5 calls them a user block.  Everything begins at a multiple of H5_ALIGN,
 * so that where a dataset lands does not depend on its size. */
int h5_create_behind(struct h5 **file, const char *path, int64_t front_bytes, struct error *err);

/* 1 if the file at path begins like an HDF5 file. */
int h5_is_file(const char *path);

/* Close and free (NULL allowed).  Returns -1 with err set if HDF5 could not write everything. */
int h5_close(struct h5 *file, struct error *err);

struct h5_dataset {
    int type; /* as stored; -1 if it is none of ours */
    int rank;
    int64_t dims[H5_RANK_MAX];
    int64_t elems;
    int64_t offset; /* of the bytes in the file; -1 if not contiguous or empty */
};

/* Make a contiguous dataset whose bytes the caller writes later at offset, by pwrite(), when
 * the file is closed.  Groups of the path in name are made as needed.  dataset may be NULL. */
int h5_reserve(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
               struct h5_dataset *dataset, struct error *err);

/* Describe a dataset. */
int h5_locate(struct h5 *file, const char *name, struct h5_dataset *dataset, struct error *err);

/* 1 if there is an object of this path. */
int h5_has(struct h5 *file, const char *name);

/* Attributes of an object ("/" is the root): one number of a type, or a text.
 * Reading a text that does not fit into size bytes is an error. */
int h5_set_value(struct h5 *file, const char *object, const char *key, int type, const void *value,
                 struct error *err);
int h5_get_value(struct h5 *file, const char *object, const char *key, int type, void *value,
                 struct error *err);
int h5_set_text(struct h5 *file, const char *object, const char *key, const char *text,
                struct error *err);
int h5_get_text(struct h5 *file, const char *object, const char *key, char *text, size_t size,
                struct error *err);

/* Tables: an array of C structs as a dataset of compound type, one row per field.
 * H5_FIELD_TEXT is a zero-terminated char array of `bytes`, H5_FIELD_I64_ARRAY an array of numbers
 * of `bytes`, whose columns are named NAME0, NAME1 and so on. */
enum h5_field_kind { H5_FIELD_I64, H5_FIELD_U64, H5_FIELD_TEXT, H5_FIELD_I64_ARRAY };

struct h5_field {
    const char *name;
    enum h5_field_kind kind;
    size_t offset; /* in the struct */
    size_t bytes;  /* of the member, an array whole */
};

struct h5_table {
    const char *name;
    const struct h5_field *fields;
    int count;
    size_t row_bytes;
};

/* Write count rows as a new table; read all rows of one.  Return 0, or -1 with err set.  The caller
 * frees *rows, which is NULL where the table has none, or on failure. */
int h5_write_rows(struct h5 *file, const struct h5_table *table, const void *rows, int64_t count,
                  struct error *err);
int h5_read_rows(struct h5 *file, const struct h5_table *table, void **rows, int64_t *count,
                 struct error *err);

/* Elements [start, start + count) of a box of a row-major dataset are the whole of the
 * one-dimensional dataset of this name in another file, whose name is relative to the file's
 * folder. */
struct h5_source {
    char file[32];
    char *dataset;
    int64_t start, count;
    struct box box;
};

/* Make a virtual dataset that shows the sources as one, by one mapping for each. */
int h5_virtual(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
               const struct h5_source *sources, int64_t count, struct error *err);

/* Make a virtual dataset that shows all of another one, of the same type and dimensions, in a file
 * whose name is relative to the file's folder.  That one may be virtual too. */
int h5_virtual_whole(struct h5 *file, const char *name, int type, int rank, const int64_t *dims,
                     const char *source_file, const char *source, struct error *err);

/* The boxes that a flat interval of a row-major array falls apart into, in order: at most
 * 2 * rank - 1.  Returns their number; from and size are [][H5_RANK_MAX]. */
int h5_boxes(int rank, const int64_t *dims, int64_t start, int64_t count,
             int64_t from[][H5_RANK_MAX], int64_t size[][H5_RANK_MAX]);

#endif
