/* tokens.h - token files: contiguous `tokens` (u16 or u32), `documents` (u64 offsets of
 * document starts, and the total at the end), attributes that name tokenizer,
 * vocabulary, source and hash; optional `loss_mask` (u8, 1: counts as a target).
 * A reader maps the data, it does not copy it.
 */
#ifndef TRIREME_IO_TOKENS_H
#define TRIREME_IO_TOKENS_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"

struct tokens {
    const void *data;       /* mapped; dtype below */
    enum dtype dtype;       /* DTYPE_U16 or DTYPE_U32 */
    int64_t count;          /* tokens in the file */
    const uint64_t *starts; /* [documents + 1] */
    int64_t documents;
    const uint8_t *mask; /* [count] or NULL */
    int64_t vocab;       /* of the tokenizer */
    char tokenizer[64];  /* its name, as tokenizer_open() takes it */
    uint64_t hash;       /* XXH3 of the token bytes, as stored */
    char *path;          /* of the file */
    void *map;           /* private */
    size_t map_bytes;    /* private */
    void *copy;          /* private */
};

/* Open and map a token file.  Not collective.  Returns 0, or -1 with err naming the file and
 * what is wrong: missing, not HDF5, not a token file, truncated, vocabulary exceeded as far as the
 * attribute `maximum` tells.  The tokens are not read: whoever uses one compares it with vocab. */
int tokens_open(struct tokens *tokens, const char *path, struct error *err);
void tokens_close(struct tokens *tokens);

/* Writing: create, append documents, finish (which publishes by rename).  The file appears
 * under its name only when whole.  tokens_abandon() removes what was written. */
struct tokens_writer;
int tokens_create(struct tokens_writer **writer, const char *path, const char *tokenizer,
                  int64_t vocab, const char *source, struct error *err);
int tokens_append(struct tokens_writer *writer, const uint32_t *document, int64_t count,
                  struct error *err);
/* Add to the document begun last: long ones need not be held in memory. */
int tokens_extend(struct tokens_writer *writer, const uint32_t *ids, int64_t count,
                  struct error *err);
int tokens_finish(struct tokens_writer *writer, struct error *err);
void tokens_abandon(struct tokens_writer *writer);

#endif
