/* experts_gemm.cuh - which tile of which expert's product a thread block makes.
 *
 * Only the device knows how many rows each expert has.  So a launch has as many blocks as there can
 * be tiles of rows at most: `slots` rows of up to `experts` experts, each of which may end in the
 * middle of a tile.  Each warp of a block finds the block's expert by itself, from the numbers of
 * tiles of all experts; blocks after the last tile end.
 *
 *   rows of experts   A 130, B 0, C 50     tiles of 128   A0 A1 C0, of at most 3 + 1
 *
 * Blocks that run at the same time work on neighbouring tiles: BAND tiles of rows, then the same
 * rows of the next tile of columns, so that they read the same few rows of a and of b from the L2.
 */
#ifndef TRIREME_DEVICE_CUDA_EXPERTS_GEMM_CUH
#define TRIREME_DEVICE_CUDA_EXPERTS_GEMM_CUH

#include "base/round.h"
#include "device/cuda/reduce.cuh"

enum { EXPERTS_BAND = 16 };

/* A call; tile: rows and columns of a tile; down, across: tiles of rows at most, and of columns: of
 * all experts or, in weight_grad, of each. */
struct experts_call {
    struct experts_gemm g;
    void *c;
    const void *a, *b;
    const int32_t *first;
    int tile, down, across;
};

/* The product of one expert and the tile's place in it; expert -1: there is none. */
struct experts_part {
    int expert;
    int64_t row, col; /* of the tile's first element */
    struct gemm g;
};

/* Return how many tiles of rows there are at most. */
static inline int64_t experts_most_tiles(const struct experts_gemm *g, int64_t tile)
{
    const int64_t experts = min_i64(g->experts, g->slots);
    return experts + (g->slots - experts) / tile;
}

static inline struct experts_call experts_call_of(const struct experts_gemm *g, void *c,
                                                  const void *a, const void *b,
                                                  const int32_t *first, int tile)
{
    const bool of_weights = g->pass == EXPERTS_WEIGHT_GRAD;
    const int64_t columns = g->pass == EXPERTS_FORWARD ? g->out : g->in;
    const int64_t rows = of_weights ? ceil_div(g->out, tile) : experts_most_tiles(g, tile);
    return {*g, c, a, b, first, tile, (int)rows, (int)ceil_div(columns, tile)};
}

static inline int64_t experts_blocks(const struct experts_call *call)
{
    const int64_t tiles = (int64_t)call->down * call->across;
    return call->g.pass == EXPERTS_WEIGHT_GRAD ? tiles * call->g.experts : tiles;
}

static __device__ __forceinline__ int experts_tiles(const struct experts_call &call, int expert)
{
    return expert < call.g.experts
               ? (call.first[expert + 1] - call.first[expert] + call.tile - 1) / call.tile
               : 0;
}

/* Return the lane at whose numbers the sum over lanes, which have `own` each, passes `at`, or -1;
 * takes from `at` the sum over the lanes before. */
static __device__ __forceinline__ int experts_lane(int own, int &at)
{
    const int sum = warp_sum_so_far(own);
    const unsigned passed = __ballot_sync(ALL_LANES, sum > at);
    const int found = __ffs((int)passed) - 1;
    const int before = __shfl_sync(ALL_LANES, sum - own, found & 31);
    at -= found < 0 ? 0 : before;
    return found;
}

/* Return the expert of a tile of rows, and in `tile` which of the expert's tiles it is; -1: there
 * are not so many.  A lane counts the tiles of some consecutive experts; then those of the lane
 * that has the tile are looked at one by one.  A whole warp calls. */
static __device__ __forceinline__ int experts_find(const struct experts_call &call, int &tile)
{
    const int each = ((int)call.g.experts + 31) / 32, lane = (int)threadIdx.x % 32;
    int own = 0;
#pragma unroll 4
    for (int i = 0; i < each; i++)
        own += experts_tiles(call, lane * each + i);
    const int found = experts_lane(own, tile);
    if (found < 0)
        return -1;
    for (int begin = 0;; begin += 32) {
        const int i = begin + lane;
        const int at = experts_lane(i < each ? experts_tiles(call, found * each + i) : 0, tile);
        if (at >= 0)
            return found * each + begin + at;
    }
}

/* Return the address of element `at` of x, elements of `bytes` bytes. */
static __device__ __forceinline__ const void *experts_at(const void *x, int64_t at, int bytes)
{
    return (const char *)x + at * bytes;
}

/* Describe the product of an expert; bytes: of an element of a and b. */
template <enum experts_pass pass>
static __device__ __forceinline__ struct gemm experts_product(const struct experts_call &call,
                                                              int expert, int bytes)
{
    const int64_t first = call.first[expert], rows = call.first[expert + 1] - first;
    const int64_t in = call.g.in, out = call.g.out, weight = expert * out * in;
    constexpr bool forward = pass == EXPERTS_FORWARD, of_weights = pass == EXPERTS_WEIGHT_GRAD;
    struct gemm g = {};
    g.lda = forward ? in : out;
    g.ldb = in;
    g.ldc = forward ? out : in;
    g.trans_a = of_weights;
    g.trans_b = forward;
    g.m = of_weights ? out : rows;
    g.n = g.ldc;
    g.k = of_weights ? rows : g.lda;
    g.a = experts_at(call.a, first * g.lda, bytes);
    g.b = experts_at(call.b, of_weights ? first * in : weight, bytes);
    g.c = (void *)experts_at(call.c, of_weights ? weight : first * g.ldc,
                             of_weights ? (int)sizeof(float) : bytes);
    g.addend = of_weights && call.g.accumulate ? g.c : NULL;
    return g;
}

/* Return what this block is to do.  All threads of the block call. */
template <enum experts_pass pass>
static __device__ __forceinline__ struct experts_part experts_part_of(
    const struct experts_call &call, int bytes)
{
    const unsigned all = (unsigned)call.down * (unsigned)call.across;
    const unsigned index = pass == EXPERTS_WEIGHT_GRAD ? blockIdx.x % all : blockIdx.x;
    const int band = (int)(index / (EXPERTS_BAND * (unsigned)call.across)) * EXPERTS_BAND;
    const int rest = (int)(index % (EXPERTS_BAND * (unsigned)call.across));
    const int high = call.down - band < EXPERTS_BAND ? call.down - band : EXPERTS_BAND;
    int tile = band + rest % high;
    struct experts_part part = {};
    part.expert = pass == EXPERTS_WEIGHT_GRAD ? (int)(blockIdx.x / all) : experts_find(call, tile);
    if (part.expert < 0)
        return part;
    part.row = (int64_t)tile * call.tile;
    part.col = (int64_t)(rest / high) * call.tile;
    part.g = experts_product<pass>(call, part.expert, bytes);
    return part;
}

/* Call f with the pass as a type. */
template <enum experts_pass which> struct experts_pass_type {
    static constexpr enum experts_pass pass = which;
};

template <typename F> static inline void by_pass(enum experts_pass pass, F f)
{
    if (pass == EXPERTS_FORWARD)
        f(experts_pass_type<EXPERTS_FORWARD>());
    else if (pass == EXPERTS_INPUT_GRAD)
        f(experts_pass_type<EXPERTS_INPUT_GRAD>());
    else
        f(experts_pass_type<EXPERTS_WEIGHT_GRAD>());
}

#endif
