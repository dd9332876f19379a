/* value_map.c - see value_map.h: of each space the ranges that hold something, in order; they do
 * not overlap.  What is put in the middle of a range leaves both of its ends. */
#include "verify/value_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "segment/segment.h"

struct ranges {
    struct value_bytes *range;
    int count, capacity;
};

struct value_map {
    struct ranges space[SPACE_COUNT];
};

struct value_map *value_map_create(void)
{
    return array_make(1, sizeof(struct value_map));
}

void value_map_destroy(struct value_map *map)
{
    for (int s = 0; map && s < SPACE_COUNT; s++)
        free(map->space[s].range);
    free(map);
}

void value_map_clear(struct value_map *map, int space)
{
    map->space[space].count = 0;
}

/* The first range that ends behind byte `at`. */
static int find_range(const struct ranges *ranges, size_t at)
{
    int low = 0, high = ranges->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (ranges->range[middle].to > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Replace ranges [first, end) by others. */
static void replace(struct ranges *ranges, int first, int end, const struct value_bytes *by,
                    int count)
{
    int after = ranges->count - end;
    for (int more = 0; more < count; more++)
        ranges->range = array_grow(ranges->range, ranges->count + more, &ranges->capacity,
                                   sizeof *ranges->range);
    if (!ranges->range)
        return;
    memmove(ranges->range + first + count, ranges->range + end,
            (size_t)after * sizeof *ranges->range);
    memcpy(ranges->range + first, by, (size_t)count * sizeof *by);
    ranges->count = first + count + after;
}

void value_map_put(struct value_map *map, int space, struct value_bytes bytes)
{
    struct ranges *ranges = &map->space[space];
    struct value_bytes left[3];
    int first = find_range(ranges, bytes.from), end = first, count = 0;
    if (bytes.from >= bytes.to)
        return;
    while (end < ranges->count && ranges->range[end].from < bytes.to)
        end++;
    if (end > first && ranges->range[first].from < bytes.from) {
        left[count] = ranges->range[first];
        left[count++].to = bytes.from;
    }
    left[count++] = bytes;
    if (end > first && ranges->range[end - 1].to > bytes.to) {
        left[count] = ranges->range[end - 1];
        left[count++].from = bytes.to;
    }
    replace(ranges, first, end, left, count);
}

int value_map_has(const struct value_map *map, int space, struct value_bytes bytes)
{
    const struct ranges *ranges = &map->space[space];
    size_t at = bytes.from;
    for (int r = find_range(ranges, at); at < bytes.to; r++) {
        if (r >= ranges->count || ranges->range[r].from > at ||
            ranges->range[r].value != bytes.value || ranges->range[r].base != bytes.base)
            return 0;
        at = ranges->range[r].to;
    }
    return 1;
}
