/* value_map.h - which value each byte of a segment's spaces holds, for segments.c alone. */
#ifndef TRIREME_VERIFY_VALUE_MAP_H
#define TRIREME_VERIFY_VALUE_MAP_H

#include <stddef.h>

/* Bytes [from, to) of a space, part of a value whose first byte is at `base`. */
struct value_bytes {
    size_t from, to, base;
    int value; /* of the graph; -1: nothing that a step may read */
};

struct value_map;

/* Nothing held yet.  For value_map_destroy() (NULL allowed). */
struct value_map *value_map_create(void);
void value_map_destroy(struct value_map *map);

/* Put bytes of a value in a space; what was there is gone. */
void value_map_put(struct value_map *map, int space, struct value_bytes bytes);

/* Forget what a space holds. */
void value_map_clear(struct value_map *map, int space);

/* Does a space hold these bytes, all of them of that value and of that place of it? */
int value_map_has(const struct value_map *map, int space, struct value_bytes bytes);

#endif
