/* philox.c - numbers from Philox blocks: 64-bit words and normals.
 *
 * The number at an index is a function of (key, index) alone.  A block of four words makes four
 * normals, by Box and Muller: words 0 and 1 the first two, words 2 and 3 the others.
 * philox_fill_normal() makes 64 blocks at a time, words and normals in loops of their own, of which
 * the compiler makes vector code for every level (levels.h), with the bits of philox_normal().
 */
#include "base/philox.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/levels.h"

/* Inlined into the loops of every level, whatever options those are compiled with. */
#define INLINE static inline __attribute__((always_inline))

/* Returns the index-th block of four random words of a stream. */
INLINE struct philox4 block_of(uint64_t key, uint64_t index)
{
    struct philox4 c = {{(uint32_t)index, (uint32_t)(index >> 32), 0, 0}};
    return philox(c, (uint32_t)key, (uint32_t)(key >> 32));
}

uint64_t philox_key(uint64_t seed, const char *name)
{
    return hash_bytes_seeded(name, strlen(name), seed);
}

uint64_t philox_u64(uint64_t key, uint64_t index)
{
    struct philox4 r = block_of(key, index);
    return (uint64_t)r.v[1] << 32 | r.v[0];
}

/* ---- normals ----
 *
 * Box and Muller's: sqrt(-2 ln u) cos and sin of 2 pi v.  Logarithm, sine and cosine are series of
 * our own, in double, of operations that IEEE 754 rounds: weights do not depend on the mathematics
 * library, nor on the instructions a machine has.  Their errors are below 1e-11, the result is
 * float. */

enum { BATCH = 64 }; /* blocks at a time: words and results stay in the first-level cache */

INLINE double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE uint64_t to_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns ln x for x in (0, 1], not subnormal.  x = 2^e m with m in [2^-1/2, 2^1/2), and with
 * s = (m - 1) / (m + 1), ln m = 2 (s + s^3/3 + s^5/5 + ...), where s^2 <= 0.0295.  The code has no
 * branches, so that loops over it become vector code.  For the same reason it makes e a double by
 * adding bits to 2^52 instead of converting an integer, for which some levels have no vector
 * instruction. */
INLINE double logarithm(double x)
{
    const double ln2 = 0x1.62e42fefa39efp-1;
    const uint64_t one = 0x3ff, root2 = 0x6a09e667f3bcd, two52 = 0x4330000000000000;
    uint64_t bits = to_bits(x), mantissa = bits & 0xfffffffffffff;
    uint64_t large = (root2 - 1 - mantissa) >> 63;
    double m = from_bits(mantissa | (one - large) << 52);
    double e = from_bits((bits >> 52) + large + two52) - (0x1p52 + 1023);
    double s = (m - 1) / (m + 1), t = s * s;
    double sum = 1.0 / 13 + t * (1.0 / 15);
    sum = 1.0 / 9 + t * (1.0 / 11 + t * sum);
    sum = 1.0 / 5 + t * (1.0 / 7 + t * sum);
    sum = 1 + t * (1.0 / 3 + t * sum);
    return e * ln2 + 2 * s * sum;
}

/* sine() and cosine() take an angle in [-pi/4, pi/4]. */
INLINE double sine(double r)
{
    double t = r * r;
    double sum = -1.0 / 39916800 + t * (1.0 / 6227020800);
    sum = -1.0 / 5040 + t * (1.0 / 362880 + t * sum);
    sum = -1.0 / 6 + t * (1.0 / 120 + t * sum);
    return r + r * t * sum;
}

INLINE double cosine(double r)
{
    double t = r * r;
    double sum = 1.0 / 479001600 - t * (1.0 / 87178291200);
    sum = 1.0 / 40320 + t * (-1.0 / 3628800 + t * sum);
    sum = 1.0 / 24 + t * (-1.0 / 720 + t * sum);
    return 1 + t * (-0.5 + t * sum);
}

/* Make two normals from two uniform words.  Word a becomes the radius; it is shifted off zero so
 * that its logarithm is finite.  Word b becomes the angle 2 pi b / 2^32: the nearest multiple of
 * pi/2, `quarter`, plus a rest between -pi/4 and pi/4.  An odd quarter swaps sine and cosine, and
 * quarters 1, 2 (cosine) and 2, 3 (sine) change the sign. */
INLINE void box_muller(uint32_t a, uint32_t b, float *first, float *second)
{
    const double step = 0x1.921fb54442d18p-30; /* 2 pi / 2^32 */
    double radius = sqrt(-2 * logarithm(((double)a + 1) * (1 / 4294967297.0)));
    uint32_t quarter = (b + 0x20000000u) >> 30;
    double rest = (double)(int32_t)(b - (quarter << 30)) * step;
    uint64_t s = to_bits(sine(rest)), c = to_bits(cosine(rest));
    uint64_t odd = -(uint64_t)(quarter & 1), sign = (uint64_t)1 << 63;
    double x = from_bits(((s & odd) | (c & ~odd)) ^ ((uint64_t)(quarter + 1) << 62 & sign));
    double y = from_bits(((c & odd) | (s & ~odd)) ^ ((uint64_t)quarter << 62 & sign));
    *first = (float)(radius * x);
    *second = (float)(radius * y);
}

/* Fill out with the normals of BATCH blocks, beginning with block number `block`. */
EVERY_LEVEL static void batch_normals(uint64_t key, uint64_t block, float out[4 * BATCH])
{
    uint32_t word[4][BATCH];
    float normal[4][BATCH];
    for (int i = 0; i < BATCH; i++) {
        struct philox4 r = block_of(key, block + (uint64_t)i);
        word[0][i] = r.v[0];
        word[1][i] = r.v[1];
        word[2][i] = r.v[2];
        word[3][i] = r.v[3];
    }
    for (int i = 0; i < BATCH; i++)
        box_muller(word[0][i], word[1][i], &normal[0][i], &normal[1][i]);
    for (int i = 0; i < BATCH; i++)
        box_muller(word[2][i], word[3][i], &normal[2][i], &normal[3][i]);
    for (int i = 0; i < BATCH; i++)
        for (int k = 0; k < 4; k++)
            out[4 * i + k] = normal[k][i];
}

float philox_normal(uint64_t key, uint64_t index)
{
    struct philox4 r = block_of(key, index / 4);
    int half = index % 4 / 2 * 2;
    float first, second;
    box_muller(r.v[half], r.v[half + 1], &first, &second);
    return index % 2 ? second : first;
}

void philox_fill_normal(float *out, uint64_t key, uint64_t first, int64_t count, float scale)
{
    float z[4 * BATCH];
    int64_t skipped = (int64_t)(first % 4), done = 0;
    for (uint64_t at = first / 4; done < count; at += BATCH) {
        batch_normals(key, at, z);
        int64_t n = 4 * BATCH - skipped < count - done ? 4 * BATCH - skipped : count - done;
        for (int64_t i = 0; i < n; i++)
            out[done + i] = scale * z[skipped + i];
        done += n;
        skipped = 0;
    }
}

/* Number i of a stream is made of word i % 4 of block i / 4: the word's upper 24 bits choose one of
 * 2^24 equal intervals of (-bound, bound), whose middle is the number. */
void philox_fill_uniform(float *out, uint64_t key, uint64_t first, int64_t count, float bound)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t index = first + (uint64_t)i;
        uint32_t word = block_of(key, index / 4).v[index % 4];
        out[i] = bound * (((float)(word >> 8) + 0.5f) * 0x1p-23f - 1.0f);
    }
}
