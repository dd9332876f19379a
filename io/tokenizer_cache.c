/* tokenizer_cache.c - words that an encoder has seen, and their ids.
 *
 * Natural text repeats its words: most are found here.  A word of up to MOST_BYTES bytes has one
 * place in the table, by its hash; a new word takes the place of the word that was there.  Words
 * are compared by their length and three numbers that hold all their bytes; in a short word the
 * numbers have some bytes twice.
 */
#include <stdlib.h>
#include <string.h>

#include "io/tokenizer_private.h"

enum { PLACES = 1 << 15, MOST_BYTES = 24, MOST_IDS = 9 };

/* A place of the table, of 64 bytes: a cache line of most CPUs. */
struct tokenizer_cache_entry {
    uint64_t key[3]; /* the word's bytes (make_key()) */
    uint8_t bytes;   /* of the word; 0: the place is free */
    uint8_t count;   /* of ids */
    uint32_t ids[MOST_IDS];
};

/* Pack the bytes of a word of 1 to MOST_BYTES bytes into three numbers.  Words of the same length
 * have the same key only if they are the same. */
static void make_key(uint64_t key[3], const char *word, size_t bytes)
{
    uint32_t four[2];
    key[0] = key[1] = key[2] = 0;
    if (bytes >= 8) {
        memcpy(&key[0], word, 8);
        memcpy(&key[1], word + bytes - 8, 8);
        memcpy(&key[2], word + (bytes > 16 ? 8 : 0), 8);
    } else if (bytes >= 4) {
        memcpy(&four[0], word, 4);
        memcpy(&four[1], word + bytes - 4, 4);
        key[0] = (uint64_t)four[0] << 32 | four[1];
    } else {
        key[0] = (unsigned)(unsigned char)word[0] << 16 |
                 (unsigned)(unsigned char)word[bytes / 2] << 8 | (unsigned char)word[bytes - 1];
    }
}

/* Returns the index of a word's place in the table. */
static size_t place_of(const uint64_t key[3], size_t bytes)
{
    uint64_t mixed = (key[0] ^ bytes) * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 32 ^ key[1]) * UINT64_C(0xd6e8feb86659fd93);
    mixed = (mixed ^ mixed >> 32 ^ key[2]) * UINT64_C(0xff51afd7ed558ccd);
    return (size_t)(mixed >> 40) & (PLACES - 1);
}

int tokenizer_cache_encode(struct tokenizer_encoder *encoder, const char *word, size_t bytes,
                           struct error *err)
{
    const struct tokenizer_model *model = encoder->data->model;
    int64_t first = encoder->count;
    uint64_t key[3];
    if (bytes > MOST_BYTES)
        return model->encode(encoder, word, bytes, err);
    if (!encoder->cache && !(encoder->cache = calloc(PLACES, sizeof *encoder->cache)))
        return error_set(err, "out of memory: a cache of words");
    make_key(key, word, bytes);
    struct tokenizer_cache_entry *entry = &encoder->cache[place_of(key, bytes)];
    if (entry->bytes == bytes && entry->key[0] == key[0] && entry->key[1] == key[1] &&
        entry->key[2] == key[2]) {
        if (encoder->capacity - encoder->count < MOST_IDS &&
            tokenizer_encoder_need(encoder, MOST_IDS, err))
            return -1;
        memcpy(encoder->ids + encoder->count, entry->ids, sizeof entry->ids);
        encoder->count += entry->count;
        return 0;
    }
    if (model->encode(encoder, word, bytes, err))
        return -1;
    if (encoder->count - first > MOST_IDS)
        return 0;
    memcpy(entry->key, key, sizeof key);
    entry->bytes = (uint8_t)bytes;
    entry->count = (uint8_t)(encoder->count - first);
    memcpy(entry->ids, encoder->ids + first, entry->count * sizeof *entry->ids);
    return 0;
}
