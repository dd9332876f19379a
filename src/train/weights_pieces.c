/* weights_pieces.c - the rank's shard of the state as pieces of a checkpoint, saved and loaded.
 *
 * A piece is a part of one logical tensor, or of a box of it: the elements that lie in this rank's
 * shard of a flat.  Ranks with the same shard divide it among them when saving, and each loads all
 * of it.  State that is plain memory is saved and loaded in place; other state is fetched while
 * saving, and loaded one kind of one flat at a time through host memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/nf4.h"
#include "base/round.h"
#include "program/saved.h"
#include "train/weights_private.h"
#include "train/weights.h"

struct pieces {
    struct checkpoint_piece *piece;
    int count, capacity;
};

/* Where a piece that is saved comes from, unless from plain memory. */
struct source {
    struct session *s;
    int buffer;
    size_t from;
};

/* fetch() of a checkpoint_piece: copy its bytes from `offset` on to host memory. */
static int fetch(const struct checkpoint_piece *piece, void *to, int64_t offset, size_t bytes,
                 struct error *err)
{
    const struct source *source = piece->user;
    return executor_read(source->s->executor, &source->s->state->buffer[source->buffer],
                         source->from + (size_t)offset, to, bytes, err);
}

/* The same of parameters of 4 bits: the numbers of their records, in fp32. */
static int fetch_nf4(const struct checkpoint_piece *piece, void *to, int64_t offset, size_t bytes,
                     struct error *err)
{
    enum { AT_ONCE = 4096 * NF4_BLOCK };
    const struct source *source = piece->user;
    const struct program_buffer *buffer = &source->s->state->buffer[source->buffer];
    int64_t at = offset / (int64_t)sizeof(float), end = at + (int64_t)(bytes / sizeof(float));
    char *records = malloc(nf4_bytes(AT_ONCE));
    float *values = malloc(AT_ONCE * sizeof *values);
    int rc = records && values ? 0 : error_set(err, "out of memory: a part of %s", piece->name);
    for (int64_t run; !rc && at < end; at += run) {
        int64_t skip = at % NF4_BLOCK, first = at - skip;
        int64_t count = min_i64(round_up(end - first, NF4_BLOCK), AT_ONCE);
        run = min_i64(count - skip, end - at);
        rc = executor_read(source->s->executor, buffer, source->from + nf4_bytes(first), records,
                           nf4_bytes(count), err);
        if (rc)
            break;
        nf4_decode(values, records, count);
        memcpy(to, values + skip, (size_t)run * sizeof *values);
        to = (float *)to + run;
    }
    free(records);
    free(values);
    return rc;
}

/* Where memory that holds the numbers of one kind of state has a part. */
static size_t place_of_numbers(const struct weights_slot *slot, const struct flat_part *part)
{
    return (size_t)(part->at / slot->block) * dtype_bytes(slot->dtype);
}

/* Append the piece that is part of one kind of state; memory holds the numbers of its shard, or is
 * NULL. */
static struct checkpoint_piece *add_piece(struct pieces *pieces, const struct weights_slot *slot,
                                          const struct flat_part *part, char *memory)
{
    const struct flat_tensor *tensor = part->tensor;
    char name[2 * FLAT_NAME];
    snprintf(name, sizeof name, "%s%s%s%s", slot->prefix, slot->name, slot->name[0] ? "/" : "",
             tensor->name);
    pieces->piece =
        array_grow(pieces->piece, pieces->count, &pieces->capacity, sizeof *pieces->piece);
    struct checkpoint_piece *piece = &pieces->piece[pieces->count++];
    const struct box *box = slot->block > 1 ? &tensor->blocks : &tensor->box;
    *piece =
        (struct checkpoint_piece){.name = array_text(name),
                                  .dtype = slot->dtype,
                                  .rank = box->dims,
                                  .start = part->start / slot->block,
                                  .count = part->count / slot->block,
                                  .data = memory ? memory + place_of_numbers(slot, part) : NULL,
                                  .box = box};
    memcpy(piece->dims, box->whole, sizeof piece->dims);
    return piece;
}

/* ---- saving ---- */

