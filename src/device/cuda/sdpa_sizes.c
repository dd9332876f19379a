/* sdpa_sizes.c - the scratch of attention by cuDNN, and the slices in which it runs: functions of
 * the shape alone, in every build, so that `trireme plan` can count bytes.
 *
 * A reproducible backward keeps the gradient of all scores in scratch, in 16 bits, so that dq is
 * one product over it; its memory grows with the square of the sequence.  Hence it runs in slices:
 * some sequences at a time, or some heads of one, as many as fit into a limit; and where one head
 * is too much, in tiles of queries by keys, whose sums take fp32 memory that grows with the
 * sequence.  With any_order the blocks of keys add to dq in fp32 as they end, which takes memory in
 * proportion to the sequence.
 */
#include "base/round.h"
#include "device/cuda/sdpa.h"
#include "device/device.h"

enum {
    MAX_HEAD_DIM = 256,
    FORWARD_BYTES = 65536, /* a few counters */
};

/* A slice takes at most this, if it can and nothing else is asked for: on an H100 a backward of
 * 8192 tokens and 32 heads takes 4.8 ms in slices of half of it, 3.9 in such, 3.1 as one of 4.2
 * GiB.
 */
static const size_t slice_bytes = DEVICE_ATTENTION_BYTES;
/* And the least slice at most this: enough for four query heads of a key head over 16384 tokens. */
static const size_t most_bytes = (size_t)9 << 28;

static size_t slice_limit(const struct attention *a)
{
    return a->scratch_bytes ? a->scratch_bytes : slice_bytes;
}

size_t sdpa_align(size_t bytes)
{
    return round_up_bytes(bytes, SDPA_ALIGN);
}

static int64_t groups(const struct attention *a) /* query heads of a key/value head */
{
    return a->heads / a->kv_heads;
}

/* Query heads of a slice. */
static int64_t heads_of(const struct attention *a, struct sdpa_slice slice)
{
    return slice.kv_heads * groups(a);
}

static int is_tile(const struct attention *a, struct sdpa_slice slice)
{
    return slice.tokens < a->seq;
}

/* Put so many elements at the end of what is taken; returns where. */
static size_t take(size_t *taken, int64_t elems, size_t element_bytes)
{
    size_t at = *taken;
    *taken += sdpa_align((size_t)elems * element_bytes);
    return at;
}

struct sdpa_places sdpa_places_of(const struct attention *a, struct sdpa_slice slice)
{
    int64_t q_rows = slice.batch * heads_of(a, slice) * slice.tokens, kv_rows = slice.kv_heads;
    int64_t in_tile = is_tile(a, slice), dim = a->head_dim, narrow = sizeof(uint16_t);
    size_t taken = 0;
    struct sdpa_places p = {.rows = take(&taken, q_rows, sizeof(float))};
    p.dq_sum = take(&taken, a->any_order || in_tile ? q_rows * dim : 0, sizeof(float));
    p.dq_sum_bytes = taken - p.dq_sum;
    p.dk_sum = take(&taken, in_tile * kv_rows * a->seq * dim, sizeof(float));
    p.dv_sum = take(&taken, in_tile * kv_rows * a->seq * dim, sizeof(float));
    p.dq = take(&taken, in_tile * q_rows * dim, (size_t)narrow);
    p.dk = take(&taken, in_tile * kv_rows * slice.tokens * dim, (size_t)narrow);
    p.dv = take(&taken, in_tile * kv_rows * slice.tokens * dim, (size_t)narrow);
    p.lse = take(&taken, in_tile * q_rows, sizeof(float));
    p.workspace = taken;
    return p;
}

/* What cuDNN wants for backward: the scores' gradients in tiles of at most 128 x 128, where dq is a
 * product over them; with any_order dq in fp32 once more, which the engines of compute capabilities
 * 8.0 to 8.9 and 12.0 sum there; and, where query heads share, dk and dv of each. */
static size_t workspace_bytes(const struct attention *a, struct sdpa_slice slice)
{
    size_t heads = (size_t)(slice.batch * heads_of(a, slice));
    size_t seq = round_up_bytes((size_t)slice.tokens, 128);
    size_t each = (size_t)(slice.tokens * a->head_dim);
    size_t shared = groups(a) > 1 ? 2 * heads * each * sizeof(uint16_t) : 0;
    size_t for_dq =
        a->any_order ? heads * each * sizeof(float) : heads * seq * seq * sizeof(uint16_t);
    return sdpa_align(for_dq + shared) + 2 * SDPA_ALIGN;
}

