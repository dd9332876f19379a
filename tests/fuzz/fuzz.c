/* fuzz.c - see fuzz.h.  The world is one rank: io asks no more of it, and no MPI is started. */
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "comm/world.h"
#include "io/h5.h"

static char folder[64];

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command))
        perror(command);
}

const char *fuzz_path(const char *name)
{
    static char paths[8][128];
    static int next;
    if (!folder[0]) {
        h5_setup();
        snprintf(folder, sizeof folder, "/dev/shm/trireme-fuzz.%d", (int)getpid());
        if (mkdir(folder, 0777))
            fuzz_fail("cannot make %s", folder);
        atexit(remove_folder);
    }
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *fuzz_file(const char *name, const void *data, size_t bytes)
{
    const char *path = fuzz_path(name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || close(fd))
        fuzz_fail("cannot write %s", path);
    return path;
}

void fuzz_fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    abort();
}

void fuzz_check_error(const struct error *err)
{
    if (!err->text[0])
        fuzz_fail("refused without a reason");
    if (strchr(err->text, '\n'))
        fuzz_fail("more than one line: %s", err->text);
}

uint64_t fuzz_take(const uint8_t **data, size_t *bytes, int width)
{
    uint64_t value = 0;
    if (*bytes < (size_t)width) {
        *bytes = 0;
        return 0;
    }
    memcpy(&value, *data, (size_t)width);
    *data += width;
    *bytes -= (size_t)width;
    return value;
}

int world_rank(const struct world *world)
{
    return 0;
}

int world_size(const struct world *world)
{
    return 1;
}

int world_agree(struct world *world, int rc, struct error *err)
{
    return rc;
}

void world_broadcast(struct world *world, void *data, size_t bytes, int root)
{
}

void world_all_reduce(struct world *world, double *values, int count, enum world_reduction how)
{
}

int world_gather(struct world *world, char **all, size_t *sizes, const void *mine, size_t bytes,
                 int root, struct error *err)
{
    *all = memcpy(array_make(bytes, 1), mine, bytes);
    *sizes = bytes;
    return 0;
}
