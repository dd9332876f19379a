/* self_check.c - the table of families, the verdict on each, and the words for it. */
#include "device/self_check.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "device/self_check_private.h"

/* Rows of the table: of products by cuBLASLt, of attention by cuDNN, and of own kernels. */
#define PRODUCT(text, format, a, b)                                                     \
    {                                                                                   \
        .name = text, .check = self_check_products, .kind = KIND_PRODUCT, .dt = format, \
        .trans_a = a, .trans_b = b                                                      \
    }
#define CUDNN(text, format, direction)                                                 \
    {                                                                                  \
        .name = text, .check = self_check_cudnn, .kind = KIND_ATTENTION, .dt = format, \
        .pass = direction                                                              \
    }
#define OWN(text, function)             \
    {                                   \
        .name = text, .check = function \
    }

const struct self_check_family self_check_families[] = {
    PRODUCT("products fp32 A B", DTYPE_F32, 0, 0),
    PRODUCT("products fp32 A B'", DTYPE_F32, 0, 1),
    PRODUCT("products fp32 A' B", DTYPE_F32, 1, 0),
    PRODUCT("products fp32 A' B'", DTYPE_F32, 1, 1),
    PRODUCT("products bf16 A B", DTYPE_BF16, 0, 0),
    PRODUCT("products bf16 A B'", DTYPE_BF16, 0, 1),
    PRODUCT("products bf16 A' B", DTYPE_BF16, 1, 0),
    PRODUCT("products bf16 A' B'", DTYPE_BF16, 1, 1),
    PRODUCT("products fp16 A B", DTYPE_F16, 0, 0),
    PRODUCT("products fp16 A B'", DTYPE_F16, 0, 1),
    PRODUCT("products fp16 A' B", DTYPE_F16, 1, 0),
    PRODUCT("products fp16 A' B'", DTYPE_F16, 1, 1),
    {.name = "products fp8", .check = self_check_fp8, .kind = KIND_FP8},
    OWN("products, own kernel", self_check_own_products),
    CUDNN("attention by cuDNN bf16, forward", DTYPE_BF16, DEVICE_FORWARD),
    CUDNN("attention by cuDNN bf16, backward", DTYPE_BF16, DEVICE_BACKWARD),
    CUDNN("attention by cuDNN fp16, forward", DTYPE_F16, DEVICE_FORWARD),
    CUDNN("attention by cuDNN fp16, backward", DTYPE_F16, DEVICE_BACKWARD),
    {.name = "attention, own kernels, fp32", .check = self_check_attention, .dt = DTYPE_F32},
    {.name = "attention, own kernels, bf16", .check = self_check_attention, .dt = DTYPE_BF16},
    {.name = "attention, own kernels, fp16", .check = self_check_attention, .dt = DTYPE_F16},
    OWN("attention over a cache", self_check_attention_cached),
    OWN("rmsnorm", self_check_rmsnorm),
    OWN("layernorm", self_check_layernorm),
    OWN("qk_norm", self_check_qk_norm),
    OWN("rope", self_check_rope),
    OWN("swiglu", self_check_swiglu),
    OWN("gelu", self_check_gelu),
    OWN("bias", self_check_bias),
    OWN("add, scale, cast, decode, copy", self_check_flat),
    OWN("embedding", self_check_embedding),
    OWN("cross-entropy", self_check_loss),
    OWN("cross-entropy in parts", self_check_softmax),
    OWN("dropout", self_check_dropout),
    OWN("packed heads", self_check_heads),
    OWN("chunks of sequences", self_check_chunks),
    OWN("magnitudes of adapters", self_check_magnitudes),
    OWN("routes of experts", self_check_routes),
    OWN("products of experts", self_check_experts),
    OWN("sums and factors", self_check_sums),
    OWN("adamw", self_check_adamw),
    OWN("adamw with bf16 state", self_check_adamw_bf16),
    OWN("adamw with 8-bit state", self_check_adamw_8bit),
    OWN("sgd", self_check_sgd),
    OWN("muon", self_check_muon),
    OWN("sums of transfers", self_check_parts),
    {0},
};
_Static_assert(sizeof self_check_families / sizeof self_check_families[0] <= SELF_CHECK_MOST + 1,
               "SELF_CHECK_MOST");

unsigned self_check_bit(const struct self_check_family *family)
{
    switch (family->kind) {
    case KIND_PRODUCT: return device_product_family(family->dt, family->trans_a, family->trans_b);
    case KIND_FP8: return DEVICE_FP8_FAMILY;
    case KIND_ATTENTION: return device_attention_family(family->dt, family->pass);
    default: return 0;
    }
}

/* ---- checking ---- */

