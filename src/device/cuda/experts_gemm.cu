/* experts_gemm.cu - the products of all experts, each of its own rows with its own matrix.
 *
 * experts_gemm.cuh says which tile a block makes.  In 16 bits, and where rows of all matrices begin
 * at multiples of 16 bytes, it does so on tensor cores: 128 x 128 elements by four warps, each 64 x
 * 64 in registers.  Slices 64 deep of a and b come to shared memory by asynchronous copies, into
 * three buffers, one after the other:
 *
 *   buffer            0   1   2        copies of slices t + 1 and t + 2 are under way while warps
 *   slice        t  t+1 t+2        multiply slice t; a barrier a slice says that all have done t
 *
 * Of a slice, which has four steps of depth 16, a warp loads the matrices of the next step before
 * it multiplies those of this one.  Tiles are permuted as tiles.cuh says: those of an operand whose
 * rows run along k are [128][64], others [64][128] and transposed on their way to registers.  Rows,
 * columns and depths beyond the product are zeros, copied from nowhere.
 *
 * Limits, by count: a step of a warp has 8 loads of 512 bytes from shared memory for 32 products of
 * 16 x 8 x 16, and the copies write 64 bytes a product beside: 48 of 51 clocks in which Hopper's
 * tensor cores do them by mma.sync.  That instruction does not reach more than some 62 % of their
 * rate in any kernel.  wgmma does, and takes operands from shared memory once for four warps; it
 * would be the next step.  Unmeasured.
 *
 * Anything else is multiplied by gemm_plain.cuh.  Each element is one sum in the order of k either
 * way, so that results are reproducible.
 */
#include "device/cuda/experts_gemm.cuh"
#include "device/cuda/gemm_plain.cuh"
#include "device/cuda/tiles.cuh"

constexpr int TILE = 128, DEPTH = 64, STAGES = 3; /* of a block; of a slice; buffers */
constexpr int WARP = 64, THREADS = 128;           /* rows and columns of a warp */
constexpr int STEPS = DEPTH / 16;
constexpr int TALL = WARP / 16;       /* products of a warp along rows */
constexpr int PAIRS = WARP / 16;      /* the same along columns, two by two */
constexpr int OPERAND = TILE * DEPTH; /* elements of a slice of a, or of b */
constexpr size_t SHARED_BYTES = (size_t)STAGES * 2 * OPERAND * sizeof(uint16_t);

/* One operand of a block: `source` is where this thread copies from next; along: rows of a' or
 * columns of b' from the tile's first on.  by_k: the rows of its memory run along these, a row for
 * each k; else along k. */
template <bool by_k> struct operand {
    static constexpr int dim = by_k ? TILE : DEPTH, rows = by_k ? DEPTH : TILE;
    const uint16_t *source;
    int ld, along;

    __device__ __forceinline__ operand(const void *x, int64_t row, int64_t first, int64_t count)
    {
        const uint16_t *from = (const uint16_t *)x + (by_k ? first : first * row);
        ld = (int)row;
        along = (int)(count - first < TILE ? count - first : TILE);
        source = tile_source<dim, THREADS>(from, ld);
    }

    /* Begin to copy a slice, of which `left` more depths exist. */
    __device__ __forceinline__ void copy(uint16_t *tile, int left)
    {
        tile_load<dim, rows, THREADS>(tile, source, ld, by_k ? left : along, by_k ? along : left);
        source += by_k ? (int64_t)DEPTH * ld : DEPTH;
    }
};

/* Load what a warp multiplies in a step, of 64 rows of a' from `from` on. */
template <bool by_k>
static __device__ __forceinline__ void load_left(uint32_t (&left)[TALL][4], const uint16_t *tile,
                                                 unsigned from, int step)
{
    const unsigned lane = lane_id();
#pragma unroll
    for (int i = 0; i < TALL; i++) {
        if constexpr (by_k)
            load_matrices_transposed(
                left[i],
                tile + from +
                    tile_at<TILE>(16 * step + lane / 16 * 8 + lane % 8, lane / 8 % 2, 2 * i));
        else
            load_matrices(left[i],
                          tile + tile_at<DEPTH>(from + 16 * i + lane % 16, lane / 16, 2 * step));
    }
}

