/* cublaslt_fp8.h - products of E4M3 with a scale for each block, as the library has them for
 * compute capability 9.0. */
#ifndef TRIREME_EMULATE_CUBLASLT_FP8_H
#define TRIREME_EMULATE_CUBLASLT_FP8_H

#include "cublaslt_describe.h"
#include "product.h"

namespace emulate
{

/* Has any operand, or mode of scales, to do with fp8?  Then check_operation() asks fp8_check(). */
bool fp8_is_asked(const struct matmul &o, const struct layout l[4]);
cublasStatus_t fp8_check(const struct matmul &o, const struct layout l[4]);

/* Is what the heuristic was told of the four pointers enough? */
cublasStatus_t fp8_check_alignment(const uint32_t align[4]);

/* Check pointers and scales, and give the operands of p, whose sizes are known, their scales. */
cublasStatus_t fp8_operands(const struct matmul &o, void *const at[4], struct product *p);

} // namespace emulate

#endif
