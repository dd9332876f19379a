/* simd.h - vectors of the instruction set a kernel file is being compiled for.
 *
 * Every kernel file is compiled once per level (see local.mk), with CPU_LANES floats to
 * a vector.  Kernels are written once over these few types and functions; what needs an
 * instruction by name is at the end of this file and nowhere else.  Ordinary operators
 * (+ - * / < == & | <<) work on the types, element by element; comparisons of vf give a
 * vi mask of 0 and -1.  a * b + c is contracted to a fused multiply-add where there is one.
 */
#ifndef TRIREME_DEVICE_CPU_SIMD_H
#define TRIREME_DEVICE_CPU_SIMD_H

#include <float.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"

#define SIMD_INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(4 * CPU_LANES)));
typedef int32_t vi __attribute__((vector_size(4 * CPU_LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * CPU_LANES)));
typedef double vd __attribute__((vector_size(4 * CPU_LANES)));   /* for half of the lanes of a vf */
typedef uint16_t vh __attribute__((vector_size(2 * CPU_LANES))); /* bf16 or fp16 of one vf */
typedef bf16 vb __attribute__((vector_size(4 * CPU_LANES))); /* bf16 in pairs, for dot products */

/* Zero-extend, and drop the upper halves; at the end of the file. */
SIMD_INLINE vu simd_widen(vh h);
SIMD_INLINE vh simd_narrow(vu u);

SIMD_INLINE vf vf_set(float x)
{
    return x - (vf){0};
}

SIMD_INLINE vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

SIMD_INLINE void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

