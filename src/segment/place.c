/* place.c - memory ranges for things that live for a while.
 *
 * Items are placed from the largest to the smallest, each at the lowest offset where it overlaps
 * nothing that lives at the same time:
 *
 *   offset |  [ a          ]   [ b    ]        a and b do not live at once: one track
 *          |  [ c   ]  [ d                ]    another track
 *          +------------------------------ steps
 *
 * What has one offset and one size forms a track, whose lives, in order of time, do not overlap:
 * thousands of buffers of a program lie in some dozens of tracks, and whether a track is free in an
 * interval takes a binary search.  Items that are `like` one another are placed together.
 */
#include "segment/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"

static int by_size(const void *a, const void *b)
{
    const struct place *x = *(struct place *const *)a, *y = *(struct place *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : 1;
}

/* What was placed at one offset with one size: their lives do not overlap. */
struct track {
    size_t from, to;
    struct life {
        int first, last;
    } * life; /* in order */
    int lives, capacity;
};

struct tracks {
    struct track *track; /* by from */
    int count, capacity;
};

/* The first of a track's lives that has not ended before `first`. */
static int find_life(const struct track *t, int first)
{
    int low = 0, high = t->lives;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (t->life[middle].last >= first)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Is it taken while item i lives, or one that shares its place?  next: per item, another of those.
 */
static int is_taken(const struct track *t, const struct place *items, const int *next, int i)
{
    for (; i >= 0; i = next[i]) {
        int at = find_life(t, items[i].first);
        if (at < t->lives && t->life[at].first <= items[i].last)
            return 1;
    }
    return 0;
}

/* The lowest offset at which item i and those that share its place fit between the placed ones. */
static size_t lowest_gap(const struct tracks *tracks, const struct place *items, const int *next,
                         int i)
{
    const struct place *item = &items[i];
    size_t at = 0;
    for (int t = 0; t < tracks->count; t++) {
        const struct track *other = &tracks->track[t];
        if (other->to <= at || !is_taken(other, items, next, i))
            continue;
        if (other->from >= at && other->from - at >= round_up_bytes(item->bytes, PLACE_ALIGN))
            return at;
        at = other->to;
    }
    return at;
}

static struct track *find_track(struct tracks *tracks, size_t from, size_t to)
{
    int i = 0;
    while (i < tracks->count && tracks->track[i].from < from)
        i++;
    for (int j = i; j < tracks->count && tracks->track[j].from == from; j++)
        if (tracks->track[j].to == to)
            return &tracks->track[j];
    tracks->track =
        array_grow(tracks->track, tracks->count, &tracks->capacity, sizeof *tracks->track);
    memmove(tracks->track + i + 1, tracks->track + i,
            (size_t)(tracks->count++ - i) * sizeof *tracks->track);
    tracks->track[i] = (struct track){.from = from, .to = to};
    return &tracks->track[i];
}

static void insert(struct tracks *tracks, const struct place *item)
{
    struct track *t =
        find_track(tracks, item->offset, item->offset + round_up_bytes(item->bytes, PLACE_ALIGN));
    int at = find_life(t, item->first);
    t->life = array_grow(t->life, t->lives, &t->capacity, sizeof *t->life);
    memmove(t->life + at + 1, t->life + at, (size_t)(t->lives++ - at) * sizeof *t->life);
    t->life[at] = (struct life){item->first, item->last};
}

/* Per item, the next of those that share its place, or -1. */
static int *link_alike(const struct place *items, int count)
{
    int *next = array_make((size_t)count, sizeof *next);
    for (int i = 0; i < count; i++) {
        next[i] = -1;
        if (items[i].like)
            next[items[i].like - items] = i;
    }
    return next;
}

size_t place_items(struct place *items, int count)
{
    int *next = link_alike(items, count);
    struct place **order = array_make((size_t)count, sizeof *order);
    struct tracks tracks = {0};
    size_t total = 0;
    for (int i = 0; i < count; i++)
        order[i] = &items[i];
    qsort(order, (size_t)count, sizeof *order, by_size);
    for (int i = 0; i < count; i++) {
        if (order[i]->like)
            continue;
        int first = (int)(order[i] - items);
        size_t offset = order[i]->bytes ? lowest_gap(&tracks, items, next, first) : 0;
        size_t end = offset + round_up_bytes(order[i]->bytes, PLACE_ALIGN);
        for (int k = first; k >= 0; k = next[k]) {
            items[k].offset = offset;
            if (items[k].bytes)
                insert(&tracks, &items[k]);
        }
        total = max_bytes(total, end);
    }
    for (int i = 0; i < tracks.count; i++)
        free(tracks.track[i].life);
    free(tracks.track);
    free(next);
    free(order);
    return total;
}
