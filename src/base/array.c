/* array.c - see array.h. */
#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static void *or_end(void *data, size_t bytes)
{
    if (data)
        return data;
    fprintf(stderr, "trireme: error: out of memory: %zu bytes for a table\n", bytes);
    exit(EXIT_NODE);
}

void *array_grow(void *data, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return data;
    int wider = *capacity ? *capacity * 2 : 16;
    data = or_end(realloc(data, (size_t)wider * size), (size_t)wider * size);
    memset((char *)data + (size_t)*capacity * size, 0, (size_t)(wider - *capacity) * size);
    *capacity = wider;
    return data;
}

void *array_make(size_t count, size_t size)
{
    return or_end(calloc(count ? count : 1, size), count * size);
}

char *array_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(array_make(bytes, 1), text, bytes);
}