/* mask ? a : b */
SIMD_INLINE vf vf_select(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* a > b ? a : b (so b where either is NaN); at the end of the file. */
SIMD_INLINE vf vf_max(vf a, vf b);

SIMD_INLINE vf vf_from_bf16(vh h)
{
    return (vf)(simd_widen(h) << 16);
}

/* Round to nearest, ties to even; NaN stays a quiet NaN: as f32_to_bf16(). */
SIMD_INLINE vh vf_to_bf16(vf v)
{
    vu bits = (vu)v;
    vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    vu quiet = (bits >> 16) | 0x40u;
    return simd_narrow((vu)vf_select(v != v, (vf)quiet, (vf)rounded));
}

SIMD_INLINE void vf_store_bf16(bf16 *p, vf v)
{
    vh h = vf_to_bf16(v);
    memcpy(p, &h, sizeof h);
}

/* As vf_to_bf16(), but hardware may make a denormal 0; at the end of the file. */
SIMD_INLINE vh vf_to_bf16_flushed(vf v);

/* As f16_to_f32() and f32_to_f16() to the bit; at the end of the file. */
SIMD_INLINE vf vf_from_f16(vh h);
SIMD_INLINE vh vf_to_f16(vf v);

/* Bytes of an element, fp32, bf16 or fp16: dtype_bytes() as a constant where dt is one, as a call
 * in an inner loop takes time. */
SIMD_INLINE int64_t value_bytes(enum dtype dt)
{
    return dt == DTYPE_F32 ? sizeof(float) : sizeof(bf16);
}

/* What follows takes a tensor of type dt (fp32, bf16 or fp16) and an element index into it; bf16
 * denormals may be stored as 0, fp16's are kept.  With dt a constant where they are inlined, the
 * branches are gone. */
SIMD_INLINE vf vf_widen(enum dtype dt, vh h)
{
    return dt == DTYPE_BF16 ? vf_from_bf16(h) : vf_from_f16(h);
}

SIMD_INLINE vh vf_narrow(enum dtype dt, vf v)
{
    return dt == DTYPE_BF16 ? vf_to_bf16_flushed(v) : vf_to_f16(v);
}

SIMD_INLINE vf vf_get(enum dtype dt, const void *base, int64_t index)
{
    vh h;
    if (dt == DTYPE_F32)
        return vf_load((const float *)base + index);
    memcpy(&h, (const uint16_t *)base + index, sizeof h);
    return vf_widen(dt, h);
}

SIMD_INLINE void vf_put(enum dtype dt, void *base, int64_t index, vf v)
{
    if (dt == DTYPE_F32) {
        vf_store((float *)base + index, v);
    } else {
        vh h = vf_narrow(dt, v);
        memcpy((uint16_t *)base + index, &h, sizeof h);
    }
}

/* The lower or upper half of the lanes, in fp64; at the end of the file. */
SIMD_INLINE vd vf_half(vf v, const int upper);

/* Prefetch the cache line of an element to the second cache; the element need not exist.  Kernels
 * with much arithmetic for each element need this: their core does not load early enough itself. */
SIMD_INLINE void vf_prefetch(enum dtype dt, const void *base, int64_t index)
{
    __builtin_prefetch((const char *)base + index * value_bytes(dt), 0, 2);
}

/* Prefetch the cache lines of n elements; the first element should be the first of its line, else
 * a part of the last line's elements is left out. */
SIMD_INLINE void vf_prefetch_some(enum dtype dt, const void *base, int64_t index, const int64_t n)
{
    const int64_t line = 64 / (int64_t)value_bytes(dt);
    for (int64_t i = 0; i < n; i += line)
        vf_prefetch(dt, base, index + i);
}

/* One element. */
SIMD_INLINE float value_get(enum dtype dt, const void *base, int64_t index)
{
    if (dt == DTYPE_BF16)
        return bf16_to_f32(((const bf16 *)base)[index]);
    if (dt == DTYPE_F16)
        return f16_to_f32(((const f16 *)base)[index]);
    return ((const float *)base)[index];
}

SIMD_INLINE void value_put(enum dtype dt, void *base, int64_t index, float value)
{
    if (dt == DTYPE_BF16)
        ((bf16 *)base)[index] = f32_to_bf16(value);
    else if (dt == DTYPE_F16)
        ((f16 *)base)[index] = f32_to_f16(value);
    else
        ((float *)base)[index] = value;
}

/* function(dt, ...), where it is inlined with dt a constant. */
#define WITH_DTYPE(function, dt, ...)          \
    do {                                       \
        if ((dt) == DTYPE_BF16)                \
            function(DTYPE_BF16, __VA_ARGS__); \
        else if ((dt) == DTYPE_F16)            \
            function(DTYPE_F16, __VA_ARGS__);  \
        else                                   \
            function(DTYPE_F32, __VA_ARGS__);  \
    } while (0)

/* As vf_get(), of the first n < CPU_LANES elements; zeros follow.  At the end of the file. */
SIMD_INLINE vf vf_get_part(enum dtype dt, const void *base, int64_t index, int64_t n);

/* As vf_put(), of the first n < CPU_LANES elements. */
SIMD_INLINE void vf_put_part(enum dtype dt, void *base, int64_t index, int64_t n, vf v);

/* Elements [index, index + left), at most a vector of them: full or part as left says. */
SIMD_INLINE vf vf_get_some(enum dtype dt, const void *base, int64_t index, int64_t left)
{
    return left >= CPU_LANES ? vf_get(dt, base, index) : vf_get_part(dt, base, index, left);
}

SIMD_INLINE void vf_put_some(enum dtype dt, void *base, int64_t index, int64_t left, vf v)
{
    if (left >= CPU_LANES)
        vf_put(dt, base, index, v);
    else
        vf_put_part(dt, base, index, left, v);
}

/* 0, 1, 2, ... */
SIMD_INLINE vi vi_lanes(void)
{
    vi lanes = {0};
    for (int i = 0; i < CPU_LANES; i++)
        lanes[i] = i;
    return lanes;
}

/* The lanes of a vector, or of two end to end, in the order of the numbers in `at`. */
#ifdef __clang__
#define simd_shuffle(v, at) simd_shuffle_two(v, v, at)
#define simd_shuffle_two(a, b, at)                                          \
    ({                                                                      \
        __typeof__(a) a_ = (a), b_ = (b), to_ = a_;                         \
        __typeof__(at) at_ = (at);                                          \
        const int lanes_ = (int)(sizeof to_ / sizeof to_[0]);               \
        for (int l_ = 0; l_ < lanes_; l_++)                                 \
            to_[l_] = (at_[l_] & lanes_ ? b_ : a_)[at_[l_] & (lanes_ - 1)]; \
        to_;                                                                \
    })
#else
#define simd_shuffle(v, at)        __builtin_shuffle(v, at)
#define simd_shuffle_two(a, b, at) __builtin_shuffle(a, b, at)
#endif

/* Sum of the lanes, pairwise, always in the same order. */
SIMD_INLINE float vf_sum(vf v)
{
    const vi lanes = vi_lanes();
#pragma GCC unroll 8
    for (int half = CPU_LANES / 2; half > 0; half /= 2)
        v += simd_shuffle(v, lanes ^ half);
    return v[0];
}

/* Largest lane. */
SIMD_INLINE float vf_top(vf v)
{
    const vi lanes = vi_lanes();
#pragma GCC unroll 8
    for (int half = CPU_LANES / 2; half > 0; half /= 2)
        v = vf_max(v, simd_shuffle(v, lanes ^ half));
    return v[0];
}

/* e^x to about 1 ulp.  Results under FLT_MIN are flushed to 0 (as e^-inf is), over FLT_MAX
 * they are infinity; NaN stays NaN.
 *   n = round(x / ln 2), r = x - n ln 2 in two parts (Cody and Waite), so |r| <= ln 2 / 2
 *   e^r = 1 + r + r^2 P(r), P of degree 4, minimax for the relative error (3e-9)
 *   n is added to the exponent; e^r < 1 where n = 128, so the field never overflows. */
SIMD_INLINE vf vf_exp(vf x)
{
    const float low = -87.33654f, high = 88.72283f; /* logarithms of FLT_MIN and FLT_MAX */
    const float to_integer = 0x1.8p23f;             /* adding it rounds to an integer */
    vf shifted = x * 0x1.715476p0f + to_integer;
    vf n = shifted - to_integer;
    vf r = x - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    vf y = r * 0x1.6a23dp-10f + 0x1.123a2p-7f;
    y = y * r + 0x1.5558f2p-5f;
    y = y * r + 0x1.555492p-3f;
    y = y * r + 0x1.fffffcp-2f;
    y = y * (r * r) + r + 1.0f;
    y = (vf)((vu)y + ((vu)shifted << 23));
    y = vf_select(x < low, (vf){0}, y);
    return vf_select(x <= high, y, x * __builtin_inff());
}

/* 1 / (1 + e^-x) */
SIMD_INLINE vf vf_sigmoid(vf x)
{
    return 1.0f / (1.0f + vf_exp(-x));
}

/* acc[i] += a[2i] * b[2i] + a[2i+1] * b[2i+1].  Hardware may take denormals as 0. */
SIMD_INLINE vf vf_dot_bf16(vf acc, vb a, vb b);

/* Denormal results and operands become 0 until simd_denormals(the value returned). */
SIMD_INLINE unsigned simd_no_denormals(void);
SIMD_INLINE void simd_denormals(unsigned saved);

/* What has to name its instructions: AVX-512's bf16, AVX-512, AVX2.  The makefile says which levels
 * have the first, as the compiler may know it for all: with CFLAGS=-march=native. */
#ifdef CPU_DOT_BF16
#include <immintrin.h>

enum { HAS_DOT_BF16 = 1 }; /* is vf_dot_bf16() an instruction? */

SIMD_INLINE vf vf_dot_bf16(vf acc, vb a, vb b)
{
    return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)b);
}

