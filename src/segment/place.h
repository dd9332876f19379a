/* place.h - memory ranges for things that live for a while, in one slab. */
#ifndef TRIREME_SEGMENT_PLACE_H
#define TRIREME_SEGMENT_PLACE_H

#include <stddef.h>

enum { PLACE_ALIGN = 64 };

struct place {
    size_t bytes;
    int first, last;          /* lives from step first to step last, both included */
    size_t offset;            /* result */
    const struct place *like; /* NULL; or an item before it, of as many bytes, that is dead when it
                                 begins: both get one offset.  No two items name the same one */
};

/* Give every item an offset so that no two that live at the same time overlap; returns the
 * bytes needed.  Greedy by size into the lowest gap that fits (Pisarchyk and Lee 2020,
 * "Efficient memory management for deep neural net inference"), then with other orders while that
 * needs more than lives at once (place.c); the same items get the same offsets in every run.  Items
 * of no bytes are at 0. */
size_t place_items(struct place *items, int count);

#endif
