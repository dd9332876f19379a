/* chat_space.h - white space at the ends of a text in UTF-8, as Python's strip() knows it. */
#ifndef TRIREME_IO_CHAT_SPACE_H
#define TRIREME_IO_CHAT_SPACE_H

#include <stddef.h>

/* Move *text past the white space that it begins with, and make *bytes as much smaller. */
void chat_space_left(const char **text, size_t *bytes);
/* Make *bytes smaller by the white space that text ends with. */
void chat_space_right(const char *text, size_t *bytes);

#endif
