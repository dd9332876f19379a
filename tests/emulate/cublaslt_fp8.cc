/* cublaslt_fp8.cc - what the library asks of products of E4M3 with block scales, and where the
 * scale of an element lies.
 *
 * Of an operand with k contiguous and `rows` rows, by the library's documentation:
 *   VEC128      a scale for 128 of k of a row: that of row i and block b at [b * rows + i]
 *   BLK128x128  a scale for 128 rows as well: that of rows r and block b at [r * step + b], where
 *               step is the number of blocks rounded up to a multiple of 4
 */
#include "cublaslt_fp8.h"

#include "memory.h"
#include "private.h"

namespace emulate
{
namespace
{

constexpr int64_t BLOCK = 128, ALIGN = 16, STEP = 4;

constexpr int32_t VECTORS = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
constexpr int32_t SQUARES = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;

bool is_mode(int32_t mode)
{
    return mode == VECTORS || mode == SQUARES;
}

int64_t blocks_of(int64_t k)
{
    return (k + BLOCK - 1) / BLOCK;
}

/* Of an operand [rows, k]. */
cublasStatus_t find_scales(struct scales *to, const void *at, int32_t mode, int64_t rows, int64_t k)
{
    int64_t step = (blocks_of(k) + STEP - 1) / STEP * STEP;
    int64_t count = mode == VECTORS ? blocks_of(k) * rows : blocks_of(rows) * step;

    if (!at || (uintptr_t)at % ALIGN)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "no scales, or not aligned to 16 bytes");
    if (mode == VECTORS && rows % STEP)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "rows with scales: no multiple of 4");
    if (!emulate_is_device(at, (size_t)count * sizeof(float)))
        return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "the scales exceed their allocation");
    if (mode == VECTORS)
        *to = {(const float *)at, 1, 1, BLOCK, rows};
    else
        *to = {(const float *)at, BLOCK, step, BLOCK, 1};
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace

bool fp8_is_asked(const struct matmul &o, const struct layout l[4])
{
    for (int i = 0; i < 4; i++)
        if (l[i].type == CUDA_R_8F_E4M3)
            return true;
    return o.a_scale_mode || o.b_scale_mode || o.a_scale || o.b_scale;
}

cublasStatus_t fp8_check(const struct matmul &o, const struct layout l[4])
{
    if (emulate_fp8_status())
        return refuse((cublasStatus_t)emulate_fp8_status(), "no fp8, as a setting has it");
    if (l[0].type != CUDA_R_8F_E4M3 || l[1].type != CUDA_R_8F_E4M3 || l[2].type != l[3].type ||
        (l[3].type != CUDA_R_16BF && l[3].type != CUDA_R_32F))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "this mixture of types with fp8");
    if (!is_mode(o.a_scale_mode) || !is_mode(o.b_scale_mode))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "modes of scales that are not emulated");
    if (o.a_scale_mode == SQUARES && o.b_scale_mode == SQUARES)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "scales of squares on both sides");
    if (o.transa != CUBLAS_OP_T || o.transb != CUBLAS_OP_N)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "k must be contiguous in both operands of fp8");
    if (o.compute != CUBLAS_COMPUTE_32F || o.fast_accumulation)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "block scales with another way to add up");
    for (int i = 0; i < 4; i++)
        if (l[i].order != CUBLASLT_ORDER_COL || l[i].ld % ALIGN || l[i].rows % ALIGN ||
            l[i].cols % ALIGN)
            return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "sizes of fp8: no multiples of 16");
    if (!o.a_scale || !o.b_scale)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "no scales");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t fp8_check_alignment(const uint32_t align[4])
{
    for (int i = 0; i < 4; i++)
        if (align[i] % ALIGN)
            return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "pointers of fp8 not aligned to 16 bytes");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t fp8_operands(const struct matmul &o, void *const at[4], struct product *p)
{
    struct scales of_b;

    for (int i = 0; i < 4; i++)
        if ((uintptr_t)at[i] % ALIGN)
            return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix of fp8 not aligned to 16 bytes");
    if (cublasStatus_t bad = find_scales(&p->a.scales, o.a_scale, o.a_scale_mode, p->m, p->k))
        return bad;
    if (cublasStatus_t bad = find_scales(&of_b, o.b_scale, o.b_scale_mode, p->n, p->k))
        return bad;
    p->b.scales = {of_b.at, of_b.col_block, of_b.col_step, of_b.row_block, of_b.row_step};
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace emulate
