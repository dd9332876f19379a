/* hf_tensors.c - see hf_tensors.h.
 *
 * A logical tensor is there by itself, or stacked with others, as it is or transposed.  Of a matrix
 * that is stored as it is, what lies end to end in the box and in the file is read at once.  Of a
 * transposed one, stored [in, out], the rows that are wanted are columns there: of each stored row
 * the stretch with these is read, and put where its numbers belong.
 *
 *   q, k, v [out, in] of GPT-2 as one tensor [in, 3 out]      rows 0 and 1 of k
 *     row 0   q q q | k k k | v v v                             . . . | x x . | . . .
 *     row 1   q q q | k k k | v v v                             . . . | x x . | . . .
 */
#include "train/hf_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/round.h"
#include "model/adapters.h"

const struct safetensors_tensor *hf_tensors_find(const struct safetensors *st,
                                                 const struct model *model,
                                                 enum hf_tensors_files files, const char *own,
                                                 struct model_place *place, struct error *err)
{
    const struct model_family *family = model->family;
    if (!family->names || (files == HF_ADAPTER ? adapters_place(model, own, place)
                                               : model_hf_place(family, own, place))) {
        error_set(err, "%s: the family %s has no name there for its tensor %s", st->path,
                  family->name, own);
        return NULL;
    }
    const struct safetensors_tensor *tensor = safetensors_find(st, place->name);
    const char *short_name = strchr(place->name, '.');
    if (!tensor && short_name && files == HF_MODEL)
        tensor = safetensors_find(st, short_name + 1);
    if (!tensor)
        error_set(err, "%s: tensor \"%s\" is missing (%s)", st->path, place->name, own);
    return tensor;
}

/* Elements of a box, in row-major order. */
struct interval {
    const struct box *box;
    int64_t start, count;
};

static int read_as_is(const struct safetensors *st, const struct safetensors_tensor *tensor,
                      const struct model_place *place, const struct interval *part, float *to,
                      struct error *err)
{
    const struct box *box = part->box, whole = box_whole(box->dims, box->whole);
    int64_t before = place->part * box_elems(&whole), end = part->start + part->count, run, first;
    for (int64_t at = part->start; at < end; at += run) {
        run = min_i64(box_run(box, &whole, at, &first), end - at);
        if (safetensors_read(st, tensor, before + first, run, to + (at - part->start), err))
            return -1;
    }
    return 0;
}

static int read_transposed(const struct safetensors *st, const struct safetensors_tensor *tensor,
                           const struct model_place *place, const struct interval *part, float *to,
                           struct error *err)
{
    const struct box *box = part->box;
    int64_t width = box->count[1], end = part->start + part->count;
    int64_t first = part->start / width, rows = (end - 1) / width - first + 1;
    int64_t stored = tensor->dim[1]; /* numbers of a stored row */
    int64_t from = place->part * box->whole[0] + box->start[0] + first;
    float *stretch = malloc((size_t)rows * sizeof *stretch);
    int rc = stretch ? 0 : error_set(err, "out of memory: a row of %s", tensor->name);
    for (int64_t column = 0; !rc && column < width; column++) {
        rc = safetensors_read(st, tensor, (box->start[1] + column) * stored + from, rows, stretch,
                              err);
        for (int64_t row = 0; !rc && row < rows; row++) {
            int64_t at = (first + row) * width + column;
            if (at >= part->start && at < end)
                to[at - part->start] = stretch[row];
        }
    }
    free(stretch);
    return rc;
}

int hf_tensors_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
                    const struct model_place *place, const struct box *box, int64_t start,
                    int64_t count, float *to, struct error *err)
{
    const struct interval part = {box, start, count};
    return place->is_transposed ? read_transposed(st, tensor, place, &part, to, err)
                                : read_as_is(st, tensor, place, &part, to, err);
}
