/* cublaslt.cc - the part of cuBLASLt that products use, on the host.
 *
 * It is stricter than the library: a workspace is filled with NaN before and after the product,
 * D is filled with NaN before anything is read (where it is not C too), every matrix must lie
 * within one allocation, and what the heuristic was told about alignment must hold.
 */
#include <cublasLt.h>

#include <new>
#include <stdio.h>
#include <string.h>
#include <vector>

#include "memory.h"
#include "product.h"
#include "stream.h"

struct cublasLtContext {
    uint32_t magic;
};

namespace emulate
{
namespace
{

constexpr uint32_t HANDLE = 0x74c0b1a5, ALGORITHM = 0xa160a160;

/* The inside of the descriptors; each fits the opaque struct of the header. */
struct layout {
    uint32_t type;
    int32_t order;
    uint64_t rows, cols;
    int64_t ld, stride, plane;
    int32_t batch;
    uint32_t mode;
};

struct operation {
    int32_t compute, scale, pointer, transa, transb, transc, fill, sm_count;
    uint32_t epilogue;
    int8_t fast_accumulation;
};

struct preference {
    uint32_t search, reductions, align[4]; /* align of A, B, C, D */
    uint64_t workspace, implementations;
    float waves;
};

struct algorithm {
    uint32_t magic;
    int32_t id;
    uint64_t workspace, m, n, k;
    uint32_t align[4];
};

static_assert(sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "layout");
static_assert(sizeof(struct operation) <= sizeof(cublasLtMatmulDescOpaque_t), "operation");
static_assert(sizeof(struct preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "preference");
static_assert(sizeof(struct algorithm) <= sizeof(cublasLtMatmulAlgo_t), "algorithm");

template <typename inside, typename opaque> inside *in(opaque *o)
{
    return reinterpret_cast<inside *>(o);
}

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
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, operation, compute),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_SCALE_TYPE, operation, scale),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_POINTER_MODE, operation, pointer),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, operation, transa),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, operation, transb),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSC, operation, transc),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_FILL_MODE, operation, fill),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE, operation, epilogue),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, operation, sm_count),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_FAST_ACCUM, operation, fast_accumulation),
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

const struct {
    cublasStatus_t status;
    const char *name, *words;
} statuses[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "out of memory"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "invalid value"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH", "not on this architecture"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR", "mapping failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "execution failed"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "internal error"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "license"},
};

cublasStatus_t refuse(cublasStatus_t status, const char *why)
{
    fprintf(stderr, "emulated cuBLASLt: %s: %s\n", cublasLtGetStatusName(status), why);
    return status;
}

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

size_t element_bytes(uint32_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

size_t extent_bytes(const struct layout &l)
{
    uint64_t lines = l.order == CUBLASLT_ORDER_COL ? l.cols : l.rows;
    uint64_t line = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
    return ((lines - 1) * (uint64_t)l.ld + line) * element_bytes(l.type);
}

cublasStatus_t check_layout(const struct layout &l)
{
    uint64_t line = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;

    if (l.type != CUDA_R_32F && l.type != CUDA_R_16BF)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "type of a matrix");
    if (l.order != CUBLASLT_ORDER_COL && l.order != CUBLASLT_ORDER_ROW)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "order of a matrix");
    if (l.batch != 1 || l.plane || l.mode)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "batches");
    if (!l.rows || !l.cols || l.rows > INT32_MAX || l.cols > INT32_MAX)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "rows or columns of a matrix");
    if (l.ld < 0 || (uint64_t)l.ld < line)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "leading dimension too small");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_operation(const struct operation &o, const struct layout l[4])
{
    bool fp32 = l[0].type == CUDA_R_32F;

    if (o.compute != CUBLAS_COMPUTE_32F && o.compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
        !(fp32 &&
          (o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 || o.compute == CUBLAS_COMPUTE_32F_FAST_16BF)))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "compute type");
    if (o.scale != CUDA_R_32F || o.epilogue != CUBLASLT_EPILOGUE_DEFAULT ||
        o.fill != CUBLAS_FILL_MODE_FULL || o.transc != CUBLAS_OP_N)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "scale type, epilogue, fill mode or transc");
    if (o.pointer != CUBLASLT_POINTER_MODE_HOST && o.pointer != CUBLASLT_POINTER_MODE_DEVICE)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "pointer mode");
    if ((o.transa != CUBLAS_OP_N && o.transa != CUBLAS_OP_T) ||
        (o.transb != CUBLAS_OP_N && o.transb != CUBLAS_OP_T))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "transposition");
    if (l[1].type != l[0].type || l[2].type != l[3].type || (fp32 && l[3].type != CUDA_R_32F))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "this mixture of types");
    if (l[2].order != l[3].order)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "C and D differ in order");
    return CUBLAS_STATUS_SUCCESS;
}

