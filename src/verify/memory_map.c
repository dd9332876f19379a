/* memory_map.c - see memory_map.h: cell c lies between edge[c] and edge[c + 1]. */
#include "verify/memory_map.h"

#include <stdlib.h>

#include "base/array.h"

struct memory_map {
    const struct program *program;
    size_t *edge; /* sorted, each once */
    int *owner;   /* per cell: the buffer that was last given it; -1: none */
    int *had;
    int edges;
};

static int compare_edges(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static void find_edges(struct memory_map *map, enum mem_pool pool)
{
    const struct program *program = map->program;
    int count = 0, kept = 0;
    for (int b = 0; b < program->buffers; b++) {
        const struct program_buffer *buffer = &program->buffer[b];
        if (buffer->pool != pool || buffer->whole >= 0)
            continue;
        map->edge[count++] = buffer->offset;
        map->edge[count++] = buffer->offset + buffer->bytes;
    }
    qsort(map->edge, (size_t)count, sizeof *map->edge, compare_edges);
    for (int e = 0; e < count; e++)
        if (!kept || map->edge[e] != map->edge[kept - 1])
            map->edge[kept++] = map->edge[e];
    map->edges = kept;
}

struct memory_map *memory_map_create(const struct program *program, enum mem_pool pool)
{
    struct memory_map *map = array_make(1, sizeof *map);
    map->program = program;
    map->edge = array_make(2 * (size_t)program->buffers, sizeof *map->edge);
    find_edges(map, pool);
    map->owner = array_make((size_t)map->edges, sizeof *map->owner);
    map->had = array_make((size_t)map->edges, sizeof *map->had);
    for (int c = 0; c < map->edges; c++)
        map->owner[c] = -1;
    return map;
}

void memory_map_destroy(struct memory_map *map)
{
    if (!map)
        return;
    free(map->edge);
    free(map->owner);
    free(map->had);
    free(map);
}

int memory_map_give(struct memory_map *map, int b, const int **had)
{
    const struct program_buffer *buffer = &map->program->buffer[b];
    size_t end = buffer->offset + buffer->bytes;
    const size_t *first =
        bsearch(&buffer->offset, map->edge, (size_t)map->edges, sizeof *map->edge, compare_edges);
    int count = 0;
    for (int c = (int)(first - map->edge); map->edge[c] < end; c++) {
        if (map->owner[c] >= 0 && (!count || map->had[count - 1] != map->owner[c]))
            map->had[count++] = map->owner[c];
        map->owner[c] = b;
    }
    *had = map->had;
    return count;
}
