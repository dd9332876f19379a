/* checkpoint.c - opening a checkpoint and describing it; see checkpoint.h.
 *
 * COMMIT holds the checksums of index.h5 and meta.json, and index.h5 those of the shard files.  So
 * a folder is read in this order: COMMIT (without it the folder is no checkpoint), index.h5,
 * meta.json; the shard files are verified or read by others. */
#include "io/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "io/checkpoint_private.h"
#include "io/disk.h"

/* Names: "step-N" and a suffix */

int checkpoint_parse_name(const char *name, const char *suffix, int64_t *step)
{
    long long number;
    int used = 0;
    if (sscanf(name, "step-%lld%n", &number, &used) != 1 || number < 0 ||
        strcmp(name + used, suffix))
        return 0;
    *step = number;
    return 1;
}

/* Opening */

/* Compare the checksum of the file at path with member `key` of COMMIT.  Returns 0, or -1 with err
 * set. */
static int check_digest(const struct js *commit, const char *key, const char *path,
                        struct error *err)
{
    char digest[DISK_DIGEST];
    if (disk_digest(path, digest, err))
        return -1;
    if (strcmp(digest, js_get_string(commit, key, "(none)")))
        return error_set(err, "%s: the checksum is not the one in COMMIT", path);
    return 0;
}

int checkpoint_check_committed(const char *path, struct error *err)
{
    int found = disk_look(path, "COMMIT", err);
    if (found)
        return found < 0 ? -1 : 0;
    return error_set(err, "%s is not a committed checkpoint (it has no file COMMIT)", path);
}

/* Returns the COMMIT of the checkpoint at path, for js_free(), or NULL with err set. */
static struct js *read_commit(const char *path, struct error *err)
{
    char *file = array_format("%s/COMMIT", path);
    struct js *commit = checkpoint_check_committed(path, err) ? NULL : js_read(file, err);
    free(file);
    return commit;
}

/* Returns meta.json, whose checksum was compared with COMMIT, for js_free(); NULL with err set. */
static struct js *read_meta(const char *path, const struct js *commit, struct error *err)
{
    char *file = array_format("%s/meta.json", path);
    struct js *meta = check_digest(commit, "meta", file, err) ? NULL : js_read(file, err);
    free(file);
    return meta;
}

struct js *checkpoint_read_meta(const char *path, struct error *err)
{
    struct js *commit = read_commit(path, err);
    struct js *meta = commit ? read_meta(path, commit, err) : NULL;
    js_free(commit);
    return meta;
}

/* Read index.h5, whose checksum is compared with COMMIT, into the catalog.  Returns 0, or -1 with
 * err set. */
static int read_index(struct checkpoint *checkpoint, const struct js *commit, struct error *err)
{
    char *file = array_format("%s/index.h5", checkpoint->path);
    int rc = check_digest(commit, "index", file, err);
    if (!rc)
        rc = catalog_read(checkpoint->catalog, file, err);
    free(file);
    return rc;
}

/* Compare the step in the folder's name with the one in its index: the folder may have been renamed
 * or swapped with another.  Returns 0, or -1 with err set. */
static int check_name(const struct checkpoint *checkpoint, struct error *err)
{
    const char *slash = strrchr(checkpoint->path, '/');
    int64_t step;
    if (!checkpoint_parse_name(slash ? slash + 1 : checkpoint->path, "", &step) ||
        step == checkpoint->catalog->step)
        return 0;
    return error_set(err, "%s holds step %lld; it was renamed, or swapped with another",
                     checkpoint->path, (long long)checkpoint->catalog->step);
}

struct checkpoint *checkpoint_make(const char *path)
{
    struct checkpoint *checkpoint = array_make(1, sizeof *checkpoint);
    checkpoint->path = array_text(path);
    checkpoint->catalog = array_make(1, sizeof *checkpoint->catalog);
    return checkpoint;
}

void checkpoint_count(struct checkpoint *checkpoint)
{
    const struct catalog *catalog = checkpoint->catalog;
    checkpoint->step = catalog->step;
    checkpoint->ranks = (int)catalog->file_count;
    checkpoint->tensors = (int)catalog->tensor_count;
    checkpoint->bytes = 0;
    for (int i = 0; i < checkpoint->ranks; i++)
        checkpoint->bytes += catalog->files[i].bytes;
}

/* Read index.h5 and meta.json, and compare them with COMMIT.  Returns 0, or -1 with err set. */
static int read_parts(struct checkpoint *checkpoint, const struct js *commit, struct error *err)
{
    const char *path = checkpoint->path;
    int64_t format = js_get_int(commit, "format", -1);
    if (format < FORMAT_WHOLE || format > FORMAT_BOXES)
        return error_set(err, "%s: checkpoint format %lld; this version reads %d and %d", path,
                         (long long)format, FORMAT_WHOLE, FORMAT_BOXES);
    if (read_index(checkpoint, commit, err) || !(checkpoint->meta = read_meta(path, commit, err)))
        return -1;
    if (js_get_int(commit, "step", -1) != checkpoint->catalog->step ||
        js_get_int(commit, "ranks", -1) != checkpoint->catalog->file_count)
        return error_set(err, "%s: COMMIT and index.h5 disagree about step or ranks", path);
    checkpoint_count(checkpoint);
    return check_name(checkpoint, err);
}

int checkpoint_open(struct checkpoint **out, const char *path, struct error *err)
{
    struct checkpoint *checkpoint = checkpoint_make(path);
    struct js *commit = read_commit(path, err);
    int rc = commit ? read_parts(checkpoint, commit, err) : -1;
    js_free(commit);
    if (rc)
        checkpoint_close(checkpoint);
    *out = rc ? NULL : checkpoint;
    return rc;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    catalog_free(checkpoint->catalog);
    free(checkpoint->catalog);
    js_free(checkpoint->meta);
    free(checkpoint->path);
    free(checkpoint);
}

struct box checkpoint_box(const struct checkpoint_piece *piece)
{
    return piece->box ? *piece->box : box_whole(piece->rank, piece->dims);
}

int checkpoint_box_fits(const struct checkpoint_piece *piece)
{
    struct box box = checkpoint_box(piece);
    return box.dims == piece->rank && box_is_sound(&box) &&
           !memcmp(box.whole, piece->dims, (size_t)box.dims * sizeof box.whole[0]);
}

struct checkpoint_piece checkpoint_tensor(const struct checkpoint *checkpoint, int i)
{
    const struct catalog_tensor *tensor = &checkpoint->catalog->tensors[i];
    struct checkpoint_piece piece = {
        .name = tensor->name,
        .dtype = (enum dtype)dtype_find(tensor->dtype),
        .rank = (int)tensor->rank,
        .count = tensor->elems,
    };
    memcpy(piece.dims, tensor->dims, sizeof piece.dims);
    return piece;
}

int checkpoint_find_tensor(const struct checkpoint *checkpoint, const char *name)
{
    const struct catalog_tensor *tensor = catalog_find(checkpoint->catalog, name);
    return tensor ? (int)(tensor - checkpoint->catalog->tensors) : -1;
}

int64_t checkpoint_pieces(const struct checkpoint *checkpoint, int i)
{
    return checkpoint->catalog->tensors[i].count;
}
