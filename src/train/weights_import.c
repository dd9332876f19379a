/* weights_import.c - initial values from Hugging Face's files, or a checkpoint's, and adapters from
 * peft's.
 *
 * The family's table says where each logical tensor is (hf_tensors.h).  Every name and shape is
 * checked before the first number is read: all of the model's tensors are there, and no others.  Of
 * a checkpoint parameters alone are read, whatever optimizer it has the state of.
 *
 * fill() has two ways, for which from_of() says alike whether a tensor comes from the model's
 * folder, an adapter's, a checkpoint or the seed.
 *
 *   model.loading=each    Every rank opens the files, and weights_fill() has it read its own parts:
 *                         by read_as() what is stored in the format in which it is kept, else by
 *                         read_part().
 *   model.loading=node    One rank of each node opens them.  weights_node_fill() asks place_of() on
 *                         every rank where a tensor is in them, has that one rank find and read its
 *                         ranges (find_stored(), read_ranges()), and sends them to the ranks that
 *                         need them.  read_part() fills a tensor that is in no file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/nf4.h"
#include "base/round.h"
#include "base/text.h"
#include "config/hf.h"
#include "config/saved.h"
#include "io/disk.h"
#include "io/safetensors.h"
#include "model/adapters.h"
#include "train/hf_tensors.h"
#include "train/run_checkpoint.h"
#include "train/weights.h"
#include "train/weights_node.h"
#include "train/weights_rows.h"
#include "train/weights_saved.h"

/* Which files there are, whether opened by this rank or by the reader of its node. */
struct import_has {
    int st, adapter;
    enum hf_tensors_files files; /* what st is */
};

struct import {
    struct session *s;
    struct safetensors *st;      /* NULL: model.path names no folder */
    struct safetensors *adapter; /* of lora.path; NULL: adapters begin from the seed */
    struct checkpoint *saved;    /* in place of st, where model.path names a run or checkpoint */
    struct import_has has;
    struct weights_rows rows;
};

enum import_from { FROM_SEED, FROM_FOLDER, FROM_ADAPTER, FROM_SAVED };

/* Where the initial values of a tensor come from. */
static enum import_from from_of(const struct import *import, const char *own)
{
    const struct model *model = import->s->model;
    int is_trained = model->lora.r && adapters_train(model, own);
    if ((is_trained && import->has.adapter) || adapters_own(own))
        return import->has.adapter ? FROM_ADAPTER : FROM_SEED;
    return import->has.st ? FROM_FOLDER : import->saved ? FROM_SAVED : FROM_SEED;
}

/* The files that a tensor is read from; NULL: from none, or from a checkpoint. */
static const struct safetensors *files_of(const struct import *import, const char *own)
{
    enum import_from from = from_of(import, own);
    return from == FROM_FOLDER ? import->st : from == FROM_ADAPTER ? import->adapter : NULL;
}

static enum hf_tensors_files kind_of(const struct import *import, const struct safetensors *st)
{
    return st == import->adapter ? HF_ADAPTER : import->has.files;
}

/* The stored tensor that a logical one is in, and *place in it, of opened files; NULL with err set.
 */
static const struct safetensors_tensor *find(const struct import *import,
                                             const struct safetensors *st,
                                             struct hf_tensors_name name, struct model_place *place,
                                             struct error *err)
{
    return hf_tensors_find(st, import->s->model, kind_of(import, st), name, place, err);
}

/* The place of a tensor, of a matrix of it, in opened files; -1 with err set: it has none. */
static int place_in(const struct import *import, const struct safetensors *st, const char *own,
                    struct model_place *place, struct error *err)
{
    return hf_tensors_place(import->s->model, kind_of(import, st), (struct hf_tensors_name){own, 0},
                            place)
               ? error_set(err, "%s has no name for the tensor %s", st->path, own)
               : 0;
}

/* ---- are they the model's tensors? ---- */

/* Files may lack the last rows of the embedding and the head: those by which model.vocab is larger
 * than the vocab_size of their config.json. */
