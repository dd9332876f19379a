/* place.c - see place.h. */
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

static int taken(const struct track *t, const struct place *item)
{
    int at = find_life(t, item->first);
    return at < t->lives && t->life[at].first <= item->last;
}

/* The lowest offset at which item fits between the placed ones. */
static size_t lowest_gap(const struct tracks *tracks, const struct place *item)
{
    size_t at = 0;
    for (int i = 0; i < tracks->count; i++) {
        const struct track *other = &tracks->track[i];
        if (other->to <= at || !taken(other, item))
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

static void tracks_free(struct tracks *tracks)
{
    for (int i = 0; i < tracks->count; i++)
        free(tracks->track[i].life);
    free(tracks->track);
}

size_t place_items(struct place *items, int count)
{
    struct place **order = array_make((size_t)count, sizeof *order);
    struct tracks tracks = {0};
    size_t total = 0;
    for (int i = 0; i < count; i++)
        order[i] = &items[i];
    qsort(order, (size_t)count, sizeof *order, by_size);
    for (int i = 0; i < count; i++) {
        order[i]->offset = 0;
        if (!order[i]->bytes)
            continue;
        order[i]->offset = lowest_gap(&tracks, order[i]);
        insert(&tracks, order[i]);
        size_t end = order[i]->offset + round_up_bytes(order[i]->bytes, PLACE_ALIGN);
        total = end > total ? end : total;
    }
    free(order);
    tracks_free(&tracks);
    return total;
}