static void save_piece(struct session *s, struct pieces *pieces, const struct weights_slot *slot,
                       const struct flat_part *part)
{
    struct checkpoint_piece *piece = add_piece(pieces, slot, part, weights_numbers(s, slot));
    if (piece->data)
        return;
    struct source *source = array_make(1, sizeof *source);
    *source = (struct source){s, slot->buffer, weights_byte_offset(slot, part->at)};
    piece->fetch = slot->is_nf4 ? fetch_nf4 : fetch;
    piece->user = source;
}

static void save_flat(struct session *s, struct pieces *pieces, int f)
{
    const struct flat *flat = &s->units->flat[f];
    struct weights_slot slots[WEIGHTS_SLOTS];
    struct flat_part part;
    int64_t start = state_shard_start(s->state, f), from, to;
    int count = weights_slots(s, f, slots);
    saved_part(s->state, f, &from, &to);
    for (int t = -1; (t = flat_next_part(flat, start + from, start + to, t, &part)) >= 0;) {
        part.at += from;
        for (int k = 0; k < count; k++)
            save_piece(s, pieces, &slots[k], &part);
    }
}

int weights_pieces(struct session *s, enum weights_saved saved, struct checkpoint_piece **out)
{
    struct pieces pieces = {0};
    for (int f = 0; f < s->units->flats; f++)
        if (saved_has(s->state, f, saved == WEIGHTS_ALL))
            save_flat(s, &pieces, f);
    *out = pieces.piece;
    return pieces.count;
}

void weights_pieces_free(struct checkpoint_piece *pieces, int count)
{
    for (int i = 0; i < count; i++) {
        free((char *)pieces[i].name);
        free(pieces[i].user);
    }
    free(pieces);
}

/* ---- loading ---- */

/* What is loaded, and which tensors were frozen when it was saved. */
struct loading {
    struct session *s;
    struct checkpoint *checkpoint;
    const char *frozen;
    char *refers; /* per flat: 1: the checkpoint only says where it is */
};

/* Does the checkpoint only say where the tensors of a flat are, without holding them? */
static int only_refers(const struct loading *l, int f)
{
    const struct flat *flat = &l->s->units->flat[f];
    char name[2 * FLAT_NAME];
    if (flat->trained || flat->is_frozen_adapter || !flat->tensors ||
        !js_get(l->checkpoint->meta, "base"))
        return 0;
    snprintf(name, sizeof name, "model/%s", flat->tensor[0].name);
    return checkpoint_find_tensor(l->checkpoint, name) < 0;
}

/* Refuse files of model.path that are not those to which the checkpoint refers. */
static int check_base(const struct loading *l, struct error *err)
{
    const struct js *base = js_get(l->checkpoint->meta, "base");
    const char *wanted = js_get_string(base, "hash", ""), *path = js_get_string(base, "path", "");
    char hash[WEIGHTS_HASH];
    if (weights_folder_hash(l->s->config.model_path, hash, err))
        return -1;
    if (!hash[0])
        return error_set(err,
                         "%s: its frozen tensors are those of %s, and model.path (\"%s\") has no "
                         "weights; name the folder: model.path=FOLDER",
                         l->checkpoint->path, path, l->s->config.model_path);
    if (strcmp(hash, wanted) != 0)
        return error_set(
            err,
            "%s: its frozen tensors are those of %s, and the files of %s are others than "
            "when it was saved (hash %s, then %s); put those back, or name a folder that has "
            "them: model.path=FOLDER",
            l->checkpoint->path, path, l->s->config.model_path, hash, wanted);
    return 0;
}

/* Fill the flats that the checkpoint only refers to from model.path.  rc: the outcome on this rank
 * of what came before.  Collective with model.loading=node. */
static int load_base(const struct loading *l, int rc, struct error *err)
{
    struct session *s = l->s;
    if (!rc)
        rc = check_base(l, err);
    if (s->config.model_loading == LOADING_NODE)
        rc = world_agree(s->world, rc, err);
    return rc ? -1 : weights_import_flats(s, l->refers, err);
}

/* Append the pieces of one kind of state of a flat, to be loaded into memory.  Tensors that were
 * frozen when it was saved have no optimizer state there. */
