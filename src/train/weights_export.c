/* weights_export.c - see weights_export.h.
 *
 * Each logical tensor of the model has its place by the family's table (model/names.h, adapters.h);
 * of experts each matrix has one.  Tensors that are one in the files are gathered under that one's
 * name; the writer asks for its numbers in order, and they are read then, from the checkpoint or,
 * where that only refers to them, from the files of the base model: as they are, or of a transposed
 * matrix from a copy of it whole. What an adapter makes is added to the numbers as they are read
 * (merge.h).
 */
#include "train/weights_export.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "config/adapter.h"
#include "config/hf.h"
#include "io/safetensors.h"
#include "model/adapters.h"
#include "train/merge.h"
#include "train/weights_rows.h"

enum { MOST_STACKED = 3 };

/* A logical tensor, or the matrix of it whose first number is number `first` of the tensor, and
 * what adds to it (NULL: nothing). */
struct stacked {
    struct model_tensor tensor;
    int64_t first, elems;
    struct merge *merge;
};

/* A tensor of the files, and the model's tensors that are stacked in it. */
struct target {
    struct stacked stacked[MOST_STACKED];
    struct model_place place; /* of one of them */
    int has;
};

struct export
{
    const struct weights_export *how;
    struct checkpoint *checkpoint;
    const struct model *model;
    struct safetensors *base;    /* NULL: the checkpoint has everything */
    enum hf_tensors_files files; /* what it is */
    struct weights_rows *rows;   /* that it lacks */
    struct safetensors_source *source;
    struct target *target; /* per source */
    int count, capacity, target_capacity;
    float *matrix; /* of source `loaded`: [stacked, rows, columns] */
    int loaded;
};

/* The number of the tensor of the files that a place is in, added if it is not there yet. */
static int source_of(struct export *export, const struct model_place *place)
{
    for (int i = 0; place->stacked > 1 && i < export->count; i++)
        if (!strcmp(export->source[i].name, place->name))
            return i;
    export->source =
        array_grow(export->source, export->count, &export->capacity, sizeof *export->source);
    export->target =
        array_grow(export->target, export->count, &export->target_capacity, sizeof *export->target);
    struct safetensors_source *source = &export->source[export->count];
    *source = (struct safetensors_source){0};
    snprintf(source->name, sizeof source->name, "%s", place->name);
    export->target[export->count] = (struct target){.place = *place};
    return export->count++;
}

/* Is a tensor of the model among those that are written? */
static int is_wanted(const struct export *export, const char *name)
{
    return export->how->what == EXPORT_ADAPTER ? adapters_train(export->model, name)
                                               : !adapters_own(name);
}

/* ---- reading ---- */

static int read_base(const struct export *export, const struct model_tensor *tensor, int64_t start,
                     int64_t count, float *to, struct error *err)
{
    struct model_place place;
    struct box box = box_whole(tensor->dims, tensor->dim);
    struct hf_tensors_name name = {tensor->name, 0};
    struct hf_tensors_stored in = {0};
    int rc =
        hf_tensors_find(export->base, export->model, export->files, name, &place, err) ? 0 : -1;
    while (!rc && hf_tensors_next_stored(&place, &box, start, count, &in)) {
        name.matrix = in.matrix;
        const struct safetensors_tensor *stored =
            hf_tensors_find(export->base, export->model, export->files, name, &place, err);
        rc = stored ? weights_rows_read(export->rows, tensor->name, export->base, stored, &place,
                                        &in.box, in.start, in.count, to + in.at, err)
                    : -1;
    }
    return rc;
}

/* A tensor that is read. */
struct reader {
    const struct export *export;
    const struct model_tensor *tensor;
};

/* A merge_read: read elements of a logical tensor as fp32, without what an adapter makes of it. */
static int read_plain(void *user, int64_t start, int64_t count, float *to, struct error *err)
{
    const struct export *export = ((const struct reader *)user)->export;
    const struct model_tensor *tensor = ((const struct reader *)user)->tensor;
    char name[MODEL_TENSOR + 8];
    snprintf(name, sizeof name, "model/%s", tensor->name);
    int t = checkpoint_find_tensor(export->checkpoint, name);
    if (t < 0 && !export->base)
        return error_set(err, "%s: tensor %s is missing", export->checkpoint->path, name);
    if (t < 0)
        return read_base(export, tensor, start, count, to, err);
    struct checkpoint_piece piece = checkpoint_tensor(export->checkpoint, t);
    piece.dtype = DTYPE_F32;
    piece.start = start;
    piece.count = count;
    piece.data = to;
    return checkpoint_load(export->checkpoint, &piece, 1, err);
}

