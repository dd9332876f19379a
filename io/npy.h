/* npy.h - token ids in files of numbers: numpy's .npy, llm.c's and Megatron's .bin, and raw
 * numbers.
 *
 *     .npy     numpy's own format: one dimension, u2, u4, i4 or i8 of either byte order
 *     .bin     llm.c's: 256 numbers of 32 bits (magic 20240520, version 1: u16; 20240801, version
 *              7: u32; then how many), and the ids
 *     raw      numbers, little-endian, and nothing else, of 16 bits: nanoGPT's .bin; or of the type
 *              that Megatron's .idx beside a .bin says (megatron.h)
 *
 * Nothing in a file is trusted: lengths are compared with the file's, every id with the vocabulary.
 */
#ifndef TRIREME_IO_NPY_H
#define TRIREME_IO_NPY_H

#include <stdint.h>

#include "base/error.h"

enum npy_format { NPY_NONE, NPY_NUMPY, NPY_LLMC, NPY_RAW, NPY_INDEX };

struct npy {
    char *path;
    int fd;
    int width; /* bytes of a number */
    int is_signed;
    int is_swapped; /* numbers are big-endian */
    int64_t offset; /* byte at which the first number begins */
    int64_t count;  /* of numbers */
    void *buffer;   /* private */
};

/* Returns what a file is, by its first `count` bytes, which are NPY_FRONT or all that it has:
 * NPY_NUMPY, NPY_LLMC, NPY_INDEX (Megatron's .idx, which npy_open() refuses), or NPY_NONE. */
enum { NPY_FRONT = 18 };
enum npy_format npy_format(const void *bytes, int64_t count);

/* Open a regular file.  With NPY_RAW it is taken for raw numbers, whatever it begins with.  Returns
 * 0 and an npy for npy_close(), or -1 with err naming the file and what is wrong. */
int npy_open(struct npy *npy, const char *path, enum npy_format format, struct error *err);
void npy_close(struct npy *npy);

/* Read ids [first, first + count) into ids; count is at most NPY_MOST.  Returns 0, or -1 with err
 * set: an id is not below vocab (its position and value are named), or the file cannot be read. */
enum { NPY_MOST = 1 << 16 };
int npy_read(struct npy *npy, int64_t first, int64_t count, int64_t vocab, uint32_t *ids,
             struct error *err);

#endif
