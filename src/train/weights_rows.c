/* weights_rows.c - see weights_rows.h.  Rows are added up in their order, in fp64, so that every
 * rank and every layout has the same mean. */
#include "train/weights_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"

static const char *const names[2] = {"embed", "head"};

/* Which of the two tensors it is, or -1. */
static int which(const char *own)
{
    return !strcmp(own, names[0]) ? 0 : !strcmp(own, names[1]) ? 1 : -1;
}

int64_t weights_rows_lacking(const char *own, const struct box *box,
                             const struct model_place *place,
                             const struct safetensors_tensor *tensor)
{
    if (which(own) < 0 || box->dims != 2 || place->is_transposed || place->stacked != 1 ||
        tensor->dims != 2 || tensor->dim[1] != box->whole[1] || !tensor->dim[0])
        return 0;
    return max_i64(box->whole[0] - tensor->dim[0], 0);
}

/* The mean of all rows, for free(); NULL with err set. */
static double *take_mean(const struct safetensors *st, const struct safetensors_tensor *tensor,
                         struct error *err)
{
    int64_t rows = tensor->dim[0], columns = tensor->dim[1];
    double *mean = array_make((size_t)columns, sizeof *mean);
    float *row = array_make((size_t)columns, sizeof *row);
    int rc = 0;
    for (int64_t r = 0; !rc && r < rows; r++) {
        rc = safetensors_read(st, tensor, r * columns, columns, row, err);
        for (int64_t c = 0; c < columns; c++)
            mean[c] += row[c];
    }
    for (int64_t c = 0; c < columns; c++)
        mean[c] /= (double)rows;
    free(row);
    if (!rc)
        return mean;
    free(mean);
    return NULL;
}

static const double *mean_of(struct weights_rows *rows, const char *own,
                             const struct safetensors *st, const struct safetensors_tensor *tensor,
                             struct error *err)
{
    double **mean = &rows->mean[which(own)];
    pthread_mutex_lock(&rows->lock);
    if (!*mean)
        *mean = take_mean(st, tensor, err);
    pthread_mutex_unlock(&rows->lock);
    return *mean;
}

int weights_rows_read(struct weights_rows *rows, const char *own, const struct safetensors *st,
                      const struct safetensors_tensor *tensor, const struct model_place *place,
                      const struct box *box, int64_t start, int64_t count, float *to,
                      struct error *err)
{
    if (!weights_rows_lacking(own, box, place, tensor))
        return hf_tensors_read(st, tensor, place, box, start, count, to, err);
    int64_t width = box->count[1], stored = (tensor->dim[0] - box->start[0]) * width - start;
    stored = min_i64(max_i64(stored, 0), count);
    if (stored && hf_tensors_read(st, tensor, place, box, start, stored, to, err))
        return -1;
    if (stored == count)
        return 0;
    const double *mean = mean_of(rows, own, st, tensor, err);
    for (int64_t i = stored; mean && i < count; i++)
        to[i] = (float)mean[box->start[1] + (start + i) % width];
    return mean ? 0 : -1;
}

void weights_rows_free(struct weights_rows *rows)
{
    free(rows->mean[0]);
    free(rows->mean[1]);
}
