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
#include "device/cuda/rounding.cuh"

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
                 (!op.copy || phase(op.copy, 4) == shift) && rounds_in_fours(*r, shift);
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
