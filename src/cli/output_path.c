/* output_path.c - checking where tokenize writes; see output_path.h. */
#include "cli/output_path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "io/disk.h"
#include "io/h5.h"
#include "io/tokenizer.h"

/* Return the folder that a path is in, for free(). */
static char *parent_of(const char *path)
{
    const char *name = strrchr(path, '/');
    if (!name)
        return array_text(".");
    return array_format("%.*s", (int)(name == path ? 1 : name - path), path);
}

int output_path_make_folder(const char *path, struct error *err)
{
    struct stat info;
    char *folder = parent_of(path);
    int rc = 0;
    if (stat(folder, &info)) {
        if (errno == ENOENT && (path[0] == '/' || strstr(path, "..")))
            rc = error_set(err, "there is no folder %s for %s; make it first: mkdir -p %s", folder,
                           path, folder);
        else
            rc = disk_make_folders(folder, err);
    }
    free(folder);
    return rc;
}

/* Is the file at path a tokenizer.json that trireme reads?  Returns 0, or -1 with why set. */
static int check_tokenizer(const char *path, struct error *why)
{
    struct tokenizer *tokenizer;
    if (h5_is_file(path))
        return error_set(why, "it is an HDF5 file, as token files are");
    if (tokenizer_open(&tokenizer, path, why))
        return -1;
    int is_file = tokenizer->path != NULL; /* a name such as "bytes" is that of a built-in one */
    tokenizer_close(tokenizer);
    return is_file ? 0 : error_set(why, "it is no JSON");
}

int output_path_check(const char *path, enum output_path_kind kind, const struct inputs *inputs,
                      struct error *err)
{
    struct error why = {0};
    struct stat info;
    if (!path || stat(path, &info))
        return 0;
    if (!S_ISREG(info.st_mode))
        return error_set(err, "%s is %s; name a file to be written", path,
                         S_ISDIR(info.st_mode) ? "a folder" : "a device");
    if (inputs_contain(inputs, path))
        return error_set(err, "%s is an input, and would be overwritten; name another output",
                         path);
    if (info.st_size && kind == OUTPUT_TOKENIZER && check_tokenizer(path, &why))
        return error_set(err,
                         "%s is there, and is no tokenizer (%s); remove it, or name another output",
                         path, why.text);
    if (info.st_size && kind == OUTPUT_TOKENS && !h5_is_file(path))
        return error_set(
            err, "%s is there, and is no token file; remove it, or name another output", path);
    return 0;
}

int output_path_is(const char *a, const char *b)
{
    const char *name_a = strrchr(a, '/'), *name_b = strrchr(b, '/');
    struct stat x, y;
    char *folder_a = parent_of(a), *folder_b = parent_of(b);
    int same = !strcmp(name_a ? name_a + 1 : a, name_b ? name_b + 1 : b) && !stat(folder_a, &x) &&
               !stat(folder_b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    free(folder_a);
    free(folder_b);
    return same;
}
