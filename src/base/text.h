/* text.h - texts that are put together in an array of fixed size, and questions about texts. */
#ifndef TRIREME_BASE_TEXT_H
#define TRIREME_BASE_TEXT_H

#include <stddef.h>

/* Append to text, an array of size bytes that holds a text, what printf() makes of fmt; what does
 * not fit is cut off.  text_join() puts separator before it unless text is empty.  Return text. */
char *text_append(char *text, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
char *text_join(char *text, size_t size, const char *separator, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The first line of a file (of /proc or /sys) that begins with key, NULL: the first of all, without
 * its end; with a key what follows ": ".  Returns 0, or -1 with text as it was where there is none.
 */
int text_from_file(const char *path, const char *key, char *text, size_t size);

/* Is text digits, one at least, and nothing else? */
int text_is_digits(const char *text);

/* Does text end with `end`, or is it that? */
int text_ends_with(const char *text, const char *end);

#endif
