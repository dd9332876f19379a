/* tokenizer_vocab.h - texts of tokens and their ids, both ways: an open-addressing hash of texts.
 */
#ifndef TRIREME_IO_TOKENIZER_VOCAB_H
#define TRIREME_IO_TOKENIZER_VOCAB_H

#include <stddef.h>
#include <stdint.h>

/* No id is as large or larger: a file that says so is no tokenizer's. */
enum { TOKENIZER_MOST_IDS = 1 << 24 };

/* All zero is an empty one. */
struct tokenizer_vocab {
    int64_t size;  /* every id is less */
    int64_t count; /* of tokens */
    /* private */
    char *pool;       /* the texts, a 0 behind each */
    uint32_t *offset; /* [size] into pool; 0: no token has this id */
    uint32_t *length; /* [size] */
    uint32_t *slots;  /* [slot_count] id + 1 by hash; 0: free */
    size_t pool_bytes, pool_capacity, ids_capacity, slot_count;
};

enum tokenizer_vocab_result {
    TOKENIZER_VOCAB_ADDED,
    TOKENIZER_VOCAB_SAME_TEXT, /* is there, under another id */
    TOKENIZER_VOCAB_SAME_ID    /* is another text's */
};

/* Add a text under id, less than TOKENIZER_MOST_IDS.  All texts together are below 4 GiB. */
enum tokenizer_vocab_result tokenizer_vocab_add(struct tokenizer_vocab *vocab, const char *text,
                                                size_t bytes, uint32_t id);
void tokenizer_vocab_free(struct tokenizer_vocab *vocab);

/* The id of a text, -1: none. */
int64_t tokenizer_vocab_find(const struct tokenizer_vocab *vocab, const char *text, size_t bytes);
/* The text of an id, a 0 behind it; NULL: no token has this id. */
const char *tokenizer_vocab_text(const struct tokenizer_vocab *vocab, int64_t id, size_t *bytes);

#endif
