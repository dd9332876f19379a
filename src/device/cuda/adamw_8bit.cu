/* adamw_8bit.cu - AdamW on moments of 8 bits (base/dynamic8.h).
 *
 * A block of the moments is a warp's: it decodes them, takes the step in fp32, then knows the
 * largest magnitudes and makes codes again.  A lane has eight elements, four neighbours twice,
 * which it accesses together, or eight single ones where the tensors are not aligned or the block
 * is the last and shorter:
 *
 *   element of the block   0 1 2 3   4 5 6 7   ...   128 129 130 131   132 133 134 135   ...
 *   lane                   0         1               0                 1
 *
 * Least memory traffic: 18 bytes an element with p and gradients in fp32 and a 16-bit copy, 10
 * with both in bf16.  An H100 issues some 150 instructions of a thread meanwhile, or 85, and at
 * most half as many comparisons and selections, of which the functions of dynamic8.h have eighty an
 * element.  So a thread block keeps tables of them in shared memory: what each code stands for,
 * and the decades of shares.  As decades begin more than a factor of two apart, shares of one
 * exponent are of two decades at most: a row of the table has both, and the share where the later
 * one begins.  Each warp has four blocks, so that a thread makes two to four entries for its 32
 * elements.  With tables an element takes 110 instructions, some 40 of them for divisions and
 * roots; with p in bf16 160, as Philox makes more random bits than this one rounding needs: then
 * arithmetic is the limit.
 */
#include "base/dynamic8.h"
#include "device/cuda/adamw.cuh"
#include "device/cuda/reduce.cuh"
#include "device/cuda/rounding.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, BLOCKS_EACH = 4, LANE_ELEMS = DYNAMIC8_BLOCK / 32 };

/* Shares from 2^-23 on, below the lowest decades, up to 1 have these exponents in fp32. */
enum { FIRST_EXPONENT = 127 - 23, EXPONENTS = 24 };

/* Of two decades the later one: where it begins, its k and scale; the scale of the one before,
 * whose k is half as large. */
struct decades {
    float begin, k, scale, scale_before;
};

/* Of m, and of v.  The last row of decades is of all other shares, which are below 2^-23. */
struct tables {
    float share[2][256];
    __align__(16) decades row[2][EXPONENTS + 1];
};

static __device__ decades decades_of(int i, float items)
{
    const bool is_other = i == EXPONENTS;
    const uint32_t bits = (uint32_t)(FIRST_EXPONENT + i) << 23;
    const float least = is_other ? 0.0f : __uint_as_float(bits);
    const float most = is_other ? 0.0f : __uint_as_float(bits + 0x7fffffu);
    const dynamic8_decade first = dynamic8_decade_of(least, items);
    const dynamic8_decade last = dynamic8_decade_of(most, items);
    return {last.begin, last.k, last.scale, first.scale};
}

/* All threads of the block call. */
static __device__ void make_tables(tables &t)
{
    const int i = (int)threadIdx.x;
    t.share[0][i] = dynamic8_signed((uint8_t)i);
    t.share[1][i] = dynamic8_unsigned((uint8_t)i);
    if (i <= EXPONENTS) {
        t.row[0][i] = decades_of(i, 1);
        t.row[1][i] = decades_of(i, 2);
    }
    __syncthreads();
}

/* dynamic8_decade_of() a share of at least 0, or of NaN. */
static __device__ __forceinline__ dynamic8_decade decade_of(const decades (&row)[EXPONENTS + 1],
                                                            float share)
{
    const uint32_t i = (__float_as_uint(share) >> 23) - FIRST_EXPONENT;
    const uint4 bits = load16(&row[i < EXPONENTS ? (int)i : EXPONENTS]);
    const float begin = __uint_as_float(bits.x), k = __uint_as_float(bits.y);
    const bool is_before = share < begin;
    return {begin, is_before ? 0.5f * k : k, __uint_as_float(is_before ? bits.w : bits.z)};
}

/* ---- codes of n neighbours in a word ---- */

template <int n> struct word_type;
template <> struct word_type<4> {
    using type = uint32_t;
};
template <> struct word_type<1> {
    using type = uint8_t;
};
template <int n> using word = typename word_type<n>::type;

