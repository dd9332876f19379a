/* blocks.h - a long text in blocks, each cut where the caller allows it.
 *
 * A block has up to BLOCKS_BYTES and ends at a place that the caller's function finds in it, such
 * as the end of a line or of a word.  The text after that place begins the next block.  A block
 * without such a place grows until there is one or the text ends, up to BLOCKS_MOST_BYTES.
 */
#ifndef TRIREME_IO_BLOCKS_H
#define TRIREME_IO_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { BLOCKS_BYTES = 256 << 10, BLOCKS_MOST_BYTES = 1 << 30 };

/* Returns the last place in text where it may be cut, 1 to bytes; 0: there is none. */
typedef size_t blocks_cut(const void *arg, const char *text, size_t bytes);

/* A text that is read.  The caller sets the fields before "private", all others to zero. */
struct blocks {
    int fd;           /* the caller's */
    const char *path; /* its name in messages; the caller's */
    blocks_cut *cut;
    const void *arg; /* for cut */
    int64_t left;    /* bytes that may still be read; -1: up to the end of the file */
    /* private */
    char *rest; /* text that was read after the last block */
    size_t rest_bytes, rest_capacity;
    int at_end;
};

/* Memory for a block, used again for later ones; all zero is an empty one. */
struct blocks_buffer {
    char *text;
    size_t bytes, capacity;
};

/* Fill block with the next block.  Returns 1; 0 at the end of the text; or -1 with err set: the
 * file cannot be read, memory is out, BLOCKS_MOST_BYTES have no place for a cut. */
int blocks_next(struct blocks *blocks, struct blocks_buffer *block, struct error *err);
/* Returns 1 if the block of the last call was the last one; 0 is certain only where `cut` never
 * returns all bytes of a text. */
int blocks_is_last(const struct blocks *blocks);

void blocks_free(struct blocks *blocks); /* fd stays open */
void blocks_buffer_free(struct blocks_buffer *block);

/* A blocks_cut that cuts after the last end of a line; arg is not used. */
size_t blocks_cut_line(const void *arg, const char *text, size_t bytes);

#endif
