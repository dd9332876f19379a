/* ops.c - the table of GPU ops, and the choice between cuDNN's attention and trireme's own kernels.
 *
 * Attention is computed by cuDNN where the self-check has not found it wrong and it has a plan for
 * the shape; by trireme's own kernels otherwise, whose heads have at most CUDA_HEAD_DIM_MOST
 * elements.
 */
#include "base/text.h"
#include "device/cuda/state.h"

/* Return 1, and note the failure, where heads are too wide for trireme's own attention kernels,
 * which keep a row of a head in registers. */
static int too_wide(struct device *d, const struct attention *a)
{
    struct error err;
    if (!device_check_head_dim(d, a->head_dim, &err))
        return 0;
    cuda_note_failure(d, "%s", err.text);
    return 1;
}

/* Return 1 where the self-check found cuDNN's attention of this type and pass wrong, so that cuDNN
 * is not to be asked; keeps that for cuda_report_attention(). */
static int is_replaced(struct device *d, const struct attention *a, enum device_pass pass)
{
    const unsigned replaced = d->replaced & device_attention_family(a->dt, pass);
    cuda_state(d)->replaced_met |= replaced;
    return replaced != 0;
}

void cuda_attention(struct device *d, const struct attention *a, void *o, float *lse,
                    const void *qkv, void *scratch)
{
    int done =
        !is_replaced(d, a, DEVICE_FORWARD) &&
        cuda_sdpa_forward(d, a, o, lse, qkv, scratch, cuda_attention_scratch(d, a, DEVICE_FORWARD));
    if (done)
        cuda_shape_note(
            d, a, DEVICE_FORWARD,
            &(struct cuda_attention_memory){.o = o, .lse = lse, .qkv = qkv, .scratch = scratch});
    else if (!too_wide(d, a))
        cuda_own_attention(d, a, o, lse, qkv, scratch);
}

void cuda_attention_backward(struct device *d, const struct attention *a, void *dqkv,
                             const void *dout, const void *o, const float *lse, const void *qkv,
                             void *scratch)
{
    int done = !is_replaced(d, a, DEVICE_BACKWARD) &&
               cuda_sdpa_backward(d, a, dqkv, dout, o, lse, qkv, scratch,
                                  cuda_attention_scratch(d, a, DEVICE_BACKWARD));
    if (done)
        cuda_shape_note(d, a, DEVICE_BACKWARD,
                        &(struct cuda_attention_memory){.o = (void *)o,
                                                        .lse = (float *)lse,
                                                        .qkv = qkv,
                                                        .dqkv = dqkv,
                                                        .dout = dout,
                                                        .scratch = scratch});
    else if (!too_wide(d, a))
        cuda_own_attention_backward(d, a, dqkv, dout, o, lse, qkv, scratch);
}

void cuda_prepare_attention(struct device *d, const struct attention *a, enum device_pass pass)
{
    if (!(d->replaced & device_attention_family(a->dt, pass)))
        cuda_sdpa_prepare(d, a, pass);
}

void cuda_report_attention(const struct device *d, struct device_attention *a)
{
    const unsigned met = cuda_state(d)->replaced_met;
    cuda_sdpa_report(d, a);
    for (int i = 0; i < DEVICE_ATTENTION_FAMILIES; i++) {
        if (!(met >> (DEVICE_PRODUCT_FAMILIES + i) & 1))
            continue;
        a->by_own++;
        text_join(a->why, sizeof a->why, "; ", "%s in %s: cuDNN failed the self-check here",
                  i % 2 ? "backward" : "forward", i / 2 ? "fp16" : "bf16");
    }
}

#define ROW(op) .op = cuda_##op,

const struct device_ops cuda_ops = {.name = "cuda",
                                    .gemm = cuda_gemm,
                                    .gemm_scratch = cuda_gemm_scratch,
                                    .attention_forms = CUDA_ATTENTION_FORMS,
                                    DEVICE_OPS(ROW)};
