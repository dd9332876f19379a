/* hf_tensors.c - see hf_tensors.h.
 *
 * A logical tensor is there by itself, or each of its matrices is (experts), or it is stacked with
 * others, as it is or transposed.  Of a matrix that is stored as it is, what lies end to end in the
 * box and in the file is a run.  Of a transposed one, stored [in, out], the rows that are wanted
 * are columns there: of each stored row the stretch with these is a run, whose numbers belong a row
 * of the part apart.
 *
 *   q, k, v [out, in] of GPT-2 as one tensor [in, 3 out]      rows 0 and 1 of k
 *     row 0   q q q | k k k | v v v                             . . . | x x . | . . .
 *     row 1   q q q | k k k | v v v                             . . . | x x . | . . .
 */
#include "train/hf_tensors.h"

#include <string.h>

#include "base/round.h"
#include "model/adapters.h"

enum { STRETCH = 4096 };

int hf_tensors_place(const struct model *model, enum hf_tensors_files files,
                     struct hf_tensors_name name, struct model_place *place)
{
    if (!model->family->names)
        return -1;
    if (files == HF_ADAPTER)
        return adapters_place(model, name.own, place);
    return files == HF_FUSED     ? model_hf_fused_place(model, name.own, place)
           : files == HF_STACKED ? model_hf_stacked_place(model, name.own, place)
                                 : model_hf_place(model, name.own, name.matrix, place);
}

static const struct safetensors_tensor *find_of_model(const struct safetensors *st,
                                                      const char *name)
{
    const struct safetensors_tensor *tensor = safetensors_find(st, name);
    const char *short_name = strchr(name, '.');
    return tensor || !short_name ? tensor : safetensors_find(st, short_name + 1);
}

const struct safetensors_tensor *hf_tensors_find(const struct safetensors *st,
                                                 const struct model *model,
                                                 enum hf_tensors_files files,
                                                 struct hf_tensors_name name,
                                                 struct model_place *place, struct error *err)
{
    if (hf_tensors_place(model, files, name, place)) {
        error_set(err, "%s: the family %s has no name there for its tensor %s", st->path,
                  model->family->name, name.own);
        return NULL;
    }
    const struct safetensors_tensor *tensor =
        files == HF_ADAPTER ? safetensors_find(st, place->name) : find_of_model(st, place->name);
    if (!tensor)
        error_set(err, "%s: tensor \"%s\" is missing (%s)", st->path, place->name, name.own);
    return tensor;
}

enum hf_tensors_files hf_tensors_kind(const struct safetensors *st, const struct model *model)
{
    const int has_experts = model->config.experts.count > 0;
    const enum hf_tensors_files other = has_experts ? HF_FUSED : HF_STACKED;
    const char *own = has_experts ? "layers.0.mlp.experts.down" : "layers.0.mlp.gate";
    struct model_place place;
    if (hf_tensors_place(model, other, (struct hf_tensors_name){own, 0}, &place))
        return HF_MODEL;
    return find_of_model(st, place.name) ? other : HF_MODEL;
}

int hf_tensors_next_stored(const struct model_place *place, const struct box *box, int64_t start,
                           int64_t count, struct hf_tensors_stored *stored)
{
    int first = place->is_matrix ? box->dims - 2 : 0; /* the first dimension of a stored tensor */
    int64_t at = stored->at + stored->count, element = start + at;
    if (at == count)
        return 0;
    *stored = (struct hf_tensors_stored){.at = at, .box.dims = box->dims - first};
    for (int d = first; d < box->dims; d++) {
        stored->box.whole[d - first] = box->whole[d];
        stored->box.start[d - first] = box->start[d];
        stored->box.count[d - first] = box->count[d];
    }
    int64_t elems = box_elems(&stored->box), rest = element / elems, weight = 1;
    for (int d = first - 1; d >= 0; d--) {
        stored->matrix += (box->start[d] + rest % box->count[d]) * weight;
        rest /= box->count[d];
        weight *= box->whole[d];
    }
    stored->start = element % elems;
    stored->count = min_i64(elems - stored->start, count - at);
    return 1;
}

int64_t hf_tensors_count(const struct model_place *place, const struct box *box)
{
    int64_t count = 1;
    for (int d = 0; place->is_matrix && d < box->dims - 2; d++)
        count *= box->whole[d];
    return count;
}

int hf_tensors_shape(const struct model_place *place, enum hf_tensors_files files,
                     const struct box *box, int64_t dim[BOX_DIMS])
{
    int dims = place->is_matrix ? 2 : box->dims;
    for (int d = 0; d < dims; d++)
        dim[d] = box->whole[box->dims - dims + d];
    dim[0] += place->other_rows;
    if (place->is_transposed) {
        int64_t rows = dim[0];
        dim[0] = dim[1];
        dim[1] = rows;
    }
    if (files == HF_FUSED &&
        dims == 4) { /* gates and what goes through them, one after the other */
        dim[1] *= dim[2];
        dim[2] = dim[3];
        dims = 3;
    }
    return dims;
}

