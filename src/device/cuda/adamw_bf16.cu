/* adamw_bf16.cu - AdamW on parameters or moments that are kept in bf16, rounded stochastically as
 * cpu/optimizer.c says.
 *
 * Least memory traffic: 16 bytes an element if all tensors are bf16.  Ten rounds of Philox make the
 * random numbers of two elements, a pair.  A thread takes four elements by one access to each
 * tensor if all tensors are aligned alike and every row begins with the first element of a pair;
 * else it takes elements one by one.
 */
#include "device/cuda/adamw.cuh"
#include "device/cuda/flat.cuh"
#include "device/cuda/philox.cuh"

/* Of counter (pair, step). */
static __device__ __forceinline__ uint4 draw(const struct rounding &r, uint64_t pair)
{
    return philox4((uint32_t)pair, (uint32_t)(pair >> 32), (uint32_t)r.step,
                   (uint32_t)(r.step >> 32), r.key);
}

/* Two words for each of n elements, the first of which is number index. */
template <int n>
static __device__ __forceinline__ void noise_of(uint32_t (&words)[2 * n], const struct rounding &r,
                                                uint64_t index)
{
    if constexpr (n == 1) {
        uint4 drawn = draw(r, index / 2);
        words[0] = index % 2 ? drawn.z : drawn.x;
        words[1] = index % 2 ? drawn.w : drawn.y;
    } else {
#pragma unroll
        for (int i = 0; i < n / 2; i++) {
            uint4 drawn = draw(r, index / 2 + i);
            words[4 * i] = drawn.x, words[4 * i + 1] = drawn.y;
            words[4 * i + 2] = drawn.z, words[4 * i + 3] = drawn.w;
        }
    }
}

/* noise in [0, 2^16) */
static __device__ __forceinline__ uint32_t round_by(float value, uint32_t noise)
{
    uint32_t bits = __float_as_uint(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : (bits + noise) >> 16;
}

static __device__ __forceinline__ void pack(raw<bf16, 4> &to, const uint32_t (&bits)[4])
{
    to.bits = make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
}

static __device__ __forceinline__ void pack(bf16 &to, const uint32_t (&bits)[1])
{
    to = (bf16)bits[0];
}

/* `shift`: where in each word the 16 bits are; second: in the second word of an element. */
template <typename T, int n>
static __device__ __forceinline__ void put(T *to, const float (&value)[n],
                                           const uint32_t (&words)[2 * n], int second, int shift)
{
    raw<T, n> out;
    if constexpr (sizeof(T) == sizeof(float)) {
        narrow(out, value);
    } else {
        uint32_t bits[n];
#pragma unroll
        for (int i = 0; i < n; i++)
            bits[i] = round_by(value[i], words[2 * i + second] >> shift & 0xffffu);
        pack(out, bits);
    }
    store(to, out);
}

/* The number of element i; of less than 2^32 elements without a division of 64 bits. */
static __device__ __forceinline__ uint64_t number_of(const struct rounding &r, int64_t i)
{
    if (!r.run)
        return r.first + (uint64_t)i;
    const int64_t row = (i | r.run) >> 32 ? i / r.run : (uint32_t)i / (uint32_t)r.run;
    return r.first + (uint64_t)(row * r.stride + (i - row * r.run));
}

template <typename P, typename M, typename G, typename C> struct low_op {
    struct adamw a;
    struct rounding r;
    const double *factor;
    P *p;
    M *m, *v;
    const G *g;
    C *copy; /* or NULL */

    template <int n> __device__ __forceinline__ flat_nothing read(int64_t) const
    {
        return {};
    }

    template <int n> __device__ __forceinline__ void write(flat_nothing, int64_t at) const
    {
        const adamw_constants constants = adamw_constants_of(a);
        const float by = (float)*factor;
        float next[n], mean[n], square[n], grad[n];
        uint32_t words[2 * n];
        if (isnan(by))
            return;
        get(next, p + at);
        get(mean, m + at);
        get(square, v + at);
        get(grad, g + at);
        noise_of<n>(words, r, number_of(r, at));
#pragma unroll
        for (int i = 0; i < n; i++)
            adamw_element(next[i], mean[i], square[i], grad[i], by, a, constants);
        put(p + at, next, words, 0, 0);
        put(m + at, mean, words, 0, 16);
        put(v + at, square, words, 1, 0);
        if (copy) {
            raw<C, n> rounded;
            narrow(rounded, next);
            store(copy + at, rounded);
        }
    }
};

template <typename P, typename M, typename G, typename C>
static void launch_of(cudaStream_t s, const struct adamw *a, const double *factor,
                      const struct adamw_state *state, const struct rounding *r, int64_t elems)
{
    const low_op<P, M, G, C> op = {*a,
                                   *r,
                                   factor,
                                   (P *)state->p,
                                   (M *)state->m,
                                   (M *)state->v,
                                   (const G *)state->g,
                                   (C *)state->copy};
    int shift = phase(op.p, 4);
    bool alike = phase(op.m, 4) == shift && phase(op.v, 4) == shift && phase(op.g, 4) == shift &&
                 (!op.copy || phase(op.copy, 4) == shift) && (r->first + (uint64_t)shift) % 2 == 0;
    if (r->run) /* no row may end inside a group */
        alike = alike && shift == 0 && r->run % 4 == 0 && r->stride % 2 == 0;
    launch_flat<2, 4>(s, op, elems, shift, alike);
}

template <typename P, typename M, typename C>
static void launch(cudaStream_t s, const struct adamw *a, const double *factor,
                   const struct adamw_state *state, const struct rounding *r, int64_t elems)
{
    if (state->dt_g == DTYPE_BF16)
        launch_of<P, M, bf16, C>(s, a, factor, state, r, elems);
    else
        launch_of<P, M, float, C>(s, a, factor, state, r, elems);
}

void cuda_adamw_bf16(struct device *d, const struct adamw *a, const double *factor,
                     const struct adamw_state *state, const struct rounding *r, int64_t elems)
{
    cudaStream_t s = cuda_compute(d);
    if (state->dt_p == DTYPE_F32 && state->dt_copy == DTYPE_F16)
        launch<float, bf16, fp16>(s, a, factor, state, r, elems);
    else if (state->dt_p == DTYPE_F32)
        launch<float, bf16, bf16>(s, a, factor, state, r, elems);
    else if (state->dt_m == DTYPE_F32)
        launch<bf16, float, bf16>(s, a, factor, state, r, elems);
    else
        launch<bf16, bf16, bf16>(s, a, factor, state, r, elems);
}
