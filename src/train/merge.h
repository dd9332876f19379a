/* merge.h - what an adapter adds to its matrix, for exports: W + factor * B A, its
 * rows scaled to magnitudes where it has these. */
#ifndef TRIREME_TRAIN_MERGE_H
#define TRIREME_TRAIN_MERGE_H

#include "io/checkpoint.h"
#include "model/model.h"

struct merge;

/* Read elements [start, start + count) of a tensor as it is without its adapter, in row-major
 * order, as fp32 into to.  0, or -1 with err set. */
typedef int merge_read(void *user, int64_t start, int64_t count, float *to, struct error *err);

/* Read the adapter of a tensor of a model from the checkpoint: *merge is for merge_free(), NULL
 * where the tensor has none.  Where it has magnitudes, `read` reads all of the tensor once, for the
 * norms of its rows.  Returns 0, or -1 with err set: a part of it is missing or misshapen, or
 * reading fails. */
int merge_find(struct merge **merge, struct checkpoint *checkpoint, const struct model *model,
               const struct model_tensor *tensor, merge_read *read, void *user, struct error *err);

/* Add the adapter to elements [start, start + count) of its matrix in to, in row-major order, and
 * scale them. */
void merge_add(const struct merge *merge, int64_t start, int64_t count, float *to);
void merge_free(struct merge *merge); /* NULL allowed */

#endif
