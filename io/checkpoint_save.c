/* checkpoint_save.c - writing a checkpoint; see checkpoint.h.
 *
 *  1. Every rank checks its pieces and sends their description to rank 0, which makes the
 *     catalog, checks that it covers every element once and that the disk has space for it,
 *     creates the folder step-N.partial, and broadcasts the catalog.
 *  2. Every rank writes and fsyncs its shard file, with views of some tensors.
 *  3. Rank 0 gathers the offsets and checksums of all pieces, writes index.h5 and meta.json,
 *     then COMMIT with the checksums of both, renames the folder and fsyncs its parent.
 * After each step the ranks agree on its outcome; after a failure rank 0 removes the folder.
 *
 * In the background, checkpoint_begin() does step 1, makes the shard files' HDF5 structure, copies
 * the pieces, and starts a thread that does the rest of step 2; checkpoint_end() does step 3.  A
 * kill in between leaves a .partial folder, as one in the middle of a save does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "io/checkpoint_private.h"
#include "io/disk.h"
#include "io/h5.h"
#include "io/shard.h"
#include "io/shard_thread.h"

/* Upper bounds of the space that headers and index entries take, for each piece and each rank. */
enum { BYTES_PER_PIECE = 4096, BYTES_PER_RANK = 64 << 10 };

struct save {
    struct world *world;
    const char *dir; /* the folder of checkpoints */
    int64_t step;
    const struct checkpoint_piece *pieces; /* [count] this rank's */
    int count;
    char *path, *partial;          /* the checkpoint's folder: final and while it is written */
    char *shard;                   /* path of this rank's file in partial */
    size_t *sizes;                 /* [ranks] bytes that each rank sent with the last gather */
    struct catalog_entry *entries; /* [count] the description of this rank's pieces */
    struct shard_place *places;    /* [1 + count] the row of this rank's file, then its pieces' */
    struct catalog catalog;        /* offsets and checksums on rank 0 alone */
};

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
static int describe(struct save *save, struct error *err)
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

/* Make the paths and arrays of save, and describe the pieces.  Returns 0, or -1 with err set. */
static int begin(struct save *save, struct error *err)
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
static int check_space(const struct save *save, struct error *err)
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
static int prepare(struct save *save, const char *entries, struct error *err)
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

/* Do step 1.  Collective.  Returns 0, or -1 with err set on every rank. */
static int plan(struct save *save, struct error *err)
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

/* Make this rank's file without the bytes of its pieces.  Returns 0, or -1 with err set. */
static int make_shard(struct save *save, struct error *err)
{
    return shard_make(save->shard, &save->catalog, world_rank(save->world), save->pieces,
                      save->count, save->places + 1, err);
}

/* Where rc is 0, this rank's file was written: keep its row.  Agree on the outcome.  Collective.
 * Returns 0, or -1 with err set on every rank. */
static int agree_on_shard(struct save *save, int rc, const struct catalog_file *row,
                          struct error *err)
{
    if (!rc)
        save->places[0] = (struct shard_place){row->bytes, row->rest};
    return world_agree(save->world, rc, err);
}

/* Do step 2.  Collective.  Returns 0, or -1 with err set on every rank. */
static int write_shard(struct save *save, struct error *err)
{
    struct catalog_file row;
    int rc = make_shard(save, err) ||
                     shard_fill(save->shard, save->pieces, save->count, save->places + 1, &row, err)
                 ? -1
                 : 0;
    return agree_on_shard(save, rc, &row, err);
}

/* Step 3: index, commit, publish */

/* Put the offsets and checksums that the ranks sent (all) into the catalog, where the offset of a
 * piece has been the index of its entry so far (catalog_build()). */
static void fill_catalog(struct save *save, const struct shard_place *all)
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
static void add_common(struct js *json, const struct save *save)
{
    js_add_int(json, "format", catalog_format(&save->catalog));
    js_add_int(json, "step", save->step);
    js_add_int(json, "ranks", world_size(save->world));
}

/* Write COMMIT at path, with the checksums of the files index and meta.  Returns 0, or -1 with err
 * set. */
