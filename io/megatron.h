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

/* Returns 1 if a file that begins with these bytes is an .idx; 0 if count is below MEGATRON_FRONT.
 */
enum { MEGATRON_FRONT = 18 };
int megatron_is_index(const void *bytes, int64_t count);

/* Find the type of the numbers of a .bin by the .idx beside it.  *type becomes the .idx's code, or
 * -1 where there is no .idx or it is not Megatron's.  Returns 0, or -1 with err set where the .idx
 * cannot be read or is truncated. */
int megatron_type(const char *bin, int *type, struct error *err);

struct megatron_index;

/* Open the .idx beside a .bin that has `ids` ids of `width` bytes each.  Returns 0 and an index for
 * megatron_close(), or -1 with err naming the file and what is wrong. */
int megatron_open(struct megatron_index **index, const char *bin, int64_t ids, int width,
                  struct error *err);
void megatron_close(struct megatron_index *index); /* NULL allowed */

/* Go to the next document, the first one at the first call.  Returns the number of ids of the .bin
 * up to its end; -1 with err set where no document is left, the file contradicts itself or the
 * .bin, or it cannot be read. */
int64_t megatron_next_end(struct megatron_index *index, struct error *err);

/* Check, after all ids have been read, that the documents which are left are empty, and that every
 * sequence is in a document.  Returns how many documents are left, or -1 with err set. */
int64_t megatron_finish(struct megatron_index *index, struct error *err);

#endif
