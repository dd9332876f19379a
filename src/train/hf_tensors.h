/* hf_tensors.h - logical tensors in Hugging Face's files, and in peft's. */
#ifndef TRIREME_TRAIN_HF_TENSORS_H
#define TRIREME_TRAIN_HF_TENSORS_H

#include "base/box.h"
#include "io/safetensors.h"
#include "model/names.h"

/* Kinds of files: of a model; of a model whose experts are one tensor for all; of a Phi-3, whose
 * query, key and value are one tensor, and gate and up another; of adapters. */
enum hf_tensors_files { HF_MODEL, HF_FUSED, HF_STACKED, HF_ADAPTER };

/* A logical tensor, or one matrix of it where each is a tensor of the files (model/names.h); 0 for
 * others. */
struct hf_tensors_name {
    const char *own;
    int64_t matrix;
};

/* Which kind of files of the model are these?  HF_MODEL, HF_FUSED or HF_STACKED. */
enum hf_tensors_files hf_tensors_kind(const struct safetensors *st, const struct model *model);

/* Find a logical tensor of the model in opened files: set *place and return the stored tensor,
 * which stays st's; NULL with err set: it is not there.  Files of a model without its head leave
 * the first word of names away: "wte.weight". */
const struct safetensors_tensor *hf_tensors_find(const struct safetensors *st,
                                                 const struct model *model,
                                                 enum hf_tensors_files files,
                                                 struct hf_tensors_name name,
                                                 struct model_place *place, struct error *err);

/* Set *place alone, which follows from the model and not from files.  Returns 0, or -1: such files
 * have no such tensor. */
int hf_tensors_place(const struct model *model, enum hf_tensors_files files,
                     struct hf_tensors_name name, struct model_place *place);

/* What of a part of a logical tensor is in one stored tensor: elements [start, start + count) of
 * box, which are elements at, at + 1, ... of the part.  box is the whole tensor's, or of one
 * matrix. */
struct hf_tensors_stored {
    int64_t matrix;
    struct box box;
    int64_t start, count, at;
};

/* Set *stored to what of elements [start, start + count) of a box is in the next stored tensor,
 * after *stored, or in the first one where that is {0}.  place: of any matrix of the tensor.
 * Returns 1, or 0 where nothing is left. */
int hf_tensors_next_stored(const struct model_place *place, const struct box *box, int64_t start,
                           int64_t count, struct hf_tensors_stored *stored);

/* How many stored tensors a logical one with this box is in, alone or with others. */
int64_t hf_tensors_count(const struct model_place *place, const struct box *box);

/* Set dim to the shape of the stored tensors that a logical one with this box is in.  Returns how
 * many dimensions they have. */
int hf_tensors_shape(const struct model_place *place, enum hf_tensors_files files,
                     const struct box *box, int64_t dim[BOX_DIMS]);

/* A run: elements of a part that lie end to end in the stored tensor.  Of a tensor that is many in
 * the files, the box below is that of one matrix. */
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
