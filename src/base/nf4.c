/* nf4.c - see nf4.h. */
#include "base/nf4.h"

#include <math.h>
#include <string.h>

static const float share[NF4_SHARES] = NF4_TABLE;

/* Shares of the largest magnitude are products with its rounded reciprocal, as in bitsandbytes: one
 * of 2e7 normal numbers has another code than by a division.  A magnitude below LEAST, for whose
 * reciprocal bitsandbytes takes that of LEAST, divides, so that coding again changes nothing. */
#define LEAST 1e-38f

static void scale_block(float *scaled, const float *x, float largest)
{
    const int has_reciprocal = largest >= LEAST;
    const float by = has_reciprocal ? 1 / largest : largest > 0 ? largest : 1;
    for (int i = 0; i < NF4_BLOCK; i++)
        scaled[i] = has_reciprocal ? x[i] * by : x[i] / by;
}

/* To code a number, shares from -1 to 1 are cut into pieces of 1 / PIECES.  At most one of the
 * middles between neighbouring shares lies in a piece, and none within rounding of a piece's ends:
 *
 *   middles   -0.85    -0.61  ...      0.64     0.86
 *   pieces    |  |  |  |  |  |  ...  |  |  |  |  |  |
 *
 * So the code of a number is that of the middles below its piece, and one more where it is above
 * the middle in the piece. */
enum { PIECES = 16, ALL_PIECES = 2 * PIECES + 1 };

struct pieces {
    int code[ALL_PIECES];
    float middle[ALL_PIECES]; /* 2, above all shares, where there is none */
};

static struct pieces make_pieces(void)
{
    struct pieces p;
    int code = 0;
    for (int i = 0; i < ALL_PIECES; i++) {
        const float end = (float)(i + 1 - PIECES) / PIECES;
        const float next = code + 1 < NF4_SHARES ? 0.5f * (share[code] + share[code + 1]) : 2;
        p.code[i] = code;
        p.middle[i] = next < end ? next : 2;
        code += next < end;
    }
    return p;
}

static void encode_block(const struct pieces *p, unsigned char *record, const float *x)
{
    float largest = 0, scaled[NF4_BLOCK];
    for (int i = 0; i < NF4_BLOCK; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    scale_block(scaled, x, largest);
    memcpy(record, &largest, sizeof largest);
    for (int i = 0; i < NF4_BLOCK; i += 2) {
        int code[2];
        for (int k = 0; k < 2; k++) {
            const float s = scaled[i + k];
            const int piece = s > -1 ? (int)((s + 1) * PIECES) : 0; /* of NaN, too */
            code[k] = p->code[piece] + (s > p->middle[piece]);
        }
        record[NF4_CODES + i / 2] = (unsigned char)(code[0] << 4 | code[1]);
    }
}

void nf4_encode(void *records, const float *values, int64_t elems)
{
    const struct pieces p = make_pieces();
    for (int64_t at = 0; at < elems; at += NF4_BLOCK)
        encode_block(&p, (unsigned char *)records + nf4_bytes(at), values + at);
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