static int check_shape(const struct import *import, const struct safetensors *st,
                       const struct flat_tensor *own, const struct model_place *place,
                       const struct safetensors_tensor *tensor, struct error *err)
{
    const struct box *box = &own->box;
    int is_node = import->s->config.model_loading == LOADING_NODE;
    int lacks = st == import->st && weights_rows_lacking(own->name, box, place, tensor) &&
                tensor->dim[0] == hf_vocab(import->s->config.model_path);
    int64_t dim[BOX_DIMS];
    int dims = hf_tensors_shape(place, kind_of(import, st), box, dim), same = tensor->dims == dims;
    for (int d = 0; same && d < dims; d++)
        same = tensor->dim[d] == dim[d];
    if (same)
        return 0;
    if (lacks)
        return is_node ? error_set(err,
                                   "model.loading is node, and model.vocab is larger than that of "
                                   "%s: new rows of the embedding begin as the mean of all, which "
                                   "each rank reads; leave model.loading at each",
                                   st->path)
                       : 0;
    char shape[128] = "";
    for (int d = 0; d < dims; d++)
        text_join(shape, sizeof shape, " x ", "%lld", (long long)dim[d]);
    return error_set(err, "%s: tensor \"%s\" has another shape than the %s of the model",
                     st->file[tensor->file], tensor->name, shape);
}

/* Refuse files with a tensor that is neither the model's (used: 1 for each that is) nor known as
 * one that is not read. */
static int check_extra(const struct import *import, const struct safetensors *st, const char *used,
                       struct error *err)
{
    for (int t = 0; t < st->tensors; t++)
        if (!used[t] && !model_hf_is_ignored(&import->s->config.model, st->tensor[t].name))
            return error_set(err, "%s: tensor \"%.100s\" is none of this model's",
                             st->file[st->tensor[t].file], st->tensor[t].name);
    return 0;
}

/* Check the stored tensors that a logical one is in, and note in `used` that these are the model's.
 */
static int check_tensor(const struct import *import, const struct safetensors *st,
                        const struct flat_tensor *own, char *used, struct error *err)
{
    struct hf_tensors_name name = {own->name, 0};
    struct model_place place;
    int64_t count = 1;
    int rc = 0;
    for (; !rc && name.matrix < count; name.matrix++) {
        const struct safetensors_tensor *tensor = find(import, st, name, &place, err);
        rc = tensor ? check_shape(import, st, own, &place, tensor, err) : -1;
        if (!tensor)
            continue;
        used[tensor - st->tensor] = 1;
        count = hf_tensors_count(&place, &own->box);
    }
    return rc;
}

/* Check that the tensors which are read from these files are there, in their shapes, and no others.
 */
static int check_files(const struct import *import, const struct safetensors *st, struct error *err)
{
    const struct units *units = import->s->units;
    char *used = array_make((size_t)st->tensors + 1, 1);
    int rc = 0;
    for (int f = 0; f < units->flats; f++)
        for (int t = 0; !rc && t < units->flat[f].tensors; t++) {
            const struct flat_tensor *own = &units->flat[f].tensor[t];
            if (st == import->st ? !adapters_own(own->name) : files_of(import, own->name) == st)
                rc = check_tensor(import, st, own, used, err);
        }
    if (!rc)
        rc = check_extra(import, st, used, err);
    free(used);
    return rc;
}

/* ---- reading ---- */

/* Read a part of a tensor that is in opened files, from the one or many stored tensors there. */
static int read_stored(struct import *import, const struct safetensors *st,
                       const struct flat_part *part, float *to, struct error *err)
{
    const char *own = part->tensor->name;
    struct hf_tensors_stored stored = {0};
    struct model_place place;
    int rc = place_in(import, st, own, &place, err);
    while (!rc &&
           hf_tensors_next_stored(&place, &part->tensor->box, part->start, part->count, &stored)) {
        const struct safetensors_tensor *tensor =
            find(import, st, (struct hf_tensors_name){own, stored.matrix}, &place, err);
        float *at = to + stored.at;
        rc = !tensor ||
                     weights_rows_read(&import->rows, own, st, tensor, &place, &stored.box,
                                       stored.start, stored.count, at, err) ||
                     weights_check_finite(st->file[tensor->file], tensor->name, at, DTYPE_F32,
                                          stored.count, err)
                 ? -1
                 : 0;
    }
    return rc;
}

