/* weights_import.c - initial values from Hugging Face's files.
 *
 * The family's table says where each logical tensor is (model/names.h): by itself, or stacked with
 * others, as it is or transposed.  Of a matrix that is stored as it is, what lies end to end in the
 * rank's box and in the file is read at once.  Of a transposed one, stored [in, out], the rows that
 * the rank needs are columns there: of each stored row the stretch with these is read, and put
 * where its numbers belong.
 *
 *   q, k, v [out, in] of GPT-2 as one tensor [in, 3 out]      rows 0 and 1 of k
 *     row 0   q q q | k k k | v v v                             . . . | x x . | . . .
 *     row 1   q q q | k k k | v v v                             . . . | x x . | . . .
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "config/hf.h"
#include "io/disk.h"
#include "io/safetensors.h"
#include "model/names.h"
#include "train/weights.h"
#include "train/weights_private.h"

struct import {
    struct session *s;
    struct safetensors *st;
};

/* What the table says of a logical tensor, and its tensor in the files; NULL with err set.  Files
 * of a model without its head leave the first word away: "wte.weight". */
static const struct safetensors_tensor *find(const struct import *import, const char *own,
                                             struct model_place *place, struct error *err)
{
    const struct model_family *family = import->s->model->family;
    if (!family->names || model_hf_place(family, own, place)) {
        error_set(err, "%s: the family %s has no name there for its tensor %s", import->st->path,
                  family->name, own);
        return NULL;
    }
    const struct safetensors_tensor *tensor = safetensors_find(import->st, place->name);
    const char *short_name = strchr(place->name, '.');
    if (!tensor && short_name)
        tensor = safetensors_find(import->st, short_name + 1);
    if (!tensor)
        error_set(err, "%s: tensor \"%s\" is missing (%s)", import->st->path, place->name, own);
    return tensor;
}

/* ---- are they the model's tensors? ---- */

static int check_shape(const struct import *import, const struct flat_tensor *own,
                       const struct model_place *place, const struct safetensors_tensor *tensor,
                       struct error *err)
{
    const struct box *box = &own->box;
    int64_t rows = box->whole[0] * place->parts, columns = box->dims > 1 ? box->whole[1] : 1;
    int64_t first = place->is_transposed ? columns : rows;
    int64_t second = place->is_transposed ? rows : columns;
    if (tensor->dims == box->dims && tensor->dim[0] == first &&
        (box->dims == 1 || tensor->dim[1] == second))
        return 0;
    return error_set(err, "%s: tensor \"%s\" has another shape than the %lld x %lld of the model",
                     import->st->file[tensor->file], tensor->name, (long long)first,
                     (long long)second);
}

/* Every tensor of the files is one of the model's, which `used` has, or known not to be one. */
static int check_extra(const struct import *import, const char *used, struct error *err)
{
    const struct safetensors *st = import->st;
    for (int t = 0; t < st->tensors; t++)
        if (!used[t] && !model_hf_is_ignored(&import->s->config.model, st->tensor[t].name))
            return error_set(err, "%s: tensor \"%.100s\" is none of this model's",
                             st->file[st->tensor[t].file], st->tensor[t].name);
    return 0;
}

static int check_all(const struct import *import, struct error *err)
{
    const struct units *units = import->s->units;
    char *used = array_make((size_t)import->st->tensors + 1, 1);
    int rc = 0;
    for (int f = 0; f < units->flats; f++)
        for (int t = 0; !rc && t < units->flat[f].tensors; t++) {
            const struct flat_tensor *own = &units->flat[f].tensor[t];
            struct model_place place;
            const struct safetensors_tensor *tensor = find(import, own->name, &place, err);
            rc = tensor ? check_shape(import, own, &place, tensor, err) : -1;
            if (tensor)
                used[tensor - import->st->tensor] = 1;
        }
    if (!rc)
        rc = check_extra(import, used, err);
    free(used);
    return rc;
}

/* ---- reading ---- */

