/* array.h - small tables and texts in host memory, which the program cannot go on without.
 *
 * These functions never fail: where memory is out, they print one line and end the process.  What
 * is as large as the model or the data (slabs, staging, buffers of files) is allocated by malloc()
 * or mem.h instead, where a lack of memory is an error like any other, agreed among the ranks.
 */
#ifndef TRIREME_BASE_ARRAY_H
#define TRIREME_BASE_ARRAY_H

#include <stddef.h>

#include "base/error.h"

/* Make space for one more element in data, an array (NULL at first) of `count` elements of `size`
 * bytes with space for *capacity elements.  A full array is doubled: it may move, and the new
 * elements are zero.  Returns the array, to be free()d.
 *     list = array_grow(list, n, &capacity, sizeof *list);
 *     list[n++] = x; */
void *array_grow(void *data, int count, int *capacity, size_t size);

/* Returns zeroed memory for count (0 allowed) elements of `size` bytes, to be free()d. */
void *array_make(size_t count, size_t size);

/* Returns a copy of text, or the text that printf() would print, to be free()d. */
char *array_text(const char *text);
char *array_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Returns data, the result of another function that allocates; ends the process where it is NULL.
 * bytes: its size, for the message. */
void *array_need(void *data, size_t bytes);

/* Set what happens when memory is out: call end(arg, err), which must not return, in place of
 * printing a line and exiting with EXIT_NODE.  end NULL: print and exit again.  A world of several
 * ranks sets it, so that a rank that is out of memory ends the others too.  To be called while no
 * other thread makes arrays. */
void array_end_by(void (*end)(void *arg, const struct error *err), void *arg);

#endif
