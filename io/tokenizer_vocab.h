/* tokenizer_vocab.h - texts of tokens and their ids, both ways: an open-addressing hash of texts.
 */
#ifndef TRIREME_IO_TOKENIZER_VOCAB_H
#define TRIREME_IO_TOKENIZER_VOCAB_H

#include <stddef.h>
#include <stdint.h>

/* All ids are less than this; a file with a larger one is refused. */
enum { TOKENIZER_MOST_IDS = 1 << 24 };

/* All zero is an empty vocabulary. */
struct tokenizer_vocab {
    int64_t size;  /* the highest id plus 1 */
    int64_t count; /* number of tokens */
    /* private */
    char *pool;       /* the texts, a 0 after each */
    uint32_t *offset; /* [size] into pool; 0: no token has this id */
    uint32_t *length; /* [size] */
    uint32_t *slots;  /* [slot_count] id + 1 by hash; 0: free */
    size_t pool_bytes, pool_capacity, ids_capacity, slot_count;
};

enum tokenizer_vocab_result {
    TOKENIZER_VOCAB_ADDED,
    TOKENIZER_VOCAB_SAME_TEXT, /* not added: the text has another id already */
    TOKENIZER_VOCAB_SAME_ID    /* not added: another text has this id already */
};

/* Add a text of `bytes` bytes with an id below TOKENIZER_MOST_IDS.  All texts together must be
 * below 4 GiB. */
enum tokenizer_vocab_result tokenizer_vocab_add(struct tokenizer_vocab *vocab, const char *text,
                                                size_t bytes, uint32_t id);
void tokenizer_vocab_free(struct tokenizer_vocab *vocab);

/* Returns the id of a text, or -1. */
int64_t tokenizer_vocab_find(const struct tokenizer_vocab *vocab, const char *text, size_t bytes);
/* Returns the text of an id, of *bytes bytes and a 0 after them; NULL: no token has this id. */
const char *tokenizer_vocab_text(const struct tokenizer_vocab *vocab, int64_t id, size_t *bytes);

#endif