template <int n>
static __device__ __forceinline__ void decode(float (&to)[n], const float (&share)[256],
                                              word<n> codes, float largest)
{
#pragma unroll
    for (int i = 0; i < n; i++)
        to[i] = share[(uint32_t)codes >> 8 * i & 0xffu] * largest;
}

/* ---- a step ---- */

/* n neighbours of a lane's elements, as they lie in memory, and in fp32. */
template <typename P, typename G, int n> struct loaded {
    raw<P, n> p;
    raw<G, n> g;
    word<n> m, v;
};
template <int n> struct widened {
    float p[n], m[n], v[n];
};

template <typename P, typename G, typename C> struct coded_op {
    struct adamw a;
    struct rounding r;
    const double *factor;
    P *p;
    uint8_t *m, *v;
    float *m_largest, *v_largest;
    const G *g;
    C *copy; /* or NULL */
    int64_t elems;
    bool in_fours;

    /* The first element of group j of a lane, and is it there?  Blocks in groups of four are whole.
     */
    template <int n> static __device__ __forceinline__ int64_t place(int64_t block, int j)
    {
        return block * DYNAMIC8_BLOCK + (j * 32 + (int)threadIdx.x % 32) * n;
    }

    template <int n> __device__ __forceinline__ bool has(int64_t block, int j) const
    {
        return n > 1 || place<n>(block, j) < elems;
    }

    template <int n> __device__ __forceinline__ loaded<P, G, n> read(int64_t at) const
    {
        return {load_once<raw<P, n>>(p + at), load_once<raw<G, n>>(g + at), load<word<n>>(m + at),
                load<word<n>>(v + at)};
    }

    template <int n>
    __device__ __forceinline__ void step(widened<n> &e, const loaded<P, G, n> &in, const tables &t,
                                         float most_m, float most_v, float by) const
    {
        const adamw_constants constants = adamw_constants_of(a);
        float grad[n];
        widen(e.p, in.p);
        widen(grad, in.g);
        decode<n>(e.m, t.share[0], in.m, most_m);
        decode<n>(e.v, t.share[1], in.v, most_v);
#pragma unroll
        for (int i = 0; i < n; i++)
            adamw_element(e.p[i], e.m[i], e.v[i], grad[i], by, a, constants);
    }

    /* Store p and its copy. */
    template <int n>
    __device__ __forceinline__ void store_p(const float (&next)[n], int64_t at) const
    {
        if constexpr (sizeof(P) == sizeof(float)) {
            raw<P, n> wide;
            narrow(wide, next);
            store_once(p + at, wide);
        } else {
            uint32_t words[2 * n];
            noise_of<n>(words, r, number_of(r, at));
            put(p + at, next, words, 0, 0);
        }
        if (copy) {
            raw<C, n> rounded;
            narrow(rounded, next);
            store(copy + at, rounded);
        }
    }

    /* Make codes of the moments and store them. */
    template <int n>
    __device__ __forceinline__ void code(const widened<n> &e, const tables &t, int64_t at,
                                         float inverse_m, float inverse_v) const
    {
        uint32_t codes_m = 0, codes_v = 0;
#pragma unroll
        for (int i = 0; i < n; i++) {
            const float share_m = e.m[i] * inverse_m, share_v = e.v[i] * inverse_v;
            const dynamic8_decade of_m = decade_of(t.row[0], fabsf(share_m));
            const dynamic8_decade of_v = decade_of(t.row[1], share_v);
            codes_m |= (uint32_t)dynamic8_signed_code_in(share_m, of_m) << 8 * i;
            codes_v |= (uint32_t)dynamic8_unsigned_code_in(share_v, of_v) << 8 * i;
        }
        store(m + at, (word<n>)codes_m);
        store(v + at, (word<n>)codes_v);
    }

    /* Work on a block.  All lanes of the warp call. */
    template <int n>
    __device__ __forceinline__ void work(const tables &t, int64_t block, float by) const
    {
        constexpr int groups = LANE_ELEMS / n;
        loaded<P, G, n> in[groups];
        widened<n> e[groups] = {};
        const float old_m = m_largest[block], old_v = v_largest[block];
        float most_m = 0, most_v = 0;
#pragma unroll
        for (int j = 0; j < groups; j++)
            if (has<n>(block, j))
                in[j] = read<n>(place<n>(block, j));
#pragma unroll
        for (int j = 0; j < groups; j++)
            if (has<n>(block, j)) {
                step<n>(e[j], in[j], t, old_m, old_v, by);
                store_p<n>(e[j].p, place<n>(block, j));
            }
#pragma unroll
        for (int i = 0; i < LANE_ELEMS; i++) {
            most_m = fmaxf(most_m, fabsf(e[i / n].m[i % n]));
            most_v = fmaxf(most_v, e[i / n].v[i % n]);
        }
        most_m = warp_max(most_m), most_v = warp_max(most_v);
        const float inverse_m = dynamic8_inverse(most_m), inverse_v = dynamic8_inverse(most_v);
#pragma unroll
        for (int j = 0; j < groups; j++)
            if (has<n>(block, j))
                code<n>(e[j], t, place<n>(block, j), inverse_m, inverse_v);
        if (threadIdx.x % 32 == 0)
            m_largest[block] = most_m, v_largest[block] = most_v;
    }
};

