/* safetensors_nf4.h - weights that bitsandbytes keeps in 4 bits, as tensors of safetensors files.
 *
 * Such a weight X is several tensors of a file (bitsandbytes, functional.py, QuantState.as_dict):
 *
 *   X                  two codes in each byte, the first in the upper half; row after row.  Of any
 *                      dtype and shape that has these bytes
 *   X.absmax           of each block of codes what shares are multiplied by: fp32, or codes of 8
 *                      bits (double quantization)
 *   X.quant_map        fp32 [16]: the share that a code stands for
 *   X.nested_absmax    fp32, of each block of those codes of 8 bits what they are multiplied by
 *   X.nested_quant_map fp32 [256]: what a code of 8 bits stands for
 *   X.quant_state.bitsandbytes__nf4
 *                      JSON as bytes: shape, blocksize, nested_blocksize, nested_offset
 *
 * Nothing here is collective.
 */
#ifndef TRIREME_IO_SAFETENSORS_NF4_H
#define TRIREME_IO_SAFETENSORS_NF4_H

#include "io/safetensors.h"

/* Join the tensors of each weight of 4 bits to one, X, of the weight's shape, with format "NF4" and
 * dtype fp32; others stay as they are.  st: opened, its tensors sorted by name.  What is added to
 * them safetensors_close() frees.  Returns 0, or -1 with err naming file and tensor (one is missing
 * or has another size, 4 bits that are not nf4), and st is good for safetensors_close() alone. */
int safetensors_nf4_join(struct safetensors *st, struct error *err);

/* Read elements [start, start + count) of a joined tensor, which has them, into to, fp32 [count]:
 * share times scale, rounded.  Returns 0, or -1 with err set, and to has some of them. */
int safetensors_nf4_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
                         int64_t start, int64_t count, float *to, struct error *err);

/* Set where the scales of a joined tensor are, for a hash of them: number of the file, first byte
 * and bytes there. */
void safetensors_nf4_scales(const struct safetensors_tensor *tensor, int *file, int64_t *offset,
                            int64_t *bytes);

#endif
