/* hf_tensors.h - logical tensors in Hugging Face's files, and in peft's. */
#ifndef TRIREME_TRAIN_HF_TENSORS_H
#define TRIREME_TRAIN_HF_TENSORS_H

#include "base/box.h"
#include "io/safetensors.h"
#include "model/names.h"

enum hf_tensors_files { HF_MODEL, HF_ADAPTER };

/* Where a model's logical tensor is in opened files, and the tensor there; files of a model without
 * its head leave the first word of names away: "wte.weight".  NULL with err set: it is not there.
 */
const struct safetensors_tensor *hf_tensors_find(const struct safetensors *st,
                                                 const struct model *model,
                                                 enum hf_tensors_files files, const char *own,
                                                 struct model_place *place, struct error *err);

/* Read elements [start, start + count), count at least 1, of a box of the logical tensor at such a
 * place, in row-major order, as fp32.  0, or -1 with err set. */
int hf_tensors_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
                    const struct model_place *place, const struct box *box, int64_t start,
                    int64_t count, float *to, struct error *err);

#endif
