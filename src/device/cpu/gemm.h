/* gemm.h - matrix products by a library: the gemm rows of ops.h and what they keep.
 *
 * gemm_onednn.c or gemm_cblas.c implements this, and device_gemm_library(), as configure found
 * oneDNN or a CBLAS; without either gemm_plain.c does.
 */
#ifndef TRIREME_DEVICE_CPU_GEMM_H
#define TRIREME_DEVICE_CPU_GEMM_H

#include "device/ops.h"

/* As in struct device_ops. */
DEVICE_FUNCTION(device_ops, gemm) gemm_library;
DEVICE_FUNCTION(device_ops, gemm_scratch) gemm_library_scratch;

/* What the library needs to keep (engine, primitives), in d->state; the op set, kind and
 * threads of d are already there.  Returns 0, or -1 with err set. */
int gemm_open(struct device *d, struct error *err);
void gemm_close(struct device *d);

/* gemm_library() of 16-bit inputs for a library that has no such product here: blocks of a and b
 * are converted to fp32, multiplied by gemm_library() and summed in fp32.  The scratch has a bound
 * that does not depend on the shapes. */
DEVICE_FUNCTION(device_ops, gemm) gemm_by_blocks;
DEVICE_FUNCTION(device_ops, gemm_scratch) gemm_by_blocks_scratch;

#endif
