/* weights_saved.c - see weights_saved.h. */
#include "train/weights_saved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/disk.h"
#include "model/adapters.h"
#include "train/run_checkpoint.h"

int weights_check_finite(const char *path, const char *name, const void *values, enum dtype dtype,
                         int64_t count, struct error *err)
{
    return dtype_are_finite(values, dtype, count)
               ? 0
               : error_set(err,
                           "%s: tensor \"%.100s\" has numbers that are not finite, NaN or inf: "
                           "the file is damaged, or its training diverged",
                           path, name);
}

static const char model_prefix[] = "model/";

int weights_saved_find(const struct checkpoint *saved, const char *own, struct error *err)
{
    char name[2 * FLAT_NAME];
    snprintf(name, sizeof name, "%s%s", model_prefix, own);
    int t = checkpoint_find_tensor(saved, name);
    return t >= 0 ? t : error_set(err, "%s: tensor %s is missing", saved->path, name);
}

/* The same, of a tensor whose shape has to be the model's. */
static int find_saved(const struct checkpoint *saved, const struct flat_tensor *own,
                      struct error *err)
{
    const struct box *box = &own->box;
    int t = weights_saved_find(saved, own->name, err);
    if (t < 0)
        return -1;
    struct checkpoint_piece piece = checkpoint_tensor(saved, t);
    int same = piece.rank == box->dims;
    for (int d = 0; same && d < box->dims; d++)
        same = piece.dims[d] == box->whole[d];
    return same ? t
                : error_set(err, "%s: tensor %s%s has another shape than the model's", saved->path,
                            model_prefix, own->name);
}

int weights_saved_check(const struct session *s, const struct checkpoint *saved, struct error *err)
{
    const struct units *units = s->units;
    if (s->config.checkpoint.frozen == FROZEN_REFERENCE)
        return error_set(
            err,
            "checkpoint.frozen is reference, and model.path, %s, is a run, which may go "
            "on and prune its checkpoints; leave it at auto, or name the folder that "
            "trireme convert makes of it",
            s->config.model_path);
    for (int t = 0; t < saved->tensors; t++) {
        const char *name = checkpoint_tensor(saved, t).name;
        if (!strncmp(name, model_prefix, sizeof model_prefix - 1) &&
            adapters_own(name + sizeof model_prefix - 1))
            return error_set(err,
                             "%s has adapters; merge them first, trireme convert %s FOLDER "
                             "--merge, and name that folder",
                             saved->path, saved->path);
    }
    for (int f = 0; f < units->flats; f++)
        for (int t = 0; t < units->flat[f].tensors; t++)
            if (!adapters_own(units->flat[f].tensor[t].name) &&
                find_saved(saved, &units->flat[f].tensor[t], err) < 0)
                return -1;
    return 0;
}

int weights_saved_read(struct checkpoint *saved, const struct flat_part *part, float *to,
                       struct error *err)
{
    int t = find_saved(saved, part->tensor, err);
    if (t < 0)
        return -1;
    struct checkpoint_piece piece = checkpoint_tensor(saved, t);
    piece.dtype = DTYPE_F32;
    piece.start = part->start;
    piece.count = part->count;
    piece.box = &part->tensor->box;
    piece.data = to;
    if (!part->count)
        return 0;
    return checkpoint_load(saved, &piece, 1, err) ||
                   weights_check_finite(saved->path, part->tensor->name, to, DTYPE_F32, part->count,
                                        err)
               ? -1
               : 0;
}

int weights_saved_open(struct checkpoint **saved, const char *folder, struct error *err)
{
    struct checkpoint_entry *entries = NULL;
    char *inside = array_format("%s/checkpoints", folder);
    int count = 0, newest = 0, rc = 0;
    if (!disk_has(folder, "COMMIT"))
        count = checkpoint_list(&entries, inside, err);
    while (newest < count && !entries[newest].committed)
        newest++;
    if (count < 0)
        rc = -1;
    else if (disk_has(folder, "COMMIT"))
        rc = checkpoint_open(saved, folder, err);
    else if (newest < count)
        rc = checkpoint_open(saved, entries[newest].path, err);
    else
        rc = run_checkpoint_refuse(folder, err);
    checkpoint_list_free(entries, count > 0 ? count : 0);
    free(inside);
    return rc ? -1 : 0;
}

int weights_saved_read_ranges(struct checkpoint *saved, const char *own,
                              const struct hf_tensors_run *ranges, int count, int64_t from,
                              char *to, struct error *err)
{
    int t = weights_saved_find(saved, own, err);
    if (t < 0)
        return -1;
    struct checkpoint_piece *pieces = array_make((size_t)count, sizeof *pieces);
    for (int i = 0; i < count; i++) {
        pieces[i] = checkpoint_tensor(saved, t);
        pieces[i].dtype = DTYPE_F32;
        pieces[i].start = ranges[i].at;
        pieces[i].count = ranges[i].count;
        pieces[i].data = to + (ranges[i].at - from) * (int64_t)sizeof(float);
    }
    int rc = checkpoint_load(saved, pieces, count, err);
    for (int i = 0; !rc && i < count; i++)
        rc =
            weights_check_finite(saved->path, own, pieces[i].data, DTYPE_F32, pieces[i].count, err);
    free(pieces);
    return rc;
}
