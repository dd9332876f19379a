/* cgroup.c - see cgroup.h.
 *
 * /proc/self/cgroup has a line for each hierarchy, ID:CONTROLLERS:PATH.  Version 2 has one,
 * 0::PATH. A limit may stand at any folder of PATH: Slurm's is at the job's, two above that of a
 * task.  In a container PATH may be the host's, of which only the last folder is there, mounted at
 * the root; so folders that are not there are left out, and the root is looked at, too.
 */
#include "base/cgroup.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { PATH_BYTES = 4096 };

/* Returns the smaller of least (0: none yet) and the limit in a file, if it is one. */
static size_t smaller_limit(size_t least, const char *path)
{
    char text[64];
    if (text_from_file(path, NULL, text, sizeof text))
        return least;
    unsigned long long bytes = strtoull(text, NULL, 10);                /* "max" is 0: no limit */
    if (!bytes || bytes >= (unsigned long long)INT64_MAX / 4096 * 4096) /* version 1's "no limit" */
        return least;
    return least && least <= bytes ? least : (size_t)bytes;
}

/* The least limit of the folders of path below mount, and of mount itself.  Shortens path. */
static size_t least_limit(size_t least, const char *mount, char *path, const char *name)
{
    char file[PATH_BYTES + 128];
    for (;;) {
        path[strcspn(path, "\n")] = 0;
        snprintf(file, sizeof file, "%s%s/%s", mount, strcmp(path, "/") ? path : "", name);
        least = smaller_limit(least, file);
        char *last = strrchr(path, '/');
        if (!last)
            return least;
        *last = 0;
    }
}

/* Is "memory" one of the controllers, a list with commas? */
static int has_memory(const char *controllers)
{
    const char *at = strstr(controllers, "memory");
    return at && (at == controllers || at[-1] == ',') && (!at[6] || at[6] == ',');
}

size_t cgroup_memory_bytes(void)
{
    char line[PATH_BYTES];
    size_t least = 0;
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'),
             *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *controllers++ = 0;
        *path++ = 0;
        if (!controllers[0])
            least = least_limit(least, "/sys/fs/cgroup", path, "memory.max");
        else if (has_memory(controllers))
            least = least_limit(least, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
    }
    if (file)
        fclose(file);
    return least;
}
