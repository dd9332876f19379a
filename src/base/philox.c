/* philox.c - see philox.h. */
#include "base/philox.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"

static struct philox4 block(uint64_t key, uint64_t index)
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
    struct philox4 r = block(key, index);
    return (uint64_t)r.v[1] << 32 | r.v[0];
}

/* Two normals from two 32-bit uniforms; the first is shifted off zero so that log is finite. */
static void box_muller(uint32_t a, uint32_t b, float out[2])
{
    double radius = sqrt(-2.0 * log(((double)a + 1.0) / 4294967297.0));
    double angle = 2.0 * M_PI * ((double)b / 4294967296.0);
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

static void four_normals(uint64_t key, uint64_t index, float out[4])
{
    struct philox4 r = block(key, index);
    box_muller(r.v[0], r.v[1], out);
    box_muller(r.v[2], r.v[3], out + 2);
}

float philox_normal(uint64_t key, uint64_t index)
{
    float z[4];
    four_normals(key, index / 4, z);
    return z[index % 4];
}

void philox_fill_normal(float *out, uint64_t key, uint64_t first, int64_t count, float mean,
                        float scale)
{
    float z[4];
    for (int64_t i = 0; i < count; i++) {
        uint64_t index = first + (uint64_t)i;
        if (i == 0 || index % 4 == 0)
            four_normals(key, index / 4, z);
        out[i] = mean + scale * z[index % 4];
    }
}
