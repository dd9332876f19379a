/* array.h - small tables and texts of the host, which the program cannot go on without.
 *
 * Where memory for one of them is out, the process ends with one line.  What is as large as the
 * model or the data (slabs, staging, buffers of files) is asked for by malloc() or mem.h instead,
 * and its absence is an error like any other, agreed among the ranks.
 */
#ifndef TRIREME_BASE_ARRAY_H
#define TRIREME_BASE_ARRAY_H

#include <stddef.h>

#include "base/error.h"

/* Have space for one more element: data (of count elements of size bytes) may move and its capacity
 * double.  New elements are zero.  Returns the (possibly moved) array.
 *     list = array_grow(list, n, &capacity, sizeof *list);
 *     list[n++] = x; */
void *array_grow(void *data, int count, int *capacity, size_t size);

/* Zeroed memory for count elements; free() it. */
void *array_make(size_t count, size_t size);

/* A copy of text, and text as printf() makes it; free() it. */
char *array_text(const char *text);
char *array_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Returns data, which another function allocated; NULL means that memory is out. */
void *array_need(void *data, size_t bytes);

/* When memory is out, call end(arg, err), which does not return, in place of printing a line and
 * exiting with EXIT_NODE; NULL: print and exit again.  A world of several ranks sets it, so that a
 * rank that is out of memory ends the others too.  To be called while no other thread makes arrays.
 */
void array_end_by(void (*end)(void *arg, const struct error *err), void *arg);

#endif
