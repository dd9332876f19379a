/* cublaslt_describe.h - what is inside the opaque descriptors of the emulated cuBLASLt. */
#ifndef TRIREME_EMULATE_CUBLASLT_DESCRIBE_H
#define TRIREME_EMULATE_CUBLASLT_DESCRIBE_H

#include <cublasLt.h>

namespace emulate
{

/* Each fits the opaque struct of the library's header. */
struct layout {
    uint32_t type;
    int32_t order;
    uint64_t rows, cols;
    int64_t ld, stride, plane;
    int32_t batch;
    uint32_t mode;
};

struct matmul {
    int32_t compute, scale, pointer, transa, transb, transc, fill, sm_count;
    uint32_t epilogue;
    int8_t fast_accumulation;
    int32_t a_scale_mode, b_scale_mode;
    const void *a_scale, *b_scale;
};

struct preference {
    uint32_t search, reductions, align[4]; /* align of A, B, C, D */
    uint64_t workspace, implementations;
    float waves;
};

static_assert(sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "layout");
static_assert(sizeof(struct matmul) <= sizeof(cublasLtMatmulDescOpaque_t), "operation");
static_assert(sizeof(struct preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "preference");

template <typename inside, typename opaque> inside *in(opaque *o)
{
    return reinterpret_cast<inside *>(o);
}

/* Say on stderr why a call fails; returns status. */
cublasStatus_t refuse(cublasStatus_t status, const char *why);

} // namespace emulate

#endif
