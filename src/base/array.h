/* array.h - arrays that grow. */
#ifndef TRIREME_BASE_ARRAY_H
#define TRIREME_BASE_ARRAY_H

#include <stddef.h>

/* Make room for one more element: data (of count elements of size bytes) may move and its
 * capacity double.  New elements are zero.  Returns the (possibly moved) array; the program
 * cannot go on without these small tables, so running out of memory ends it with a message.
 * Use: list = array_grow(list, n, &capacity, sizeof *list); list[n++] = x; */
void *array_grow(void *data, int count, int *capacity, size_t size);

/* Zeroed memory for count elements, or the same end.  free() it. */
void *array_make(size_t count, size_t size);

/* A copy of text, or the same end.  free() it. */
char *array_text(const char *text);

#endif
