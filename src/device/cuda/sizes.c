/* sizes.c - scratch sizes of a GPU's ops, from their shapes alone; compiled in every build. */
#include "device/cuda/sizes.h"

#include "base/fp8.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/sdpa.h"

size_t cuda_workspace_bytes(int64_t m, int64_t n)
{
    const size_t step = (size_t)64 << 10, least = (size_t)4 << 20, most = (size_t)32 << 20;
    if (m >= (int64_t)most || n >= (int64_t)most)
        return most;
    size_t bytes = round_up_bytes((size_t)m * (size_t)n * 8 * sizeof(float), step);
    return bytes < least ? least : bytes > most ? most : bytes;
}

/* Append `bytes` bytes to a layout that ends at *end.  Returns their offset. */
static size_t place(size_t *end, int64_t bytes)
{
    size_t at = *end;
    *end = round_up_bytes(at + (size_t)bytes, CUDA_WORKSPACE_ALIGN);
    return at;
}

int64_t cuda_fp8_wide_rows(int64_t rows, int64_t k)
{
    const int64_t row_bytes = k * (int64_t)sizeof(bf16);
    const int64_t most = CUDA_FP8_WIDE_BYTES / row_bytes / FP8_BLOCK * FP8_BLOCK;
    return min_i64(rows, most > FP8_BLOCK ? most : FP8_BLOCK);
}

struct cuda_fp8_places cuda_fp8_places_of(const struct gemm *g)
{
    const int64_t of_float = (int64_t)sizeof(float), of_bf16 = (int64_t)sizeof(bf16);
    const int64_t blocks = ceil_div(g->k, FP8_BLOCK);
    const int64_t squares = ceil_div(g->n, FP8_BLOCK) * round_up(blocks, CUDA_FP8_STEP);
    struct cuda_fp8_places at = {0};
    at.a = place(&at.end, g->m * blocks * FP8_BLOCK);
    at.a_scales = place(&at.end, g->m * blocks * of_float);
    at.b = place(&at.end, g->n * blocks * FP8_BLOCK);
    at.b_scales =
        place(&at.end, (g->fp8 == GEMM_FP8_SQUARES_OF_B ? squares : g->n * blocks) * of_float);
    at.wide_a = place(&at.end, cuda_fp8_wide_rows(g->m, g->k) * g->k * of_bf16);
    at.wide_b = place(&at.end, cuda_fp8_wide_rows(g->n, g->k) * g->k * of_bf16);
    at.workspace = place(&at.end, (int64_t)cuda_workspace_bytes(g->m, g->n));
    return at;
}

size_t cuda_gemm_scratch(struct device *d, const struct gemm *g)
{
    if (g->m == 0 || g->n == 0 || g->k == 0)
        return 0;
    return CUDA_WORKSPACE_ALIGN +
           (g->fp8 ? cuda_fp8_places_of(g).end : cuda_workspace_bytes(g->m, g->n));
}

size_t cuda_attention_cached_scratch(struct device *d, const struct attention_cached *a)
{
    const int64_t spans = cuda_spans_of(a).count, parts = a->batch * a->seq * a->heads * spans;
    return spans > 1 ? (size_t)(parts * (CUDA_PART_O + a->head_dim)) * sizeof(float) : 0;
}

size_t cuda_norm_backward_scratch(struct device *d, int64_t rows, int64_t hidden, int params)
{
    return (size_t)(cuda_norm_groups(rows) * hidden * params) * sizeof(float);
}

size_t cuda_bias_backward_scratch(struct device *d, int64_t rows, int64_t cols)
{
    int groups = cuda_bias_groups(rows);
    return groups > 1 ? (size_t)groups * (size_t)cols * sizeof(float) : 0;
}

size_t cuda_own_attention_scratch(const struct attention *a, enum device_pass pass)
{
    return pass == DEVICE_BACKWARD ? sizeof(float) * (size_t)(a->batch * a->heads * a->seq) : 0;
}

size_t cuda_attention_scratch(struct device *d, const struct attention *a, enum device_pass pass)
{
    return max_bytes(cuda_own_attention_scratch(a, pass), cuda_sdpa_scratch(a, pass));
}

size_t cuda_experts_gemm_scratch(struct device *d, const struct experts_gemm *g)
{
    return 0;
}
