/* ops.c - the op set of one level of CPU instructions. */
#include "device/cpu/gemm.h"
#include "device/cpu/kernels.h"

#define TEXT2(level) #level
#define TEXT(level)  TEXT2(level)

const struct device_ops CPU(ops) = {
    .name = TEXT(CPU_LEVEL),
    .gemm = gemm,
    .gemm_scratch = gemm_scratch,
    .embedding = CPU(embedding),
    .embedding_backward = CPU(embedding_backward),
    .rmsnorm = CPU(rmsnorm),
    .rmsnorm_backward = CPU(rmsnorm_backward),
    .rmsnorm_backward_scratch = CPU(rmsnorm_backward_scratch),
    .layernorm = CPU(layernorm),
    .layernorm_backward = CPU(layernorm_backward),
    .layernorm_backward_scratch = CPU(layernorm_backward_scratch),
    .bias = CPU(bias),
    .bias_backward = CPU(bias_backward),
    .bias_backward_scratch = CPU(bias_backward_scratch),
    .gelu = CPU(gelu),
    .gelu_backward = CPU(gelu_backward),
    .rope = CPU(rope),
    .attention = CPU(attention),
    .attention_backward = CPU(attention_backward),
    .attention_scratch = CPU(attention_scratch),
    .attention_forms = ATTENTION_FULL | ATTENTION_SEPARATE | ATTENTION_DOCUMENTS,
    .swiglu = CPU(swiglu),
    .swiglu_backward = CPU(swiglu_backward),
    .cross_entropy = CPU(cross_entropy),
    .loss_sum = CPU(loss_sum),
    .add = CPU(add),
    .cast = CPU(cast),
    .fill_zero = CPU(fill_zero),
    .copy = CPU(copy),
    .set = CPU(set),
    .sumsq = CPU(sumsq),
    .update_factor = CPU(update_factor),
    .adamw = CPU(adamw),
    .adamw_bf16 = CPU(adamw_bf16),
    .sgd = CPU(sgd),
    .momentum = CPU(momentum),
    .muon = CPU(muon),
    .normalize = CPU(normalize),
    .polynomial = CPU(polynomial),
};
