/* state.h - the state of an opened GPU, for the C and .cu files of device/cuda. */
#ifndef TRIREME_DEVICE_CUDA_STATE_H
#define TRIREME_DEVICE_CUDA_STATE_H

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_ops.h"
#include "device/cuda/sizes.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_gemms;  /* gemm.c: cuBLASLt handle and the algorithm of every shape */
struct cuda_sdpas;  /* sdpa_cudnn.c: cuDNN plans by shape; NULL in a build without cuDNN */
struct cuda_shapes; /* shape_check.c: the attentions that are noted; NULL: none */

enum { CUDA_PARTIALS = 1024 };

struct cuda_state {
    cudaStream_t stream[DEVICE_STREAMS]; /* cuda_stream(); NULL: not used yet */
    enum device_stream ops_on; /* the stream of ops: COMPUTE unless device_ops_on() changed it */
    double *partial;           /* device, fp64 [CUDA_PARTIALS], for sums on COMPUTE */
    struct cuda_gemms *gemms;
    struct cuda_sdpas *sdpas;
    struct cuda_shapes *shapes;
    int product_sms;       /* multiprocessors that products use; 0: all */
    char name[96];         /* of the GPU */
    char level[16];        /* "sm_90" */
    unsigned replaced_met; /* bits of struct device's `replaced` for which attention was called */
    char failure[256];     /* first failure of an op that returns nothing, or "" */
};

static inline struct cuda_state *cuda_state(const struct device *d)
{
    return (struct cuda_state *)d->state; /* the cast is for C++ */
}

/* Return a stream, making it at its first use: a process has few connections to a GPU, which its
 * streams and NCCL's share (discover.c).  COMPUTE is there from the start.  The first use of
 * another one is to come before the first step, as CUDA may wait for the GPU to make it.  A stream
 * that cannot be made is noted as a failure. */
cudaStream_t cuda_stream(struct device *d, enum device_stream which);

/* Return the stream on which ops run. */
static inline cudaStream_t cuda_compute(const struct device *d)
{
    return cuda_state(d)->stream[cuda_state(d)->ops_on];
}

/* Return 0 where code is a success, else -1 with err set to "WHAT: CUDA's text for code", WHAT
 * being cut off at its first "(".  err may be NULL. */
int cuda_checked(cudaError_t code, const char *what, struct error *err);
#define CUDA_CHECK(call, err) cuda_checked((call), #call, (err))

/* Keep the first failure of an op that cannot return one; device_check() reports it. */
void cuda_note_failure(struct device *d, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

extern const struct device_ops cuda_ops;

/* gemm.c.  cuda_gemm_open() makes the gemms of cuda_state(d), for cuda_gemm_close(), which allows
 * that there are none; returns 0, or -1 with err set.  cuda_gemm_library() writes the library's
 * name and version, or "no cuBLASLt", to text and returns it. */
int cuda_gemm_open(struct device *d, struct error *err);
void cuda_gemm_close(struct device *d);
const char *cuda_gemm_library(char text[64]);
/* For tests: where a product in fp8 is computed in bf16, widen at most `rows` rows of an operand at
 * a time, a multiple of FP8_BLOCK; 0: as many as planned (sizes.h). */
void cuda_gemm_set_wide_rows(struct device *d, int64_t rows);
/* Answer device_check_fp8() for a GPU of this name and level ("sm_90"). */
int cuda_gemm_check_fp8(const char *name, const char *level, struct error *err);

/* gemm_tune.c: the functions of device/product.h on a GPU, but for cuda_products_note(), which
 * notes products alone. */
const char *cuda_products_library(const struct device *d, char text[192]);
void cuda_products_note(struct device *d, int on);
int cuda_products_noted(const struct device *d);
void cuda_product_shape(const struct device *d, int i, int64_t *shape);
struct product_choice;
int cuda_product_tune(struct device *d, int i, struct product_choice *choice, struct error *err);
int cuda_product_take(struct device *d, const struct product_choice *choice, struct error *err);

/* shape_check.c: the functions of device/shape_check.h on a GPU.  cuda_shape_note() notes an
 * attention that cuDNN computed in this memory, of forward without dqkv and dout, while products
 * are noted; cuda_shapes_note() is device_products_note(); cuda_shapes_forget() forgets the
 * attentions. */
struct cuda_attention_memory {
    void *o;
    float *lse;
    const void *qkv;
    void *dqkv;
    const void *dout;
    void *scratch;
};
void cuda_shape_note(struct device *d, const struct attention *a, enum device_pass pass,
                     const struct cuda_attention_memory *at);
void cuda_shapes_note(struct device *d, int on);
void cuda_shapes_forget(struct device *d);
int cuda_shapes_noted(const struct device *d);
void cuda_shape(const struct device *d, int i, int64_t *shape);
struct shape_check;
int cuda_shape_check(struct device *d, int i, struct shape_check *check, struct error *err);
int cuda_shape_replace(struct device *d, const int64_t *shape, struct error *err);

/* sdpa_cudnn.c, or sdpa_absent.c in a build without cuDNN.  cuda_sdpa_forward() and _backward()
 * enqueue attention by cuDNN and return 1, or return 0 where trireme's own kernels have to do it,
 * because cuDNN has no plan for this shape, type or scratch_bytes.  cuda_sdpa_prepare() has a
 * thread make the plan of a shape, for which the first call then waits. */
int cuda_sdpa_open(struct device *d, struct error *err);
void cuda_sdpa_close(struct device *d);
int cuda_sdpa_forward(struct device *d, const struct attention *a, void *o, float *lse,
                      const void *qkv, void *scratch, size_t scratch_bytes);
int cuda_sdpa_backward(struct device *d, const struct attention *a, void *dqkv, const void *dout,
                       const void *o, const float *lse, const void *qkv, void *scratch,
                       size_t scratch_bytes);
void cuda_sdpa_prepare(struct device *d, const struct attention *a, enum device_pass pass);
/* Have cuDNN asked for this shape no more, for the reason `why`, which is kept. */
void cuda_sdpa_refuse(struct device *d, const struct attention *a, enum device_pass pass,
                      const char *why);
const char *cuda_sdpa_library(char text[64]);
void cuda_sdpa_report(const struct device *d, struct device_attention *a);

/* Answer device_attention(): the shapes that cuDNN computed, and those for which it was not asked.
 */
void cuda_report_attention(const struct device *d, struct device_attention *a);
/* Answer device_attention_prepare(), unless the self-check has replaced cuDNN for this pass. */
void cuda_prepare_attention(struct device *d, const struct attention *a, enum device_pass pass);

#ifdef __cplusplus
}
#endif

#endif
