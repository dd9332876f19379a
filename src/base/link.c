/* link.c - see link.h. */
#include "base/link.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"

enum { LINKS = 40 }; /* Linux follows no more either */

char *link_follow(const char *path, struct error *err)
{
    char *at = array_text(path), to[PATH_MAX];
    for (int i = 0; i <= LINKS; i++) {
        ssize_t bytes = readlink(at, to, sizeof to - 1);
        if (bytes < 0)
            return at;
        to[bytes] = 0;
        const char *slash = strrchr(at, '/');
        int folder = slash && to[0] != '/' ? (int)(slash - at) + 1 : 0;
        char *next = array_format("%.*s%s", folder, at, to);
        free(at);
        at = next;
    }
    free(at);
    error_set(err, "%s: these links lead round in a circle, to no file", path);
    return NULL;
}
