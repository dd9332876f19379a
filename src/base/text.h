/* text.h - building texts in arrays of fixed size, the text of small files, tests of texts. */
#ifndef TRIREME_BASE_TEXT_H
#define TRIREME_BASE_TEXT_H

#include <stddef.h>

/* Append what printf() would print to text, an array of `size` bytes that holds a text already (""
 * for none); what does not fit is cut off.  text_join() puts separator between the two unless text
 * is empty.  Return text. */
char *text_append(char *text, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
char *text_join(char *text, size_t size, const char *separator, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Find the first line of a file of /proc or /sys that begins with key, and copy what follows its
 * ':', without spaces before it and without the newline, to text (size bytes).  key NULL: copy all
 * of the first line in the same way.  Returns 0, or -1, with text unchanged, where there is no such
 * line or file. */
int text_from_file(const char *path, const char *key, char *text, size_t size);

/* Returns 1 if text is one digit or more, and nothing else. */
int text_is_digits(const char *text);

/* Returns the bytes of the BOM (U+FEFF, EF BB BF) with which a text of so many bytes begins, as
 * those of Windows programs may: 3, or 0. */
size_t text_bom_bytes(const char *text, size_t bytes);

/* Returns 1 if text ends with `end`, or equals it. */
int text_ends_with(const char *text, const char *end);

#endif