struct hf_tensors_runs hf_tensors_runs(const struct model_place *place, const struct box *box,
                                       int64_t start, int64_t count)
{
    return (struct hf_tensors_runs){
        .place = place, .box = box, .start = start, .end = start + count};
}

static int next_as_is(struct hf_tensors_runs *runs, int64_t limit, struct hf_tensors_run *run)
{
    const struct box *box = runs->box, whole = box_whole(box->dims, box->whole);
    int64_t from = runs->start + runs->next, first;
    if (from >= runs->end)
        return 0;
    int64_t count = min_i64(box_run(box, &whole, from, &first), runs->end - from);
    first += runs->place->first_row * (box_elems(&whole) / box->whole[0]);
    if (first >= limit)
        return 0;
    *run = (struct hf_tensors_run){first, min_i64(count, limit - first), runs->next, 1};
    runs->next += run->count;
    return 1;
}

/* The next run of a transposed matrix: a column of the part, which is a stretch of a stored row.
 * Of the part's first and last row some columns may be left out. */
static int next_transposed(struct hf_tensors_runs *runs, int64_t limit, struct hf_tensors_run *run)
{
    const struct model_place *place = runs->place;
    const struct box *box = runs->box;
    int64_t width = box->count[1], last = runs->end - 1;
    int64_t stored = box->whole[0] + place->other_rows; /* numbers of a stored row */
    for (; runs->next < width; runs->next++, runs->skip = 0) {
        int64_t column = runs->next;
        int64_t row = runs->start / width + (column < runs->start % width) + runs->skip;
        int64_t end = last / width + (column <= last % width);
        if (row >= end)
            continue;
        int64_t at = (box->start[1] + column) * stored + place->first_row + box->start[0] + row;
        if (at >= limit)
            return 0;
        int64_t count = min_i64(end - row, limit - at);
        *run = (struct hf_tensors_run){at, count, row * width + column - runs->start, width};
        runs->skip += count;
        return 1;
    }
    return 0;
}

int hf_tensors_next_run(struct hf_tensors_runs *runs, int64_t limit, struct hf_tensors_run *run)
{
    return runs->place->is_transposed ? next_transposed(runs, limit, run)
                                      : next_as_is(runs, limit, run);
}

/* Read a stretch, and put its numbers where they belong. */
static int read_stretch(const struct safetensors *st, const struct safetensors_tensor *tensor,
                        const struct hf_tensors_run *run, float *to, struct error *err)
{
    float stretch[STRETCH];
    for (int64_t done = 0, part; done < run->count; done += part) {
        part = min_i64(run->count - done, STRETCH);
        if (safetensors_read(st, tensor, run->at + done, part, stretch, err))
            return -1;
        for (int64_t i = 0; i < part; i++)
            to[run->to + (done + i) * run->step] = stretch[i];
    }
    return 0;
}

int hf_tensors_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
                    const struct model_place *place, const struct box *box, int64_t start,
                    int64_t count, float *to, struct error *err)
{
    struct hf_tensors_runs runs = hf_tensors_runs(place, box, start, count);
    struct hf_tensors_run run;
    int rc = 0;
    while (!rc && hf_tensors_next_run(&runs, INT64_MAX, &run))
        rc = run.step == 1 ? safetensors_read(st, tensor, run.at, run.count, to + run.to, err)
                           : read_stretch(st, tensor, &run, to, err);
    return rc;
}

static int is_equal(const struct safetensors *st, const struct safetensors_tensor *a,
                    const struct safetensors_tensor *b, struct error *err)
{
    float first[STRETCH], second[STRETCH];
    int equal = a->elems == b->elems;
    for (int64_t at = 0, count; equal > 0 && at < a->elems; at += count) {
        count = min_i64(a->elems - at, STRETCH);
        if (safetensors_read(st, a, at, count, first, err) ||
            safetensors_read(st, b, at, count, second, err))
            return -1;
        equal = !memcmp(first, second, (size_t)count * sizeof *first);
    }
    return equal;
}

int hf_tensors_check_head(const struct safetensors *st, const struct model *model,
                          struct error *err)
{
    const struct safetensors_tensor *head = safetensors_find(st, "lm_head.weight");
    struct model_place place;
    if (!head)
        return 0;
    const struct safetensors_tensor *embedding =
        hf_tensors_find(st, model, HF_MODEL, (struct hf_tensors_name){"embed", 0}, &place, err);
    int equal = embedding ? is_equal(st, embedding, head, err) : -1;
    if (equal)
        return equal < 0 ? -1 : 0;
    return error_set(err,
                     "%s: tensor \"%s\" is not \"%s\", to which tie_word_embeddings ties it; set "
                     "model.tie_embeddings=false to take both, or take lm_head.weight out of the "
                     "file",
                     st->file[head->file], head->name, embedding->name);
}