/* Check the four matrices against one another and tell m, n, k. */
cublasStatus_t check_shapes(const struct operation *o, const struct layout *l[4], uint64_t size[3])
{
    if (!o || !l[0] || !l[1] || !l[2] || !l[3])
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "a descriptor is missing");
    for (int i = 0; i < 4; i++)
        if (cublasStatus_t bad = check_layout(*l[i]))
            return bad;
    struct layout all[4] = {*l[0], *l[1], *l[2], *l[3]};
    if (cublasStatus_t bad = check_operation(*o, all))
        return bad;
    bool ta = o->transa == CUBLAS_OP_T, tb = o->transb == CUBLAS_OP_T;
    uint64_t m = ta ? all[0].cols : all[0].rows, k = ta ? all[0].rows : all[0].cols;
    uint64_t n = tb ? all[1].rows : all[1].cols, k_of_b = tb ? all[1].cols : all[1].rows;
    if (k != k_of_b || all[3].rows != m || all[3].cols != n || all[2].rows != m || all[2].cols != n)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the matrices do not fit one another");
    size[0] = m, size[1] = n, size[2] = k;
    return CUBLAS_STATUS_SUCCESS;
}

struct operand operand_of(void *at, const struct layout &l, bool transposed)
{
    bool col = l.order == CUBLASLT_ORDER_COL;
    int64_t row_step = col ? 1 : l.ld, col_step = col ? l.ld : 1;

    return {(char *)at, l.type == CUDA_R_16BF, transposed ? col_step : row_step,
            transposed ? row_step : col_step};
}

cublasStatus_t check_algorithm(const struct algorithm *a, void *const at[4], const uint64_t size[3],
                               uint64_t workspace)
{
    if (a->magic != ALGORITHM)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "not an algorithm of the heuristic");
    if (a->m != size[0] || a->n != size[1] || a->k != size[2])
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm is for another shape");
    if (workspace < a->workspace)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm needs more workspace");
    for (int i = 0; i < 4; i++)
        if (a->align[i] && (uintptr_t)at[i] % a->align[i])
            return refuse(CUBLAS_STATUS_INVALID_VALUE, "less aligned than the heuristic was told");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_memory(void *const at[4], const struct layout *const l[4], void *workspace,
                            uint64_t workspace_bytes)
{
    for (int i = 0; i < 4; i++) {
        if ((uintptr_t)at[i] % element_bytes(l[i]->type))
            return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix between two elements");
        if (!emulate_is_device(at[i], extent_bytes(*l[i])))
            return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "a matrix exceeds its allocation");
    }
    if (workspace_bytes && ((uintptr_t)workspace % 16 || !workspace))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "workspace is NULL or not aligned to 16 bytes");
    if (workspace_bytes && !emulate_is_device(workspace, workspace_bytes))
        return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "the workspace exceeds its allocation");
    if (at[2] == at[3] && memcmp(l[2], l[3], sizeof(*l[2])))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "C is D with another layout");
    return CUBLAS_STATUS_SUCCESS;
}

/* Split sums and so on: what the fake algorithms ask for, best first. */
uint64_t algorithm_workspace(int id, const uint64_t size[3])
{
    uint64_t d = (size[0] * size[1] * 4 + 255) / 256 * 256;

    return id == 0 ? 4 * d : id == 1 ? (uint64_t)32 << 10 : 0;
}

} // namespace
} // namespace emulate

using namespace emulate;

