/* weights_export.c - see weights_export.h.
 *
 * Each tensor "model/NAME" of the checkpoint has its place by the family's table (model/names.h).
 * Tensors that are one in the files are gathered under that one's name; the writer asks for its
 * numbers in order, and they are read from the checkpoint then: as they are, or of a transposed
 * matrix from a copy of it whole.
 */
#include "train/weights_export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "config/hf.h"
#include "io/safetensors.h"
#include "model/names.h"

enum { PARTS = 3 };

static const char prefix[] = "model/";

/* A tensor of the files: the checkpoint's that are stacked in it. */
struct target {
    struct checkpoint_piece part[PARTS];
    int parts, has, is_transposed;
};

struct export
{
    struct checkpoint *checkpoint;
    struct safetensors_source *source;
    struct target *target; /* per source */
    int count, capacity, target_capacity;
    float *matrix; /* of source `loaded`: [parts, rows, columns] */
    int loaded;
};

/* The source of a name, made if there is none. */
static int source_of(struct export *export, const struct model_place *place)
{
    for (int i = 0; i < export->count; i++)
        if (!strcmp(export->source[i].name, place->name))
            return i;
    export->source =
        array_grow(export->source, export->count, &export->capacity, sizeof *export->source);
    export->target =
        array_grow(export->target, export->count, &export->target_capacity, sizeof *export->target);
    struct safetensors_source *source = &export->source[export->count];
    *source = (struct safetensors_source){0};
    snprintf(source->name, sizeof source->name, "%s", place->name);
    export->target[export->count] =
        (struct target){.parts = place->parts, .is_transposed = place->is_transposed};
    return export->count++;
}

static int add_tensor(struct export *export, const struct model_family *family, int t,
                      struct error *err)
{
    struct checkpoint_piece piece = checkpoint_tensor(export->checkpoint, t);
    struct model_place place;
    if (strncmp(piece.name, prefix, sizeof prefix - 1))
        return 0;
    if (!family->names || model_hf_place(family, piece.name + sizeof prefix - 1, &place) ||
        place.parts > PARTS || piece.rank < 1 || piece.rank > 2)
        return error_set(err, "%s: tensor %s has no name in Hugging Face's files of %s",
                         export->checkpoint->path, piece.name, family->name);
    int i = source_of(export, &place);
    export->target[i].part[place.part] = piece;
    export->target[i].has++;
    return 0;
}

/* Load elements of a checkpoint's tensor as fp32. */
static int load(struct export *export, const struct checkpoint_piece *tensor, int64_t start,
                int64_t count, float *to, struct error *err)
{
    struct checkpoint_piece piece = *tensor;
    piece.dtype = DTYPE_F32;
    piece.start = start;
    piece.count = count;
    piece.data = to;
    return checkpoint_load(export->checkpoint, &piece, 1, err);
}

static int64_t elems_of(const struct checkpoint_piece *piece)
{
    return piece->dims[0] * (piece->rank > 1 ? piece->dims[1] : 1);
}

static int read_stacked(struct export *export, const struct target *target, int64_t start,
                        int64_t count, float *to, struct error *err)
{
    int64_t each = elems_of(&target->part[0]), run;
    for (int64_t at = start; at < start + count; at += run) {
        run = min_i64(each - at % each, start + count - at);
        if (load(export, &target->part[at / each], at % each, run, to + (at - start), err))
            return -1;
    }
    return 0;
}

/* Have all parts of a transposed matrix in memory. */
static int load_matrix(struct export *export, int i, struct error *err)
{
    const struct target *target = &export->target[i];
    int64_t each = elems_of(&target->part[0]);
    if (export->loaded == i)
        return 0;
    free(export->matrix);
    export->loaded = -1;
    export->matrix = malloc((size_t)(each * target->parts) * sizeof *export->matrix);
    if (!export->matrix)
        return error_set(err, "out of memory: %s", export->source[i].name);
    if (read_stacked(export, target, 0, each * target->parts, export->matrix, err))
        return -1;
    export->loaded = i;
    return 0;
}

/* Row j of [in, parts * out] is column j of all parts, one behind the other: of [parts * out, in].
 */
static int read_transposed(struct export *export, int i, int64_t start, int64_t count, float *to,
                           struct error *err)
{
    const struct target *target = &export->target[i];
    int64_t columns = target->part[0].dims[1], rows = target->part[0].dims[0] * target->parts;
    if (load_matrix(export, i, err))
        return -1;
    for (int64_t at = start; at < start + count; at++)
        to[at - start] = export->matrix[at % rows * columns + at / rows];
    return 0;
}

static int read_source(void *user, int i, int64_t start, int64_t count, float *to,
                       struct error *err)
{
    struct export *export = user;
    return export->target[i].is_transposed
               ? read_transposed(export, i, start, count, to, err)
               : read_stacked(export, &export->target[i], start, count, to, err);
}

/* The shape of a tensor of the files, once all of its parts are there. */
static int finish_source(struct export *export, int i, struct error *err)
{
    const struct target *target = &export->target[i];
    struct safetensors_source *source = &export->source[i];
    const struct checkpoint_piece *part = &target->part[0];
    if (target->has != target->parts)
        return error_set(err, "%s: %d of the %d tensors of %s are there", export->checkpoint->path,
                         target->has, target->parts, source->name);
    for (int p = 1; p < target->parts; p++)
        if (elems_of(&target->part[p]) != elems_of(part))
            return error_set(err,
                             "%s: the tensors of %s are of different sizes, which Hugging "
                             "Face's files cannot hold",
                             export->checkpoint->path, source->name);
    source->dims = part->rank;
    source->dim[0] = part->dims[0] * target->parts;
    source->dim[1] = part->rank > 1 ? part->dims[1] : 1;
    source->elems = source->dim[0] * source->dim[1];
    if (target->is_transposed) {
        source->dim[1] = source->dim[0];
        source->dim[0] = part->dims[1];
    }
    source->read = read_source;
    source->user = export;
    return 0;
}

int weights_export(struct weights_export *how, struct checkpoint *checkpoint,
                   const struct config *config, struct error *err)
{
    struct export export = {.checkpoint = checkpoint, .loaded = -1};
    struct model *model;
    if (model_create(&model, &config->model, err))
        return -1;
    int rc = 0;
    for (int t = 0; !rc && t < checkpoint->tensors; t++)
        rc = add_tensor(&export, model->family, t, err);
    for (int i = 0; !rc && i < export.count; i++)
        rc = finish_source(&export, i, err);
    if (!rc)
        rc = safetensors_write(how->folder, "model", export.source, export.count, how->dtype,
                               how->file_bytes, err) ||
                     hf_write_config(config, how->dtype, how->folder, err)
                 ? -1
                 : 0;
    how->tensors = export.count;
    model_destroy(model);
    free(export.source);
    free(export.target);
    free(export.matrix);
    return rc;
}
