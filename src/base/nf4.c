/* nf4.c - see nf4.h. */
#include "base/nf4.h"

#include <math.h>
#include <string.h>

static const float share[NF4_SHARES] = NF4_TABLE;

/* The code of a number is the count of middles between neighbouring shares that are below it. */
static void encode_block(unsigned char *record, const float *x)
{
    float largest = 0, scaled[NF4_BLOCK];
    int code[NF4_BLOCK] = {0};
    for (int i = 0; i < NF4_BLOCK; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    for (int i = 0; i < NF4_BLOCK; i++)
        scaled[i] = largest > 0 ? x[i] / largest : 0;
    for (int k = 1; k < NF4_SHARES; k++) {
        const float middle = 0.5f * (share[k - 1] + share[k]);
        for (int i = 0; i < NF4_BLOCK; i++)
            code[i] += scaled[i] > middle;
    }
    memcpy(record, &largest, sizeof largest);
    for (int i = 0; i < NF4_BLOCK; i += 2)
        record[NF4_CODES + i / 2] = (unsigned char)(code[i] << 4 | code[i + 1]);
}

void nf4_encode(void *records, const float *values, int64_t elems)
{
    for (int64_t at = 0; at < elems; at += NF4_BLOCK)
        encode_block((unsigned char *)records + nf4_bytes(at), values + at);
}

void nf4_decode(float *values, const void *records, int64_t elems)
{
    for (int64_t at = 0; at < elems; at += NF4_BLOCK) {
        const unsigned char *record = (const unsigned char *)records + nf4_bytes(at);
        float largest;
        memcpy(&largest, record, sizeof largest);
        for (int i = 0; i < NF4_BLOCK; i++) {
            unsigned char both = record[NF4_CODES + i / 2];
            values[at + i] = share[i % 2 ? both & 15 : both >> 4] * largest;
        }
    }
}
