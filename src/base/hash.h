/* hash.h - checksums and fingerprints (XXH3, 64 bits). */
#ifndef TRIREME_BASE_HASH_H
#define TRIREME_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Returns the XXH3-64 of bytes at data, without or with a seed; the same on every machine. */
uint64_t hash_bytes(const void *data, size_t bytes);
uint64_t hash_bytes_seeded(const void *data, size_t bytes, uint64_t seed);

/* Compute hash_bytes() of data that comes in pieces: hash_create(), hash_add() for each piece in
 * order, hash_finish(), which returns the hash and frees the object. */
struct hash;
struct hash *hash_create(void);
void hash_add(struct hash *hash, const void *data, size_t bytes);
uint64_t hash_finish(struct hash *hash);

#endif
