/* philox.h - counter-based random numbers: Philox4x32-10.
 *
 * Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3"
 * (SC'11).  A number is a pure function of (key, counter), so it does not
 * depend on ranks, threads or order: weights, data order and dropout use it.
 */
#ifndef TRIREME_BASE_PHILOX_H
#define TRIREME_BASE_PHILOX_H

#include <stdint.h>

struct philox4 {
    uint32_t v[4];
};

/* Ten rounds of Philox4x32 on counter under key; here, so that loops over counters are vectors. */
static inline struct philox4 philox(struct philox4 counter, uint32_t key0, uint32_t key1)
{
    uint32_t a = counter.v[0], b = counter.v[1], c = counter.v[2], d = counter.v[3];
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        uint64_t first = (uint64_t)0xD2511F53u * a, second = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(second >> 32) ^ b ^ key0;
        c = (uint32_t)(first >> 32) ^ d ^ key1;
        b = (uint32_t)second;
        d = (uint32_t)first;
        key0 += 0x9E3779B9u; /* golden ratio */
        key1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    return (struct philox4){{a, b, c, d}};
}

/* Returns the key of a stream of numbers, made of a seed and a name ("layers.3.attn.q", "epoch 2").
 */
uint64_t philox_key(uint64_t seed, const char *name);

/* Returns the index-th uniform 64-bit number of a stream. */
uint64_t philox_u64(uint64_t key, uint64_t index);

/* Returns the index-th standard normal of a stream (Box-Muller; one Philox block makes four). */
float philox_normal(uint64_t key, uint64_t index);

/* Set out[i] to scale * philox_normal(key, first + i), for i in [0, count). */
void philox_fill_normal(float *out, uint64_t key, uint64_t first, int64_t count, float scale);

/* Set out[i] to the (first + i)-th of a stream of uniform numbers in (-bound, bound), for i in
 * [0, count): one of 2^24 values at equal distances, all equally likely.  They are made of the same
 * words as the normals of the key, so use a key for one of the two kinds only. */
void philox_fill_uniform(float *out, uint64_t key, uint64_t first, int64_t count, float bound);

#endif
