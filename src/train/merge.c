/* merge.c - see merge.h.  Sums of r products in double, so that the result is W + factor * B A
 * rounded once.  With magnitudes m it is m_i / |W_i + (factor * B A)_i| times that: the norms are
 * found first, in double too. */
#include "train/merge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "model/adapters.h"
#include "model/names.h"

struct merge {
    int64_t rows, columns, rank;
    double factor;
    float *a, *b;  /* A [rank, columns], B [rows, rank] */
    double *scale; /* [rows]: what each row is multiplied by; NULL: 1 */
};

/* Read a whole matrix of the checkpoint in fp32, for free(); NULL with err set. */
static float *load(struct checkpoint *checkpoint, const char *name, int64_t rows, int64_t columns,
                   struct error *err)
{
    int t = checkpoint_find_tensor(checkpoint, name);
    if (t < 0) {
        error_set(err, "%s: tensor %s is missing", checkpoint->path, name);
        return NULL;
    }
    struct checkpoint_piece piece = checkpoint_tensor(checkpoint, t);
    if (piece.dims[0] != rows || (piece.rank == 2 ? piece.dims[1] : 1) != columns) {
        error_set(err, "%s: %s is not %lld x %lld", checkpoint->path, name, (long long)rows,
                  (long long)columns);
        return NULL;
    }
    float *matrix = malloc((size_t)(rows * columns) * sizeof *matrix);
    if (!matrix) {
        error_set(err, "out of memory: %s", name);
        return NULL;
    }
    piece.dtype = DTYPE_F32;
    piece.data = matrix;
    if (!checkpoint_load(checkpoint, &piece, 1, err))
        return matrix;
    free(matrix);
    return NULL;
}

enum { BLOCK = 512 };

/* Add the adapter to at most BLOCK elements of a row. */
static void add_to_row(const struct merge *m, int64_t row, int64_t column, int64_t count, float *to)
{
    double sum[BLOCK] = {0}, scale = m->scale ? m->scale[row] : 1;
    for (int64_t k = 0; k < m->rank; k++) {
        const float *a = m->a + k * m->columns + column;
        double b = m->b[row * m->rank + k];
        for (int64_t c = 0; c < count; c++)
            sum[c] += b * a[c];
    }
    for (int64_t c = 0; c < count; c++)
        to[c] = (float)(scale * (to[c] + m->factor * sum[c]));
}

void merge_add(const struct merge *m, int64_t start, int64_t count, float *to)
{
    for (int64_t at = start; at < start + count;) {
        int64_t row = at / m->columns, column = at % m->columns;
        int64_t run = min_i64(m->columns - column, start + count - at);
        run = min_i64(run, BLOCK);
        add_to_row(m, row, column, run, to + (at - start));
        at += run;
    }
}

/* What a row is multiplied by to have this magnitude; 0 for a row of zeros. */
static double scale_of(const float *row, int64_t columns, double magnitude)
{
    double sum = 0;
    for (int64_t c = 0; c < columns; c++)
        sum += (double)row[c] * row[c];
    return sum == 0 ? 0 : magnitude / sqrt(sum);
}

/* Find what rows are multiplied by, from the rows without magnitudes: read() gives those of W.
 * Returns 0, or -1 with err set; m->scale is m's either way. */
static int find_scale(struct merge *m, struct checkpoint *checkpoint, const char *tensor,
                      merge_read *read, void *user, struct error *err)
{
    enum { AT_ONCE = 1 << 20 };
    char name[MODEL_TENSOR + 32];
    snprintf(name, sizeof name, "model/%s.lora_magnitude_vector", tensor);
    int64_t most = max_i64(AT_ONCE / m->columns, 1);
    float *magnitude = load(checkpoint, name, m->rows, 1, err);
    float *some = magnitude ? malloc((size_t)(most * m->columns) * sizeof *some) : NULL;
    double *scale = some ? malloc((size_t)m->rows * sizeof *scale) : NULL;
    int rc = scale ? 0 : magnitude ? error_set(err, "out of memory: %s", name) : -1;
    for (int64_t row = 0; !rc && row < m->rows; row += most) {
        int64_t rows = min_i64(most, m->rows - row);
        rc = read(user, row * m->columns, rows * m->columns, some, err);
        if (!rc)
            merge_add(m, row * m->columns, rows * m->columns, some);
        for (int64_t i = 0; !rc && i < rows; i++)
            scale[row + i] = scale_of(some + i * m->columns, m->columns, magnitude[row + i]);
    }
    m->scale = scale;
    free(magnitude);
    free(some);
    return rc ? -1 : 0;
}

int merge_find(struct merge **out, struct checkpoint *checkpoint, const struct model *model,
               const struct model_tensor *tensor, merge_read *read, void *user, struct error *err)
{
    const struct config_lora *lora = &model->lora;
    char a[HF_NAME + 16], b[MODEL_TENSOR + 16], first[HF_NAME];
    *out = NULL;
    snprintf(b, sizeof b, "model/%s.lora_B", tensor->name);
    if (!lora->r || checkpoint_find_tensor(checkpoint, b) < 0)
        return 0;
    model_hf_first(model, tensor->name, first);
    snprintf(a, sizeof a, "model/%s.lora_A", first);
    struct merge *merge = array_make(1, sizeof *merge);
    *merge = (struct merge){.rows = tensor->dim[0],
                            .columns = tensor->dim[1],
                            .rank = lora->r,
                            .factor = adapters_factor(lora)};
    merge->a = load(checkpoint, a, merge->rank, merge->columns, err);
    merge->b = merge->a ? load(checkpoint, b, merge->rows, merge->rank, err) : NULL;
    if (!merge->b ||
        (lora->use_dora && find_scale(merge, checkpoint, tensor->name, read, user, err))) {
        merge_free(merge);
        return -1;
    }
    *out = merge;
    return 0;
}

void merge_free(struct merge *merge)
{
    if (!merge)
        return;
    free(merge->a);
    free(merge->b);
    free(merge->scale);
    free(merge);
}
