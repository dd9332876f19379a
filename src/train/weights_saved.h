/* weights_saved.h - the weights of a checkpoint as those with which another run begins: parameters
 * alone, whatever optimizer it has the state of.  Nothing here is collective. */
#ifndef TRIREME_TRAIN_WEIGHTS_SAVED_H
#define TRIREME_TRAIN_WEIGHTS_SAVED_H

#include "io/checkpoint.h"
#include "train/hf_tensors.h"
#include "train/session.h"

/* Open the checkpoint that a folder is, or the newest committed one of the run there.  Returns 0
 * and *saved for checkpoint_close(), or -1 with err set. */
int weights_saved_open(struct checkpoint **saved, const char *folder, struct error *err);

/* Check that a checkpoint has all tensors of the session's model in their shapes, and no adapters.
 * Returns 0, or -1 with err naming the tensor. */
int weights_saved_check(const struct session *session, const struct checkpoint *saved,
                        struct error *err);

/* The number in the checkpoint of the model's tensor `own`; -1 with err set: it is not there. */
int weights_saved_find(const struct checkpoint *saved, const char *own, struct error *err);

/* Read a part of a tensor, fp32 [part->count], into to; or ranges of a whole tensor, of which
 * element i goes to to + (i - from) * 4.  Return 0, or -1 with err set: the tensor is missing, has
 * another shape, or numbers that are not finite. */
int weights_saved_read(struct checkpoint *saved, const struct flat_part *part, float *to,
                       struct error *err);
int weights_saved_read_ranges(struct checkpoint *saved, const char *own,
                              const struct hf_tensors_run *ranges, int count, int64_t from,
                              char *to, struct error *err);

/* Refuse numbers of a tensor of the file at path that are not finite, with which every loss would
 * be NaN.  Returns 0, or -1 with err set. */
int weights_check_finite(const char *path, const char *name, const void *values, enum dtype dtype,
                         int64_t count, struct error *err);

#endif
