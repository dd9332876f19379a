/* hf_tensors.h - logical tensors in Hugging Face's files, and in peft's. */
#ifndef TRIREME_TRAIN_HF_TENSORS_H
#define TRIREME_TRAIN_HF_TENSORS_H

#include "base/box.h"
#include "io/safetensors.h"
#include "model/names.h"

enum hf_tensors_files { HF_MODEL, HF_ADAPTER };

/* Find the model's logical tensor `own` in opened files: set *place and return the stored tensor,
 * which stays st's; NULL with err set: it is not there.  Files of a model without its head leave
 * the first word of names away: "wte.weight". */
const struct safetensors_tensor *hf_tensors_find(const struct safetensors *st,
                                                 const struct model *model,
                                                 enum hf_tensors_files files, const char *own,
                                                 struct model_place *place, struct error *err);

/* Set *place alone, which follows from the model and not from files.  Returns 0, or -1: such files
 * have no such tensor. */
int hf_tensors_place(const struct model *model, enum hf_tensors_files files, const char *own,
                     struct model_place *place);

/* A run: elements of a part that lie end to end in the stored tensor. */
struct hf_tensors_run {
    int64_t at, count; /* elements [at, at + count) of the stored tensor */
    int64_t to, step;  /* they are elements to, to + step, to + 2 step, ... of the part */
};

/* The runs of a part of a logical tensor, in the order of the stored tensor, for
 * hf_tensors_next_run().  The part is elements [start, end), at least one, of the tensor's box in
 * row-major order.  place and box stay the caller's. */
struct hf_tensors_runs {
    const struct model_place *place;
    const struct box *box;
    int64_t start, end;
    int64_t next, skip; /* private: elements done (of a transposed matrix columns), and rows done of
                           the present column */
};
struct hf_tensors_runs hf_tensors_runs(const struct model_place *place, const struct box *box,
                                       int64_t start, int64_t count);

/* Set *run to the next run, cut where it reaches the stored element `limit`.  Returns 1, or 0 where
 * no run is left before `limit`. */
int hf_tensors_next_run(struct hf_tensors_runs *runs, int64_t limit, struct hf_tensors_run *run);

/* Read elements [start, start + count), count at least 1, of a box of the logical tensor that is at
 * `place` in the stored tensor, in row-major order, as fp32 into to.  0, or -1 with err set. */
int hf_tensors_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
                    const struct model_place *place, const struct box *box, int64_t start,
                    int64_t count, float *to, struct error *err);

/* For a tied model: check that a head which the files have beside the embedding, and which is not
 * read, equals the embedding, because transformers computes with a head that differs.  Returns 0,
 * or -1 with err set. */
int hf_tensors_check_head(const struct safetensors *st, const struct model *model,
                          struct error *err);

#endif
