/* access.c - see access.h.
 *
 * Intervals cover all bytes from 0 on, in order; each ends where the next one begins, and no two
 * neighbours are alike.  An access splits those in which its bytes begin and end, and then concerns
 * whole intervals:
 *
 *   before                 | written by 3          | written by 4         |
 *   5 reads                | written by 3  | by 3, read by 5 | by 4, read by 5 | by 4   |
 *   6 writes the same      | written by 3  | written by 6                      | by 4   |
 */
#include "program/access.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

struct interval {
    size_t from;
    int wrote, wrote_stream; /* the last instruction that wrote; -1: none */
    int read[STREAMS];       /* of each stream the last that has read since; -1: none */
};

struct access_map {
    struct interval *list;
    int count, capacity;
};

struct access_map *access_map_create(void)
{
    struct access_map *map = array_make(1, sizeof *map);
    map->list = array_grow(NULL, 0, &map->capacity, sizeof *map->list);
    memset(&map->list[0], -1, sizeof map->list[0]);
    map->list[0].from = 0;
    map->count = 1;
    return map;
}

void access_map_destroy(struct access_map *map)
{
    if (!map)
        return;
    free(map->list);
    free(map);
}

int access_map_intervals(const struct access_map *map)
{
    return map->count;
}

/* The interval that begins at a byte, made by splitting the one in which the byte lies. */
static int split(struct access_map *map, size_t at)
{
    int low = 0, high = map->count; /* the last one up to the byte is in [low, high) */
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (map->list[middle].from > at)
            high = middle;
        else
            low = middle;
    }
    if (map->list[low].from == at)
        return low;
    map->list = array_grow(map->list, map->count, &map->capacity, sizeof *map->list);
    memmove(&map->list[low + 1], &map->list[low], (size_t)(map->count - low) * sizeof *map->list);
    map->list[low + 1].from = at;
    map->count++;
    return low + 1;
}

static void raise_to(int *after, int instr)
{
    *after = instr > *after ? instr : *after;
}

/* Add an access to an interval, which it covers. */
static void access_interval(struct interval *interval, const struct access *access,
                            int after[STREAMS])
{
    int own = (int)access->stream;
    if (interval->wrote >= 0 && interval->wrote_stream != own)
        raise_to(&after[interval->wrote_stream], interval->wrote);
    if (!access->writes) {
        interval->read[own] = access->instr;
        return;
    }
    for (int s = 0; s < STREAMS; s++)
        if (s != own)
            raise_to(&after[s], interval->read[s]);
    interval->wrote = access->instr;
    interval->wrote_stream = own;
    memset(interval->read, -1, sizeof interval->read);
}

static int are_alike(const struct interval *a, const struct interval *b)
{
    return a->wrote == b->wrote && !memcmp(a->read, b->read, sizeof a->read);
}

/* Make one of neighbours that are alike, from before `first` to `end`. */
static void join(struct access_map *map, int first, int end)
{
    int kept = first ? first - 1 : 0;
    end = end < map->count ? end + 1 : map->count;
    for (int k = kept + 1; k < end; k++)
        if (!are_alike(&map->list[kept], &map->list[k]))
            map->list[++kept] = map->list[k];
    kept++;
    if (kept == end)
        return;
    memmove(&map->list[kept], &map->list[end], (size_t)(map->count - end) * sizeof *map->list);
    map->count -= end - kept;
}

void access_map_add(struct access_map *map, struct access access, int after[STREAMS])
{
    if (access.from >= access.to)
        return;
    int first = split(map, access.from);
    int end = access.to == SIZE_MAX ? map->count : split(map, access.to);
    for (int k = first; k < end; k++)
        access_interval(&map->list[k], &access, after);
    join(map, first, end);
}