static void want_slot(const struct loading *l, struct pieces *pieces, int f,
                      const struct weights_slot *slot, char *memory)
{
    const struct session *s = l->s;
    const struct flat *flat = &s->units->flat[f];
    struct flat_part part;
    int64_t start = state_shard_start(s->state, f), end = start + flat->shard_elems;
    for (int t = -1; (t = flat_next_part(flat, start, end, t, &part)) >= 0;)
        if (!slot->name[0] || !units_is_frozen(l->frozen, part.tensor->name))
            add_piece(pieces, slot, &part, memory);
}

static int load(const struct loading *l, struct pieces *pieces, struct error *err)
{
    int rc = checkpoint_load(l->checkpoint, pieces->piece, pieces->count, err);
    weights_pieces_free(pieces->piece, pieces->count);
    return rc;
}

/* Load one kind of state of a flat through host memory. */
static int load_slot(const struct loading *l, int f, const struct weights_slot *slot, char *host,
                     struct error *err)
{
    struct session *s = l->s;
    struct pieces pieces = {0};
    int64_t elems = s->units->flat[f].shard_elems;
    memset(host, 0, (size_t)(elems / slot->block) * dtype_bytes(slot->dtype));
    want_slot(l, &pieces, f, slot, host);
    if (load(l, &pieces, err))
        return -1;
    if (slot->is_nf4)
        return weights_write(s, f, 0, (float *)host, elems, err);
    return executor_write(s->executor, &s->state->buffer[slot->buffer], 0, host,
                          weights_byte_offset(slot, elems), err);
}

/* Host memory for the largest shard of one kind of state, for free(); NULL with err set. */
static float *make_shard(const struct session *s, struct error *err)
{
    int64_t most = 0;
    for (int f = 0; f < s->units->flats; f++)
        if (s->units->flat[f].shard_elems > most)
            most = s->units->flat[f].shard_elems;
    float *shard = malloc((size_t)most * sizeof *shard);
    if (!shard)
        error_set(err, "out of memory: %lld bytes for one unit's parameters",
                  (long long)most * (long long)sizeof *shard);
    return shard;
}

/* Load all flats that the checkpoint holds: state in plain memory at once, in the order of the
 * files, other state one kind of one flat at a time. */
static int load_all(const struct loading *l, struct error *err)
{
    struct session *s = l->s;
    struct pieces plain = {0};
    float *host = NULL;
    int rc = 0;
    for (int f = 0; f < s->units->flats && !rc; f++) {
        struct weights_slot slots[WEIGHTS_SLOTS];
        int count = l->refers[f] ? 0 : weights_slots(s, f, slots);
        for (int k = 0; k < count && !rc; k++) {
            char *memory = weights_numbers(s, &slots[k]);
            if (memory)
                want_slot(l, &plain, f, &slots[k], memory);
            else if (host || (host = make_shard(s, err)))
                rc = load_slot(l, f, &slots[k], (char *)host, err);
            else
                rc = -1;
        }
    }
    free(host);
    if (!rc)
        return load(l, &plain, err);
    weights_pieces_free(plain.piece, plain.count);
    return rc;
}

int weights_load(struct session *s, struct checkpoint *checkpoint, const char *frozen,
                 struct error *err)
{
    const struct loading l = {.s = s,
                              .checkpoint = checkpoint,
                              .frozen = frozen,
                              .refers = array_make((size_t)s->units->flats, 1)};
    const struct js *base = js_get(checkpoint->meta, "base");
    int rc = 0, refers = 0;
    snprintf(s->base_hash, sizeof s->base_hash, "%s", js_get_string(base, "hash", ""));
    s->holds_frozen = !base;
    if (!base && s->train && s->config.checkpoint.frozen == FROZEN_REFERENCE)
        log_warn(s->log,
                 "checkpoint.frozen is reference, but %s holds the frozen tensors; so do the "
                 "checkpoints of this run",
                 checkpoint->path);
    for (int f = 0; f < s->units->flats; f++)
        refers |= l.refers[f] = (char)only_refers(&l, f);
    for (int f = 0; !rc && f < s->units->flats; f++)
        rc = weights_clear(s, f, err);
    if (!rc)
        rc = load_all(&l, err);
    if (refers)
        rc = load_base(&l, rc, err);
    for (int f = 0; !rc && f < s->units->flats; f++)
        rc = weights_refresh(s, f, err);
    free(l.refers);
    return rc || device_sync(s->device, err) ? -1 : 0;
}
