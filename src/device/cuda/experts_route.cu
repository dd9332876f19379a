/* experts_route.cu - which experts a router chooses for each row, and where their slots lie.
 *
 * route is a counting sort of the chosen experts, which keeps the order of rows.  Rows are divided
 * into up to SPANS_MOST spans of as many rows, a block each:
 *
 *   choose_experts   a warp for each row finds the experts of the largest logits
 *   count_slots      how many slots each expert has in each span
 *   place_slots      a block adds up these counts: in all spans, for where each expert begins, and
 *                    in the spans before its own, for where its first slot of each expert lies
 *   weigh_slots      a warp for each row makes the weights, and writes the row of each slot
 *
 * Within a span each warp has some consecutive slots, of which it takes 32 at a time.  A lane finds
 * by ballots which other lanes have its expert: as many as stand before it, so far after the
 * expert's next slot is its own.  Nothing is added atomically, and no result depends on which block
 * is first.  The counts are in the memory of struct routes's `row`, which only the last kernel
 * writes, so that a span has at least as many slots as there are experts.
 *
 * Memory traffic: logits once, and again from the L2; else some numbers for each slot.  The time is
 * that of four kernels which each do little.
 *
 * route_backward takes a warp for each row, which makes the gradient of all experts in shared
 * memory, and then what the chosen ones have besides.  The balance needs the number of a sequence's
 * slots at each expert.  An expert's slots are in the order of rows, so that two binary searches
 * find where those of the sequence begin and end; those of rows that count are counted one by one.
 */
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

enum { CHOSEN_EACH = ROUTE_MOST_CHOSEN / 32 }; /* experts of a row, for each lane */
enum { WARPS = 8, THREADS = 32 * WARPS };
enum { SPANS_MOST = 128, SPAN_LEAST = 32 }; /* spans, all at once; rows of one */
enum { AHEAD = 8 };                         /* times 32 slots, read before the first is used */

static __device__ __forceinline__ int lane_of(void)
{
    return (int)threadIdx.x % 32;
}

static __device__ __forceinline__ int warp_of(void)
{
    return (int)threadIdx.x / 32;
}

/* ---- the choice ---- */

/* Return a number that is larger for a larger logit, the same for both zeros, 1 for NaN. */
static __device__ __forceinline__ uint32_t order_of(float logit)
{
    const uint32_t bits = __float_as_uint(logit + 0.0f);
    if (isnan(logit))
        return 1;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ uint32_t warp_largest(uint32_t value)
{
#pragma unroll
    for (int distance = 16; distance; distance /= 2) {
        const uint32_t other = __shfl_xor_sync(ALL_LANES, value, distance);
        value = other > value ? other : value;
    }
    return value;
}

/* A lane has `each` consecutive experts, so that of equal logits the lowest lane has the lowest
 * expert.  An expert that was chosen, or is none, has order 0. */
template <int each>
__global__ void __launch_bounds__(THREADS)
    choose_experts(int32_t *expert, const float *logits, int64_t rows, int experts, int chosen)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + warp_of();
    const int first = lane_of() * each;
    uint32_t order[each];
    if (row >= rows)
        return;
#pragma unroll
    for (int i = 0; i < each; i++)
        order[i] = first + i < experts ? order_of(logits[row * experts + first + i]) : 0;
    for (int j = 0; j < chosen; j++) {
        uint32_t largest = 0;
        int at = 0;
#pragma unroll
        for (int i = 0; i < each; i++)
            if (order[i] > largest) {
                largest = order[i];
                at = i;
            }
        const unsigned equal = __ballot_sync(ALL_LANES, largest == warp_largest(largest));
        const bool is_mine = __ffs((int)equal) - 1 == lane_of();
        if (is_mine)
            expert[row * chosen + j] = first + at;
#pragma unroll
        for (int i = 0; i < each; i++)
            order[i] = is_mine && i == at ? 0 : order[i];
    }
}

static void launch_choice(cudaStream_t s, const struct route *r, int32_t *expert,
                          const float *logits)
{
    const unsigned blocks = (unsigned)ceil_div(r->rows, WARPS);
    const int experts = (int)r->experts, chosen = (int)r->chosen;
#define CHOOSE(each)                                                                          \
    if (experts <= 32 * each) {                                                               \
        LAUNCH(choose_experts<each>, blocks, THREADS, 0, s, expert, logits, r->rows, experts, \
               chosen);                                                                       \
        return;                                                                               \
    }
    CHOOSE(1)
    CHOOSE(2)
    CHOOSE(4)
    CHOOSE(8)
    CHOOSE(16)
    CHOOSE(32)
#undef CHOOSE
}