/* The same of 64 columns of b'. */
template <bool by_k>
static __device__ __forceinline__ void load_right(uint32_t (&right)[PAIRS][4], const uint16_t *tile,
                                                  unsigned from, int step)
{
    const unsigned lane = lane_id();
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        if constexpr (by_k)
            load_matrices_transposed(
                right[i], tile + from + tile_at<TILE>(16 * step + lane % 16, lane / 16, 2 * i));
        else
            load_matrices(right[i], tile + tile_at<DEPTH>(from + 16 * i + lane / 16 * 8 + lane % 8,
                                                          lane / 8 % 2, 2 * step));
    }
}

/* c += the product of a slice; row and col: of the warp in the tile. */
template <class E, bool a_by_k, bool b_by_k>
static __device__ __forceinline__ void multiply_slice(struct warp_sums<TALL, WARP> &c,
                                                      const uint16_t *slice, unsigned row,
                                                      unsigned col)
{
    uint32_t left[2][TALL][4], right[2][PAIRS][4];
    load_left<a_by_k>(left[0], slice, row, 0);
    load_right<b_by_k>(right[0], slice + OPERAND, col, 0);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int now = step % 2, then = 1 - now;
        if (step + 1 < STEPS) {
            load_left<a_by_k>(left[then], slice, row, step + 1);
            load_right<b_by_k>(right[then], slice + OPERAND, col, step + 1);
        }
#pragma unroll
        for (int m = 0; m < TALL; m++)
#pragma unroll
            for (int i = 0; i < PAIRS; i++) {
                mma(E(), c.v[m][2 * i], left[now][m], right[now][i]);
                mma(E(), c.v[m][2 * i + 1], left[now][m], right[now][i] + 2);
            }
    }
}

/* Compute a block's tile; row and col: of the warp in it. */
template <class E, bool a_by_k, bool b_by_k>
static __device__ __forceinline__ void multiply_tile(struct warp_sums<TALL, WARP> &c,
                                                     const struct experts_part &part,
                                                     uint16_t *shared, unsigned row, unsigned col)
{
    operand<a_by_k> a(part.g.a, part.g.lda, part.row, part.g.m);
    operand<b_by_k> b(part.g.b, part.g.ldb, part.col, part.g.n);
    const int slices = (int)((part.g.k + DEPTH - 1) / DEPTH);
    int to_copy = (int)part.g.k;
    auto copy_to = [&](int buffer) {
        if (to_copy > 0) {
            a.copy(shared + buffer * 2 * OPERAND, to_copy);
            b.copy(shared + buffer * 2 * OPERAND + OPERAND, to_copy);
        }
        to_copy -= DEPTH;
        async_commit();
    };
    c.clear();
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        copy_to(i);
    int next = STAGES - 1, now = 0;
#pragma unroll 1
    for (int i = 0; i < slices; i++) {
        async_wait<STAGES - 2>();
        __syncthreads();
        copy_to(next);
        multiply_slice<E, a_by_k, b_by_k>(c, shared + now * 2 * OPERAND, row, col);
        next = next + 1 < STAGES ? next + 1 : 0;
        now = now + 1 < STAGES ? now + 1 : 0;
    }
}

/* Store sums, or add them, to fp32; c.v's elements lie in pairs of 8 bytes, four in a sector. */
static __device__ __forceinline__ void store_weights(float *to, int64_t ld,
                                                     const struct warp_sums<TALL, WARP> &c,
                                                     int rows, int cols, bool accumulate)
{
    const int lane = (int)lane_id();
#pragma unroll
    for (int m = 0; m < TALL; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = 16 * m + lane / 4 + 8 * half;
#pragma unroll
            for (int i = 0; i < WARP / 8; i++) {
                const int col = 8 * i + lane % 4 * 2;
                float2 *pair = aligned<float2>(to + row * ld + col);
                const float2 sum = make_float2(c.v[m][i][2 * half], c.v[m][i][2 * half + 1]);
                if (row >= rows || col >= cols)
                    continue;
                if (accumulate) {
                    const float2 old = *pair;
                    *pair = make_float2(old.x + sum.x, old.y + sum.y);
                } else {
                    *pair = sum;
                }
            }
        }
}

