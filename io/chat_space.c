/* chat_space.c - see chat_space.h. */
#include "io/chat_space.h"

#include <string.h>

/* Characters for which str.isspace() is true (Unicode's bidirectional types WS, B, S and category
 * Zs). */
static const char *const spaces[] = {
    "\t",           "\n",           "\v",           "\f",           "\r",
    "\x1c",         "\x1d",         "\x1e",         "\x1f",         " ",
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
    "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
    "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
    "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80",
};

enum { SPACES = sizeof spaces / sizeof spaces[0] };

/* Returns the bytes of the space with which text begins (at_end: ends); 0: there is none. */
static size_t space(const char *text, size_t bytes, int at_end)
{
    for (int i = 0; i < SPACES; i++) {
        size_t length = strlen(spaces[i]);
        if (length <= bytes && !memcmp(at_end ? text + bytes - length : text, spaces[i], length))
            return length;
    }
    return 0;
}

void chat_space_left(const char **text, size_t *bytes)
{
    for (size_t length; (length = space(*text, *bytes, 0)); *bytes -= length)
        *text += length;
}

void chat_space_right(const char *text, size_t *bytes)
{
    for (size_t length; (length = space(text, *bytes, 1));)
        *bytes -= length;
}