/* ---- the sort ---- */

/* Spans of `size` slots; the last has the rest, too. */
struct spans {
    const int32_t *expert; /* of struct routes */
    int64_t slots, size;
    int count, experts, bits; /* bits: that the number of an expert has */
};

static struct spans spans_of(const struct route *r, const int32_t *expert)
{
    const int64_t rows = max_i64(max_i64(ceil_div(r->rows, SPANS_MOST), SPAN_LEAST),
                                 ceil_div(r->experts, r->chosen));
    struct spans s = {expert,           r->rows * r->chosen,
                      rows * r->chosen, (int)max_i64(r->rows / rows, 1),
                      (int)r->experts,  0};
    while (r->experts > (int64_t)1 << s.bits)
        s.bits++;
    return s;
}

/* Return the slots of a warp. */
struct stretch {
    int64_t begin, end;
};

static __device__ __forceinline__ struct stretch stretch_of(const struct spans &s)
{
    const int64_t begin = blockIdx.x * s.size;
    const int64_t end = (int)blockIdx.x == s.count - 1 ? s.slots : begin + s.size;
    const int64_t each = ((end - begin + WARPS - 1) / WARPS + 31) / 32 * 32;
    const int64_t from = begin + warp_of() * each;
    return {from < end ? from : end, from + each < end ? from + each : end};
}

/* Return the lanes that have the same expert; expert -1: a lane without one. */
static __device__ __forceinline__ unsigned lanes_of(int expert, int bits)
{
    unsigned lanes = __ballot_sync(ALL_LANES, expert >= 0);
    for (int i = 0; i < bits; i++) {
        const unsigned set = __ballot_sync(ALL_LANES, expert >> i & 1);
        lanes &= expert >> i & 1 ? set : ~set;
    }
    return lanes;
}

/* Go through the slots of a warp, of which `next` says for each expert where the next one lies, or
 * counts them.  at: NULL, or where to store that, counted from start[expert], for each slot. */
static __device__ __forceinline__ void walk_slots(const struct spans &s, int32_t *next, int32_t *at,
                                                  const int32_t *start)
{
    const struct stretch own = stretch_of(s);
    for (int64_t from = own.begin; from < own.end; from += 32 * AHEAD) {
        int expert[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t slot = from + 32 * i + lane_of();
            expert[i] = slot < own.end ? s.expert[slot] : -1;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const unsigned lanes = lanes_of(expert[i], s.bits);
            const int before = __popc(lanes & ((1u << lane_of()) - 1));
            if (expert[i] >= 0 && at)
                at[from + 32 * i + lane_of()] = start[expert[i]] + next[expert[i]] + before;
            __syncwarp();
            if (expert[i] >= 0 && before == 0)
                next[expert[i]] += __popc(lanes);
            __syncwarp();
        }
    }
}

/* Count the slots of each warp and expert.  All threads of the block call. */
static __device__ __forceinline__ void count_of_warps(const struct spans &s,
                                                      int32_t (&count)[WARPS][ROUTE_MOST_EXPERTS])
{
    for (int e = lane_of(); e < s.experts; e += 32)
        count[warp_of()][e] = 0;
    __syncwarp();
    walk_slots(s, count[warp_of()], NULL, NULL);
    __syncthreads();
}

__global__ void __launch_bounds__(THREADS) count_slots(struct spans s, int32_t *counts)
{
    __shared__ int32_t count[WARPS][ROUTE_MOST_EXPERTS];
    count_of_warps(s, count);
    for (int e = (int)threadIdx.x; e < s.experts; e += THREADS) {
        int sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            sum += count[w][e];
        counts[(int64_t)blockIdx.x * s.experts + e] = sum;
    }
}

/* Replace each number by the sum of those before it.  One warp calls; a lane has some consecutive
 * numbers. */
static __device__ __forceinline__ void sum_before(int32_t *number, int count)
{
    const int each = (count + 31) / 32, begin = lane_of() * each;
    const int end = begin + each < count ? begin + each : count;
    int own = 0;
    for (int i = begin; i < end; i++)
        own += number[i];
    int sum = warp_sum_so_far(own) - own;
    for (int i = begin; i < end; i++) {
        const int old = number[i];
        number[i] = sum;
        sum += old;
    }
}

