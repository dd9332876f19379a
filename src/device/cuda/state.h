/* state.h - an opened GPU, as the files of device/cuda see it, C and .cu. */
#ifndef TRIREME_DEVICE_CUDA_STATE_H
#define TRIREME_DEVICE_CUDA_STATE_H

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_ops.h"
#include "device/cuda/sizes.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_gemms; /* gemm.c: cuBLASLt handle and the algorithm of every shape */
struct cuda_sdpas; /* sdpa_cudnn.c: cuDNN plans by shape; NULL in a build without cuDNN */

enum { CUDA_PARTIALS = 1024 };

struct cuda_state {
    cudaStream_t stream[DEVICE_STREAMS];
    enum device_stream ops_on; /* which of them ops run on: COMPUTE, but for device_ops_on() */
    double *partial;           /* fp64 [CUDA_PARTIALS], for sums on COMPUTE */
    struct cuda_gemms *gemms;
    struct cuda_sdpas *sdpas;
    int product_sms;       /* multiprocessors that products use; 0: all */
    char name[96];         /* of the GPU */
    char level[16];        /* "sm_90" */
    unsigned replaced_met; /* parts of struct device's `replaced` that attention has met */
    char failure[256];     /* first failure of an op that returns nothing, or "" */
};

static inline struct cuda_state *cuda_state(const struct device *d)
{
    return (struct cuda_state *)d->state; /* the cast is for C++ */
}

/* Of the ops. */
static inline cudaStream_t cuda_compute(const struct device *d)
{
    return cuda_state(d)->stream[cuda_state(d)->ops_on];
}

/* 0, or -1 with err "WHAT: CUDA's words for code". */
int cuda_checked(cudaError_t code, const char *what, struct error *err);
#define CUDA_CHECK(call, err) cuda_checked((call), #call, (err))

/* Keep the first failure of an op that cannot return one; device_check() reports it. */
void cuda_note_failure(struct device *d, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

extern const struct device_ops cuda_ops;

/* gemm.c */
int cuda_gemm_open(struct device *d, struct error *err); /* fills gemms */
void cuda_gemm_close(struct device *d);
const char *cuda_gemm_library(char text[64]);
/* To test: operands in fp8 are multiplied as bf16 so many rows at a time at most, a multiple of
 * FP8_BLOCK; 0: as planned. */
void cuda_gemm_set_wide_rows(struct device *d, int64_t rows);
/* device_check_fp8() of a GPU of this name and level. */
int cuda_gemm_check_fp8(const char *name, const char *level, struct error *err);

/* gemm_tune.c: see product.h */
const char *cuda_products_library(const struct device *d, char text[192]);
void cuda_products_note(struct device *d, int on);
int cuda_products_noted(const struct device *d);
void cuda_product_shape(const struct device *d, int i, int64_t *shape);
struct product_choice;
int cuda_product_tune(struct device *d, int i, struct product_choice *choice, struct error *err);
int cuda_product_take(struct device *d, const struct product_choice *choice, struct error *err);

/* sdpa_cudnn.c, or sdpa_absent.c where cuDNN was not found.  Forward and backward are 1 when cuDNN
 * did it and 0 when the own kernels must (no plan for this shape, type or scratch_bytes). */
int cuda_sdpa_open(struct device *d, struct error *err);
void cuda_sdpa_close(struct device *d);
int cuda_sdpa_forward(struct device *d, const struct attention *a, void *o, float *lse,
                      const void *qkv, void *scratch, size_t scratch_bytes);
int cuda_sdpa_backward(struct device *d, const struct attention *a, void *dqkv, const void *dout,
                       const void *o, const float *lse, const void *qkv, void *scratch,
                       size_t scratch_bytes);
void cuda_sdpa_prepare(struct device *d, const struct attention *a, enum device_pass pass);
const char *cuda_sdpa_library(char text[64]);
void cuda_sdpa_report(const struct device *d, struct device_attention *a);

/* device_attention(): what cuDNN met, and what it was not asked. */
void cuda_report_attention(const struct device *d, struct device_attention *a);
/* device_attention_prepare(): of what cuDNN will be asked. */
void cuda_prepare_attention(struct device *d, const struct attention *a, enum device_pass pass);

#ifdef __cplusplus
}
#endif

#endif
