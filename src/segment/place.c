/* place.c - memory ranges for things that live for a while.
 *
 * Items are placed one after the other, the largest first, each at the lowest offset where it
 * overlaps nothing that lives at the same time:
 *
 *   offset |  [ a          ]   [ b    ]        a and b do not live at once: one track
 *          |  [ c   ]  [ d                ]    another track
 *          +------------------------------ steps
 *
 * What has one offset and one size forms a track, whose lives, in order of time, do not overlap:
 * thousands of buffers of a program lie in some dozens of tracks, and whether a track is free in an
 * interval takes a binary search.  Items that are `like` one another are placed together.
 *
 * What comes late finds gaps that are too small for it, and lies on top.  So all is placed again
 * with the items that ended at the very top moved to the front of the order, until the bytes that
 * are alive at once suffice, or TRIES times; the order that needed the least stays.  Of 40,547
 * placements in plans of 130 layouts, the largest first alone needs 1.8 % more than is alive at
 * once in the mean, with 5 tries 1.1 %, with 9 0.22 % and with 17 0.19 %.
 */
#include "segment/place.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"

enum { TRIES = 17 };

static size_t end_of(const struct place *item)
{
    return item->offset + round_up_bytes(item->bytes, PLACE_ALIGN);
}

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
    struct track *t = find_track(tracks, item->offset, end_of(item));
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

/* Place the items in this order; returns the bytes needed. */
static size_t place_in_order(struct place *items, const int *next, struct place *const *order,
                             int count)
{
    struct tracks tracks = {0};
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        if (order[i]->like)
            continue;
        int first = (int)(order[i] - items);
        size_t offset = order[i]->bytes ? lowest_gap(&tracks, items, next, first) : 0;
        for (int k = first; k >= 0; k = next[k]) {
            items[k].offset = offset;
            if (items[k].bytes)
                insert(&tracks, &items[k]);
        }
        total = max_bytes(total, end_of(order[i]));
    }
    for (int i = 0; i < tracks.count; i++)
        free(tracks.track[i].life);
    free(tracks.track);
    return total;
}

/* Move the items that end at `top` to the front of the order, otherwise as it was; spare: space for
 * as many.  Returns 1, or 0 if they were there already. */
static int move_to_front(struct place **order, struct place **spare, int count, size_t top)
{
    int moved = 0, others = 0, changed = 0;
    for (int i = 0; i < count; i++) {
        if (end_of(order[i]) != top) {
            spare[others++] = order[i];
            continue;
        }
        changed |= moved != i;
        order[moved++] = order[i];
    }
    memcpy(order + moved, spare, (size_t)others * sizeof *order);
    return changed;
}

/* The bytes of all that live at one step, at the step where that is most. */
static size_t most_alive(const struct place *items, int count)
{
    int steps = 0;
    size_t now = 0, most = 0;
    for (int i = 0; i < count; i++)
        steps = items[i].last >= steps ? items[i].last + 1 : steps;
    size_t *begin = array_make(2 * ((size_t)steps + 1), sizeof *begin), *end = begin + steps + 1;
    for (int i = 0; i < count; i++) {
        begin[items[i].first] += round_up_bytes(items[i].bytes, PLACE_ALIGN);
        end[items[i].last + 1] += round_up_bytes(items[i].bytes, PLACE_ALIGN);
    }
    for (int s = 0; s < steps; s++) {
        now += begin[s] - end[s];
        most = max_bytes(most, now);
    }
    free(begin);
    return most;
}

size_t place_items(struct place *items, int count)
{
    const size_t enough = most_alive(items, count);
    int *next = link_alike(items, count), again = 1;
    struct place **order = array_make((size_t)count, sizeof *order);
    struct place **spare = array_make((size_t)count, sizeof *spare);
    size_t *offset = array_make((size_t)count, sizeof *offset), least = SIZE_MAX;
    for (int i = 0; i < count; i++)
        order[i] = &items[i];
    qsort(order, (size_t)count, sizeof *order, by_size);
    for (int tries = 0; tries < TRIES && least > enough && again; tries++) {
        size_t total = place_in_order(items, next, order, count);
        for (int i = 0; i < count && total < least; i++)
            offset[i] = items[i].offset;
        least = total < least ? total : least;
        again = move_to_front(order, spare, count, total);
    }
    for (int i = 0; i < count; i++)
        items[i].offset = offset[i];
    free(offset);
    free(spare);
    free(order);
    free(next);
    return least;
}