/* counts of one span are not in memory, but counted by its only block. */
__global__ void __launch_bounds__(THREADS)
    place_slots(struct spans s, int32_t *first, int32_t *slot, const int32_t *counts)
{
    __shared__ int32_t next[WARPS][ROUTE_MOST_EXPERTS], start[ROUTE_MOST_EXPERTS];
    count_of_warps(s, next);
    for (int e = (int)threadIdx.x; e < s.experts; e += THREADS) {
        int total = 0, before = 0;
#pragma unroll 16
        for (int i = 0; i < s.count && s.count > 1; i++) {
            const int count = counts[(int64_t)i * s.experts + e];
            total += count;
            before += i < (int)blockIdx.x ? count : 0;
        }
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const int count = next[w][e];
            next[w][e] = before;
            before += count;
        }
        start[e] = s.count > 1 ? total : before;
    }
    __syncthreads();
    if (warp_of() == 0)
        sum_before(start, s.experts);
    __syncthreads();
    if (blockIdx.x == 0)
        for (int e = (int)threadIdx.x; e <= s.experts; e += THREADS)
            first[e] = e < s.experts ? start[e] : (int32_t)s.slots;
    walk_slots(s, next[warp_of()], slot, start);
}

/* ---- the weights ---- */

/* Return the largest of a row's logits, NaN aside.  A whole warp calls. */
static __device__ __forceinline__ float largest_of(const float *logits, int experts)
{
    float largest = -INFINITY;
#pragma unroll 4
    for (int e = lane_of(); e < experts; e += 32)
        largest = fmaxf(largest, logits[e]);
    return warp_max(largest);
}

/* row and slot as in struct routes. */
__global__ void __launch_bounds__(THREADS)
    weigh_slots(struct route r, float *weights, int32_t *row, const int32_t *slot,
                const int32_t *expert, const float *logits)
{
    const int64_t own = (int64_t)blockIdx.x * WARPS + warp_of();
    const int experts = (int)r.experts, chosen = (int)r.chosen;
    if (own >= r.rows)
        return;
    logits += own * experts;
    const float largest = largest_of(logits, experts);
    float sum = 0, of_chosen = 0, p[CHOSEN_EACH] = {};
#pragma unroll 4
    for (int e = lane_of(); e < experts; e += 32)
        sum += expf(logits[e] - largest);
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < CHOSEN_EACH; i++) {
        const int j = lane_of() + 32 * i;
        if (j < chosen)
            p[i] = expf(logits[expert[own * chosen + j]] - largest) / sum;
        of_chosen += p[i];
    }
    of_chosen = warp_sum(of_chosen);
#pragma unroll
    for (int i = 0; i < CHOSEN_EACH; i++) {
        const int j = lane_of() + 32 * i;
        if (j >= chosen)
            continue;
        const int at = slot[own * chosen + j];
        weights[at] = r.normed ? p[i] / of_chosen : p[i];
        row[at] = (int32_t)own;
    }
}

void cuda_route(struct device *d, const struct route *r, float *weights, int32_t *routes,
                const float *logits)
{
    cudaStream_t s = cuda_compute(d);
    int32_t *first = routes, *row = first + r->experts + 1;
    int32_t *slot = row + r->rows * r->chosen, *expert = slot + r->rows * r->chosen;
    const struct spans spans = spans_of(r, expert);
    if (r->rows == 0) {
        cuda_fill_zero(d, first, (size_t)(r->experts + 1) * sizeof *first);
        return;
    }
    launch_choice(s, r, expert, logits);
    if (spans.count > 1)
        LAUNCH(count_slots, (unsigned)spans.count, THREADS, 0, s, spans, row);
    LAUNCH(place_slots, (unsigned)spans.count, THREADS, 0, s, spans, first, slot, row);
    LAUNCH(weigh_slots, (unsigned)ceil_div(r->rows, WARPS), THREADS, 0, s, *r, weights, row, slot,
           expert, logits);
}

/* ---- backward ---- */

/* The rows of a block, which are of one sequence; its warps at most, for counting a sequence's
 * slots; the shared memory it may have on any GPU. */
enum { BACKWARD_ROWS = 64, BACKWARD_WARPS = 32, BACKWARD_BYTES = 96 << 10 };

