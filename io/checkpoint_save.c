/* checkpoint_save.c - writing a checkpoint; see checkpoint.h.
 *
 *  1. Every rank checks its pieces and sends their description to rank 0, which makes the
 *     catalog, checks that it covers every element once and that the disk has space for it,
 *     creates the folder step-N.partial, and broadcasts the catalog.
 *  2. Every rank writes and fsyncs its shard file, with views of some tensors.
 *  3. Rank 0 gathers the offsets and checksums of all pieces, writes index.h5 and meta.json,
 *     then COMMIT with the checksums of both, renames the folder and fsyncs its parent.
 * After each step the ranks agree on its outcome; after a failure rank 0 removes the folder.
 * checkpoint_write.c does the same in the background.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alive.h"
#include "base/array.h"
#include "io/checkpoint_private.h"
#include "io/disk.h"
#include "io/h5.h"
#include "io/shard.h"

/* Upper bounds of the space that headers and index entries take, for each piece and each rank. */
enum { BYTES_PER_PIECE = 4096, BYTES_PER_RANK = 64 << 10 };

/* Step 1: the plan */

/* Check that a piece can be saved.  Returns 0, or -1 with err set. */
static int check_piece(const struct checkpoint_piece *piece, struct error *err)
{
    size_t length = strlen(piece->name);
    char text[BOX_TEXT];
    if (!length || length >= CATALOG_NAME || piece->name[0] == '/' ||
        piece->name[length - 1] == '/' || strstr(piece->name, "//"))
        return error_set(err, "\"%s\" cannot name a tensor", piece->name);
    if (piece->rank < 1 || piece->rank > CHECKPOINT_RANK_MAX)
        return error_set(err, "tensor %s has %d dimensions; 1 to %d are possible", piece->name,
                         piece->rank, CHECKPOINT_RANK_MAX);
    for (int i = 0; i < piece->rank; i++)
        if (piece->dims[i] < 0)
            return error_set(err, "tensor %s has a negative dimension", piece->name);
    int64_t elems = h5_elems(piece->rank, piece->dims);
    if (elems < 0)
        return error_set(err, "the dimensions of tensor %s are too large", piece->name);
    struct box box = checkpoint_box(piece);
    if (!checkpoint_box_fits(piece))
        return error_set(err, "a box %s is not in tensor %s of %lld elements", box_text(&box, text),
                         piece->name, (long long)elems);
    elems = box_elems(&box);
    if (piece->start < 0 || piece->count < 0 || piece->start > elems - piece->count)
        return error_set(err, "elements %lld to %lld are not in tensor %s%s of %lld elements",
                         (long long)piece->start, (long long)(piece->start + piece->count - 1),
                         piece->name, catalog_name_box(&box, text), (long long)elems);
    return 0;
}

/* Fill save->entries from the pieces.  Returns 0, or -1 with err set. */
static int describe(struct checkpoint_saving *save, struct error *err)
{
    int64_t rank = world_rank(save->world);
    for (int i = 0; i < save->count; i++) {
        const struct checkpoint_piece *piece = &save->pieces[i];
        struct catalog_entry *entry = &save->entries[i];
        if (check_piece(piece, err))
            return -1;
        snprintf(entry->name, sizeof entry->name, "%s", piece->name);
        entry->dtype = piece->dtype;
        entry->box = checkpoint_box(piece);
        entry->start = piece->start;
        entry->count = piece->count;
        entry->shard = rank;
    }
    return 0;
}

int checkpoint_save_begin(struct checkpoint_saving *save, struct error *err)
{
    size_t ranks = (size_t)world_size(save->world), count = (size_t)save->count;
    save->path = array_format("%s/step-%08lld", save->dir, (long long)save->step);
    save->partial = array_format("%s.partial", save->path);
    save->shard = catalog_shard_path(save->partial, world_rank(save->world));
    save->sizes = array_make(ranks, sizeof *save->sizes);
    save->entries = array_make(count, sizeof *save->entries);
    save->places = array_make(count + 1, sizeof *save->places);
    return describe(save, err);
}

/* Returns an upper bound of the bytes of one rank's shard file and of its part of index.h5. */
static double file_bytes(double pieces, double data_bytes)
{
    return data_bytes + pieces * BYTES_PER_PIECE + BYTES_PER_RANK;
}

double checkpoint_disk_bytes(const struct checkpoint_piece *pieces, int count)
{
    double data_bytes = 0;
    for (int i = 0; i < count; i++)
        data_bytes += (double)pieces[i].count * (double)dtype_bytes(pieces[i].dtype);
    return file_bytes(count, data_bytes);
}

/* Compare the bytes that the checkpoint will take with those that are free.  Returns 0, or -1 with
 * err set. */
