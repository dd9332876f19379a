/* hash.h - checksums and fingerprints (XXH3, 64 bits). */
#ifndef TRIREME_BASE_HASH_H
#define TRIREME_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH3-64 of a byte range; the same on every machine. */
uint64_t hash_bytes(const void *data, size_t bytes);
uint64_t hash_bytes_seeded(const void *data, size_t bytes, uint64_t seed);

/* The same over a stream of pieces: hash_create, hash_add..., hash_finish.
 * hash_finish frees. */
struct hash;
struct hash *hash_create(void);
void hash_add(struct hash *hash, const void *data, size_t bytes);
uint64_t hash_finish(struct hash *hash);

#endif
