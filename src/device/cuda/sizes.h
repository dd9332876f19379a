/* sizes.h - the scratch sizes of a GPU's ops: functions of shapes alone, the same in every build,
 * so that `trireme plan` counts the bytes of GPUs on machines without a GPU and without CUDA.
 *
 * The kernels take their numbers of groups from this header, and the op tables of planning.c and
 * ops.c hold the same functions, so that a run takes the scratch that was planned.
 */
#ifndef TRIREME_DEVICE_CUDA_SIZES_H
#define TRIREME_DEVICE_CUDA_SIZES_H

#include <stddef.h>
#include <stdint.h>

#include "base/round.h"
#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_NORM_GROUPS = 264,    /* two per multiprocessor of the largest GPUs */
    CUDA_BIAS_LEAST_ROWS = 64, /* of a group */
    CUDA_BIAS_GROUPS = 64      /* at most */
};

/* Return the number of thread blocks among which a norm's backward divides its rows.  Each block
 * keeps a partial sum of dw in scratch. */
static inline int cuda_norm_groups(int64_t rows)
{
    return rows < CUDA_NORM_GROUPS ? (int)rows : CUDA_NORM_GROUPS;
}

/* Return the number of groups of consecutive rows in which a bias's gradient is summed; one group
 * takes no scratch. */
static inline int cuda_bias_groups(int64_t rows)
{
    int64_t groups = ceil_div(rows, CUDA_BIAS_LEAST_ROWS);
    return groups < CUDA_BIAS_GROUPS ? (int)groups : CUDA_BIAS_GROUPS;
}

/* Divide the positions of a cache that a row of queries sees among thread blocks: `span` positions
 * per block, `count` blocks per head.  Rows of a prompt (seq > 1) have one block per head. */
enum { CUDA_SPAN_LEAST = 512, CUDA_SPANS_MOST = 16 };
struct cuda_spans {
    int64_t span, count;
};

static inline struct cuda_spans cuda_spans_of(const struct attention_cached *a)
{
    int64_t seen = a->window > 0 && a->window < a->capacity ? a->window : a->capacity;
    int64_t span = round_up(ceil_div(seen, CUDA_SPANS_MOST), 64);
    if (span < CUDA_SPAN_LEAST)
        span = CUDA_SPAN_LEAST;
    if (a->seq > 1)
        span = seen;
    struct cuda_spans spans = {span, ceil_div(seen, span)};
    return spans;
}

/* The floats that a block leaves in scratch for its span and one head of a row: the largest score,
 * the sum of exponentials, then the output, of head_dim floats. */
enum { CUDA_PART_TOP, CUDA_PART_SUM, CUDA_PART_O };

/* The most elements of a head: the attention kernels keep a row of it in registers. */
enum { CUDA_HEAD_DIM_MOST = 256 };

/* CUDA_LOGITS_BYTES: a chunk of logits that is large enough to keep a GPU busy. CUDA_RESERVE_BYTES:
 * device memory beside what is planned, for context, kernels and library handles: an estimate, of
 * which one H100 and one H200 left 0.43 to 0.45 GiB unused (doc/performance.md). */
#define CUDA_LOGITS_BYTES  ((size_t)1 << 30)
#define CUDA_RESERVE_BYTES ((size_t)1 << 30)

/* The alignment that cuBLASLt requires of its workspace, and the workspace's bytes for a result of
 * [m, n].  It holds eight partial results in fp32, for algorithms that split k, which gain most by
 * it; at least 4 MiB, since results of few rows may be padded to whole tiles; and at most 32 MiB,
 * which the library recommends for Hopper. */
enum { CUDA_WORKSPACE_ALIGN = 256 };
size_t cuda_workspace_bytes(int64_t m, int64_t n);

/* The layout of the scratch of a product in fp8: offsets in bytes from an address aligned to
 * CUDA_WORKSPACE_ALIGN.  a, b, a_scales and b_scales: codes and scales of the operands
 * (cuda/fp8.h). wide_a and wide_b: the same numbers as bf16, some rows at a time, used where the
 * product is computed in bf16 instead.  workspace: cuBLASLt's, of either product.  end: the bytes
 * of all. */
enum { CUDA_FP8_STEP = 4 }; /* scales of a row of squares are padded to a multiple */
#define CUDA_FP8_WIDE_BYTES ((int64_t)64 << 20) /* of an operand as bf16 at a time, or 128 rows */
struct cuda_fp8_places {
    size_t a, a_scales, b, b_scales, wide_a, wide_b, workspace, end;
};
struct cuda_fp8_places cuda_fp8_places_of(const struct gemm *g);
int64_t cuda_fp8_wide_rows(int64_t rows, int64_t k); /* of [rows, k], at a time */

/* The forms of attention that GPUs offer besides the plain one. */
enum {
    CUDA_ATTENTION_FORMS = ATTENTION_SEPARATE | ATTENTION_DOCUMENTS | ATTENTION_PART |
                           ATTENTION_WINDOW | ATTENTION_DROPOUT
};

/* Return the scratch bytes of trireme's own attention kernels; for those of cuDNN see sdpa.h. */
size_t cuda_own_attention_scratch(const struct attention *a, enum device_pass pass);

#ifdef __cplusplus
}
#endif

#endif
