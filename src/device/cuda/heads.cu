/* heads.cu - pack a rank's query heads, and the key and value heads that they read, for attention;
 * and put the rows of ranks that share sequences in order.
 *
 * Least memory traffic: the packed heads are read from q and kv once, and written once.  A block
 * takes a row, a thread 16 bytes of it at a time.
 */
#include "device/cuda/pack.cuh"

/* Heads: own, of the model's keys, and of the packed keys; `each`: own ones that read a packed key.
 * dim: accesses to a head. */
struct heads_args {
    int heads, kv_heads, packed, each, first, group, dim;
};

/* y: [heads | packed keys | packed values] of each row */
template <typename R>
__global__ void __launch_bounds__(256) pack_rows(R *y, const R *q, const R *kv, heads_args a)
{
    const int queries = a.heads * a.dim, all = queries + 2 * a.packed * a.dim;
    y += (int64_t)blockIdx.x * all;
    q += (int64_t)blockIdx.x * queries;
    kv += (int64_t)blockIdx.x * 2 * a.kv_heads * a.dim;
    for (int at = (int)threadIdx.x; at < all; at += (int)blockDim.x) {
        int place = at / a.dim - a.heads, value = place >= a.packed;
        int source = (a.first + (place - value * a.packed) * a.each) / a.group + value * a.kv_heads;
        store(y + at, load<R>(at < queries ? q + at : kv + source * a.dim + at % a.dim));
    }
}

/* Places before those of key head k: pack_heads_before(). */
static __device__ __forceinline__ int places_before(const heads_args &a, int k)
{
    const int heads = k * a.group - a.first, places = heads > 0 ? (heads + a.each - 1) / a.each : 0;
    return places < a.packed ? places : a.packed;
}

template <typename T, int n>
__global__ void __launch_bounds__(256) unpack_rows(T *dq, T *dkv, const T *dy, heads_args a)
{
    using R = raw<T, n>;
    const int queries = a.heads * a.dim, keys = a.kv_heads * a.dim;
    dy += (int64_t)blockIdx.x * (queries + 2 * a.packed * a.dim) * n;
    dq += (int64_t)blockIdx.x * queries * n;
    dkv += (int64_t)blockIdx.x * 2 * keys * n;
    for (int at = (int)threadIdx.x; at < queries; at += (int)blockDim.x)
        store(dq + at * n, load<R>(dy + at * n));
    for (int at = (int)threadIdx.x; at < 2 * keys; at += (int)blockDim.x) {
        int value = at >= keys, k = at / a.dim - value * a.kv_heads;
        const T *from = dy + ((a.heads + value * a.packed) * a.dim + at % a.dim) * n;
        float sum[n] = {}, more[n];
        R bits;
        for (int place = places_before(a, k); place < places_before(a, k + 1); place++) {
            widen(more, load<R>(from + place * a.dim * n));
#pragma unroll
            for (int i = 0; i < n; i++)
                sum[i] += more[i];
        }
        narrow(bits, sum);
        store(dkv + at * n, bits);
    }
}

static heads_args args_of(const struct pack_heads *p, int n)
{
    return {(int)p->heads, (int)p->kv_heads, (int)p->packed,      (int)(p->heads / p->packed),
            (int)p->first, (int)p->group,    (int)p->head_dim / n};
}

static int threads_of(const struct pack_heads *p, int n)
{
    return (int)min_i64(256, whole_warps((int)((p->heads + 2 * p->packed) * p->head_dim / n)));
}

template <typename R>
static void pack(cudaStream_t s, const struct pack_heads *p, int n, void *y, const void *q,
                 const void *kv)
{
    LAUNCH(pack_rows<R>, (unsigned)p->rows, threads_of(p, n), 0, s, (R *)y, (const R *)q,
           (const R *)kv, args_of(p, n));
}

void cuda_pack_heads(struct device *d, const struct pack_heads *p, void *y, const void *q,
                     const void *kv)
{
    cudaStream_t s = cuda_compute(d);
    int in_access = p->dt == DTYPE_F32 ? 4 : 8;
    if (p->rows == 0)
        return;
    if (p->head_dim % in_access == 0 && aligned16(y) && aligned16(q) && aligned16(kv))
        pack<uint4>(s, p, in_access, y, q, kv);
    else if (p->dt != DTYPE_F32)
        pack<uint16_t>(s, p, 1, y, q, kv);
    else
        pack<float>(s, p, 1, y, q, kv);
}

void cuda_pack_heads_backward(struct device *d, const struct pack_heads *p, void *dq, void *dkv,
                              const void *dy)
{
    cudaStream_t s = cuda_compute(d);
    if (p->rows == 0)
        return;
    by_type(p->dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        if (p->head_dim % n == 0 && aligned16(dq) && aligned16(dkv) && aligned16(dy))
            LAUNCH((unpack_rows<T, n>), (unsigned)p->rows, threads_of(p, n), 0, s, (T *)dq,
                   (T *)dkv, (const T *)dy, args_of(p, n));
        else
            LAUNCH((unpack_rows<T, 1>), (unsigned)p->rows, threads_of(p, 1), 0, s, (T *)dq,
                   (T *)dkv, (const T *)dy, args_of(p, 1));
    });
}

/* Copy chunks to another order.  A block has the same part of every gridDim.y-th chunk; in each a
 * thread copies ORDER_WORDS words of type R.  words: of a chunk. */
enum { ORDER_THREADS = 256, ORDER_WORDS = 4 };

template <typename R>
__global__ void __launch_bounds__(ORDER_THREADS)
    order_words(R *y, const R *x, struct order_chunks o, int64_t words)
{
    const int64_t all = 2 * o.ranks;
    const int64_t begin = (int64_t)blockIdx.x * ORDER_THREADS * ORDER_WORDS + threadIdx.x;
    for (int64_t in_order = blockIdx.y; in_order < all * o.batch; in_order += gridDim.y) {
        const int64_t k = in_order % all, second = k >= o.ranks;
        const int64_t rank = second ? all - 1 - k : k; /* order_chunks_source() */
        const int64_t gathered = 2 * (rank * o.batch + in_order / all) + second;
        const R *from = x + (o.inverse ? in_order : gathered) * words;
        R *to = y + (o.inverse ? gathered : in_order) * words;
        for (int64_t i = 0, at = begin; i < ORDER_WORDS; i++, at += ORDER_THREADS)
            if (at < words)
                store(to + at, load<R>(from + at));
    }
}

template <typename R>
static void order(cudaStream_t s, const struct order_chunks *o, void *y, const void *x)
{
    int64_t words = (int64_t)(o->chunk_bytes / sizeof(R)), each = ORDER_THREADS * ORDER_WORDS;
    int64_t chunks = 2 * o->ranks * o->batch;
    dim3 grid((unsigned)ceil_div(words, each), (unsigned)min_i64(chunks, 65535));
    LAUNCH(order_words<R>, grid, ORDER_THREADS, 0, s, (R *)y, (const R *)x, *o, words);
}

void cuda_order_chunks(struct device *d, const struct order_chunks *o, void *y, const void *x)
{
    cudaStream_t s = cuda_compute(d);
    if (!o->batch || !o->chunk_bytes)
        return;
    if (o->chunk_bytes % 16 == 0 && aligned16(y) && aligned16(x))
        order<uint4>(s, o, y, x);
    else if (o->chunk_bytes % 4 == 0)
        order<float>(s, o, y, x);
    else
        order<uint16_t>(s, o, y, x);
}
