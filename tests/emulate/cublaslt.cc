/* cublaslt.cc - the part of cuBLASLt that products use, on the host.
 *
 * It is stricter than the library: a workspace is filled with NaN before and after the product,
 * D is filled with NaN before anything is read (where it is not C too), every matrix must lie
 * within one allocation, and what the heuristic was told about alignment must hold.  It has a
 * fault of the library: where an algorithm splits sums, terms that fill no block are missing.
 */
#include <stdio.h>
#include <string.h>

#include "cublaslt_describe.h"
#include "cublaslt_fp8.h"
#include "memory.h"
#include "private.h"
#include "product.h"
#include "record.h"
#include "stream.h"

struct cublasLtContext {
    uint32_t magic;
};

namespace emulate
{
namespace
{

constexpr uint32_t HANDLE = 0x74c0b1a5, ALGORITHM = 0xa160a160;

struct algorithm {
    uint32_t magic;
    int32_t id;
    uint64_t workspace;
    uint32_t m, n, k, splits;
    uint16_t tile, stages, inner, cluster, align[4];
    uint8_t scheme, swizzle, custom, unused;
};

static_assert(sizeof(struct algorithm) <= sizeof(cublasLtMatmulAlgo_t), "algorithm");

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

size_t element_bytes(uint32_t type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 ? 1 : 2;
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

    if (l.type != CUDA_R_32F && l.type != CUDA_R_16BF && l.type != CUDA_R_16F &&
        l.type != CUDA_R_8F_E4M3)
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

cublasStatus_t check_operation(const struct matmul &o, const struct layout l[4])
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
    if (o.sm_count < 0 || o.sm_count > 132)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "more multiprocessors than there are");
    if ((o.transa != CUBLAS_OP_N && o.transa != CUBLAS_OP_T) ||
        (o.transb != CUBLAS_OP_N && o.transb != CUBLAS_OP_T))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "transposition");
    if (l[2].order != l[3].order)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "C and D differ in order");
    if (fp8_is_asked(o, l))
        return fp8_check(o, l);
    if (l[1].type != l[0].type || l[2].type != l[3].type ||
        (l[3].type != CUDA_R_32F && l[3].type != l[0].type))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "this mixture of types");
    return CUBLAS_STATUS_SUCCESS;
}

/* Check the four matrices against one another and tell m, n, k. */
cublasStatus_t check_shapes(const struct matmul *o, const struct layout *l[4], uint64_t size[3])
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

    enum dtype dt = l.type == CUDA_R_16BF  ? DTYPE_BF16
                    : l.type == CUDA_R_16F ? DTYPE_F16
                                           : DTYPE_F32;
    return {(char *)at, dt, transposed ? col_step : row_step, transposed ? row_step : col_step, {}};
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

/* Of another shape, other types or another beta the library may take another kernel. */
cublasStatus_t check_loaded(const struct matmul &o, const struct layout *const l[4],
                            const struct product &p, cudaStream_t stream)
{
    char kernel[160];
    snprintf(kernel, sizeof kernel, "product %lld x %lld x %lld, %d %d, types %d %d, adds %d",
             (long long)p.m, (long long)p.n, (long long)p.k, (int)o.transa, (int)o.transb,
             (int)l[0]->type, (int)l[3]->type, (int)(p.beta_at || p.beta != 0));
    const char *why = loading_refuses(kernel, stream);
    return why ? refuse(CUBLAS_STATUS_EXECUTION_FAILED, why) : CUBLAS_STATUS_SUCCESS;
}

/* What the fake algorithms ask for, best first by the heuristic: so many parts of d, of each its
 * fp32 sums, besides some workspace.  The last one adds to d in place, in any order. */
const struct {
    uint32_t parts, splits, scheme;
    uint64_t bytes;
} algorithms[] = {
    {4, 4, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0},
    {0, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 32 << 10},
    {0, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0},
    {2, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0},
    {0, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 1 << 10},
    {0, 3, CUBLASLT_REDUCTION_SCHEME_INPLACE, 2 << 10},
};
constexpr int ALGORITHMS = sizeof algorithms / sizeof algorithms[0];
constexpr int64_t BLOCK_OF_K = 64;

struct algorithm make_algorithm(int id, const uint64_t size[3], const uint32_t align[4])
{
    uint64_t part = (size[0] * size[1] * 4 + 255) / 256 * 256;
    struct algorithm a = {};
    a.magic = ALGORITHM;
    a.id = id;
    a.workspace = algorithms[id].parts * part + algorithms[id].bytes;
    a.m = (uint32_t)size[0], a.n = (uint32_t)size[1], a.k = (uint32_t)size[2];
    a.splits = algorithms[id].splits;
    a.scheme = (uint8_t)algorithms[id].scheme;
    a.tile = (uint16_t)(10 + id), a.stages = (uint16_t)(20 + id), a.cluster = (uint16_t)(id % 3);
    a.swizzle = id % 2, a.custom = (uint8_t)(3 * id), a.inner = (uint16_t)(id / 2);
    for (int i = 0; i < 4; i++)
        a.align[i] = (uint16_t)align[i];
    return a;
}