static int read_as_is(const struct import *import, const struct safetensors_tensor *tensor,
                      const struct model_place *place, const struct flat_part *part, float *to,
                      struct error *err)
{
    const struct box *box = &part->tensor->box, whole = box_whole(box->dims, box->whole);
    int64_t before = place->part * box_elems(&whole), end = part->start + part->count, run, first;
    for (int64_t at = part->start; at < end; at += run) {
        run = min_i64(box_run(box, &whole, at, &first), end - at);
        if (safetensors_read(import->st, tensor, before + first, run, to + (at - part->start), err))
            return -1;
    }
    return 0;
}

static int read_transposed(const struct import *import, const struct safetensors_tensor *tensor,
                           const struct model_place *place, const struct flat_part *part, float *to,
                           struct error *err)
{
    const struct box *box = &part->tensor->box;
    int64_t width = box->count[1], end = part->start + part->count;
    int64_t first = part->start / width, rows = (end - 1) / width - first + 1;
    int64_t stored = tensor->dim[1]; /* numbers of a stored row */
    int64_t from = place->part * box->whole[0] + box->start[0] + first;
    float *stretch = malloc((size_t)rows * sizeof *stretch);
    int rc = stretch ? 0 : error_set(err, "out of memory: a row of %s", tensor->name);
    for (int64_t column = 0; !rc && column < width; column++) {
        rc = safetensors_read(import->st, tensor, (box->start[1] + column) * stored + from, rows,
                              stretch, err);
        for (int64_t row = 0; !rc && row < rows; row++) {
            int64_t at = (first + row) * width + column;
            if (at >= part->start && at < end)
                to[at - part->start] = stretch[row];
        }
    }
    free(stretch);
    return rc;
}

static int read_part(void *user, const struct flat_part *part, float *to, struct error *err)
{
    const struct import *import = user;
    struct model_place place;
    const struct safetensors_tensor *tensor = find(import, part->tensor->name, &place, err);
    if (!tensor || !part->count)
        return tensor ? 0 : -1;
    return place.is_transposed ? read_transposed(import, tensor, &place, part, to, err)
                               : read_as_is(import, tensor, &place, part, to, err);
}

/* Open the files of the folder and check them; *st NULL: it has none, and weights begin from the
 * seed. */
static int open_files(struct import *import, struct error *err)
{
    const char *folder = import->s->config.model_path;
    int has_pickles =
        disk_has(folder, "pytorch_model.bin") || disk_has(folder, "pytorch_model.bin.index.json");
    if (!hf_has_config(folder))
        return error_set(err,
                         "model.path: %s has no config.json, and weights are to begin with those "
                         "there; bring the folder back, or leave model.path empty to begin from "
                         "the seed",
                         folder);
    if (safetensors_look(folder) != SAFETENSORS_NONE)
        return safetensors_open(&import->st, folder, err) || check_all(import, err) ? -1 : 0;
    return !has_pickles ? 0
                        : error_set(err,
                                    "%s has its weights in pytorch_model.bin, which is a program "
                                    "and not read here; save the model as safetensors",
                                    folder);
}

int weights_import_check(struct session *s, struct error *err)
{
    struct import import = {.s = s};
    int rc = open_files(&import, err);
    safetensors_close(import.st);
    return rc;
}

int weights_import(struct session *s, struct error *err)
{
    struct import import = {.s = s};
    int rc = open_files(&import, err);
    if (!rc && !import.st) {
        log_info(s->log, "%s has no model.safetensors: weights begin from the seed",
                 s->config.model_path);
        return weights_init(s, err);
    }
    if (!rc)
        rc = weights_fill(s, read_part, &import, err);
    if (!rc)
        log_info(s->log, "weights begin with those of %s: %d tensors in %d file%s",
                 s->config.model_path, import.st->tensors, import.st->files,
                 import.st->files > 1 ? "s" : "");
    safetensors_close(import.st);
    return rc;
}