static int write_commit(const struct save *save, const char *index, const char *meta,
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
static int write_index(struct save *save, struct js *meta, struct error *err)
{
    struct js *own = meta ? NULL : js_object();
    char *index = array_format("%s/index.h5", save->partial);
    char *about = array_format("%s/meta.json", save->partial);
    char *commit = array_format("%s/COMMIT", save->partial);
    add_common(meta ? meta : own, save);
    int rc = catalog_write(&save->catalog, index, err) || disk_sync(index, err) ||
             js_write(meta ? meta : own, JS_INDENTED, WHOLE_FILE_DURABLE, about, err) ||
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
static int replace(const struct save *save, struct error *err)
{
    if (!renameat2(AT_FDCWD, save->partial, AT_FDCWD, save->path, RENAME_EXCHANGE)) {
        int synced = disk_sync_parent(save->path, err);
        disk_remove(save->partial, NULL);
        return synced;
    }
    char *old = array_format("%s.old", save->path);
    int rc = disk_remove(old, err);
    if (!rc && (rename(save->path, old) || rename(save->partial, save->path)))
        rc = error_errno(err, "cannot replace %s", save->path);
    if (!rc) {
        rc = disk_sync_parent(save->path, err);
        disk_remove(old, NULL);
    }
    free(old);
    return rc;
}

/* Give the folder its final name.  Returns 0, or -1 with err set. */
static int publish(const struct save *save, struct error *err)
{
    if (!access(save->path, F_OK))
        return replace(save, err);
    if (rename(save->partial, save->path))
        return error_errno(err, "cannot rename %s to %s", save->partial, save->path);
    return disk_sync_parent(save->path, err);
}

/* Do step 3.  Collective.  Returns 0, or -1 with err set on every rank. */
static int commit(struct save *save, struct js *meta, struct error *err)
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

/* Free what save has; after a failure (rc), remove the folder on rank 0.  Returns 0, or -1 where rc
 * is not 0. */
static int finish(struct save *save, int rc)
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
    struct save save = {.world = world, .dir = dir, .step = step, .pieces = pieces, .count = count};
    int rc = world_agree(world, begin(&save, err), err);
    rc = rc || plan(&save, err) || write_shard(&save, err) || commit(&save, meta, err);
    return finish(&save, rc);
}

/* In the background */

struct checkpoint_writing {
    struct save save; /* without pieces, once they are copied */
    char *dir;
    struct js *meta;
    struct shard_thread *thread; /* NULL: not started */
};

size_t checkpoint_copy_bytes(const struct checkpoint_piece *pieces, int count)
{
    return shard_thread_copy_bytes(pieces, count);
}

/* Free a checkpoint that was being written and whose thread has ended.  Takes and returns rc as
 * finish() does. */
static int close_writing(struct checkpoint_writing *w, int rc)
{
    rc = finish(&w->save, rc);
    js_free(w->meta);
    free(w->dir);
    free(w);
    return rc;
}

/* Make the shard file, copy the pieces and start the thread.  Collective.  Returns 0, or -1 with
 * err set on every rank, and no thread is running. */
static int start_shard(struct checkpoint_writing *w, void *copy, size_t bytes, struct error *err)
{
    struct save *save = &w->save;
    struct catalog_file row;
    int rc = make_shard(save, err) ||
             shard_thread_start(&w->thread, save->shard, save->pieces, save->count,
                                save->places + 1, copy, bytes, err);
    rc = world_agree(save->world, rc ? -1 : 0, err);
    if (rc && w->thread)
        shard_thread_end(w->thread, &row, NULL); /* another rank has failed */
    return rc;
}

int checkpoint_begin(struct checkpoint_writing **writing, struct world *world, const char *dir,
                     int64_t step, const struct checkpoint_piece *pieces, int count,
                     struct js *meta, void *copy, size_t bytes, struct error *err)
{
    struct checkpoint_writing *w = array_make(1, sizeof *w);
    *w = (struct checkpoint_writing){.dir = array_text(dir), .meta = meta};
    w->save = (struct save){
        .world = world, .dir = w->dir, .step = step, .pieces = pieces, .count = count};
    *writing = NULL;
    int rc = world_agree(world, begin(&w->save, err), err);
    if (rc || plan(&w->save, err) || start_shard(w, copy, bytes, err))
        return close_writing(w, -1);
    w->save.pieces = NULL;
    if (world_rank(world))
        catalog_free(&w->save.catalog); /* of all ranks' pieces; rank 0 writes the index from it */
    *writing = w;
    return 0;
}

int checkpoint_is_written(const struct checkpoint_writing *w)
{
    double done = shard_thread_is_done(w->thread);
    if (w->save.world)
        world_all_reduce(w->save.world, &done, 1, WORLD_MIN);
    return done > 0;
}

int checkpoint_end(struct checkpoint_writing *w, struct error *err)
{
    struct catalog_file row;
    int rc = shard_thread_end(w->thread, &row, err);
    rc = agree_on_shard(&w->save, rc, &row, err);
    return close_writing(w, rc || commit(&w->save, w->meta, err));
}