/* Emulated time of an algorithm, where one is to be the fastest: those that are not differ.  One
 * that may not be used is faster still. */
int64_t algorithm_ns(int id)
{
    int fastest = emulate_fastest_algorithm();
    bool in_place = algorithms[id].scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE;
    return fastest < 0 ? 0 : in_place ? 10000000 : id == fastest ? 100000000 : 200000000 + id;
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
    return emulate_cublaslt_version();
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
    if (cublasStatus_t bad = check_shapes(in<struct matmul>(o), l, size))
        return bad;
    if (l[0]->type == CUDA_R_8F_E4M3)
        if (cublasStatus_t bad = fp8_check_alignment(p->align))
            return bad;
    record("cuBLASLt: products for %d multiprocessors", in<struct matmul>(o)->sm_count);
    for (int id = 0; id < ALGORITHMS && *returned < requested; id++) {
        struct algorithm chosen = make_algorithm(id, size, p->align);
        if (chosen.workspace > p->workspace || (chosen.scheme & ~p->reductions))
            continue;
        cublasLtMatmulHeuristicResult_t *r = &results[(*returned)++];
        memset(r, 0, sizeof(*r));
        memcpy(&r->algo, &chosen, sizeof(chosen));
        r->workspaceSize = chosen.workspace;
        r->state = CUBLAS_STATUS_SUCCESS;
        r->wavesCount = 1.0f;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoCheck(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
    const struct layout *l[4] = {in<struct layout>(a), in<struct layout>(b), in<struct layout>(c),
                                 in<struct layout>(d)};
    const struct algorithm *chosen = (const struct algorithm *)algo;
    uint64_t size[3];

    if (!handle || handle->magic != HANDLE)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!algo || !result)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "arguments of a check");
    if (cublasStatus_t bad = check_shapes(in<struct matmul>(o), l, size))
        return bad;
    if (chosen->magic != ALGORITHM || chosen->id < 0 || chosen->id >= ALGORITHMS)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (chosen->m != size[0] || chosen->n != size[1] || chosen->k != size[2])
        return CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = chosen->workspace;
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1.0f;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t which, void *to,
    size_t bytes, size_t *written)
{
    const struct algorithm *a = (const struct algorithm *)algo;
    const struct {
        cublasLtMatmulAlgoConfigAttributes_t which;
        size_t bytes;
        uint32_t value;
    } all[] = {
        {CUBLASLT_ALGO_CONFIG_ID, 4, (uint32_t)a->id},
        {CUBLASLT_ALGO_CONFIG_TILE_ID, 4, a->tile},
        {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4, a->splits},
        {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4, a->scheme},
        {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4, a->swizzle},
        {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4, a->custom},
        {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4, a->stages},
        {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2, a->inner},
        {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2, a->cluster},
    };

    for (const auto &one : all)
        if (one.which == which && one.bytes == bytes && to) {
            memcpy(to, &one.value, bytes); /* its lower half where that is all */
            if (written)
                *written = bytes;
            return CUBLAS_STATUS_SUCCESS;
        }
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute of an algorithm, or its size");
}

/* Make a product wrong, or refuse it, where a setting has it so. */
static cublasStatus_t make_wrong(struct product &p, int id)
{
    const int algorithm = emulate_wrong_algorithm();
    if (p.k != emulate_wrong_k() || (algorithm >= 0 && algorithm != id))
        return CUBLAS_STATUS_SUCCESS;
    switch (emulate_wrong()) {
    case EMULATE_LAST_TERM: p.k--; break;
    case EMULATE_NO_ADDEND: p.beta = 0; break;
    case EMULATE_REFUSAL: return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "as a setting has it");
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
    const struct matmul *o = in<struct matmul>(desc);
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
    if (l[0]->type == CUDA_R_8F_E4M3)
        if (cublasStatus_t bad = fp8_operands(*o, at, &p))
            return bad;
    p.workspace = workspace_bytes ? workspace : NULL;
    p.workspace_bytes = workspace_bytes;
    if (o->pointer == CUBLASLT_POINTER_MODE_DEVICE) {
        p.alpha_at = (const float *)alpha;
        p.beta_at = (const float *)beta;
    } else {
        p.alpha = *(const float *)alpha;
        p.beta = *(const float *)beta;
    }
    if (cublasStatus_t bad = check_loaded(*o, l, p, stream))
        return bad;
    const int id = algo ? ((const struct algorithm *)algo)->id : 0;
    if (algorithms[id].splits > 1)
        p.k -= p.k % BLOCK_OF_K;
    if (cublasStatus_t bad = make_wrong(p, id))
        return bad;
    p.first = emulate_fastest_algorithm() < 0 ? 0 : id * p.k / ALGORITHMS;
    auto step = [p, id] {
        schedule_take_time(algorithm_ns(id));
        product_run(p);
        return EMULATE_DONE;
    };
    return emulate_enqueue(stream, step, "cublasLtMatmul") == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // extern "C"
