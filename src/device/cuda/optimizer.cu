/* optimizer.cu - the steps of AdamW, SGD and Muon, each in one pass over its tensors; the sum of
 * squares for clipping by the norm; small scalars.
 *
 * Least memory traffic, in bytes an element with gradients in fp32 (in bf16 two less each):
 *   adamw         30   p, m and v are read and written, g is read, the 16-bit copy is written
 *                      (with p, or m and v, in other formats: adamw_bf16.cu, adamw_8bit.cu)
 *   sgd           22
 *   muon's step   14
 *   sumsq          4
 *
 * In a step a block takes one tile, and a thread two groups of four elements: for adamw a thread
 * starts eight 16-byte loads before it uses the first.  Loads and stores bypass the caches.  Groups
 * begin where p is aligned; a tile that is not whole is done element by element.
 *
 * In sumsq tile i belongs to block i % CUDA_PARTIALS of CUDA_PARTIALS blocks, on every GPU, so that
 * sums have the same order everywhere; these are eight blocks of 256 threads on each multiprocessor
 * of the largest GPU.
 */
#include "device/cuda/adamw.cuh"
#include "device/cuda/flat.cuh"
#include "device/cuda/reduce.cuh"

struct eight {
    double values[8];
};

static __global__ void set_values(double *y, eight values, int count)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count)
            y[i] = values.values[i];
}

void cuda_set(struct device *d, double *y, const double *values, int count)
{
    eight all = {};
    for (int i = 0; i < count; i++)
        all.values[i] = values[i];
    LAUNCH(set_values, 1, 1, 0, cuda_compute(d), y, all, count);
}

/* Sum of squares */

enum { SUM_THREADS = 256, SUM_ACCESSES = 4, SUM_TILE = SUM_THREADS * SUM_ACCESSES * 4 };

static __device__ __forceinline__ void add_squares(double (&sum)[2], const float (&v)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum[i % 2] = fma((double)v[i], (double)v[i], sum[i % 2]);
}

/* Returns four elements of x from `at` on, with zeros from element `elems` on. */
template <typename T>
static __device__ __forceinline__ raw<T, 4> four_of(const T *x, int64_t at, int64_t elems,
                                                    bool aligned)
{
    raw<T, 4> bits;
    float v[4] = {};
    if (aligned && at + 4 <= elems)
        return load_once<raw<T, 4>>(x + at);
    for (int i = 0; i < 4; i++)
        if (at + i < elems) {
            float one[1];
            widen(one, x[at + i]);
            v[i] = one[0];
        }
    narrow(bits, v);
    return bits;
}

template <typename T>
static __global__ void __launch_bounds__(SUM_THREADS)
    sum_squares(double *partial, const T *x, int64_t elems, bool aligned)
{
    __shared__ double sums[32];
    double sum[2] = {};
    for (int64_t begin = (int64_t)blockIdx.x * SUM_TILE; begin < elems;
         begin += (int64_t)gridDim.x * SUM_TILE) {
        raw<T, 4> bits[SUM_ACCESSES];
        float v[4];
#pragma unroll
        for (int j = 0; j < SUM_ACCESSES; j++)
            bits[j] = four_of(x, begin + (j * SUM_THREADS + (int)threadIdx.x) * 4, elems, aligned);
#pragma unroll
        for (int j = 0; j < SUM_ACCESSES; j++) {
            widen(v, bits[j]);
            add_squares(sum, v);
        }
    }
    double total = block_sum(sum[0] + sum[1], sums);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = total;
}

static __global__ void __launch_bounds__(CUDA_PARTIALS)
    add_partials(double *sum, const double *partial, int count)
{
    __shared__ double sums[32];
    double total = block_sum((int)threadIdx.x < count ? partial[threadIdx.x] : 0.0, sums);
    if (threadIdx.x == 0)
        *sum += total;
}

