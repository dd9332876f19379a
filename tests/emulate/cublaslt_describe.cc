/* cublaslt_describe.cc - descriptors of the emulated cuBLASLt and their attributes. */
#include "cublaslt_describe.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

namespace emulate
{
namespace
{

/* One attribute: which member of the inside it is. */
struct attribute {
    int id;
    size_t at, bytes;
};

#define ATTRIBUTE(id, type, member)                      \
    {                                                    \
        id, offsetof(type, member), sizeof(type::member) \
    }

const struct attribute layout_attributes[] = {
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_TYPE, layout, type),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ORDER, layout, order),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ROWS, layout, rows),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_COLS, layout, cols),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_LD, layout, ld),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, layout, batch),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, layout, stride),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, layout, plane),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, layout, mode),
    {-1, 0, 0},
};

const struct attribute operation_attributes[] = {
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, matmul, compute),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_SCALE_TYPE, matmul, scale),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_POINTER_MODE, matmul, pointer),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, matmul, transa),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, matmul, transb),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSC, matmul, transc),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_FILL_MODE, matmul, fill),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE, matmul, epilogue),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, matmul, sm_count),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_FAST_ACCUM, matmul, fast_accumulation),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, matmul, a_scale_mode),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, matmul, b_scale_mode),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, matmul, a_scale),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, matmul, b_scale),
    {-1, 0, 0},
};

const struct attribute preference_attributes[] = {
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_SEARCH_MODE, preference, search),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, preference, workspace),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, preference, reductions),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, preference, align[0]),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, preference, align[1]),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, preference, align[2]),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, preference, align[3]),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, preference, waves),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_IMPL_MASK, preference, implementations),
    {-1, 0, 0},
};

cublasStatus_t set_attribute(const struct attribute *table, void *inside, int id, const void *from,
                             size_t bytes)
{
    for (; table->id >= 0; table++)
        if (table->id == id) {
            if (!inside || !from || bytes != table->bytes)
                return refuse(CUBLAS_STATUS_INVALID_VALUE, "size of an attribute");
            memcpy((char *)inside + table->at, from, bytes);
            return CUBLAS_STATUS_SUCCESS;
        }
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an attribute the emulation does not know");
}

cublasStatus_t get_attribute(const struct attribute *table, const void *inside, int id, void *to,
                             size_t bytes, size_t *written)
{
    for (; table->id >= 0; table++)
        if (table->id == id) {
            if (!inside || (bytes && (!to || bytes != table->bytes)) || (!bytes && !written))
                return refuse(CUBLAS_STATUS_INVALID_VALUE, "size of an attribute");
            if (bytes)
                memcpy(to, (const char *)inside + table->at, bytes);
            if (written)
                *written = table->bytes;
            return CUBLAS_STATUS_SUCCESS;
        }
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an attribute the emulation does not know");
}

} // namespace

cublasStatus_t refuse(cublasStatus_t status, const char *why)
{
    fprintf(stderr, "emulated cuBLASLt: %s: %s\n", cublasLtGetStatusName(status), why);
    return status;
}

} // namespace emulate

using namespace emulate;

extern "C" {

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t size,
                                                              cudaDataType type, uint64_t rows,
                                                              uint64_t cols, int64_t ld)
{
    if (size < sizeof(struct layout))
        return CUBLAS_STATUS_ALLOC_FAILED;
    memset((void *)l, 0, size);
    *in<struct layout>(l) = {(uint32_t)type, CUBLASLT_ORDER_COL, rows, cols, ld, 0, 0, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type,
                                                       uint64_t rows, uint64_t cols, int64_t ld)
{
    *l = new cublasLtMatrixLayoutOpaque_t;
    return cublasLtMatrixLayoutInit_internal(*l, sizeof(**l), type, rows, cols, ld);
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                             cublasLtMatrixLayoutAttribute_t id,
                                                             const void *from, size_t bytes)
{
    return set_attribute(layout_attributes, l, id, from, bytes);
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t l,
                                                             cublasLtMatrixLayoutAttribute_t id,
                                                             void *to, size_t bytes,
                                                             size_t *written)
{
    return get_attribute(layout_attributes, l, id, to, bytes, written);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t o, size_t size,
                                                            cublasComputeType_t compute,
                                                            cudaDataType_t scale)
{
    if (size < sizeof(struct matmul))
        return CUBLAS_STATUS_ALLOC_FAILED;
    memset((void *)o, 0, size);
    struct matmul *inside = in<struct matmul>(o);
    inside->compute = compute;
    inside->scale = scale;
    inside->fill = CUBLAS_FILL_MODE_FULL;
    inside->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *o,
                                                     cublasComputeType_t compute,
                                                     cudaDataType_t scale)
{
    *o = new cublasLtMatmulDescOpaque_t;
    return cublasLtMatmulDescInit_internal(*o, sizeof(**o), compute, scale);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t o)
{
    delete o;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t o,
                                                           cublasLtMatmulDescAttributes_t id,
                                                           const void *from, size_t bytes)
{
    return set_attribute(operation_attributes, o, id, from, bytes);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t o,
                                                           cublasLtMatmulDescAttributes_t id,
                                                           void *to, size_t bytes, size_t *written)
{
    return get_attribute(operation_attributes, o, id, to, bytes, written);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t p,
                                                                  size_t size)
{
    if (size < sizeof(struct preference))
        return CUBLAS_STATUS_ALLOC_FAILED;
    memset((void *)p, 0, size);
    struct preference *inside = in<struct preference>(p);
    inside->reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    inside->implementations = UINT64_MAX;
    for (uint32_t &align : inside->align)
        align = 256;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = new cublasLtMatmulPreferenceOpaque_t;
    return cublasLtMatmulPreferenceInit_internal(*p, sizeof(**p));
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t id, const void *from,
    size_t bytes)
{
    return set_attribute(preference_attributes, p, id, from, bytes);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceGetAttribute(
    cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t id, void *to, size_t bytes,
    size_t *written)
{
    return get_attribute(preference_attributes, p, id, to, bytes, written);
}

} // extern "C"
