/* tokenizer.h - text to tokens and back; one row per tokenizer in tokenizer.c. */
#ifndef TRIREME_IO_TOKENIZER_H
#define TRIREME_IO_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* An open tokenizer, whose fields are only read. */
struct tokenizer {
    const char *name;
    int64_t vocab, end_of_text; /* end_of_text: id, put after each document */
    /* private to io/tokenizer.c */
    int (*encode)(const char *text, size_t bytes, uint32_t **ids, int64_t *count,
                  struct error *err);
    size_t (*decode)(uint32_t id, char *out);
};

/* Open a tokenizer by name ("bytes") or, for kinds that have one, by file.
 * Returns 0 and a tokenizer for tokenizer_close(), or -1 with err listing the names. */
int tokenizer_open(struct tokenizer **tokenizer, const char *name, struct error *err);
void tokenizer_close(struct tokenizer *tokenizer);

/* Tokens of text; *ids is free()d by the caller.  Every byte string is valid input. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                     uint32_t **ids, int64_t *count, struct error *err);
/* Bytes of one token into out (capacity 64 or more); returns their number, 0 for specials and
 * ids outside the vocabulary. */
size_t tokenizer_decode(const struct tokenizer *tokenizer, uint32_t id, char *out);

#endif
