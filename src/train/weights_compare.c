/* weights_compare.c - do ranks that hold the same weights have the same bits?
 *
 * Each rank hashes its parts of tensors; rank 0 has all hashes sorted by what they are of, so that
 * those of one part stand one after the other:
 *
 *   layers.0.norm1  0..255   rank 0  hash
 *   layers.0.norm1  0..255   rank 4  hash     a replica of rank 0
 *   layers.0.norm1  256..511 rank 1  hash
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "train/weights.h"
#include "train/weights_private.h"

enum { CHUNK_BYTES = 4 << 20 };

/* A part of a tensor: elements of a box of it. */
struct part_hash {
    char name[FLAT_NAME];
    int64_t start, count;
    uint64_t box, hash; /* box: a hash of where the box lies */
    int rank;
};

struct hashes {
    struct part_hash *list;
    int count, capacity;
};

/* Hash bytes of a buffer of state, wherever it lies. */
static int hash_state(struct session *s, int buffer, size_t from, size_t bytes, char *chunk,
                      uint64_t *value, struct error *err)
{
    struct hash *hash = hash_create();
    int rc = 0;
    for (size_t at = 0, n; !rc && at < bytes; at += n) {
        n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        rc = executor_read(s->executor, &s->state->buffer[buffer], from + at, chunk, n, err);
        if (!rc)
            hash_add(hash, chunk, n);
    }
    *value = hash_finish(hash);
    return rc;
}

/* Add the hashes of this rank's parts of a flat's tensors. */
static int add_flat(struct session *s, int f, struct hashes *hashes, char *chunk, struct error *err)
{
    const struct flat *flat = &s->units->flat[f];
    struct weights_slot slots[WEIGHTS_SLOTS];
    struct flat_part part;
    int64_t start = state_shard_start(s->state, f), end = start + flat->shard_elems;
    int rc = 0;
    if (!weights_slots(s, f, slots))
        return 0;
    const struct weights_slot *params = &slots[0]; /* masters where there are any */
    for (int t = -1; !rc && (t = flat_next_part(flat, start, end, t, &part)) >= 0;) {
        hashes->list =
            array_grow(hashes->list, hashes->count, &hashes->capacity, sizeof *hashes->list);
        struct part_hash *own = &hashes->list[hashes->count++];
        memset(own, 0, sizeof *own);
        snprintf(own->name, sizeof own->name, "%s", part.tensor->name);
        own->start = part.start;
        own->count = part.count;
        own->box = hash_bytes(part.tensor->box.start, sizeof part.tensor->box.start) ^
                   hash_bytes_seeded(part.tensor->box.count, sizeof part.tensor->box.count, 1);
        own->rank = world_rank(s->world);
        rc = hash_state(s, params->buffer, weights_byte_offset(params, part.at),
                        weights_byte_offset(params, part.count), chunk, &own->hash, err);
    }
    return rc;
}

static int by_part(const void *a, const void *b)
{
    const struct part_hash *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (!order)
        order = (x->box > y->box) - (x->box < y->box);
    if (!order)
        order = (x->start > y->start) - (x->start < y->start);
    if (!order)
        order = (x->count > y->count) - (x->count < y->count);
    return order ? order : x->rank - y->rank;
}

static int is_same_part(const struct part_hash *x, const struct part_hash *y)
{
    return !strcmp(x->name, y->name) && x->box == y->box && x->start == y->start &&
           x->count == y->count;
}

/* Sort the hashes of all ranks, and refuse two of one part that differ. */
static int compare(struct part_hash *list, size_t count, struct error *err)
{
    if (count)
        qsort(list, count, sizeof *list, by_part);
    for (size_t i = 1; i < count; i++)
        if (is_same_part(&list[i - 1], &list[i]) && list[i - 1].hash != list[i].hash)
            return error_set(err,
                             "model.sync_module_states: ranks %d and %d have other numbers in %s: "
                             "%016llx and %016llx",
                             list[i - 1].rank, list[i].rank, list[i].name,
                             (unsigned long long)list[i - 1].hash,
                             (unsigned long long)list[i].hash);
    return 0;
}

/* How many parts are there on more than one rank? */
static int64_t count_shared(const struct part_hash *list, size_t count)
{
    int64_t shared = 0;
    for (size_t i = 1; i < count; i++)
        shared += is_same_part(&list[i - 1], &list[i]);
    return shared;
}

int weights_compare_ranks(struct session *s, struct error *err)
{
    struct hashes own = {0};
    char *all = NULL, *chunk = malloc(CHUNK_BYTES);
    size_t *sizes = array_make((size_t)world_size(s->world), sizeof *sizes), bytes = 0;
    int rc = chunk ? 0 : error_set(err, "out of memory: %d bytes to hash", CHUNK_BYTES);
    for (int f = 0; !rc && f < s->units->flats; f++)
        rc = add_flat(s, f, &own, chunk, err);
    rc = world_agree(s->world, rc, err);
    if (!rc)
        rc = world_gather(s->world, &all, sizes, own.list, (size_t)own.count * sizeof *own.list, 0,
                          err);
    if (!rc && all) {
        for (int r = 0; r < world_size(s->world); r++)
            bytes += sizes[r];
        struct part_hash *list = (struct part_hash *)all;
        rc = compare(list, bytes / sizeof *list, err);
        if (!rc)
            log_info(s->log,
                     "model.sync_module_states: %lld parts of tensors are alike on the "
                     "ranks that share them",
                     (long long)count_shared(list, bytes / sizeof *list));
    }
    rc = world_agree(s->world, rc, err);
    free(all);
    free(sizes);
    free(own.list);
    free(chunk);
    return rc;
}
