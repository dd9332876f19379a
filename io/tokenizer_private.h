/* tokenizer_private.h - what the files io/tokenizer*.c share.
 *
 * A text goes through these steps; all but the model may be absent:
 *
 *     repair     what is no UTF-8 becomes U+FFFD                        tokenizer_unicode.c
 *     added      texts of added tokens are cut out                      tokenizer_added.c
 *     normalize  between them: NFC, lower case, spaces...               tokenizer_normalize.c
 *     split      into words, which no token crosses                     tokenizer_split.c
 *     model      a word to ids: a row of the table of models            tokenizer_bpe.c, ...
 *     wrap       ids before and after the text                          tokenizer_read.c
 */
#ifndef TRIREME_IO_TOKENIZER_PRIVATE_H
#define TRIREME_IO_TOKENIZER_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "io/tokenizer.h"
#include "io/tokenizer_vocab.h"

struct tokenizer_encoder;

/* Bytes that grow. */
struct tokenizer_buffer {
    char *text;
    size_t bytes, capacity;
};

/* A model: how words become ids, and ids text.  One row each. */
struct tokenizer_model {
    const char *name;
    int takes_bytes; /* any bytes, not UTF-8 alone */
    /* Append the ids of a word to the encoder's. */
    int (*encode)(struct tokenizer_encoder *encoder, const char *word, size_t bytes,
                  struct error *err);
    /* Append the text of a token to out. */
    void (*decode)(const struct tokenizer *tokenizer, uint32_t id, struct tokenizer_buffer *out);
};

struct tokenizer_data {
    const struct tokenizer_model *model;
    struct tokenizer_vocab texts; /* every token as the file spells it */
    uint8_t *flags;               /* [vocab] enum tokenizer_token_flags */
};

enum tokenizer_token_flags { TOKENIZER_IS_SPECIAL = 1, TOKENIZER_IS_STOP = 2 };

/* The state of one thread.  ids[count] are those of the text so far. */
struct tokenizer_encoder {
    const struct tokenizer *tokenizer;
    const struct tokenizer_data *data;
    uint32_t *ids;
    int64_t count, capacity;
};

/* Space for `more` ids behind the encoder's.  Returns 0, or -1 with err set. */
int tokenizer_encoder_need(struct tokenizer_encoder *encoder, size_t more, struct error *err);

/* Append to a buffer; memory that is out ends the process (base/array.h). */
void tokenizer_buffer_add(struct tokenizer_buffer *buffer, const char *text, size_t bytes);

extern const struct tokenizer_model tokenizer_bytes;

#endif
