/* sizes.h - how much scratch a GPU's ops take: functions of shapes alone, the same in every build,
 * so that `trireme plan` counts the bytes of GPUs where neither one nor CUDA is there.
 *
 * The kernels take their numbers of groups from here, the op tables of planning.c and ops.c the
 * functions; what is planned is what is run.
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
    CUDA_NORM_GROUPS = 264, /* two per multiprocessor of the largest GPUs */
    CUDA_BIAS_LEAST_ROWS = 64,
    CUDA_BIAS_GROUPS = 64
};

/* Blocks to which the rows of a norm's backward are dealt: each keeps a part of dw in scratch. */
static inline int cuda_norm_groups(int64_t rows)
{
    return rows < CUDA_NORM_GROUPS ? (int)rows : CUDA_NORM_GROUPS;
}

/* Groups of consecutive rows that the gradient of a bias is summed in; 1 takes no scratch. */
static inline int cuda_bias_groups(int64_t rows)
{
    int64_t groups = ceil_div(rows, CUDA_BIAS_LEAST_ROWS);
    return groups < CUDA_BIAS_GROUPS ? (int)groups : CUDA_BIAS_GROUPS;
}

/* How the positions that a row sees in a cache are divided among blocks: the positions of a block,
 * which are a span, and the blocks of a head.  Rows of a prompt (seq > 1) have one block a head. */
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

/* The floats that a span leaves in scratch for a head of a row: these two, then the output. */
enum { CUDA_PART_TOP, CUDA_PART_SUM, CUDA_PART_O };

/* Elements of a head: the kernels of attention keep a row in registers. */
enum { CUDA_HEAD_DIM_MOST = 256 };

/* A chunk of logits large enough to fill a GPU, and device memory beside what is planned: context,
 * kernels, library handles.  The latter is an estimate until doc/performance.md has it measured. */
#define CUDA_LOGITS_BYTES  ((size_t)1 << 30)
#define CUDA_RESERVE_BYTES ((size_t)1 << 30)

/* The alignment cuBLASLt asks of its workspace, and its bytes for a result of [m, n]: enough for
 * eight partial results of splitting k, which is where workspace pays, and at least 4 MiB, as those
 * of few rows may be padded to whole tiles; the library's advice for Hopper is 32 MiB in all. */
enum { CUDA_WORKSPACE_ALIGN = 256 };
size_t cuda_workspace_bytes(int64_t m, int64_t n);

/* The scratch of a product in fp8, in bytes from an address that is aligned to
 * CUDA_WORKSPACE_ALIGN: where the codes and the scales of both operands begin (cuda/fp8.h); wide_a
 * and wide_b, the same numbers as bf16, some rows at a time, for products in bf16 in place of that
 * in fp8; the workspace of either product; and the end of all. */
enum { CUDA_FP8_STEP = 4 }; /* what the scales of a row of squares are padded to a multiple of */
#define CUDA_FP8_WIDE_BYTES ((int64_t)64 << 20) /* of an operand as bf16 at a time, or 128 rows */
struct cuda_fp8_places {
    size_t a, a_scales, b, b_scales, wide_a, wide_b, workspace, end;
};
struct cuda_fp8_places cuda_fp8_places_of(const struct gemm *g);
int64_t cuda_fp8_wide_rows(int64_t rows, int64_t k); /* of an operand of rows and k, at a time */

/* What attention on GPUs offers beside the plain form. */
enum {
    CUDA_ATTENTION_FORMS = ATTENTION_SEPARATE | ATTENTION_DOCUMENTS | ATTENTION_PART |
                           ATTENTION_WINDOW | ATTENTION_DROPOUT
};

/* What trireme's own attention kernels take; attention by cuDNN is in sdpa.h. */
size_t cuda_own_attention_scratch(const struct attention *a, enum device_pass pass);

#ifdef __cplusplus
}
#endif

#endif