SIMD_INLINE vh vf_to_bf16_flushed(vf v)
{
    return (vh)_mm512_cvtneps_pbh((__m512)v);
}
#else
enum { HAS_DOT_BF16 = 0 };

SIMD_INLINE vf vf_dot_bf16(vf acc, vb a, vb b)
{
    acc += (vf)((vu)a << 16) * (vf)((vu)b << 16);
    return acc + (vf)((vu)a & 0xffff0000u) * (vf)((vu)b & 0xffff0000u);
}

SIMD_INLINE vh vf_to_bf16_flushed(vf v)
{
    return vf_to_bf16(v);
}
#endif

#if defined __AVX512F__ && CPU_LANES == 16
#include <immintrin.h>

SIMD_INLINE vu simd_widen(vh h)
{
    return (vu)_mm512_cvtepu16_epi32((__m256i)h);
}

SIMD_INLINE vh simd_narrow(vu u)
{
    return (vh)_mm512_cvtepi32_epi16((__m512i)u);
}

SIMD_INLINE vf vf_max(vf a, vf b)
{
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}

SIMD_INLINE vd vf_half(vf v, const int upper)
{
    __m256 half = upper ? _mm512_extractf32x8_ps((__m512)v, 1) : _mm512_castps512_ps256((__m512)v);
    return (vd)_mm512_cvtps_pd(half);
}

SIMD_INLINE vf vf_from_f16(vh h)
{
    return (vf)_mm512_cvtph_ps((__m256i)h);
}

SIMD_INLINE vh vf_to_f16(vf v)
{
    return (vh)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
}

