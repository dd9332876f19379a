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

/* What the files of a folder limit to; 0: nothing. */
typedef double read_limit(const char *folder);

static int read_text(const char *folder, const char *name, char *text, size_t bytes)
{
    char file[PATH_BYTES + 128];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    return text_from_file(file, NULL, text, bytes);
}

/* Bytes of memory.  "max" is no number. */
static double memory_limit(const char *folder, const char *name)
{
    const double unlimited = (double)(INT64_MAX / 4096 * 4096); /* of version 1 */
    char text[64];
    double bytes = read_text(folder, name, text, sizeof text) ? 0 : strtod(text, NULL);
    return bytes > 0 && bytes < unlimited ? bytes : 0;
}

static double memory_v2(const char *folder)
{
    return memory_limit(folder, "memory.max");
}

static double memory_v1(const char *folder)
{
    return memory_limit(folder, "memory.limit_in_bytes");
}

/* Cores: time that may be used in a period, over the period.  "max" and -1 limit nothing. */
static double cores_limit(const char *quota, const char *period)
{
    double used = strtod(quota, NULL), of = strtod(period, NULL);
    return used > 0 && of > 0 ? used / of : 0;
}

static double cores_v2(const char *folder)
{
    char text[64];
    if (read_text(folder, "cpu.max", text, sizeof text))
        return 0;
    const char *period = strchr(text, ' ');
    return period ? cores_limit(text, period) : 0;
}

static double cores_v1(const char *folder)
{
    char quota[32], period[32];
    if (read_text(folder, "cpu.cfs_quota_us", quota, sizeof quota) ||
        read_text(folder, "cpu.cfs_period_us", period, sizeof period))
        return 0;
    return cores_limit(quota, period);
}

/* The least limit of the folders of path below mount, and of mount itself; `least` is the least so
 * far, 0: none.  Shortens path. */
static double least_limit(double least, const char *mount, char *path, read_limit *read)
{
    char folder[PATH_BYTES + 64];
    for (;;) {
        path[strcspn(path, "\n")] = 0;
        snprintf(folder, sizeof folder, "%s%s", mount, strcmp(path, "/") ? path : "");
        double limit = read(folder);
        least = limit > 0 && (!(least > 0) || limit < least) ? limit : least;
        char *last = strrchr(path, '/');
        if (!last)
            return least;
        *last = 0;
    }
}

/* Is a controller one of a list with commas? */
static int has_controller(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ','))
            return 1;
    return 0;
}

/* The least limit of a controller; v2 and v1 read it in a folder of either version. */
static double limit_of(const char *controller, read_limit *v2, read_limit *v1)
{
    char line[PATH_BYTES], mount[64];
    double least = 0;
    FILE *file = fopen("/proc/self/cgroup", "r");
    snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
    while (file && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'),
             *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *controllers++ = 0;
        *path++ = 0;
        if (!controllers[0])
            least = least_limit(least, "/sys/fs/cgroup", path, v2);
        else if (has_controller(controllers, controller))
            least = least_limit(least, mount, path, v1);
    }
    if (file)
        fclose(file);
    return least;
}

size_t cgroup_memory_bytes(void)
{
    return (size_t)limit_of("memory", memory_v2, memory_v1);
}

double cgroup_cores(void)
{
    return limit_of("cpu", cores_v2, cores_v1);
}