static void check_family(struct trial *t, const struct self_check_family *family,
                         struct self_check_row *row)
{
    int64_t start = clock_ns();
    *row = (struct self_check_row){.family = family->name, .bit = self_check_bit(family)};
    t->row = row;
    t->drawn = 0; /* each family has the same inputs, whatever was checked before */
    family->check(t, family);
    row->bit = self_check_bit(family);
    if (row->verdict != SELF_CHECK_UNUSED && (row->why[0] || !(row->error <= row->bound)))
        row->verdict = row->bit ? SELF_CHECK_REPLACED : SELF_CHECK_WRONG;
    row->seconds = (double)(clock_ns() - start) * 1e-9;
}

/* 0, or -1 with err set to what ended a trial in this family. */
static int failure_of(const struct trial *t, const char *family, struct error *err)
{
    if (!t->dead)
        return 0;
    if (t->unable)
        return error_set(err, "%s", t->err.text);
    return error_set(
        err,
        "%s: %s; the GPU can do nothing more: look for errors of the hardware or the "
        "driver (dmesg, nvidia-smi -q), and take another GPU (CUDA_VISIBLE_DEVICES) or "
        "driver",
        family, t->err.text);
}

int self_check_family(struct self_check_row *row, int i, struct device *gpu, struct device *cpu,
                      struct mem *mem, struct error *err)
{
    struct trial t;
    if (trial_open(&t, gpu, cpu, mem, err))
        return -1;
    check_family(&t, &self_check_families[i], row);
    trial_close(&t);
    return failure_of(&t, row->family, err);
}

static int check_all(struct self_check *check, struct device *gpu, struct device *cpu,
                     struct mem *mem, struct error *err)
{
    struct trial t;
    if (trial_open(&t, gpu, cpu, mem, err))
        return -1;
    for (const struct self_check_family *f = self_check_families; f->name; f++)
        if (f->kind == KIND_ATTENTION) /* compiled while other families are checked */
            self_check_cudnn_begin(gpu, f);
    for (const struct self_check_family *f = self_check_families; f->name && !t.dead; f++) {
        struct self_check_row *row = &check->row[check->rows++];
        check_family(&t, f, row);
        check->replaced |= row->verdict == SELF_CHECK_REPLACED ? row->bit : 0;
        check->wrong += row->verdict == SELF_CHECK_WRONG;
    }
    trial_close(&t);
    return failure_of(&t, check->row[check->rows - 1].family, err);
}

int self_check_run(struct self_check *check, const struct device_request *request, struct mem *mem,
                   struct error *err)
{
    struct device_request for_gpu = *request, for_cpu = *request;
    struct device *gpu = NULL, *cpu = NULL;
    int64_t start = clock_ns();
    for_gpu.kind = DEVICE_CUDA;
    for_cpu.kind = DEVICE_CPU;
    for_gpu.replaced = for_cpu.replaced = 0;
    for_gpu.spare_sms = for_cpu.spare_sms = 0; /* a key of the run, which the verdict outlives */
    *check = (struct self_check){0};
    int rc = device_open(&cpu, &for_cpu, err) || device_open(&gpu, &for_gpu, err);
    check->open_seconds = (double)(clock_ns() - start) * 1e-9;
    rc = rc || check_all(check, gpu, cpu, mem, err);
    device_close(gpu);
    device_close(cpu);
    check->seconds = (double)(clock_ns() - start) * 1e-9;
    return rc ? -1 : 0;
}

/* ---- words ---- */

const char *self_check_replaced(unsigned replaced, char *text, size_t size)
{
    text[0] = 0;
    for (const struct self_check_family *f = self_check_families; f->name; f++)
        if (self_check_bit(f) & replaced)
            text_join(text, size, "; ", "%s", f->name);
    return text;
}

const char *self_check_wrong(const struct self_check *check, char *text, size_t size)
{
    text[0] = 0;
    for (int i = 0; i < check->rows; i++)
        if (check->row[i].verdict == SELF_CHECK_WRONG)
            text_join(text, size, "; ", "%s", check->row[i].family);
    return text;
}

static const char *words_of(const struct self_check_row *row)
{
    const int is_fp8 = row->bit == DEVICE_FP8_FAMILY;
    switch (row->verdict) {
    case SELF_CHECK_RIGHT: return "right";
    case SELF_CHECK_UNUSED:
        return is_fp8 ? "not in use: own kernels do it with products in bf16"
                      : "not in use: own kernels do it";
    case SELF_CHECK_REPLACED:
        return is_fp8 ? "WRONG: own kernels do it instead with products in bf16"
                      : "WRONG: own kernels do it instead";
    default: return "WRONG: nothing can do it instead";
    }
}

const char *self_check_line(const struct self_check_row *row, char text[400])
{
    char numbers[96] = "-";
    if (row->of[0])
        snprintf(numbers, sizeof numbers, "%.1e of %.1e (%s)", row->error, row->bound, row->of);
    snprintf(text, 400, "%-34s %-46s %s%s%s", row->family, numbers, words_of(row),
             row->why[0] ? "; " : "", row->why);
    return text;
}