/* A weights_fill_part: fill a part from wherever its tensor comes from. */
static int read_part(void *user, const struct flat_part *part, float *to, struct error *err)
{
    struct import *import = user;
    const struct safetensors *st = files_of(import, part->tensor->name);
    if (!st && from_of(import, part->tensor->name) == FROM_SAVED)
        return weights_saved_read(import->saved, part, to, err);
    if (!st && part->tensor->init == INIT_ROW_NORMS)
        return weights_norms_part(import->s, part, read_part, user, to, err);
    return st ? read_stored(import, st, part, to, err)
              : weights_init_part(import->s, part, to, err);
}

/* Read what of a part of a tensor is in one stored tensor, if that has the format `dtype`, to `to`.
 * Returns 1 where it has another; 0; or -1 with err set. */
static int read_stored_as(const struct import *import, const struct safetensors *st,
                          const char *own, const struct hf_tensors_stored *stored, enum dtype dtype,
                          char *to, struct error *err)
{
    struct model_place place;
    struct hf_tensors_run run;
    const struct safetensors_tensor *tensor =
        find(import, st, (struct hf_tensors_name){own, stored->matrix}, &place, err);
    int rc = tensor ? 0 : -1;
    if (tensor && (tensor->dtype != (int)dtype || place.is_transposed ||
                   weights_rows_lacking(own, &stored->box, &place, tensor)))
        return 1;
    struct hf_tensors_runs runs =
        hf_tensors_runs(&place, &stored->box, stored->start, stored->count);
    while (!rc && hf_tensors_next_run(&runs, INT64_MAX, &run))
        rc = safetensors_read_raw(st, tensor, run.at, run.count,
                                  to + (size_t)run.to * dtype_bytes(dtype), err);
    return rc ? rc
              : weights_check_finite(st->file[tensor->file], tensor->name, to, dtype, stored->count,
                                     err);
}

/* fill_as() of struct weights_filler: read a part that is stored in the format in which it is kept
 * to its place, without a conversion. */
static int read_as(void *user, const struct flat_part *part, enum dtype dtype, void *to,
                   struct error *err)
{
    const struct import *import = user;
    const char *own = part->tensor->name;
    const struct safetensors *st = files_of(import, own);
    struct hf_tensors_stored stored = {0};
    struct model_place place;
    int rc = st ? place_in(import, st, own, &place, err) : 1;
    while (!rc &&
           hf_tensors_next_stored(&place, &part->tensor->box, part->start, part->count, &stored))
        rc = read_stored_as(import, st, own, &stored, dtype,
                            (char *)to + (size_t)stored.at * dtype_bytes(dtype), err);
    return rc;
}

/* piece() of struct weights_filler: a transposed matrix is divided among the threads once, because
 * its runs are stretches of stored rows, and longer ones are read faster. */
static int64_t piece_of(void *user, const struct flat_part *part, int threads)
{
    const struct import *import = user;
    struct model_place place;
    const struct safetensors *st = files_of(import, part->tensor->name);
    int is_transposed =
        st && !place_in(import, st, part->tensor->name, &place, NULL) && place.is_transposed;
    return is_transposed ? (part->count + threads - 1) / threads : 0;
}

static int open_model(struct import *import, struct error *err)
{
    const char *folder = import->s->config.model_path;
    int has_pickles =
        disk_has(folder, "pytorch_model.bin") || disk_has(folder, "pytorch_model.bin.index.json");
    if (!hf_has_config(folder))
        return error_set(err,
                         "model.path: %s has no config.json and is no run or checkpoint, and "
                         "weights are to begin with those there; bring the folder back, or leave "
                         "model.path empty to begin from "
                         "the seed",
                         folder);
    if (safetensors_look(folder) != SAFETENSORS_NONE)
        return safetensors_open(&import->st, folder, err);
    if (has_pickles)
        return error_set(err,
                         "%s has its weights in pytorch_model.bin, which is a program and not read "
                         "here; save the model as safetensors",
                         folder);
    return error_set(err,
                     "model.path: %s has no weights: model.safetensors and "
                     "model.safetensors.index.json are missing, or links to files that are; bring "
                     "them there, or train new weights: model.init=scratch",
                     folder);
}