size_t sdpa_slice_bytes(const struct attention *a, struct sdpa_slice slice)
{
    return sdpa_places_of(a, slice).workspace + workspace_bytes(a, slice);
}

/* A slice keeps no more scores, and a tensor that cuDNN is given no more elements, than this: none
 * with more was ever run. */
static const int64_t most_elems = INT64_C(1) << 31;

/* Are the tensors of a slice that small?  qkv is one, of whole sequences. */
static int has_few_elems(const struct attention *a, struct sdpa_slice slice)
{
    return slice.batch * a->seq * (a->heads + 2 * a->kv_heads) * a->head_dim <= most_elems;
}

static int is_within(const struct attention *a, struct sdpa_slice slice)
{
    int64_t scores = slice.batch * heads_of(a, slice) * slice.tokens * slice.tokens;
    return sdpa_slice_bytes(a, slice) <= slice_limit(a) && (a->any_order || scores <= most_elems);
}

/* Return 1 where cuDNN is right in tiles of so many tokens.  On compute capability 9.0 backward, in
 * 9.20 and others, does not mask the keys behind the last one where their number leaves 64 by 128,
 * so that dq is NaN where all scores of a query are below -88.  A causal mask covers them; tiles
 * below the diagonal have none. */
static int is_right_tile(int64_t tokens)
{
    return tokens % 128 != 64;
}

/* Tiles of one head, the largest whose workspace stays within slice_bytes, whatever the limit,
 * which would change the bits; then of as many heads as that allows with their sums.  A tile is not
 * so small that nothing but its sums takes time. */
static struct sdpa_slice tile_of(const struct attention *a)
{
    enum { LEAST = 1024 };
    struct sdpa_slice tile = {1, 1, a->seq}, more = tile;
    for (int64_t n = 2; a->seq / n >= LEAST; n++) {
        tile.tokens = more.tokens = a->seq / n;
        if (a->seq % n || !is_right_tile(tile.tokens) || workspace_bytes(a, tile) > slice_bytes)
            continue;
        for (more.kv_heads = 2; more.kv_heads <= a->kv_heads; more.kv_heads++)
            if (a->kv_heads % more.kv_heads == 0 && is_within(a, more))
                tile.kv_heads = more.kv_heads;
        return tile;
    }
    tile.tokens = a->seq; /* it has no such divisor */
    return tile;
}

/* As many sequences, or heads of one, as stay within the limit. */
static struct sdpa_slice slice_within(const struct attention *a, enum device_pass pass)
{
    struct sdpa_slice slice = {a->batch, a->kv_heads, a->seq};
    while (slice.batch > 1 && (a->batch % slice.batch || !has_few_elems(a, slice) ||
                               (pass == DEVICE_BACKWARD && !is_within(a, slice))))
        slice.batch--;
    if (pass == DEVICE_FORWARD)
        return slice;
    while (slice.batch == 1 && slice.kv_heads > 1 &&
           (a->kv_heads % slice.kv_heads || !is_within(a, slice)))
        slice.kv_heads--;
    return slice;
}

struct sdpa_slice sdpa_slice_of(const struct attention *a, enum device_pass pass)
{
    const struct sdpa_slice slice = slice_within(a, pass), least = {1, 1, a->seq};
    int is_long = pass == DEVICE_BACKWARD && sdpa_slice_bytes(a, least) > most_bytes;
    return is_long && !a->any_order ? tile_of(a) : slice;
}

int sdpa_is_small(const struct attention *a)
{
    return has_few_elems(a, (struct sdpa_slice){1, a->kv_heads, a->seq});
}

int sdpa_suits(const struct attention *a)
{
    return !a->forms && sdpa_is_small(a) && (a->dt == DTYPE_BF16 || a->dt == DTYPE_F16) &&
           a->batch > 0 && a->seq > 1 && a->head_dim > 0 && a->head_dim % 8 == 0 &&
           a->head_dim <= MAX_HEAD_DIM;
}

size_t cuda_sdpa_scratch(const struct attention *a, enum device_pass pass)
{
    if (!sdpa_suits(a))
        return 0;
    if (pass == DEVICE_FORWARD)
        return FORWARD_BYTES + SDPA_ALIGN;
    struct attention usual = *a; /* other kernels, other bits: not by the memory that there is */
    usual.scratch_bytes = 0;
    return sdpa_slice_bytes(a, sdpa_slice_of(&usual, pass)) <= most_bytes
               ? sdpa_slice_bytes(a, sdpa_slice_of(a, pass)) + SDPA_ALIGN
               : 0;
}