/* Read elements of a logical tensor as they are written, with what an adapter makes of it. */
static int read_one(const struct export *export, const struct stacked *one, int64_t start,
                    int64_t count, float *to, struct error *err)
{
    struct reader reader = {export, &one->tensor};
    int rc = read_plain(&reader, one->first + start, count, to, err);
    if (!rc && one->merge)
        merge_add(one->merge, start, count, to);
    return rc;
}

/* Add a tensor of the model, or a matrix of it, to the tensor of the files that it is in; *count:
 * how many it is in. */
static int add_matrix(struct export *export, const struct model_tensor *tensor, int64_t matrix,
                      int64_t *count, struct error *err)
{
    const struct model *model = export->model;
    const struct box whole = box_whole(tensor->dims, tensor->dim);
    const int is_adapter = export->how->what == EXPORT_ADAPTER;
    struct model_place place;
    if (hf_tensors_place(model, is_adapter ? HF_ADAPTER : HF_MODEL,
                         (struct hf_tensors_name){tensor->name, matrix}, &place) ||
        place.stacked > MOST_STACKED)
        return error_set(err, "tensor %s has no name in Hugging Face's files of %s", tensor->name,
                         model->family->name);
    *count = hf_tensors_count(&place, &whole);
    int i = source_of(export, &place); /* which may move the targets */
    struct target *target = &export->target[i];
    struct stacked *one = &target->stacked[place.number];
    one->tensor = *tensor;
    one->elems = box_elems(&whole) / *count;
    one->first = matrix * one->elems;
    target->has++;
    struct reader reader = {export, tensor};
    return is_adapter ? 0
                      : merge_find(&one->merge, export->checkpoint, model, tensor, read_plain,
                                   &reader, err);
}

static int add_tensor(void *user, const struct model_tensor *tensor, struct error *err)
{
    struct export *export = user;
    int64_t count = 1;
    int rc = 0, wanted = is_wanted(export, tensor->name);
    for (int64_t matrix = 0; wanted && !rc && matrix < count; matrix++)
        rc = add_matrix(export, tensor, matrix, &count, err);
    return rc;
}

static int read_stacked(struct export *export, const struct target *target, int64_t start,
                        int64_t count, float *to, struct error *err)
{
    int64_t each = target->stacked[0].elems, run;
    for (int64_t at = start; at < start + count; at += run) {
        run = min_i64(each - at % each, start + count - at);
        if (read_one(export, &target->stacked[at / each], at % each, run, to + (at - start), err))
            return -1;
    }
    return 0;
}

/* Read all that is stacked in a transposed matrix into memory, unless it is there. */
static int load_matrix(struct export *export, int i, struct error *err)
{
    const struct target *target = &export->target[i];
    int64_t each = target->stacked[0].elems;
    if (export->loaded == i)
        return 0;
    free(export->matrix);
    export->loaded = -1;
    export->matrix = malloc((size_t)(each * target->place.stacked) * sizeof *export->matrix);
    if (!export->matrix)
        return error_set(err, "out of memory: %s", export->source[i].name);
    if (read_stacked(export, target, 0, each * target->place.stacked, export->matrix, err))
        return -1;
    export->loaded = i;
    return 0;
}

/* Read elements of a transposed matrix.  Row j of the stored [in, stacked * out] is column j of all
 * stacked matrices, one after the other: of [stacked * out, in]. */
static int read_transposed(struct export *export, int i, int64_t start, int64_t count, float *to,
                           struct error *err)
{
    const struct target *target = &export->target[i];
    const int64_t *dim = target->stacked[0].tensor.dim;
    int64_t columns = dim[1], rows = dim[0] * target->place.stacked;
    if (load_matrix(export, i, err))
        return -1;
    for (int64_t at = start; at < start + count; at++)
        to[at - start] = export->matrix[at % rows * columns + at / rows];
    return 0;
}

/* Refuse numbers that do not fit into the format of the files: in fp16 those from 65520 on, which
 * round to 65536. */
