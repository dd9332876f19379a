/* safetensors_nf4.h - weights that bitsandbytes keeps in 4 bits, as tensors of safetensors files.
 *
 * Such a weight X is several tensors of a file (bitsandbytes, functional.py, QuantState.as_dict):
 *
 *   X                                   two codes in each byte, the first in the upper half; rows
 * behind one another, of any dtype and shape with these bytes X.absmax of each block of the codes
 * what shares are multiplied by: fp32, or codes of 8 bits (double quantization) X.quant_map fp32
 * [16]: the share that a code stands for X.nested_absmax, X.nested_quant_map the same of the codes
 * of 8 bits: fp32, and fp32 [256] X.quant_state.bitsandbytes__nf4     JSON as bytes: shape,
 * blocksize, nested_blocksize, nested_offset
 */
#ifndef TRIREME_IO_SAFETENSORS_NF4_H
#define TRIREME_IO_SAFETENSORS_NF4_H

#include "io/safetensors.h"

/* Join the tensors of each weight of 4 bits to one, X, of the weight's shape, with format "NF4" and
 * dtype fp32; others stay as they are.  st: sorted.  Returns 0, or -1 with err naming file and
 * tensor: one of its tensors is missing or has another size, weights of 4 bits that are not nf4. */
int safetensors_nf4_join(struct safetensors *st, struct error *err);

/* Read elements of a joined tensor: share times scale, rounded to fp32.  The range is within it. 0,
 * or -1 with err set. */
int safetensors_nf4_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
                         int64_t start, int64_t count, float *to, struct error *err);

/* Where the scales of a joined tensor are, for a hash of them. */
void safetensors_nf4_scales(const struct safetensors_tensor *tensor, int *file, int64_t *offset,
                            int64_t *bytes);

#endif