SIMD_INLINE vf vf_get_part(enum dtype dt, const void *base, int64_t index, int64_t n)
{
    __mmask16 first = (__mmask16)((1u << n) - 1);
    if (dt == DTYPE_F32)
        return (vf)_mm512_maskz_loadu_ps(first, (const float *)base + index);
    return vf_widen(dt, (vh)_mm256_maskz_loadu_epi16(first, (const uint16_t *)base + index));
}

SIMD_INLINE void vf_put_part(enum dtype dt, void *base, int64_t index, int64_t n, vf v)
{
    __mmask16 first = (__mmask16)((1u << n) - 1);
    if (dt == DTYPE_F32)
        _mm512_mask_storeu_ps((float *)base + index, first, (__m512)v);
    else
        _mm256_mask_storeu_epi16((uint16_t *)base + index, first, (__m256i)vf_narrow(dt, v));
}
#else
SIMD_INLINE vu simd_widen(vh h)
{
    return __builtin_convertvector(h, vu);
}

SIMD_INLINE vh simd_narrow(vu u)
{
    return __builtin_convertvector(u, vh);
}

SIMD_INLINE vf vf_max(vf a, vf b)
{
    return vf_select(a > b, a, b);
}

SIMD_INLINE vf vf_get_part(enum dtype dt, const void *base, int64_t index, int64_t n)
{
    float part[CPU_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        part[i] = value_get(dt, base, index + i);
    return vf_load(part);
}

SIMD_INLINE void vf_put_part(enum dtype dt, void *base, int64_t index, int64_t n, vf v)
{
    float part[CPU_LANES];
    vf_store(part, v);
    for (int64_t i = 0; i < n; i++)
        value_put(dt, base, index + i, part[i]);
}

#if defined __F16C__ && CPU_LANES == 8
#include <immintrin.h>

SIMD_INLINE vd vf_half(vf v, const int upper)
{
    __m128 half = upper ? _mm256_extractf128_ps((__m256)v, 1) : _mm256_castps256_ps128((__m256)v);
    return (vd)_mm256_cvtps_pd(half);
}

SIMD_INLINE vf vf_from_f16(vh h)
{
    return (vf)_mm256_cvtph_ps((__m128i)h);
}

SIMD_INLINE vh vf_to_f16(vf v)
{
    return (vh)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
}
#else
SIMD_INLINE vd vf_half(vf v, const int upper)
{
    vd half;
    for (int i = 0; i < CPU_LANES / 2; i++)
        half[i] = v[i + upper * (CPU_LANES / 2)];
    return half;
}

SIMD_INLINE vf vf_from_f16(vh h)
{
    vu bits = simd_widen(h), sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    vi quiet = ((vi)magnitude > 0x7c00) & 0x400000, top = ((vi)magnitude >= 0x7c00) & 0x7f800000;
    vf normal = (vf)((magnitude << 13) + (112u << 23));
    vf denormal = __builtin_convertvector((vi)magnitude, vf) * 0x1p-24f;
    vf v = vf_select((vi)magnitude < 0x400, denormal, normal);
    v = vf_select(top != 0, (vf)(magnitude << 13), v);
    return (vf)((vu)v | sign | (vu)top | (vu)quiet);
}

SIMD_INLINE vh vf_to_f16(vf v)
{
    vu bits = (vu)v, sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    vf nan = (vf)(0x7e00u | ((magnitude >> 13) & 0x1ffu));
    vf normal = (vf)((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13);
    vf denormal = (vf)((vu)((vf)magnitude + 0.5f) - 0x3f000000u);
    vf rounded = vf_select((vi)magnitude < 0x38800000, denormal, normal);
    rounded = vf_select((vi)magnitude >= 0x477ff000, (vf)(0x7c00u - (vu){0}), rounded);
    rounded = vf_select((vi)magnitude > 0x7f800000, nan, rounded);
    return simd_narrow((vu)rounded | sign);
}
#endif
#endif

#ifdef __SSE2__
#include <xmmintrin.h>

SIMD_INLINE unsigned simd_no_denormals(void)
{
    const unsigned flush_results = 0x8000, zero_operands = 0x40;
    unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | flush_results | zero_operands);
    return saved;
}

SIMD_INLINE void simd_denormals(unsigned saved)
{
    _mm_setcsr(saved);
}
#else
SIMD_INLINE unsigned simd_no_denormals(void)
{
    return 0;
}

SIMD_INLINE void simd_denormals(unsigned saved)
{
}
#endif

#endif
