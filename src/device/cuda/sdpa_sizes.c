/* sdpa_sizes.c - the scratch that attention by cuDNN takes, and the parts it runs in: functions of
 * the shape alone, in every build, for plans.
 *
 * A reproducible backward keeps the gradient of all scores in scratch, in 16 bits, so that dq is
 * one product over it; its memory grows with the square of the sequence.  Hence it runs in parts:
 * some sequences at a time, or some heads of one, as many as fit into a limit.  With any_order the
 * blocks of keys add to dq in fp32 as they end, which takes dq twice over, once in fp32, whatever
 * the length.
 */
#include "base/round.h"
#include "device/cuda/sdpa.h"

enum {
    MAX_HEAD_DIM = 256,
    FORWARD_BYTES = 65536, /* a few counters */
};

static const size_t part_bytes = (size_t)640 << 20; /* a part takes at most this, if it can */
/* And the least part at most this: enough for four query heads of a key head over 16384 tokens. */
static const size_t most_bytes = (size_t)9 << 28;

size_t sdpa_align(size_t bytes)
{
    return round_up_bytes(bytes, SDPA_ALIGN);
}

static int64_t groups(const struct attention *a) /* query heads of a key/value head */
{
    return a->heads / a->kv_heads;
}

size_t sdpa_rows_bytes(const struct attention *a, struct sdpa_part part)
{
    size_t rows = (size_t)(part.batch * part.kv_heads * groups(a) * a->seq);
    return sdpa_align(rows * sizeof(float));
}

size_t sdpa_dq_bytes(const struct attention *a, struct sdpa_part part)
{
    size_t elems = (size_t)(part.batch * part.kv_heads * groups(a) * a->seq * a->head_dim);
    return a->any_order ? sdpa_align(elems * sizeof(float)) : 0;
}

/* What cuDNN wants for backward: the scores' gradients in tiles of at most 128 x 128, where dq is a
 * product over them, and, where query heads share, dk and dv of each. */
static size_t workspace_bytes(const struct attention *a, struct sdpa_part part)
{
    size_t heads = (size_t)(part.batch * part.kv_heads * groups(a));
    size_t seq = round_up_bytes((size_t)a->seq, 128), each = (size_t)(a->seq * a->head_dim);
    size_t shared = groups(a) > 1 ? 2 * heads * each * sizeof(uint16_t) : 0;
    size_t scores = a->any_order ? 0 : heads * seq * seq * sizeof(uint16_t);
    return sdpa_align(scores + shared) + 2 * SDPA_ALIGN;
}

size_t sdpa_part_bytes(const struct attention *a, struct sdpa_part part)
{
    return sdpa_rows_bytes(a, part) + sdpa_dq_bytes(a, part) + workspace_bytes(a, part);
}

struct sdpa_part sdpa_part_of(const struct attention *a, enum device_pass pass)
{
    return sdpa_part_within(a, pass, part_bytes);
}

struct sdpa_part sdpa_part_within(const struct attention *a, enum device_pass pass, size_t bytes)
{
    struct sdpa_part part = {a->batch, a->kv_heads};
    if (pass == DEVICE_FORWARD)
        return part;
    while (part.batch > 1 && (a->batch % part.batch || sdpa_part_bytes(a, part) > bytes))
        part.batch--;
    while (part.batch == 1 && part.kv_heads > 1 &&
           (a->kv_heads % part.kv_heads || sdpa_part_bytes(a, part) > bytes))
        part.kv_heads--;
    return part;
}

int sdpa_suits(const struct attention *a)
{
    return !a->forms && (a->dt == DTYPE_BF16 || a->dt == DTYPE_F16) && a->batch > 0 && a->seq > 1 &&
           a->head_dim > 0 && a->head_dim % 8 == 0 && a->head_dim <= MAX_HEAD_DIM;
}

size_t cuda_sdpa_scratch(const struct attention *a, enum device_pass pass)
{
    if (!sdpa_suits(a))
        return 0;
    size_t bytes =
        pass == DEVICE_FORWARD ? FORWARD_BYTES : sdpa_part_bytes(a, sdpa_part_of(a, pass));
    return bytes <= most_bytes ? bytes + SDPA_ALIGN : 0;
}