struct gradient_args {
    struct route r;
    const float *dweights, *logits;
    struct routes of;
    const double *loss_scale;
    int64_t seq, parts; /* rows of a sequence, or all; blocks of it */
};

/* Return where the slots of rows from `row` on begin, among slots from `begin` to before `end` of
 * one expert. */
static __device__ __forceinline__ int first_from(const int32_t *rows, int begin, int end,
                                                 int64_t row)
{
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (rows[middle] < row)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static __device__ __forceinline__ bool row_counts(const struct gradient_args &a, int64_t row)
{
    return !a.r.targets || a.r.targets[row] >= 0;
}

/* Return the number of slots from `begin` to before `end` whose rows count. A whole warp calls. */
static __device__ __forceinline__ int slots_that_count(const struct gradient_args &a, int begin,
                                                       int end)
{
    int count = 0;
    if (!a.r.targets)
        return end - begin;
#pragma unroll 4
    for (int i = begin + lane_of(); i < end; i += 32)
        count += row_counts(a, a.of.row[i]);
    return warp_sum(count);
}

/* Compute the gradient of the evenness of the load of each expert with respect to a row's p, the
 * same for all rows of a sequence that count, which are from `begin` to before `end`.  bound:
 * shared memory, for where each expert's slots of these rows begin and end. */
static __device__ __forceinline__ void load_gradient(float *dload, int (*bound)[2],
                                                     const struct gradient_args &a, int64_t begin,
                                                     int64_t end)
{
    __shared__ int partial[32];
    const int experts = (int)a.r.experts, warps = (int)blockDim.x / 32;
    int rows = 0;
    for (int i = (int)threadIdx.x; i < 2 * experts; i += (int)blockDim.x)
        bound[i / 2][i % 2] =
            first_from(a.of.row, a.of.first[i / 2], a.of.first[i / 2 + 1], i % 2 ? end : begin);
    for (int64_t row = begin + (int)threadIdx.x; row < end; row += (int)blockDim.x)
        rows += row_counts(a, row);
    rows = block_sum(rows, partial);
    __syncthreads();
    const double scale = (a.loss_scale ? *a.loss_scale : 1) * (double)a.r.balance;
    const float factor = rows ? (float)(scale * experts / rows) : 0;
    for (int e = warp_of(); e < experts; e += warps) {
        const int count = slots_that_count(a, bound[e][0], bound[e][1]);
        if (lane_of() == 0)
            dload[e] = (float)count * factor;
    }
    __syncthreads();
}

/* A warp counts for an expert. */
__global__ void __launch_bounds__(THREADS) add_load(double *load, struct gradient_args a)
{
    const int e = (int)blockIdx.x * WARPS + warp_of();
    if (e >= a.r.experts)
        return;
    const int count = slots_that_count(a, a.of.first[e], a.of.first[e + 1]);
    if (lane_of() == 0)
        load[e] += count;
}

void cuda_route_load(struct device *d, const struct route *r, double *load, const int32_t *routes)
{
    const struct routes of = routes_of(routes, r->rows, r->experts, r->chosen);
    const struct gradient_args a = {*r, NULL, NULL, of, NULL, r->rows, 1};
    LAUNCH(add_load, (unsigned)ceil_div(r->experts, WARPS), THREADS, 0, cuda_compute(d), load, a);
}

/* The chosen experts of a row: for each lane some of them, e^logit and the gradient of the weight;
 * the sums of both's products and of the former over all. */
struct chosen_experts {
    int expert[CHOSEN_EACH];
    float x[CHOSEN_EACH], dweight[CHOSEN_EACH];
    float sum, dot;
};

static __device__ __forceinline__ struct chosen_experts chosen_of(const struct gradient_args &a,
                                                                  int64_t row, const float *x)
{
    struct chosen_experts c = {};
#pragma unroll
    for (int i = 0; i < CHOSEN_EACH; i++) {
        const int64_t j = lane_of() + 32 * i, at = row * a.r.chosen + j;
        c.expert[i] = j < a.r.chosen ? a.of.expert[at] : -1;
        if (j < a.r.chosen) {
            c.x[i] = x[c.expert[i]];
            c.dweight[i] = a.dweights[a.of.slot[at]];
        }
        c.sum += c.x[i];
        c.dot = fmaf(c.x[i], c.dweight[i], c.dot);
    }
    c.sum = warp_sum(c.sum);
    c.dot = warp_sum(c.dot);
    return c;
}

/* Compute a row's gradient in x, which a warp has for itself; see load_gradient().
 * Normed weights g: g_e (dg_e - sum of g dg) for chosen e.  Others: p_e (dp_e - sum of p dp); so is
 * what the load adds to normed ones. */
static __device__ __forceinline__ void make_gradient(float *x, const float *dload,
                                                     const struct gradient_args &a, int64_t row)
{
    const int experts = (int)a.r.experts;
    const float *logits = a.logits + row * experts;
    const float largest = largest_of(logits, experts);
    const bool normed = a.r.normed, loaded = a.r.balance != 0 && row_counts(a, row);
    float sum = 0, dot = 0;
    for (int e = lane_of(); e < experts; e += 32) {
        x[e] = expf(logits[e] - largest);
        sum += x[e];
        dot = loaded ? fmaf(x[e], dload[e], dot) : dot;
    }
    __syncwarp();
    struct chosen_experts c = chosen_of(a, row, x);
    __syncwarp();
    sum = warp_sum(sum);
    c.sum = isnan(sum) ? sum : c.sum; /* as that of the weights */
    const float mean = (warp_sum(dot) + (normed ? 0.0f : c.dot)) / sum;
    for (int e = lane_of(); e < experts; e += 32)
        x[e] = loaded || !normed ? x[e] / sum * ((loaded ? dload[e] : 0.0f) - mean) : 0.0f;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < CHOSEN_EACH; i++) {
        const int e = c.expert[i];
        if (e >= 0 && normed)
            x[e] += c.x[i] / c.sum * (c.dweight[i] - c.dot / c.sum);
        else if (e >= 0)
            x[e] = c.x[i] / sum * ((loaded ? dload[e] : 0.0f) + c.dweight[i] - mean);
    }
    __syncwarp();
}