static int open_adapter(struct import *import, struct error *err)
{
    char *path = array_format("%s/adapter_model.safetensors", import->s->config.lora.path);
    int rc = safetensors_open(&import->adapter, path, err);
    free(path);
    return rc ? error_prefix(err, "lora.path") : 0;
}

/* Note which files are open. */
static void note_files(struct import *import)
{
    import->has = (struct import_has){
        .st = import->st != NULL,
        .adapter = import->adapter != NULL,
        .files = import->st ? hf_tensors_kind(import->st, import->s->model) : HF_MODEL};
}

/* Open the files of both folders, where they are asked for, and check them. */
static int open_files(struct import *import, struct error *err)
{
    const struct config *c = &import->s->config;
    if ((c->model_path[0] && !import->saved && open_model(import, err)) ||
        (c->lora.path[0] && open_adapter(import, err)))
        return -1;
    note_files(import);
    return (import->saved && weights_saved_check(import->s, import->saved, err)) ||
                   (import->st && check_files(import, import->st, err)) ||
                   (import->adapter && check_files(import, import->adapter, err))
               ? -1
               : 0;
}

static void close_files(struct import *import)
{
    safetensors_close(import->st);
    safetensors_close(import->adapter);
    checkpoint_close(import->saved);
    weights_rows_free(&import->rows);
}

/* Does model.path name a run or a checkpoint? */
static int names_saved(const struct config *config)
{
    const char *path = config->model_path;
    return path[0] && !hf_has_config(path) && saved_has_config(path);
}

/* Refuse experts in 4 bits of which a matrix, which is a tensor of the files, is not whole blocks:
 * what is sent of it would be parts of blocks. */
static int check_blocks(const struct session *s, struct error *err)
{
    for (int f = 0; f < s->units->flats; f++)
        for (int t = 0; s->units->flat[f].is_nf4 && t < s->units->flat[f].tensors; t++) {
            const struct flat_tensor *own = &s->units->flat[f].tensor[t];
            const int64_t *side = &own->box.whole[own->box.dims - 2];
            if (own->box.dims > 2 && side[0] * side[1] % NF4_BLOCK)
                return error_set(err,
                                 "model.loading is node, and %s is of matrices of %lld x %lld, "
                                 "which are not whole blocks of 4 bits, of %d numbers: leave "
                                 "model.loading at each",
                                 own->name, (long long)side[0], (long long)side[1], NF4_BLOCK);
        }
    return 0;
}

/* Refuse model.loading=node for that, and for new magnitudes: these are made of all rows of
 * matrices, which one rank does not send to another. */
static int check_loading(const struct import *import, struct error *err)
{
    const struct config *c = &import->s->config;
    if (c->model_loading == LOADING_EACH)
        return 0;
    if (!c->lora.use_dora || c->lora.path[0])
        return check_blocks(import->s, err);
    return error_set(err, "model.loading is node, and lora.use_dora begins with norms of the "
                          "model's matrices, which each rank reads: leave model.loading at each");
}

static int check_tied(const struct import *import, struct error *err)
{
    const struct session *s = import->s;
    return import->st && s->config.model.tie_embeddings
               ? hf_tensors_check_head(import->st, s->model, err)
               : 0;
}

