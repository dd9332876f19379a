/* merge.h - what an adapter adds to its matrix, for exports: W + factor * B A, its
 * rows scaled to magnitudes where it has these. */
#ifndef TRIREME_TRAIN_MERGE_H
#define TRIREME_TRAIN_MERGE_H

#include "io/checkpoint.h"
#include "model/model.h"

struct merge;

/* Elements [start, start + count) of the tensor as it is without its adapter, in row-major order.
 * 0, or -1 with err set. */
typedef int merge_read(void *user, int64_t start, int64_t count, float *to, struct error *err);

/* The adapter of a tensor of a model, read from the checkpoint, for merge_free(); NULL: it has
 * none.  Where it has magnitudes, all of the tensor is read once, for the norms of its rows.
 * Returns 0, or -1 with err set: a part of it is missing or misshapen, or reading fails. */
int merge_find(struct merge **merge, struct checkpoint *checkpoint, const struct model *model,
               const struct model_tensor *tensor, merge_read *read, void *user, struct error *err);

/* Add to elements [start, start + count) of the matrix, in row-major order, and scale them. */
void merge_add(const struct merge *merge, int64_t start, int64_t count, float *to);
void merge_free(struct merge *merge); /* NULL allowed */

#endif
