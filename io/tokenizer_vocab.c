/* tokenizer_vocab.c - see tokenizer_vocab.h.
 *
 * Texts lie end to end in one pool.  Each slot of the hash table holds an id + 1, or 0: it is free.
 * The search for a text begins at slot hash % slot_count and goes on to the next slot until it
 * finds the text or a free slot.  The table doubles where half of the slots are taken.
 */
#include "io/tokenizer_vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"

/* Returns the slot that holds a text's id, or the free slot where it would be. */
static size_t find_slot(const struct tokenizer_vocab *vocab, const char *text, size_t bytes)
{
    size_t at = (size_t)hash_bytes(text, bytes) & (vocab->slot_count - 1);
    for (; vocab->slots[at]; at = (at + 1) & (vocab->slot_count - 1)) {
        uint32_t id = vocab->slots[at] - 1;
        if (vocab->length[id] == bytes && !memcmp(vocab->pool + vocab->offset[id], text, bytes))
            break;
    }
    return at;
}

/* Make sure that less than half of the slots are taken. */
static void grow_slots(struct tokenizer_vocab *vocab)
{
    if ((size_t)vocab->count * 2 < vocab->slot_count)
        return;
    free(vocab->slots);
    vocab->slot_count = vocab->slot_count ? vocab->slot_count * 2 : 64;
    vocab->slots = array_make(vocab->slot_count, sizeof *vocab->slots);
    for (int64_t id = 0; id < vocab->size; id++)
        if (vocab->offset[id])
            vocab->slots[find_slot(vocab, vocab->pool + vocab->offset[id], vocab->length[id])] =
                (uint32_t)id + 1;
}

/* Returns data, reallocated with space for at least `need` elements of `size` bytes; new elements
 * are zero.  *capacity: how many elements there is space for. */
static void *grow(void *data, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return data;
    size_t more = *capacity * 2 > need ? *capacity * 2 : need + 64;
    data = array_need(realloc(data, more * size), more * size);
    memset((char *)data + *capacity * size, 0, (more - *capacity) * size);
    *capacity = more;
    return data;
}

/* Append a text to the pool, as that of id. */
static void add_text(struct tokenizer_vocab *vocab, const char *text, size_t bytes, uint32_t id)
{
    size_t capacity = vocab->ids_capacity;
    vocab->offset = grow(vocab->offset, &capacity, (size_t)id + 1, sizeof *vocab->offset);
    vocab->length =
        grow(vocab->length, &vocab->ids_capacity, (size_t)id + 1, sizeof *vocab->length);
    if (!vocab->pool_bytes) /* offset 0 means that an id has no text */
        vocab->pool_bytes = 1;
    vocab->pool = grow(vocab->pool, &vocab->pool_capacity, vocab->pool_bytes + bytes + 1, 1);
    memcpy(vocab->pool + vocab->pool_bytes, text, bytes);
    vocab->pool[vocab->pool_bytes + bytes] = 0;
    vocab->offset[id] = (uint32_t)vocab->pool_bytes;
    vocab->length[id] = (uint32_t)bytes;
    vocab->pool_bytes += bytes + 1;
    vocab->size = (int64_t)id < vocab->size ? vocab->size : (int64_t)id + 1;
}

enum tokenizer_vocab_result tokenizer_vocab_add(struct tokenizer_vocab *vocab, const char *text,
                                                size_t bytes, uint32_t id)
{
    grow_slots(vocab);
    size_t at = find_slot(vocab, text, bytes);
    if (vocab->slots[at])
        return vocab->slots[at] == id + 1 ? TOKENIZER_VOCAB_ADDED : TOKENIZER_VOCAB_SAME_TEXT;
    if (id < vocab->size && vocab->offset[id])
        return TOKENIZER_VOCAB_SAME_ID;
    add_text(vocab, text, bytes, id);
    vocab->slots[at] = id + 1;
    vocab->count++;
    return TOKENIZER_VOCAB_ADDED;
}

void tokenizer_vocab_free(struct tokenizer_vocab *vocab)
{
    free(vocab->pool);
    free(vocab->offset);
    free(vocab->length);
    free(vocab->slots);
    *vocab = (struct tokenizer_vocab){0};
}

int64_t tokenizer_vocab_find(const struct tokenizer_vocab *vocab, const char *text, size_t bytes)
{
    return vocab->slot_count ? (int64_t)vocab->slots[find_slot(vocab, text, bytes)] - 1 : -1;
}

const char *tokenizer_vocab_text(const struct tokenizer_vocab *vocab, int64_t id, size_t *bytes)
{
    if (id < 0 || id >= vocab->size || !vocab->offset[id])
        return NULL;
    *bytes = vocab->length[id];
    return vocab->pool + vocab->offset[id];
}
