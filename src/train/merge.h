/* merge.h - what an adapter adds to its matrix, for exports: W + factor * B A. */
#ifndef TRIREME_TRAIN_MERGE_H
#define TRIREME_TRAIN_MERGE_H

#include "io/checkpoint.h"
#include "model/model.h"

struct merge;

/* The adapter of a tensor of a model, read from the checkpoint, for merge_free(); NULL: it has
 * none. Returns 0, or -1 with err set: a matrix of it is missing or misshapen. */
int merge_find(struct merge **merge, struct checkpoint *checkpoint, const struct model *model,
               const struct model_tensor *tensor, struct error *err);

/* Add to elements [start, start + count) of the matrix, in row-major order. */
void merge_add(const struct merge *merge, int64_t start, int64_t count, float *to);
void merge_free(struct merge *merge); /* NULL allowed */

#endif