template <typename Op> static __global__ void __launch_bounds__(THREADS, 3) coded_steps(Op op)
{
    __shared__ tables t;
    const float by = (float)*op.factor;
    const int64_t first = (int64_t)blockIdx.x * BLOCKS_EACH * WARPS + (int)threadIdx.x / 32;
    if (isnan(by))
        return;
    make_tables(t);
#pragma unroll 1
    for (int i = 0; i < BLOCKS_EACH; i++) {
        const int64_t block = first + i * WARPS;
        if (block * DYNAMIC8_BLOCK >= op.elems)
            return;
        if (op.in_fours && (block + 1) * DYNAMIC8_BLOCK <= op.elems)
            op.template work<4>(t, block, by);
        else
            op.template work<1>(t, block, by);
    }
}

template <typename P, typename G, typename C>
static void launch_of(cudaStream_t s, const struct adamw *a, const double *factor,
                      const struct adamw_state *state, const struct rounding *r, int64_t elems)
{
    coded_op<P, G, C> op = {*a,
                            {},
                            factor,
                            (P *)state->p,
                            (uint8_t *)state->m,
                            (uint8_t *)state->v,
                            state->m_largest,
                            state->v_largest,
                            (const G *)state->g,
                            (C *)state->copy,
                            elems,
                            false};
    if (r)
        op.r = *r;
    op.in_fours = phase(op.p, 4) == 0 && phase(op.m, 4) == 0 && phase(op.v, 4) == 0 &&
                  phase(op.g, 4) == 0 && (!op.copy || phase(op.copy, 4) == 0) &&
                  (sizeof(P) == sizeof(float) || rounds_in_fours(op.r, 0));
    if (elems)
        LAUNCH(coded_steps<decltype(op)>,
               (unsigned)ceil_div(elems, DYNAMIC8_BLOCK * WARPS * BLOCKS_EACH), THREADS, 0, s, op);
}

template <typename P, typename C>
static void launch(cudaStream_t s, const struct adamw *a, const double *factor,
                   const struct adamw_state *state, const struct rounding *r, int64_t elems)
{
    if (state->dt_g == DTYPE_BF16)
        launch_of<P, bf16, C>(s, a, factor, state, r, elems);
    else
        launch_of<P, float, C>(s, a, factor, state, r, elems);
}

void cuda_adamw_8bit(struct device *d, const struct adamw *a, const double *factor,
                     const struct adamw_state *state, const struct rounding *r, int64_t elems)
{
    cudaStream_t s = cuda_compute(d);
    if (state->dt_p == DTYPE_BF16)
        launch<bf16, bf16>(s, a, factor, state, r, elems);
    else if (state->dt_copy == DTYPE_F16)
        launch<float, fp16>(s, a, factor, state, r, elems);
    else
        launch<float, bf16>(s, a, factor, state, r, elems);
}
