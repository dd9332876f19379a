/* array.c - see array.h. */
#include "base/array.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What array_end_by() set: how the process ends when memory is out.  One for the whole process, as
 * any function of it may be the one that finds no memory. */
static struct {
    void (*end)(void *arg, const struct error *err);
    void *arg;
} array_end;

void array_end_by(void (*end)(void *arg, const struct error *err), void *arg)
{
    array_end.end = end;
    array_end.arg = arg;
}

void *array_need(void *data, size_t bytes)
{
    if (data)
        return data;
    struct error err = {.code = EXIT_NODE};
    error_set(&err, "out of memory: %zu bytes for a table", bytes);
    if (array_end.end)
        array_end.end(array_end.arg, &err);
    fprintf(stderr, "trireme: error: %s\n", err.text);
    exit(EXIT_NODE);
}

void *array_grow(void *data, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return data;
    int wider = *capacity ? *capacity * 2 : 16;
    data = array_need(realloc(data, (size_t)wider * size), (size_t)wider * size);
    memset((char *)data + (size_t)*capacity * size, 0, (size_t)(wider - *capacity) * size);
    *capacity = wider;
    return data;
}

void *array_make(size_t count, size_t size)
{
    return array_need(calloc(count ? count : 1, size), count * size);
}

char *array_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(array_make(bytes, 1), text, bytes);
}

char *array_format(const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    int length = vasprintf(&text, fmt, args);
    va_end(args);
    return array_need(length < 0 ? NULL : text, strlen(fmt));
}