void cuda_sumsq(struct device *d, double *sum, enum dtype dt, const void *x, int64_t elems)
{
    cudaStream_t s = cuda_compute(d);
    int count = (int)min_i64(ceil_div(elems, SUM_TILE), CUDA_PARTIALS);
    double *partial = cuda_state(d)->partial;
    if (elems == 0)
        return;
    if (dt == DTYPE_BF16)
        LAUNCH(sum_squares<bf16>, count, SUM_THREADS, 0, s, partial, (const bf16 *)x, elems,
               phase((const bf16 *)x, 4) == 0);
    else
        LAUNCH(sum_squares<float>, count, SUM_THREADS, 0, s, partial, (const float *)x, elems,
               aligned16(x));
    LAUNCH(add_partials, 1, CUDA_PARTIALS, 0, s, sum, (const double *)partial, count);
}

/* *sum = the sum of x, added from the last to the first.  The block reads x together, and one
 * thread adds. */
static __global__ void __launch_bounds__(SUM_THREADS)
    add_from_last(double *sum, const double *x, int count)
{
    __shared__ double part[SUM_THREADS];
    double total = 0;
    for (int left = count; left > 0; left -= SUM_THREADS) {
        int at = left - 1 - (int)threadIdx.x, filled = left < SUM_THREADS ? left : SUM_THREADS;
        part[threadIdx.x] = at >= 0 ? x[at] : 0.0;
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < filled; i++)
            total += part[i];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *sum = total;
}

void cuda_sum_from_last(struct device *d, double *sum, const double *x, int count)
{
    LAUNCH(add_from_last, 1, SUM_THREADS, 0, cuda_compute(d), sum, x, count);
}

/* Added to the norm before it divides, as PyTorch's clip_grad_norm_() does. */
static constexpr double CLIP_EPSILON = 1e-6;

static __global__ void find_factor(double *factor, const double *targets, const double *squares,
                                   const double *loss_scale, double nominal, double clip)
{
    double mean = *targets > 0 ? nominal / *targets / *loss_scale : 0;
    double norm = fma(sqrt(*squares), mean, CLIP_EPSILON);
    double clipped = clip > 0 && norm > clip ? clip / norm : 1;
    *factor = isfinite(*squares) ? mean * clipped : (double)NAN;
}

void cuda_update_factor(struct device *d, double *factor, const double *targets,
                        const double *squares, const double *loss_scale, double nominal,
                        double clip)
{
    cudaStream_t s = cuda_compute(d);
    LAUNCH(find_factor, 1, 1, 0, s, factor, targets, squares, loss_scale, nominal, clip);
}

/* Steps */

/* A step of a rule, for launch_flat() (flat.cuh), which calls read() and write() with n elements.
 */
template <typename Rule, typename G, typename C> struct step_op {
    Rule rule;
    const double *factor;    /* of the gradient; NaN: the step changes nothing */
    float *own[Rule::OWNED]; /* p and the states of the rule, which are replaced */
    const G *g;              /* the gradient */
    C *copy;                 /* of the new p, rounded; NULL: none */

    template <int n> struct group {
        raw<float, n> own[Rule::OWNED];
        raw<G, n> g;
        float factor;
    };

    template <int n> __device__ __forceinline__ group<n> read(int64_t at) const
    {
        group<n> e;
        e.factor = (float)*factor;
#pragma unroll
        for (int k = 0; k < Rule::OWNED; k++)
            e.own[k] = load_once<raw<float, n>>(own[k] + at);
        e.g = load_once<raw<G, n>>(g + at);
        return e;
    }

    template <int n> __device__ __forceinline__ void write(const group<n> &e, int64_t at) const
    {
        float now[Rule::OWNED][n], grad[n];
        raw<float, n> out;
        if (isnan(e.factor))
            return;
        widen(grad, e.g);
#pragma unroll
        for (int k = 0; k < Rule::OWNED; k++)
            widen(now[k], e.own[k]);
        rule.step(now, grad, e.factor);
#pragma unroll
        for (int k = 0; k < Rule::OWNED; k++) {
            narrow(out, now[k]);
            store_once(own[k] + at, out);
        }
        if (copy) {
            raw<C, n> rounded;
            narrow(rounded, now[0]);
            store(copy + at, rounded);
        }
    }
};

