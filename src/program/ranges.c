/* ranges.c - see ranges.h: ranges that do not overlap, by offset. */
#include "program/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

struct range {
    size_t from, to;
    int owner;
};

struct ranges {
    struct range *range;
    int count, capacity;
    int *had;
    int had_capacity;
};

struct ranges *ranges_create(void)
{
    return array_make(1, sizeof(struct ranges));
}

void ranges_destroy(struct ranges *r)
{
    if (!r)
        return;
    free(r->range);
    free(r->had);
    free(r);
}

/* The first range that ends after offset. */
static int find(const struct ranges *r, size_t offset)
{
    int low = 0, high = r->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (r->range[middle].to > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Put pieces in place of count ranges from first on. */
static void replace(struct ranges *r, int first, int count, const struct range *piece, int pieces)
{
    int after = r->count - first - count;
    for (int added = 0; added < pieces - count; added++)
        r->range = array_grow(r->range, r->count + added, &r->capacity, sizeof *r->range);
    memmove(r->range + first + pieces, r->range + first + count, (size_t)after * sizeof *r->range);
    memcpy(r->range + first, piece, (size_t)pieces * sizeof *piece);
    r->count += pieces - count;
}

int ranges_give(struct ranges *r, size_t offset, size_t bytes, int owner, const int **had)
{
    size_t end = offset + bytes;
    struct range piece[3];
    int first = find(r, offset), count = 0, pieces = 0;
    *had = r->had;
    if (!bytes)
        return 0;
    for (; first + count < r->count && r->range[first + count].from < end; count++) {
        r->had = array_grow(r->had, count, &r->had_capacity, sizeof *r->had);
        r->had[count] = r->range[first + count].owner;
    }
    if (count && r->range[first].from < offset)
        piece[pieces++] = (struct range){r->range[first].from, offset, r->had[0]};
    piece[pieces++] = (struct range){offset, end, owner};
    if (count && r->range[first + count - 1].to > end)
        piece[pieces++] = (struct range){end, r->range[first + count - 1].to, r->had[count - 1]};
    replace(r, first, count, piece, pieces);
    *had = r->had;
    return count;
}