extern "C" {

cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new cublasLtContext{HANDLE};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t handle)
{
    if (!handle || handle->magic != HANDLE)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->magic = 0;
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

size_t CUBLASWINAPI cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

size_t CUBLASWINAPI cublasLtGetCudartVersion(void)
{
    return CUDART_VERSION;
}

const char *CUBLASWINAPI cublasLtGetStatusName(cublasStatus_t status)
{
    for (const auto &s : statuses)
        if (s.status == status)
            return s.name;
    return "unknown status";
}

const char *CUBLASWINAPI cublasLtGetStatusString(cublasStatus_t status)
{
    for (const auto &s : statuses)
        if (s.status == status)
            return s.words;
    return "unknown status";
}

const char *CUBLASWINAPI cublasGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusString(status);
}

const char *CUBLASWINAPI cublasGetStatusName(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

/* ---- descriptors ---- */

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
    if (size < sizeof(struct operation))
        return CUBLAS_STATUS_ALLOC_FAILED;
    memset((void *)o, 0, size);
    struct operation *inside = in<struct operation>(o);
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

/* ---- the heuristic and the product ---- */

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int requested, cublasLtMatmulHeuristicResult_t results[],
    int *returned)
{
    const struct layout *l[4] = {in<struct layout>(a), in<struct layout>(b), in<struct layout>(c),
                                 in<struct layout>(d)};
    const struct preference *p = in<struct preference>(preference);
    uint64_t size[3];

    if (!handle || handle->magic != HANDLE)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requested <= 0 || !results || !returned || !p)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "arguments of the heuristic");
    *returned = 0;
    if (cublasStatus_t bad = check_shapes(in<struct operation>(o), l, size))
        return bad;
    for (int id = 0; id < 3 && *returned < requested; id++) {
        uint64_t workspace = algorithm_workspace(id, size);
        if (workspace > p->workspace)
            continue;
        cublasLtMatmulHeuristicResult_t *r = &results[(*returned)++];
        memset(r, 0, sizeof(*r));
        struct algorithm chosen = {ALGORITHM, id, workspace, size[0], size[1], size[2], {}};
        memcpy(chosen.align, p->align, sizeof(chosen.align));
        memcpy(&r->algo, &chosen, sizeof(chosen));
        r->workspaceSize = workspace;
        r->state = CUBLAS_STATUS_SUCCESS;
        r->wavesCount = 1.0f;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
    cublasLtMatrixLayout_t a_desc, const void *b, cublasLtMatrixLayout_t b_desc, const void *beta,
    const void *c, cublasLtMatrixLayout_t c_desc, void *d, cublasLtMatrixLayout_t d_desc,
    const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const struct layout *l[4] = {in<struct layout>(a_desc), in<struct layout>(b_desc),
                                 in<struct layout>(c_desc), in<struct layout>(d_desc)};
    const struct operation *o = in<struct operation>(desc);
    void *at[4] = {(void *)a, (void *)b, (void *)c, d};
    uint64_t size[3];
    struct product p = {};

    if (!handle || handle->magic != HANDLE)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!a || !b || !c || !d || !alpha || !beta)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "a NULL pointer");
    if (cublasStatus_t bad = check_shapes(o, l, size))
        return bad;
    if (cublasStatus_t bad = check_memory(at, l, workspace, workspace_bytes))
        return bad;
    if (algo)
        if (cublasStatus_t bad =
                check_algorithm((const struct algorithm *)algo, at, size, workspace_bytes))
            return bad;

    p.m = (int64_t)size[0], p.n = (int64_t)size[1], p.k = (int64_t)size[2];
    p.a = operand_of(at[0], *l[0], o->transa == CUBLAS_OP_T);
    p.b = operand_of(at[1], *l[1], o->transb == CUBLAS_OP_T);
    p.c = operand_of(at[2], *l[2], false);
    p.d = operand_of(at[3], *l[3], false);
    p.workspace = workspace_bytes ? workspace : NULL;
    p.workspace_bytes = workspace_bytes;
    if (o->pointer == CUBLASLT_POINTER_MODE_DEVICE) {
        p.alpha_at = (const float *)alpha;
        p.beta_at = (const float *)beta;
    } else {
        p.alpha = *(const float *)alpha;
        p.beta = *(const float *)beta;
    }
    auto step = [p] {
        product_run(p);
        return EMULATE_DONE;
    };
    return emulate_enqueue(stream, step, "cublasLtMatmul") == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // extern "C"
