/* hash.c - xxHash's one home; see hash.h. */
#include "base/hash.h"

#include <xxhash.h>

#include "base/array.h"

uint64_t hash_bytes(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

uint64_t hash_bytes_seeded(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

struct hash *hash_create(void)
{
    XXH3_state_t *state = array_need(XXH3_createState(), 1024);
    XXH3_64bits_reset(state);
    return (struct hash *)state;
}

void hash_add(struct hash *hash, const void *data, size_t bytes)
{
    XXH3_64bits_update((XXH3_state_t *)hash, data, bytes);
}

uint64_t hash_finish(struct hash *hash)
{
    uint64_t digest = XXH3_64bits_digest((XXH3_state_t *)hash);
    XXH3_freeState((XXH3_state_t *)hash);
    return digest;
}