template <typename T>
__global__ void __launch_bounds__(32 * BACKWARD_WARPS)
    gradient_of_rows(T *dlogits, struct gradient_args a)
{
    DYNAMIC_SHARED(float, dload); /* [1 + warps][experts] */
    const int experts = (int)a.r.experts, warps = (int)blockDim.x / 32;
    const int64_t first = blockIdx.x / a.parts * a.seq;
    const int64_t last = first + a.seq < a.r.rows ? first + a.seq : a.r.rows;
    const int64_t begin = first + blockIdx.x % a.parts * BACKWARD_ROWS;
    const int64_t end = begin + BACKWARD_ROWS < last ? begin + BACKWARD_ROWS : last;
    float *x = dload + (1 + warp_of()) * experts;
    if (a.r.balance != 0)
        load_gradient(dload, (int(*)[2])(dload + experts), a, first, last);
    for (int64_t row = begin + warp_of(); row < end; row += warps) {
        make_gradient(x, dload, a, row);
        for (int e = lane_of(); e < experts; e += 32) {
            const float value[1] = {x[e]};
            narrow(dlogits[row * experts + e], value);
        }
        __syncwarp();
    }
}

static size_t backward_bytes(int warps, int64_t experts)
{
    return (size_t)((1 + warps) * experts) * sizeof(float);
}

void cuda_route_backward(struct device *d, const struct route *r, void *dlogits,
                         const float *dweights, const float *logits, const int32_t *routes,
                         const double *loss_scale)
{
    const struct routes of = routes_of(routes, r->rows, r->experts, r->chosen);
    const int64_t seq = r->balance != 0 ? r->seq : r->rows;
    int warps = BACKWARD_WARPS;
    if (r->rows == 0)
        return;
    while (warps > WARPS && (warps > seq || backward_bytes(warps, r->experts) > BACKWARD_BYTES))
        warps /= 2;
    const int64_t parts = ceil_div(seq, BACKWARD_ROWS), sequences = ceil_div(r->rows, seq);
    const struct gradient_args a = {*r, dweights, logits, of, loss_scale, seq, parts};
    by_type(r->dt, [&](auto type) {
        using T = decltype(type);
        ALLOW_SHARED(gradient_of_rows<T>, BACKWARD_BYTES);
        LAUNCH(gradient_of_rows<T>, (unsigned)(sequences * parts), 32 * warps,
               backward_bytes(warps, r->experts), cuda_compute(d), (T *)dlogits, a);
    });
}
