/* megatron.h - the .idx beside Megatron's .bin: what its numbers are, and where documents end.
 *
 * The .bin has the ids alone (npy.h).  The .idx (megatron/core/datasets/indexed_dataset.py), all of
 * it little-endian:
 *
 *     "MMIDIDX" and two bytes of 0, the version (u64, 1), the type of the numbers (u8)
 *     how many sequences S and bounds B there are (u64 each)
 *     i32[S]  ids of each sequence
 *     i64[S]  its first byte in the .bin
 *     i64[B]  sequences before each document; the last one is S
 *
 * Nothing in it is trusted: every number is compared with its neighbours and the .bin.
 */
#ifndef TRIREME_IO_MEGATRON_H
#define TRIREME_IO_MEGATRON_H

#include <stdint.h>

#include "base/error.h"

/* Are these the first bytes of an .idx? */
enum { MEGATRON_FRONT = 18 };
int megatron_is_index(const void *bytes, int64_t count);

/* The type of the numbers of a .bin, by the .idx beside it, in *type; -1: there is no such file, or
 * it is not one of Megatron's.  Returns 0, or -1 with err where it cannot be read or is truncated.
 */
int megatron_type(const char *bin, int *type, struct error *err);

struct megatron_index;

/* Open the .idx beside a .bin of so many ids of so many bytes each.  Returns 0 and an index for
 * megatron_close(), or -1 with err naming the file and what is wrong. */
int megatron_open(struct megatron_index **index, const char *bin, int64_t ids, int width,
                  struct error *err);
void megatron_close(struct megatron_index *index); /* NULL allowed */

/* Ids before the end of the next document; the first call is for the first document.  Returns -1
 * with err where no document is left, or the file contradicts itself or the .bin, or cannot be
 * read.
 */
int64_t megatron_next_end(struct megatron_index *index, struct error *err);

/* All ids have been read: documents that are left have to be empty, and all sequences in documents.
 * Returns how many are left, or -1 with err. */
int64_t megatron_finish(struct megatron_index *index, struct error *err);

#endif