static int check_space(const struct checkpoint_saving *save, struct error *err)
{
    double data_bytes = 0, free_bytes, ranks = world_size(save->world);
    char text[3][DISK_SIZE];
    for (int64_t t = 0; t < save->catalog.tensor_count; t++) {
        const struct catalog_tensor *tensor = &save->catalog.tensors[t];
        data_bytes +=
            (double)tensor->elems * (double)dtype_bytes((enum dtype)dtype_find(tensor->dtype));
    }
    double need =
        file_bytes((double)save->catalog.piece_count, data_bytes) + (ranks - 1) * BYTES_PER_RANK;
    if (disk_free(save->dir, &free_bytes, err))
        return -1;
    if (free_bytes < need)
        return error_set(err,
                         "%s: the checkpoint needs %s and %s are free, short by %s: free some disk "
                         "space",
                         save->dir, disk_size(need, text[0]), disk_size(free_bytes, text[1]),
                         disk_size(need - free_bytes, text[2]));
    return 0;
}

/* Make the folder at path, but none above it: if the run's folder is gone, saving must fail and not
 * make another one. */
static int make_folder(const char *path, struct error *err)
{
    return mkdir(path, 0777) && errno != EEXIST ? error_errno(err, "cannot create folder %s", path)
                                                : 0;
}

/* Do rank 0's part of step 1.  entries: those of all ranks, end to end.  Returns 0, or -1 with err
 * set. */
static int prepare(struct checkpoint_saving *save, const char *entries, struct error *err)
{
    int64_t count = 0;
    for (int i = 0; i < world_size(save->world); i++)
        count += (int64_t)(save->sizes[i] / sizeof(struct catalog_entry));
    if (catalog_build(&save->catalog, (const struct catalog_entry *)entries, count, err) ||
        catalog_check(&save->catalog, err) || make_folder(save->dir, err) ||
        disk_remove(save->partial, err) || check_space(save, err))
        return -1;
    save->catalog.step = save->step;
    save->catalog.file_count = world_size(save->world);
    save->catalog.files = array_make((size_t)save->catalog.file_count, sizeof *save->catalog.files);
    if (mkdir(save->partial, 0777))
        return error_errno(err, "cannot create folder %s", save->partial);
    return 0;
}

int checkpoint_save_plan(struct checkpoint_saving *save, struct error *err)
{
    char *all = NULL;
    size_t bytes = (size_t)save->count * sizeof *save->entries;
    if (world_gather(save->world, &all, save->sizes, save->entries, bytes, 0, err))
        return -1;
    int rc = world_rank(save->world) ? 0 : prepare(save, all, err);
    free(all);
    if (world_agree(save->world, rc, err))
        return -1;
    catalog_broadcast(&save->catalog, save->world);
    return 0;
}

/* Step 2: the shard */

int checkpoint_save_make_shard(struct checkpoint_saving *save, struct error *err)
{
    return shard_make(save->shard, &save->catalog, world_rank(save->world), save->pieces,
                      save->count, save->places + 1, err);
}

int checkpoint_save_agree_on_shard(struct checkpoint_saving *save, int rc,
                                   const struct catalog_file *row, struct error *err)
{
    if (!rc)
        save->places[0] = (struct shard_place){row->bytes, row->rest};
    return world_agree(save->world, rc, err);
}

/* Do step 2.  Collective.  Returns 0, or -1 with err set on every rank. */
static int write_shard(struct checkpoint_saving *save, struct error *err)
{
    struct catalog_file row;
    int rc = checkpoint_save_make_shard(save, err) ||
                     shard_fill(save->shard, save->pieces, save->count, save->places + 1, &row, err)
                 ? -1
                 : 0;
    return checkpoint_save_agree_on_shard(save, rc, &row, err);
}

/* Step 3: index, commit, publish */

/* Put the offsets and checksums that the ranks sent (all) into the catalog, where the offset of a
 * piece has been the index of its entry so far (catalog_build()). */
static void fill_catalog(struct checkpoint_saving *save, const struct shard_place *all)
{
    struct catalog *catalog = &save->catalog;
    int64_t entries = 0;
    /* Each rank sent the row of its file, then the places of its entries.  So before the place of
     * entry i, which is of rank `shard`, there are i places of entries and shard + 1 rows. */
    for (int64_t i = 0; i < catalog->piece_count; i++) {
        struct catalog_piece *piece = &catalog->pieces[i];
        const struct shard_place *place = &all[piece->offset + piece->shard + 1];
        piece->offset = place->offset;
        piece->checksum = place->checksum;
    }
    for (int64_t i = 0; i < catalog->file_count; i++) {
        const struct shard_place *row = &all[entries + i];
        catalog->files[i] = (struct catalog_file){row->offset, row->checksum};
        entries += (int64_t)(save->sizes[i] / sizeof *row) - 1;
    }
}

/* Add the members that meta.json and COMMIT both have. */
static void add_common(struct js *json, const struct checkpoint_saving *save)
{
    js_add_int(json, "format", catalog_format(&save->catalog));
    js_add_int(json, "step", save->step);
    js_add_int(json, "ranks", world_size(save->world));
}