template <class E, enum experts_pass pass>
__global__ void __launch_bounds__(THREADS, 2) multiply(struct experts_call call)
{
    DYNAMIC_SHARED(uint16_t, shared); /* [STAGES][2][OPERAND] */
    constexpr bool of_weights = pass == EXPERTS_WEIGHT_GRAD;
    const struct experts_part part = experts_part_of<pass>(call, (int)sizeof(uint16_t));
    struct warp_sums<TALL, WARP> c;
    if (part.expert < 0 || (part.g.k == 0 && part.g.addend))
        return;
    const int warp = warp_id(), row = warp / 2 * WARP, col = warp % 2 * WARP;
    multiply_tile<E, of_weights, pass != EXPERTS_FORWARD>(c, part, shared, (unsigned)row,
                                                          (unsigned)col);
    const int64_t rows = part.g.m - part.row - row, cols = part.g.n - part.col - col;
    const int64_t at = (part.row + row) * part.g.ldc + part.col + col;
    if constexpr (of_weights) {
        store_weights((float *)part.g.c + at, part.g.ldc, c, (int)rows, (int)cols,
                      part.g.addend != NULL);
    } else {
        __syncthreads(); /* no warp reads the last slice any more */
        tile_store<E, WARP>((uint16_t *)part.g.c + at, (int)part.g.ldc, c, 1.0f,
                            shared + warp * WARP * WARP, 0, (int)rows, (int)cols);
    }
}

template <typename T, enum experts_pass pass>
__global__ void __launch_bounds__(PLAIN_THREADS) multiply_plainly(struct experts_call call)
{
    const struct experts_part part = experts_part_of<pass>(call, (int)sizeof(T));
    if (part.expert < 0)
        return;
    if constexpr (pass == EXPERTS_WEIGHT_GRAD)
        plain_product<T, float>(part.g, part.row, part.col);
    else
        plain_product<T, T>(part.g, part.row, part.col);
}

template <class E> static void launch_multiply(cudaStream_t s, const struct experts_call &call)
{
    by_pass(call.g.pass, [&](auto type) {
        constexpr enum experts_pass pass = decltype(type)::pass;
        ALLOW_SHARED((multiply<E, pass>), SHARED_BYTES);
        LAUNCH((multiply<E, pass>), (unsigned)experts_blocks(&call), THREADS, SHARED_BYTES, s,
               call);
    });
}

static void launch_plainly(cudaStream_t s, const struct experts_call &call)
{
    by_type(call.g.dt, [&](auto format) {
        by_pass(call.g.pass, [&](auto type) {
            using T = decltype(format);
            constexpr enum experts_pass pass = decltype(type)::pass;
            LAUNCH((multiply_plainly<T, pass>), (unsigned)experts_blocks(&call), PLAIN_THREADS, 0,
                   s, call);
        });
    });
}

int cuda_experts_gemm(struct device *d, const struct experts_gemm *g, void *c, const void *a,
                      const void *b, const int32_t *first, void *scratch, struct error *err)
{
    cudaStream_t s = cuda_compute(d);
    const bool in_pieces =
        g->in % 8 == 0 && g->out % 8 == 0 && aligned16(a) && aligned16(b) && aligned16(c);
    const bool on_tensor_cores = g->dt != DTYPE_F32 && in_pieces;
    const struct experts_call call =
        experts_call_of(g, c, a, b, first, on_tensor_cores ? TILE : PLAIN_TILE);
    if (experts_blocks(&call) == 0)
        return 0;
    if (!on_tensor_cores)
        launch_plainly(s, call);
    else if (g->dt == DTYPE_BF16)
        launch_multiply<bf16>(s, call);
    else
        launch_multiply<fp16>(s, call);
    return 0;
}
