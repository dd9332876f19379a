/* faulty_gpu.c - linked into trireme-faulty: a GPU on which something is wrong, as FAULT says.
 *
 *   products   every product of cuBLASLt has 0 for its first numbers
 *   refused    rank 1's are refused
 *   swiglu     so has every result of the kernel for its first half
 */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/state.h"

enum { SPOILT_BYTES = 8 };

static int is_wrong(const char *what)
{
    const char *fault = getenv("FAULT");
    return fault && !strcmp(fault, what);
}

__typeof__(cublasLtMatmul) __real_cublasLtMatmul, __wrap_cublasLtMatmul;
__typeof__(cuda_swiglu) __real_cuda_swiglu, __wrap_cuda_swiglu;

cublasStatus_t __wrap_cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                     const void *alpha, const void *a,
                                     cublasLtMatrixLayout_t a_layout, const void *b,
                                     cublasLtMatrixLayout_t b_layout, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                                     cublasLtMatrixLayout_t d_layout,
                                     const cublasLtMatmulAlgo_t *algo, void *workspace,
                                     size_t workspace_bytes, cudaStream_t stream)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (is_wrong("refused") && rank && !strcmp(rank, "1"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    cublasStatus_t status =
        __real_cublasLtMatmul(handle, desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d,
                              d_layout, algo, workspace, workspace_bytes, stream);
    if (is_wrong("products"))
        cudaMemsetAsync(d, 0, SPOILT_BYTES, stream);
    return status;
}

void __wrap_cuda_swiglu(struct device *d, enum dtype dt, void *y, const void *gate_up, int64_t rows,
                        int64_t ffn)
{
    __real_cuda_swiglu(d, dt, y, gate_up, rows, ffn);
    if (is_wrong("swiglu"))
        cudaMemsetAsync(y, 0, (size_t)(rows * ffn) * dtype_bytes(dt) / 2, cuda_compute(d));
}
