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

/* That place alone, which follows from the model and not from files.  0, or -1: it has none. */
int hf_tensors_place(const struct model *model, enum hf_tensors_files files, const char *own,
                     struct model_place *place);

/* Elements that lie end to end in the stored tensor. */
struct hf_tensors_run {
    int64_t at, count; /* there */
    int64_t to, step;  /* where the first belongs in the part, and how far from it the next one */
};

/* The runs of a part of a logical tensor: elements [start, end), more than none, of its box, in
 * row-major order.  In the order of the stored tensor. */
struct hf_tensors_runs {
    const struct model_place *place;
    const struct box *box;
    int64_t start, end;
    int64_t next, skip; /* private: elements (columns of a transposed matrix) done, rows of one */
};
struct hf_tensors_runs hf_tensors_runs(const struct model_place *place, const struct box *box,
                                       int64_t start, int64_t count);

/* The next run, cut where it reaches the stored element `limit`.  1, or 0: the next begins there or
 * behind it, or there is none. */
int hf_tensors_next_run(struct hf_tensors_runs *runs, int64_t limit, struct hf_tensors_run *run);

/* Read elements [start, start + count), count at least 1, of a box of the logical tensor at such a
 * place, in row-major order, as fp32.  0, or -1 with err set. */
int hf_tensors_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
                    const struct model_place *place, const struct box *box, int64_t start,
                    int64_t count, float *to, struct error *err);

/* Of a tied model: a head that the files have beside the embedding, and that nothing reads, is the
 * same.  (transformers computes with one that differs.)  0, or -1 with err set. */
int hf_tensors_check_head(const struct safetensors *st, const struct model *model,
                          struct error *err);

#endif
