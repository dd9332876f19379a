/* place.c - see place.h. */
#include "step/place.h"

#include <stdlib.h>

#include "base/array.h"

static size_t round_up(size_t bytes)
{
    return (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

static int by_size(const void *a, const void *b)
{
    const struct place *x = *(struct place *const *)a, *y = *(struct place *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : 1;
}

static int live_together(const struct place *a, const struct place *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest offset at which item fits between the placed ones, which are sorted by offset. */
static size_t lowest_gap(struct place *const *placed, int count, const struct place *item)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        const struct place *other = placed[i];
        if (!live_together(other, item))
            continue;
        if (other->offset >= at && other->offset - at >= round_up(item->bytes))
            return at;
        size_t end = other->offset + round_up(other->bytes);
        at = end > at ? end : at;
    }
    return at;
}

static void insert(struct place **placed, int count, struct place *item)
{
    int i = count;
    for (; i > 0 && placed[i - 1]->offset > item->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = item;
}

size_t place_items(struct place *items, int count)
{
    struct place **order = array_make((size_t)count, sizeof *order);
    struct place **placed = array_make((size_t)count, sizeof *placed);
    size_t total = 0;
    for (int i = 0; i < count; i++)
        order[i] = &items[i];
    qsort(order, (size_t)count, sizeof *order, by_size);
    for (int i = 0; i < count; i++) {
        order[i]->offset = lowest_gap(placed, i, order[i]);
        insert(placed, i, order[i]);
        size_t end = order[i]->offset + round_up(order[i]->bytes);
        total = end > total ? end : total;
    }
    free(order);
    free(placed);
    return total;
}
