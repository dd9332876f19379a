/* weights_rows.h - a vocabulary that is larger than that of the files: rows of the embedding and of
 * the head that the files do not have begin as the mean of those that they have.
 *
 * So a model takes tokens that its tokenizer was given since.  transformers'
 * resize_token_embeddings() draws such rows around the same mean, with a billionth of the rows'
 * covariance.
 */
#ifndef TRIREME_TRAIN_WEIGHTS_ROWS_H
#define TRIREME_TRAIN_WEIGHTS_ROWS_H

#include <pthread.h>

#include "train/hf_tensors.h"

/* The means of what was asked for so far.  It begins as {.lock = PTHREAD_MUTEX_INITIALIZER}, and
 * weights_rows_free() frees what it holds.  Nothing here is collective. */
struct weights_rows {
    pthread_mutex_t lock;
    double *mean[2]; /* of the embedding's rows, and of the head's; NULL: not taken yet */
};

/* The rows that a stored tensor lacks of the logical one `own` with this box: 0 where it has all,
 * or where another shape than more rows is wanted, or another tensor than the embedding and the
 * head. */
int64_t weights_rows_lacking(const char *own, const struct box *box,
                             const struct model_place *place,
                             const struct safetensors_tensor *tensor);

/* hf_tensors_read() of a tensor that may lack rows: elements [start, start + count) of the box,
 * fp32 [count], into to.  The first call for lacking rows reads the whole tensor, for their mean.
 * Several threads may call this.  Returns 0, or -1 with err set (a number cannot be read), and to
 * is then undefined. */
int weights_rows_read(struct weights_rows *rows, const char *own, const struct safetensors *st,
                      const struct safetensors_tensor *tensor, const struct model_place *place,
                      const struct box *box, int64_t start, int64_t count, float *to,
                      struct error *err);

void weights_rows_free(struct weights_rows *rows);

#endif