/* Launch a step.  own: p and the states of the rule. */
template <typename Rule, typename G>
static void step_any(struct device *d, const Rule &rule, const double *factor,
                     float *const (&own)[Rule::OWNED], const G *g, enum dtype dt_copy, void *copy,
                     int64_t elems)
{
    int shift = phase(own[0], 4);
    bool alike = phase(g, 4) == shift && (!copy || phase((bf16 *)copy, 4) == shift);
    step_op<Rule, G, bf16> op = {rule, factor, {}, g, (bf16 *)copy};
    step_op<Rule, G, fp16> half = {rule, factor, {}, g, (fp16 *)copy};
    for (int k = 0; k < Rule::OWNED; k++) {
        op.own[k] = half.own[k] = own[k];
        alike = alike && phase(own[k], 4) == shift;
    }
    if (dt_copy == DTYPE_F16)
        launch_flat<2, 4>(cuda_compute(d), half, elems, shift, alike);
    else
        launch_flat<2, 4>(cuda_compute(d), op, elems, shift, alike);
}

/* The rules, with the same operations in the same order as in cpu/optimizer.c and cpu/muon.c */

struct adamw_step {
    enum { OWNED = 3 };
    struct adamw a;
    template <int n>
    __device__ __forceinline__ void step(float (&own)[3][n], const float (&g)[n],
                                         float factor) const
    {
        const adamw_constants constants = adamw_constants_of(a);
#pragma unroll
        for (int i = 0; i < n; i++)
            adamw_element(own[0][i], own[1][i], own[2][i], g[i], factor, a, constants);
    }
};

void cuda_adamw(struct device *d, const struct adamw *a, const double *factor,
                const struct adamw_state *s, const struct rounding *r, int64_t elems)
{
    float *p = (float *)s->p, *m = (float *)s->m, *v = (float *)s->v;
    if (s->dt_m == DTYPE_U8)
        cuda_adamw_8bit(d, a, factor, s, r, elems);
    else if (adamw_rounds(s->dt_p, s->dt_m))
        cuda_adamw_bf16(d, a, factor, s, r, elems);
    else if (s->dt_g == DTYPE_BF16)
        step_any(d, adamw_step{*a}, factor, {p, m, v}, (const bf16 *)s->g, s->dt_copy, s->copy,
                 elems);
    else
        step_any(d, adamw_step{*a}, factor, {p, m, v}, (const float *)s->g, s->dt_copy, s->copy,
                 elems);
}

struct sgd_step {
    enum { OWNED = 2 };
    struct sgd s;
    template <int n>
    __device__ __forceinline__ void step(float (&own)[2][n], const float (&g)[n],
                                         float factor) const
    {
        float(&p)[n] = own[0], (&v)[n] = own[1];
#pragma unroll
        for (int i = 0; i < n; i++) {
            v[i] = fmaf(v[i], s.momentum, fmaf(g[i], factor, p[i] * s.weight_decay));
            p[i] = fmaf(-s.lr, v[i], p[i]);
        }
    }
};

void cuda_sgd(struct device *d, const struct sgd *rule, const double *factor, float *p, float *v,
              enum dtype dt_g, const void *g, enum dtype dt_copy, void *copy, int64_t elems)
{
    if (dt_g == DTYPE_BF16)
        step_any(d, sgd_step{*rule}, factor, {p, v}, (const bf16 *)g, dt_copy, copy, elems);
    else
        step_any(d, sgd_step{*rule}, factor, {p, v}, (const float *)g, dt_copy, copy, elems);
}

struct muon_step {
    enum { OWNED = 1 };
    struct muon rule;
    template <int n>
    __device__ __forceinline__ void step(float (&own)[1][n], const float (&u)[n], float) const
    {
        const float keep = fmaf(-rule.lr, rule.weight_decay, 1.0f);
#pragma unroll
        for (int i = 0; i < n; i++)
            own[0][i] = fmaf(own[0][i], keep, -(rule.adjusted_lr * u[i]));
    }
};

void cuda_muon(struct device *d, const struct muon *rule, const double *factor, float *p,
               const float *u, enum dtype dt_copy, void *copy, int64_t elems)
{
    step_any(d, muon_step{*rule}, factor, {p}, u, dt_copy, copy, elems);
}
