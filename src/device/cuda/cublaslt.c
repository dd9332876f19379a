/* cublaslt.c - load cuBLASLt when a GPU needs it.
 *
 * Linked like other libraries, cuBLASLt would cost some 80 ms and 80 MB at every start of trireme,
 * for `plan`, --help and ranks on CPUs too, because the dynamic linker has to relocate 370,000
 * addresses in it.  So the functions of cublasLt.h that gemm.c and gemm_tune.c call are defined
 * here, under their own names.  The first call of any loads the library, of the major version that
 * trireme was compiled for, from where the dynamic linker or the program's RUNPATH has it; then
 * each passes its arguments on.  Where the library cannot be loaded they return
 * CUBLAS_STATUS_NOT_INITIALIZED and version 0, and cublasLtGetStatusString() says why.
 *
 * The names are hidden: libraries that use cuBLASLt themselves, as cuDNN does, find its own.
 */
#include <cublas_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
/* cublasLt.h's own includes stand above, so that only its own functions become hidden. */
#pragma GCC visibility push(hidden)
#include <cublasLt.h>
#pragma GCC visibility pop

#define TEXT2(x) #x
#define TEXT(x)  TEXT2(x)
#define LIBRARY  "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

/* The functions defined here: each name has the prefix cublasLt. */
/* clang-format off */
#define FUNCTIONS(X) \
    X(Create) X(Destroy) X(GetStatusString) X(GetVersion) X(Matmul) X(MatmulAlgoCheck) \
    X(MatmulAlgoConfigGetAttribute) X(MatmulAlgoGetHeuristic) X(MatmulDescCreate) \
    X(MatmulDescDestroy) X(MatmulDescSetAttribute) X(MatmulPreferenceCreate) \
    X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute) X(MatrixLayoutCreate) \
    X(MatrixLayoutDestroy)
/* clang-format on */

#define POINTER(name) __typeof__(cublasLt##name) *name;

/* The library as loaded, once in a process. */
static struct {
    pthread_once_t once;
    char failure[256]; /* why it is not loaded; empty: it is */
    FUNCTIONS(POINTER)
} cublaslt = {.once = PTHREAD_ONCE_INIT};

static void *find(void *library, const char *name)
{
    void *function = library ? dlsym(library, name) : NULL;
    if (!function && !cublaslt.failure[0])
        snprintf(cublaslt.failure, sizeof cublaslt.failure, "%s", dlerror());
    return function;
}

static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
#define FIND(name) cublaslt.name = (__typeof__(cublaslt.name))find(library, "cublasLt" #name);
    FUNCTIONS(FIND)
}

static int is_loaded(void)
{
    pthread_once(&cublaslt.once, load);
    return !cublaslt.failure[0];
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return is_loaded() ? cublaslt.GetStatusString(status) : cublaslt.failure;
}

size_t cublasLtGetVersion(void)
{
    return is_loaded() ? cublaslt.GetVersion() : 0;
}

#define PASS_ON(name, parameters, arguments)                                          \
    cublasStatus_t cublasLt##name parameters                                          \
    {                                                                                 \
        return is_loaded() ? cublaslt.name arguments : CUBLAS_STATUS_NOT_INITIALIZED; \
    }

PASS_ON(Create, (cublasLtHandle_t * handle), (handle))
PASS_ON(Destroy, (cublasLtHandle_t handle), (handle))
PASS_ON(MatmulDescCreate,
        (cublasLtMatmulDesc_t * op, cublasComputeType_t compute, cudaDataType_t scale),
        (op, compute, scale))
PASS_ON(MatmulDescDestroy, (cublasLtMatmulDesc_t op), (op))
PASS_ON(MatmulDescSetAttribute,
        (cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t name, const void *value,
         size_t bytes),
        (op, name, value, bytes))
PASS_ON(MatrixLayoutCreate,
        (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t cols,
         int64_t ld),
        (layout, type, rows, cols, ld))
PASS_ON(MatrixLayoutDestroy, (cublasLtMatrixLayout_t layout), (layout))
PASS_ON(MatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference), (preference))
PASS_ON(MatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference), (preference))
PASS_ON(MatmulPreferenceSetAttribute,
        (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
         const void *value, size_t bytes),
        (preference, name, value, bytes))
PASS_ON(MatmulAlgoGetHeuristic,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
         cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t *found,
         int *count),
        (handle, op, a, b, c, d, preference, most, found, count))
PASS_ON(MatmulAlgoCheck,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
         const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result),
        (handle, op, a, b, c, d, algo, result))
PASS_ON(MatmulAlgoConfigGetAttribute,
        (const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t name, void *value,
         size_t bytes, size_t *written),
        (algo, name, value, bytes, written))
PASS_ON(Matmul,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void *alpha, const void *a,
         cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
         const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
         cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *scratch,
         size_t bytes, cudaStream_t stream),
        (handle, op, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algo, scratch,
         bytes, stream))
