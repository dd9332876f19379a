/* self_check_private.h - the families of kernels, each with its trials (trial.h). */
#ifndef TRIREME_DEVICE_SELF_CHECK_PRIVATE_H
#define TRIREME_DEVICE_SELF_CHECK_PRIVATE_H

#include "device/trial.h"

enum self_check_kind { KIND_OWN, KIND_PRODUCT, KIND_FP8, KIND_ATTENTION };

struct self_check_family {
    const char *name;
    void (*check)(struct trial *t, const struct self_check_family *family);
    enum self_check_kind kind; /* of what a library does: its bit of enum device_family */
    enum dtype dt;
    int trans_a, trans_b;
    enum device_pass pass;
};

/* Begin to compile what a family of cuDNN will run. */
void self_check_cudnn_begin(struct device *gpu, const struct self_check_family *family);

__typeof__(void(struct trial *, const struct self_check_family *)) self_check_products,
    self_check_fp8, self_check_own_products, self_check_cudnn, self_check_attention,
    self_check_attention_cached, self_check_rmsnorm, self_check_layernorm, self_check_qk_norm,
    self_check_rope, self_check_swiglu, self_check_gelu, self_check_bias, self_check_flat,
    self_check_embedding, self_check_loss, self_check_softmax, self_check_dropout, self_check_heads,
    self_check_chunks, self_check_magnitudes, self_check_sums, self_check_adamw,
    self_check_adamw_bf16, self_check_adamw_8bit, self_check_sgd, self_check_muon, self_check_parts,
    self_check_routes, self_check_experts;

/* The families, NULL name at the end; and the bit of one. */
extern const struct self_check_family self_check_families[];
unsigned self_check_bit(const struct self_check_family *family);

/* Check family i on devices that stay the caller's.  Returns 0 and its row, or -1 with err set. */
int self_check_family(struct self_check_row *row, int i, struct device *gpu, struct device *cpu,
                      struct mem *mem, struct error *err);

#endif
