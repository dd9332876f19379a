/* output_path.c - checking where commands write; see output_path.h.
 *
 * What is there is known by its content: token files by HDF5's first bytes, tokenizers by reading
 * them, what trireme plan writes by its first bytes (reports[]).
 */
#include "cli/output_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "config/config.h"
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

/* Refuse a folder, also one that does not exist: a path that ends in '/'. */
static int refuse_folder(const char *path, struct error *err)
{
    struct stat info;
    size_t length = strlen(path);
    int is_folder =
        (length && path[length - 1] == '/') || (!stat(path, &info) && S_ISDIR(info.st_mode));
    return is_folder ? error_set(err, "%s is a folder; name a file to be written", path) : 0;
}

int output_path_check(const char *path, enum output_path_kind kind, const struct inputs *inputs,
                      struct error *err)
{
    struct error why = {0};
    struct stat info;
    if (!path)
        return 0;
    if (refuse_folder(path, err))
        return -1;
    if (stat(path, &info))
        return 0;
    if (!S_ISREG(info.st_mode))
        return error_set(err, "%s is a device; name a file to be written", path);
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

void output_path_warn_ending(const char *path, enum output_path_kind kind, struct log *log)
{
    static const char *const of_tokens[] = {".json", ".jsonl", ".txt", ".yaml", NULL};
    static const char *const of_tokenizer[] = {".h5", ".hdf5", ".jsonl", ".txt", ".yaml", NULL};
    const char *const *ending = kind == OUTPUT_TOKENS ? of_tokens : of_tokenizer;
    for (; path && *ending; ending++)
        if (text_ends_with(path, *ending))
            log_warn(log, "%s will be a %s, and ends in %s as other files do", path,
                     kind == OUTPUT_TOKENS ? "token file (.h5)" : "tokenizer (.json)", *ending);
}

/* What trireme plan writes: what it is called, and with which bytes it begins. */
enum { MOST_STARTS = 3, START_BYTES = 96 };
static const struct {
    const char *name, *start[MOST_STARTS];
} reports[] = {
    [OUTPUT_PLAN] = {.name = "plan",
                     .start = {"{\n  \"parameters\": ", "{\n  \"candidates\": ",
                               "{\n  \"nodes\": "}},
    [OUTPUT_TRACE] = {.name = "trace",
                      .start = {"{\"displayTimeUnit\": \"ms\", \"traceEvents\": "}},
    [OUTPUT_PICTURE] = {.name = "picture",
                        .start = {"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width="}},
    [OUTPUT_SCHEDULE] = {.name = "schedule"},
    [OUTPUT_CONFIG] = {.name = "configuration"},
};

/* Are these the first bytes of a schedule: actions such as 0F0 and 12B3, with commas between? */
static int begins_as_schedule(const char *text)
{
    size_t used = strspn(text, "0123456789FBIW,\r\n");
    return used > 0 && !text[used];
}

/* Does the file at path begin as reports of this kind do?  Returns 1, 0, or -1 with err set: it
 * cannot be read. */
static int begins_as(const char *path, enum output_path_kind kind, struct error *err)
{
    char text[START_BYTES + 1] = "";
    FILE *in = fopen(path, "re");
    if (!in)
        return error_errno(err, "cannot read %s, which is there", path);
    size_t bytes = fread(text, 1, START_BYTES, in);
    fclose(in);
    if (kind == OUTPUT_CONFIG)
        return config_is_written_for_user(path);
    if (kind == OUTPUT_SCHEDULE)
        return strlen(text) == bytes && begins_as_schedule(text);
    for (int i = 0; i < MOST_STARTS; i++)
        if (reports[kind].start[i] &&
            !strncmp(text, reports[kind].start[i], strlen(reports[kind].start[i])))
            return 1;
    return 0;
}

/* Check that a file can be made in the folder of path. */
static int check_folder(const char *path, struct error *err)
{
    char *folder = parent_of(path);
    int rc = access(folder, W_OK | X_OK) ? error_errno(err, "cannot create %s", path) : 0;
    free(folder);
    return rc;
}

static int is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int output_path_check_report(const char *path, enum output_path_kind kind, const char *input,
                             struct error *err)
{
    struct stat info, of_input, of_stdout;
    if (!path)
        return 0;
    if (refuse_folder(path, err))
        return -1;
    if (stat(path, &info))
        return check_folder(path, err);
    if (!S_ISREG(info.st_mode))
        return 0;
    if (!fstat(STDOUT_FILENO, &of_stdout) && is_same(&of_stdout, &info))
        return error_set(err,
                         "%s is the file that standard output goes to, where the plan itself is "
                         "printed; name another file",
                         path);
    if (input && !stat(input, &of_input) && is_same(&of_input, &info))
        return error_set(err, "%s is an input, and would be overwritten; name another file", path);
    int is_ours = info.st_size ? begins_as(path, kind, err) : 1;
    if (is_ours < 0)
        return -1;
    return is_ours ? 0
                   : error_set(err,
                               "%s is there, and is no %s of trireme's; remove it, or name another "
                               "file",
                               path, reports[kind].name);
}

int output_path_is(const char *a, const char *b)
{
    const char *name_a = strrchr(a, '/'), *name_b = strrchr(b, '/');
    struct stat x, y;
    char *folder_a = parent_of(a), *folder_b = parent_of(b);
    int same = !strcmp(name_a ? name_a + 1 : a, name_b ? name_b + 1 : b) && !stat(folder_a, &x) &&
               !stat(folder_b, &y) && is_same(&x, &y);
    free(folder_a);
    free(folder_b);
    return same;
}
