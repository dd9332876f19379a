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

struct safetensors_nf4; /* safetensors_nf4.h */

struct safetensors_tensor {
    char *name;
    int dtype;      /* enum dtype; -1: not read here (whole numbers, bools, 8 bits) */
    char format[8]; /* the dtype as the file has it: "BF16"; "NF4" of a weight of 4 bits */
    int dims;
    int64_t dim[BOX_DIMS], elems;
    int file;                    /* index in safetensors.file */
    int64_t offset, bytes;       /* its bytes begin at byte `offset` of the file */
    struct safetensors_nf4 *nf4; /* what its codes stand for; NULL: it has none */
};

/* Opened files.  Callers only read the fields. */
struct safetensors {
    char *path;
    int tensors;
    struct safetensors_tensor *tensor; /* [tensors] sorted by name */
    int files;
    char **file; /* [files] paths */
    int *fd;     /* [files] */
    /* private */
    int tensor_capacity, file_capacity, fd_capacity;
};

enum safetensors_found { SAFETENSORS_NONE, SAFETENSORS_FILE, SAFETENSORS_INDEX };

/* Returns what a folder holds: a file model.safetensors, an index model.safetensors.index.json, or
 * none.  Where both are there the file is used, as by transformers. */
enum safetensors_found safetensors_look(const char *folder);

/* Open what a folder holds (safetensors_look()), or one file.  Every header is checked: lengths,
 * shapes, that tensors cover the bytes of the file and do not overlap, and that each tensor
 * which the index names is in the file that the index says.  What bitsandbytes keeps in 4 bits
 * (nf4) is one tensor, whose dtype is fp32.  Not collective.  Returns 0 and files for
 * safetensors_close(), or -1 with err naming file and tensor, and *st NULL. */
int safetensors_open(struct safetensors **st, const char *path, struct error *err);
void safetensors_close(struct safetensors *st); /* NULL allowed */

/* Returns the tensor with this name, or NULL. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *st, const char *name);

/* Read elements [start, start + count) of a tensor, in row-major order, as fp32.  Returns 0, or -1
 * with err set: a dtype that is not read, a disk that fails. */
int safetensors_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
                     int64_t start, int64_t count, float *to, struct error *err);

/* Read elements [start, start + count) of a tensor as the file has them, in the tensor's dtype; of
 * 4 bits their numbers.  Returns 0, or -1 with err set. */
int safetensors_read_raw(const struct safetensors *st, const struct safetensors_tensor *tensor,
                         int64_t start, int64_t count, void *to, struct error *err);

/* Compute a hash that identifies the tensors and their values: XXH3 of each tensor's name, format
 * and shape, and of SAMPLE_BYTES at its start, in its middle and at its end.  It does not depend on
 * the number of files that the tensors are in.  Returns 0, or -1 with err set: a disk that fails.
 */
int safetensors_hash(const struct safetensors *st, uint64_t *hash, struct error *err);

/* ---- writing ---- */

/* A tensor to be written.  Its values come from read(), which is called for consecutive intervals
 * from the first element to the last. */
struct safetensors_source {
    char name[160];
    int dims;
    int64_t dim[BOX_DIMS], elems;
    /* Put elements [start, start + count) into to, as fp32.  source: the tensor's index in the
     * list. Returns 0, or -1 with err set. */
    int (*read)(void *user, int source, int64_t start, int64_t count, float *to, struct error *err);
    void *user;
};

/* Write count tensors, all as dtype, to folder/STEM.safetensors (stem "model" for a model), or,
 * where they have more than file_bytes, to several files STEM-00001-of-0000N.safetensors and their
 * index. Each file has another name until it is whole and on the disk.  Returns 0, or -1 with err
 * set; no file of these names is then incomplete. */
int safetensors_write(const char *folder, const char *stem, const struct safetensors_source *source,
                      int count, enum dtype dtype, int64_t file_bytes, struct error *err);

#endif
