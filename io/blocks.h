/* blocks.h - a long text in blocks, each cut where the caller allows it.
 *
 * A block ends at a place that the caller's function finds in it: the end of a line, of a word.
 * What is behind it begins the next block.  Where there is no such place, the block grows until
 * there is one or the text ends, up to BLOCKS_MOST_BYTES.
 */
#ifndef TRIREME_IO_BLOCKS_H
#define TRIREME_IO_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { BLOCKS_BYTES = 256 << 10, BLOCKS_MOST_BYTES = 1 << 30 };

/* The last place in text, from 1 to bytes, where it may be cut; 0: none. */
typedef size_t blocks_cut(const void *arg, const char *text, size_t bytes);

/* A text that is read. */
struct blocks {
    int fd;           /* the caller's */
    const char *path; /* its name in messages; the caller's */
    blocks_cut *cut;
    const void *arg;
    int64_t left; /* read at most so many bytes more; -1: all */
    /* private */
    char *rest; /* behind the last block */
    size_t rest_bytes, rest_capacity;
    int at_end;
};

/* Memory for a block, used again for later ones; all zero is an empty one. */
struct blocks_buffer {
    char *text;
    size_t bytes, capacity;
};

/* Fill block with what comes next.  Returns 1, 0 at the end of the text, or -1 with err set: the
 * file cannot be read, memory is out, there is no place for a cut. */
int blocks_next(struct blocks *blocks, struct blocks_buffer *block, struct error *err);
/* Was that the last block?  Known where every cut leaves something of the block. */
int blocks_is_last(const struct blocks *blocks);

void blocks_free(struct blocks *blocks); /* fd stays open */
void blocks_buffer_free(struct blocks_buffer *block);

/* A cut behind the last end of a line. */
size_t blocks_cut_line(const void *arg, const char *text, size_t bytes);

#endif
