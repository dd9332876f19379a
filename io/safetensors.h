/* safetensors.h - tensors in Hugging Face's files, read and written by intervals.
 *
 * A file is 8 bytes with the length of a header, the header (JSON: of each tensor dtype, shape and
 * where its bytes begin and end), and the bytes.  Several files have an index beside them.
 * Format: github.com/huggingface/safetensors, README, "Format".
 *
 * Names, dtypes and shapes are the files' own; nothing here knows models, and nothing is
 * collective.
 */
#ifndef TRIREME_IO_SAFETENSORS_H
#define TRIREME_IO_SAFETENSORS_H

#include <stdint.h>

#include "base/box.h"
#include "base/dtype.h"
#include "base/error.h"

struct safetensors_tensor {
    char *name;
    int dtype;      /* enum dtype; -1: one that is not read here (whole numbers, bools, 8 bits) */
    char format[8]; /* as the file says: "BF16" */
    int dims;
    int64_t dim[BOX_DIMS], elems;
    int file;              /* which of the files, */
    int64_t offset, bytes; /* from which of its bytes on, and how many */
};

/* Opened files, whose fields are only read. */
struct safetensors {
    char *path;
    int tensors;
    struct safetensors_tensor *tensor; /* by name */
    int files;
    char **file; /* paths */
    int *fd;
    /* private */
    int tensor_capacity, file_capacity, fd_capacity;
};

enum safetensors_found { SAFETENSORS_NONE, SAFETENSORS_FILE, SAFETENSORS_INDEX };

/* What a folder holds: a file model.safetensors, else an index model.safetensors.index.json, or
 * none.  Where both are there the file counts, as with transformers. */
enum safetensors_found safetensors_look(const char *folder);

/* Open what a folder holds, or one file.  Every header is checked: lengths, shapes, that tensors
 * cover the bytes of the file and do not overlap, and that the index names each file's tensors.
 * Not collective.  Returns 0, or -1 with err naming file and tensor, and *st NULL. */
int safetensors_open(struct safetensors **st, const char *path, struct error *err);
void safetensors_close(struct safetensors *st); /* NULL allowed */

/* The tensor of a name, or NULL. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *st, const char *name);

/* Read elements [start, start + count) of a tensor, in row-major order, as fp32.  0, or -1 with err
 * set: a format that is not read, a disk that fails. */
int safetensors_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
                     int64_t start, int64_t count, float *to, struct error *err);

/* The same as the file has them, in the tensor's format.  0, or -1 with err set. */
int safetensors_read_raw(const struct safetensors *st, const struct safetensors_tensor *tensor,
                         int64_t start, int64_t count, void *to, struct error *err);

/* A hash that files with other tensors, or the same tensors with other numbers, most likely do not
 * have: XXH3 of each tensor's name, format and shape, and of SAMPLE_BYTES at its start, in its
 * middle and at its end.  In however many files they are, it is the same.  0, or -1 with err set: a
 * disk that fails. */
int safetensors_hash(const struct safetensors *st, uint64_t *hash, struct error *err);

/* ---- writing ---- */

/* A tensor to be written: values come from `read`, in order, each asked for once. */
struct safetensors_source {
    char name[160];
    int dims;
    int64_t dim[BOX_DIMS], elems;
    /* Elements [start, start + count) into to, fp32; 0, or -1 with err set. */
    int (*read)(void *user, int source, int64_t start, int64_t count, float *to, struct error *err);
    void *user;
};

/* Write tensors as folder/STEM.safetensors ("model" is the stem of a model's), or where they are
 * more than file_bytes as several files STEM-00001-of-0000N.safetensors and their index, each under
 * another name until it is whole and on the disk.  dtype: of all.  0, or -1 with err set, and no
 * file of these names that is not whole. */
int safetensors_write(const char *folder, const char *stem, const struct safetensors_source *source,
                      int count, enum dtype dtype, int64_t file_bytes, struct error *err);

#endif