int weights_import_check(struct session *s, struct error *err)
{
    struct import import = {.s = s, .rows = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    int rc = check_loading(&import, err) ||
                     (names_saved(&s->config) &&
                      (weights_saved_open(&import.saved, s->config.model_path, err) ||
                       weights_saved_check(s, import.saved, err))) ||
                     open_files(&import, err) || check_tied(&import, err)
                 ? -1
                 : 0;
    close_files(&import);
    return rc;
}

/* ---- read by one rank of each node ---- */

static int place_of(void *user, const char *own, struct model_place *place)
{
    const struct import *import = user;
    enum import_from from = from_of(import, own);
    if (from == FROM_SEED)
        return 0;
    if (from == FROM_SAVED)
        *place = (struct model_place){.stacked = 1}; /* by its own name, alone */
    else if (hf_tensors_place(import->s->model,
                              from == FROM_ADAPTER ? HF_ADAPTER : import->has.files,
                              (struct hf_tensors_name){own, 0}, place))
        return 0;
    return 1;
}

/* Find the stored tensor of a logical one.  Numbers are in the order of the files and their bytes,
 * those of an adapter's file after all of the model's. */
static int find_stored(void *user, struct hf_tensors_name name, struct weights_stored *stored,
                       struct error *err)
{
    const struct import *import = user;
    const struct safetensors *st = files_of(import, name.own);
    struct model_place place;
    *stored = (struct weights_stored){.dtype = DTYPE_F32};
    if (!st)
        return (stored->number = weights_saved_find(import->saved, name.own, err)) < 0 ? -1 : 0;
    const struct safetensors_tensor *tensor = find(import, st, name, &place, err);
    if (!tensor)
        return -1;
    if (tensor->dtype < 0)
        return safetensors_read_raw(st, tensor, 0, 0, NULL, err); /* which says so */
    stored->dtype = (enum dtype)tensor->dtype;
    stored->number =
        (int64_t)(st == import->adapter) << 62 | (int64_t)tensor->file << 46 | tensor->offset;
    return 0;
}

static int read_ranges(void *user, struct hf_tensors_name name, const struct hf_tensors_run *ranges,
                       int count, int64_t from, char *to, struct error *err)
{
    const struct import *import = user;
    const struct safetensors *st = files_of(import, name.own);
    struct model_place place;
    int rc = 0;
    if (!st)
        return weights_saved_read_ranges(import->saved, name.own, ranges, count, from, to, err);
    const struct safetensors_tensor *tensor = find(import, st, name, &place, err);
    for (int i = 0; tensor && !rc && i < count; i++) {
        enum dtype dtype = (enum dtype)tensor->dtype;
        char *at = to + (ranges[i].at - from) * (int64_t)dtype_bytes(dtype);
        rc = safetensors_read_raw(st, tensor, ranges[i].at, ranges[i].count, at, err) ||
             weights_check_finite(st->file[tensor->file], tensor->name, at, dtype, ranges[i].count,
                                  err);
    }
    return tensor && !rc ? 0 : -1;
}

/* Fill these flats (NULL: all) from the files that `open` opens: on every rank, or with
 * model.loading=node on the reader of each node alone. */
static int fill(struct import *import, const char *flats,
                int (*open)(struct import *import, struct error *err), struct error *err)
{
    struct session *s = import->s;
    const struct weights_filler filler = {
        .fill = read_part, .fill_as = read_as, .piece = piece_of, .user = import};
    const struct weights_source source = {.user = import,
                                          .fill = read_part,
                                          .place = place_of,
                                          .find = find_stored,
                                          .read = read_ranges};
    int64_t read_bytes = 0;
    char size[DISK_SIZE];
    if (s->config.model_loading == LOADING_EACH)
        return open(import, err) || weights_fill(s, flats, &filler, err) ? -1 : 0;
    int rc = world_agree(s->world, weights_node_reads(s) ? open(import, err) : 0, err);
    if (rc)
        return -1;
    weights_node_share(s, &import->has, sizeof import->has);
    rc = weights_node_fill(s, flats, &source, &read_bytes, err);
    if (!rc)
        log_info(s->log, "model.loading=node: rank 0 read %s for the ranks of its node",
                 disk_size((double)read_bytes, size));
    return rc;
}

static void report(const struct session *s, const char *what, const char *folder,
                   const struct safetensors *st, double seconds)
{
    if (folder[0] && st)
        log_info(s->log, "%s begin with those of %s: %d tensors in %d file%s, loaded in %.2f s",
                 what, folder, st->tensors, st->files, st->files > 1 ? "s" : "", seconds);
}

/* Return the rows that the files have of the embedding or the head, where these are fewer than the
 * model has; 0: they have all. */
static int64_t fewer_rows(const struct import *import, const char *own)
{
    struct model_place place;
    const struct safetensors_tensor *tensor =
        import->st ? find(import, import->st, (struct hf_tensors_name){own, 0}, &place, NULL)
                   : NULL;
    return tensor && tensor->dim[0] < import->s->config.model.vocab ? tensor->dim[0] : 0;
}

/* Say that the embedding, and the head, have more rows than the files. */
static void report_rows(const struct import *import)
{
    const struct session *s = import->s;
    int is_tied = s->config.model.tie_embeddings;
    int64_t embedding = fewer_rows(import, "embed"),
            head = is_tied ? 0 : fewer_rows(import, "head");
    if (embedding || head)
        log_info(s->log,
                 "model.vocab is %lld, and that of %s %lld: the other rows of the %s%s%s begin as "
                 "the mean of those there",
                 (long long)s->config.model.vocab, s->config.model_path,
                 (long long)max_i64(embedding, head), embedding ? "embedding" : "",
                 embedding && head ? " and the " : "", head ? "head" : "");
    const char *own = strcmp(s->config.model.family, "gpt2") ? "embed_tokens" : "wte";
    if (!embedding || !s->config.lora.r || strstr(s->config.lora.modules_to_save, own))
        return;
    if (is_tied)
        log_warn(s->log, "these rows are frozen (lora.r): the new tokens are not learned, and an "
                         "embedding that is the head as well (model.tie_embeddings) is not trained "
                         "beside adapters; leave lora.r out to train it, and freeze other weights "
                         "by train.freeze");
    else
        log_warn(s->log,
                 "these rows are frozen (lora.r): the new tokens are not learned; "
                 "lora.modules_to_save=%s,lm_head trains them",
                 own);
}

/* Say on rank 0 where the weights come from, and what of the folders is not as a user may think. */
static void report_all(const struct import *import, double seconds)
{
    const struct session *s = import->s;
    if (world_rank(s->world))
        return;
    if (import->saved)
        log_info(s->log, "weights begin with those of %s, of step %lld, loaded in %.2f s",
                 import->saved->path, (long long)import->saved->step, seconds);
    if (s->config.model_note[0])
        log_warn(s->log, "%s/config.json: %s", s->config.model_path, s->config.model_note);
    if (s->config.adapter_note[0])
        log_warn(s->log, "%s/adapter_config.json: %s", s->config.lora.path, s->config.adapter_note);
    report_rows(import);
    report(s, "weights", import->saved ? "" : s->config.model_path, import->st, seconds);
    report(s, "adapters", s->config.lora.path, import->adapter, seconds);
}

int weights_import(struct session *s, struct error *err)
{
    struct import import = {.s = s, .rows = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    int is_saved = names_saved(&s->config);
    world_broadcast(s->world, &is_saved, sizeof is_saved, 0); /* rank 0 decides */
    if (is_saved && run_checkpoint_open(&import.saved, s->world, s->config.model_path, s->log, err))
        return -1;
    int64_t start = clock_ns();
    int rc = check_loading(&import, err) || fill(&import, NULL, open_files, err) ? -1 : 0;
    if (!rc)
        report_all(&import, (double)(clock_ns() - start) / 1e9);
    close_files(&import);
    return rc;
}

/* Open the model's files alone; adapters are a checkpoint's. */
static int open_base(struct import *import, struct error *err)
{
    if (open_model(import, err))
        return -1;
    note_files(import);
    return check_files(import, import->st, err);
}

int weights_import_flats(struct session *s, const char *flats, struct error *err)
{
    struct import import = {.s = s, .rows = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    int rc = fill(&import, flats, open_base, err);
    close_files(&import);
    return rc;
}
