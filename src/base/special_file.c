/* special_file.c - see special_file.h. */
#include "base/special_file.h"

#include <errno.h>
#include <stddef.h>
#include <sys/stat.h>

const char *special_file_kind(const char *path)
{
    struct stat at;
    if (stat(path, &at) || S_ISREG(at.st_mode) || S_ISDIR(at.st_mode))
        return NULL;
    return S_ISFIFO(at.st_mode) ? "a named pipe" : S_ISSOCK(at.st_mode) ? "a socket" : "a device";
}

int special_file_refuse(const char *path, struct error *err)
{
    const char *kind = special_file_kind(path);
    if (!kind)
        return 0;
    errno = EINVAL;
    return error_set(err, "%s is %s, not a file", path, kind);
}
