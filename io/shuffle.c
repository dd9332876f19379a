/* shuffle.c - a keyed permutation; see shuffle.h.
 *
 * Black, Rogaway: "Ciphers with arbitrary finite domains" (CT-RSA 2002): a Feistel network permutes
 * [0, 4^h), with the least h of 1 or more for which 4^h is not below count.  A result outside
 * [0, count) is permuted again until it is inside.  4^h is at most four times count, so this
 * takes four passes or fewer on average.
 */
#include "io/shuffle.h"

#include "base/philox.h"

enum { ROUNDS = 6 };

/* One pass of the network over numbers of 2 * half bits. */
static uint64_t network(uint64_t x, int half, uint64_t key)
{
    uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct philox4 in = {{(uint32_t)right, (uint32_t)(right >> 32), round, 0}};
        struct philox4 out = philox(in, (uint32_t)key, (uint32_t)(key >> 32));
        uint64_t mixed = left ^ (((uint64_t)out.v[1] << 32 | out.v[0]) & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

int64_t shuffle_index(int64_t index, int64_t count, uint64_t key)
{
    int half = 1;
    while (half < 31 && (int64_t)1 << (2 * half) < count)
        half++;
    uint64_t x = (uint64_t)index;
    do
        x = network(x, half, key);
    while (x >= (uint64_t)count);
    return (int64_t)x;
}
