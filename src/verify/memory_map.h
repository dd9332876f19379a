/* memory_map.h - which buffer was last given each byte of a pool.
 *
 * The bytes between any two neighbouring places at which a buffer begins or ends share their fate:
 * they are one cell, and the map is an array of cells.  Made for verify.c, which shares no code
 * with the passes that place buffers.
 */
#ifndef TRIREME_VERIFY_MEMORY_MAP_H
#define TRIREME_VERIFY_MEMORY_MAP_H

#include "program/program.h"

struct memory_map;

/* The cells of a pool, given to nobody.  For memory_map_destroy(). */
struct memory_map *memory_map_create(const struct program *program, enum mem_pool pool);
void memory_map_destroy(struct memory_map *map); /* NULL allowed */

/* Give the memory of buffer b, which is no view, to it.  Returns how many buffers had part of it
 * last, and them in *had (valid until the next call; one may be there more than once). */
int memory_map_give(struct memory_map *map, int b, const int **had);

#endif
