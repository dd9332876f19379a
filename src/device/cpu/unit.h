/* unit.h - operands of dot products in units of 32 bits.
 *
 * A unit is one fp32, or two neighbouring bf16 of the summed dimension, which is what a bf16
 * dot-product instruction takes.  All but the innermost instruction of a product is then the same
 * for both types.
 */
#ifndef TRIREME_DEVICE_CPU_UNIT_H
#define TRIREME_DEVICE_CPU_UNIT_H

#include "device/cpu/simd.h"

typedef uint32_t __attribute__((may_alias)) unit; /* the bits of floats too */

SIMD_INLINE void unit_store(unit *p, vu v)
{
    memcpy(p, &v, sizeof v);
}

SIMD_INLINE vu unit_load(const unit *p)
{
    vu v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* The unit in all lanes. */
SIMD_INLINE vu unit_broadcast(const unit *p)
{
    return *p - (vu){0};
}

/* sum + a b, of two products a lane in bf16. */
SIMD_INLINE vf unit_dot(const enum dtype dt, vf sum, vu a, vu b)
{
    return dt == DTYPE_BF16 ? vf_dot_bf16(sum, (vb)a, (vb)b) : (vf)a * (vf)b + sum;
}

/* Two vectors of neighbouring rows of an operand as units: bf16 rounded to nearest. */
SIMD_INLINE vu unit_pairs(vf even, vf odd)
{
    return (((vu)even + 0x8000u) >> 16) | (((vu)odd + 0x8000u) & 0xffff0000u);
}

/* Transpose CPU_LANES vectors in place: lanes change places with vectors, bit by bit of
 * their number. */
SIMD_INLINE void unit_transpose(vu v[CPU_LANES])
{
    const vi lanes = vi_lanes();
#pragma GCC unroll 8
    for (int half = CPU_LANES / 2; half > 0; half /= 2) {
        vi upper = (lanes & half) != 0;
        vi low = (~upper & lanes) | (upper & (CPU_LANES + lanes - half));
        vi high = (~upper & (lanes + half)) | (upper & (CPU_LANES + lanes));
#pragma GCC unroll 16
        for (int i = 0; i < CPU_LANES; i++) {
            if (i & half)
                continue;
            vu a = v[i], b = v[i + half];
            v[i] = simd_shuffle_two(a, b, low);
            v[i + half] = simd_shuffle_two(a, b, high);
        }
    }
}

#endif