/* Write COMMIT at path, with the checksums of the files index and meta.  Returns 0, or -1 with err
 * set. */
static int write_commit(const struct checkpoint_saving *save, const char *index, const char *meta,
                        const char *path, struct error *err)
{
    char index_digest[DISK_DIGEST], meta_digest[DISK_DIGEST];
    if (disk_digest(index, index_digest, err) || disk_digest(meta, meta_digest, err))
        return -1;
    struct js *commit = js_object();
    add_common(commit, save);
    js_add_string(commit, "index", index_digest);
    js_add_string(commit, "meta", meta_digest);
    int rc = js_write(commit, JS_ONE_LINE, WHOLE_FILE_DURABLE, path, err);
    js_free(commit);
    return rc;
}

/* Write index.h5, meta.json (the caller's meta, or an object of its own) and COMMIT.  Returns 0, or
 * -1 with err set. */
static int write_index(struct checkpoint_saving *save, struct js *meta, struct error *err)
{
    struct js *own = meta ? NULL : js_object();
    char *index = array_format("%s/index.h5", save->partial);
    char *about = array_format("%s/meta.json", save->partial);
    char *commit = array_format("%s/COMMIT", save->partial);
    add_common(meta ? meta : own, save);
    int rc = catalog_write(&save->catalog, index, err) || disk_sync(index, err) ||
             js_write(meta ? meta : own, JS_EXACT, WHOLE_FILE_DURABLE, about, err) ||
             write_commit(save, index, about, commit, err) || disk_sync(save->partial, err);
    free(commit);
    free(about);
    free(index);
    js_free(own);
    return rc ? -1 : 0;
}

/* Exchange the new folder with an older one of the same step, and remove the older one.  Where the
 * file system cannot exchange two names, the older one is renamed to .old before the new one gets
 * its name; checkpoint_list() knows .old too, in case the process is killed in between.  Once the
 * new one has its name the checkpoint is saved: what cannot be removed of the older one is no
 * failure. */
static int replace(const struct checkpoint_saving *save, struct error *err)
{
    if (!renameat2(AT_FDCWD, save->partial, AT_FDCWD, save->path, RENAME_EXCHANGE)) {
        int synced = disk_sync_parent(save->path, err);
        disk_remove(save->partial, NULL);
        return synced;
    }
    char *old = array_format("%s.old", save->path);
    int rc = disk_remove(old, err);
    if (!rc && (ALIVE_CALL("renaming", save->path, rename(save->path, old)) ||
                ALIVE_CALL("renaming", save->partial, rename(save->partial, save->path))))
        rc = error_errno(err, "cannot replace %s", save->path);
    if (!rc) {
        rc = disk_sync_parent(save->path, err);
        disk_remove(old, NULL);
    }
    free(old);
    return rc;
}

/* Give the folder its final name.  Returns 0, or -1 with err set. */
static int publish(const struct checkpoint_saving *save, struct error *err)
{
    if (!access(save->path, F_OK))
        return replace(save, err);
    if (ALIVE_CALL("renaming", save->partial, rename(save->partial, save->path)))
        return error_errno(err, "cannot rename %s to %s", save->partial, save->path);
    return disk_sync_parent(save->path, err);
}

int checkpoint_save_commit(struct checkpoint_saving *save, struct js *meta, struct error *err)
{
    char *all = NULL;
    size_t bytes = ((size_t)save->count + 1) * sizeof *save->places;
    if (world_gather(save->world, &all, save->sizes, save->places, bytes, 0, err))
        return -1;
    int rc = 0;
    if (!world_rank(save->world)) {
        fill_catalog(save, (const struct shard_place *)all);
        rc = write_index(save, meta, err) || publish(save, err);
    }
    free(all);
    return world_agree(save->world, rc ? -1 : 0, err);
}

int checkpoint_save_finish(struct checkpoint_saving *save, int rc)
{
    if (rc && !world_rank(save->world) && save->partial)
        disk_remove(save->partial, NULL);
    catalog_free(&save->catalog);
    free(save->places);
    free(save->entries);
    free(save->sizes);
    free(save->shard);
    free(save->partial);
    free(save->path);
    return rc ? -1 : 0;
}

int checkpoint_save(struct world *world, const char *dir, int64_t step,
                    const struct checkpoint_piece *pieces, int count, struct js *meta,
                    struct error *err)
{
    struct checkpoint_saving save = {
        .world = world, .dir = dir, .step = step, .pieces = pieces, .count = count};
    int rc = world_agree(world, checkpoint_save_begin(&save, err), err);
    rc = rc || checkpoint_save_plan(&save, err) || write_shard(&save, err) ||
         checkpoint_save_commit(&save, meta, err);
    return checkpoint_save_finish(&save, rc);
}