static int check_range(const struct export *export, int i, int64_t count, const float *values,
                       struct error *err)
{
    const float beyond = 65520;
    for (int64_t k = 0; export->how->dtype == DTYPE_F16 && k < count; k++)
        if (fabsf(values[k]) >= beyond && isfinite(values[k]))
            return error_set(err,
                             "tensor \"%.100s\" has %g, and fp16 ends at 65504; write bf16 or "
                             "fp32: --dtype bf16",
                             export->source[i].name, (double)values[k]);
    return 0;
}

static int read_source(void *user, int i, int64_t start, int64_t count, float *to,
                       struct error *err)
{
    struct export *export = user;
    int rc = export->target[i].place.is_transposed
                 ? read_transposed(export, i, start, count, to, err)
                 : read_stacked(export, &export->target[i], start, count, to, err);
    return rc ? -1 : check_range(export, i, count, to, err);
}

/* ---- writing ---- */

/* Set the shape of a tensor of the files; all that it stacks has to be there, and of one size. */
static int finish_source(struct export *export, int i, struct error *err)
{
    const struct target *target = &export->target[i];
    struct safetensors_source *source = &export->source[i];
    const struct stacked *one = &target->stacked[0];
    const struct box box = box_whole(one->tensor.dims, one->tensor.dim);
    if (target->has != target->place.stacked)
        return error_set(err, "%d of the %d tensors of %s are there", target->has,
                         target->place.stacked, source->name);
    for (int t = 1; t < target->place.stacked; t++)
        if (target->stacked[t].elems != one->elems)
            return error_set(err,
                             "the tensors of %s are of different sizes, which Hugging Face's files "
                             "cannot hold",
                             source->name);
    source->dims = hf_tensors_shape(&target->place, HF_MODEL, &box, source->dim);
    source->elems = one->elems * target->place.stacked;
    source->read = read_source;
    source->user = export;
    return 0;
}

/* Open the files to which the checkpoint refers for frozen tensors, if it does. */
static int open_base(struct export *export, const struct config *config, struct error *err)
{
    const struct js *base = js_get(export->checkpoint->meta, "base");
    uint64_t hash;
    char text[24];
    if (!base || export->how->what == EXPORT_ADAPTER)
        return 0;
    if (safetensors_open(&export->base, config->model_path, err) ||
        safetensors_hash(export->base, &hash, err))
        return error_prefix(err,
                            "the frozen tensors of %s, which are in model.path (model.path=FOLDER "
                            "names where it is now)",
                            export->checkpoint->path);
    export->files = hf_tensors_kind(export->base, export->model);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    return strcmp(text, js_get_string(base, "hash", ""))
               ? error_set(err, "%s has other weights than when %s was saved", config->model_path,
                           export->checkpoint->path)
               : 0;
}

static int write_files(struct export *export, const struct config *config, struct error *err)
{
    const struct weights_export *how = export->how;
    int is_adapter = how->what == EXPORT_ADAPTER;
    char saved[CONFIG_TEXT] = "";
    if (is_adapter && adapters_saved_write(export->model, saved, err))
        return -1;
    if (safetensors_write(how->folder, is_adapter ? "adapter_model" : "model", export->source,
                          export->count, how->dtype, is_adapter ? INT64_MAX : how->file_bytes, err))
        return -1;
    return is_adapter ? adapter_write_config(config, export->model->lora.target_modules, saved,
                                             how->folder, err)
                      : hf_write_config(config, how->dtype, how->ids, how->folder, err);
}

static void release(struct export *export)
{
    for (int i = 0; i < export->count; i++)
        for (int t = 0; t < MOST_STACKED; t++)
            merge_free(export->target[i].stacked[t].merge);
    safetensors_close(export->base);
    weights_rows_free(export->rows);
    free(export->source);
    free(export->target);
    free(export->matrix);
}

int weights_export(struct weights_export *how, struct checkpoint *checkpoint,
                   const struct config *config, struct error *err)
{
    struct weights_rows rows = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct export export = {.how = how, .checkpoint = checkpoint, .rows = &rows, .loaded = -1};
    struct model *model;
    if (model_create(&model, &config->model, err))
        return -1;
    export.model = model;
    int rc = adapters_add(model, &config->lora, err) || open_base(&export, config, err) ||
             model_each_tensor(model, add_tensor, &export, err);
    for (int i = 0; !rc && i < export.count; i++)
        rc = finish_source(&export, i, err);
    if (!rc)
        rc = write_files(&export, config, err);
    how->tensors = export.count;
    release(&export);
    model_destroy(model);
    return rc ? -1 : 0;
}
