/* link.h - symbolic links at the place of an output. */
#ifndef TRIREME_BASE_LINK_H
#define TRIREME_BASE_LINK_H

#include "base/error.h"

/* Returns the path that path leads to, to be free()d: a file that is written beside it and renamed
 * to it leaves the links as they are.  Follows links whether or not anything is at their end; what
 * is no link is returned as it is.  NULL with err set: the links lead round in a circle. */
char *link_follow(const char *path, struct error *err);

#endif
