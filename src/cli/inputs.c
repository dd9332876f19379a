/* inputs.c - the texts that tokenize reads.
 *
 * Each argument is walked as a tree (fts), of which a file is the smallest.  What is hidden in a
 * folder is left out and counted, and so is a file with a byte of 0 among its first ones, named or
 * found; compressed files, and HDF5 files that were named, are refused.
 */
#include "cli/inputs.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "io/h5.h"

enum { PROBE_BYTES = 8000 };

static void skip(struct inputs_skipped *skipped, const char *path)
{
    if (!skipped->count++)
        skipped->first = array_text(path);
}

static int ends_in(const char *path, const char *suffix)
{
    size_t length = strlen(path), end = strlen(suffix);
    return length > end && !strcmp(path + length - end, suffix);
}

static int refuse_packed(const char *path, struct error *err)
{
    static const char *const packed[] = {".gz", ".xz", ".zst", ".bz2", ".zip"};
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++)
        if (ends_in(path, packed[i]))
            return error_set(err,
                             "%s is compressed; unpack it first, or pipe its text to "
                             "trireme tokenize -",
                             path);
    return 0;
}

static void add(struct inputs *inputs, const char *path)
{
    inputs->paths =
        array_grow(inputs->paths, inputs->count, &inputs->capacity, sizeof *inputs->paths);
    inputs->paths[inputs->count++] = array_text(path);
    if (ends_in(path, ".jsonl"))
        skip(&inputs->json, path);
}

/* 1 if its first bytes look like text, 0 if not, -1 with err set. */
static int looks_like_text(const char *path, struct error *err)
{
    char probe[PROBE_BYTES];
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, probe, sizeof probe);
    if (got < 0)
        error_errno(err, "cannot read input %s", path);
    if (fd >= 0)
        close(fd);
    return got < 0 ? -1 : !memchr(probe, 0, (size_t)got);
}

/* A regular file: named itself, or found in a folder. */
static int add_file(struct inputs *inputs, const char *path, int is_named, struct error *err)
{
    if (refuse_packed(path, err))
        return -1;
    int is_text = looks_like_text(path, err);
    if (is_text < 0)
        return -1;
    if (is_text) {
        add(inputs, path);
        return 0;
    }
    if (is_named && h5_is_file(path))
        return error_set(err, "%s is an HDF5 file, not a text%s", path,
                         ends_in(path, ".h5") ? "; if it is a token file, train on it: data.train="
                                                "FILE.h5"
                                              : "");
    skip(&inputs->not_text, path);
    return 0;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int add_entry(struct inputs *inputs, FTS *tree, FTSENT *entry, struct error *err)
{
    int is_named = !entry->fts_level;
    errno = entry->fts_errno;
    switch (entry->fts_info) {
    case FTS_D:
    case FTS_F:
        if (!is_named && entry->fts_name[0] == '.') {
            fts_set(tree, entry, FTS_SKIP);
            skip(&inputs->hidden, entry->fts_path);
            return 0;
        }
        return entry->fts_info == FTS_D ? 0 : add_file(inputs, entry->fts_path, is_named, err);
    case FTS_DEFAULT: /* a pipe is read if it was named */
        if (is_named)
            add(inputs, entry->fts_path);
        return 0;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
    case FTS_SLNONE: return error_errno(err, "cannot read input %s", entry->fts_path);
    default: return 0;
    }
}

static int add_tree(struct inputs *inputs, char *path, struct error *err)
{
    char *roots[] = {path, NULL};
    FTS *tree = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    FTSENT *entry;
    int rc = tree ? 0 : error_errno(err, "cannot read input %s", path);
    while (!rc && (entry = fts_read(tree)))
        rc = add_entry(inputs, tree, entry, err);
    if (tree)
        fts_close(tree);
    return rc;
}

int inputs_list(struct inputs *inputs, char **arguments, int count, struct error *err)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(arguments[i], "-"))
            add(inputs, "-");
        else if (add_tree(inputs, arguments[i], err))
            return -1;
    if (inputs->count)
        return 0;
    const char *first = inputs->not_text.first;
    if (!first)
        return error_set(err, "no input: trireme tokenize INPUT... -o FILE.h5");
    return error_set(err,
                     "no input is text: %s has bytes of 0 (UTF-16? convert it: iconv -t utf-8); "
                     "trireme tokenize - takes any bytes",
                     first);
}

int inputs_contain(const struct inputs *inputs, const char *path)
{
    struct stat output, input;
    if (stat(path, &output))
        return 0;
    for (int i = 0; i < inputs->count; i++) {
        int is_stdin = !strcmp(inputs->paths[i], "-");
        if (!(is_stdin ? fstat(STDIN_FILENO, &input) : stat(inputs->paths[i], &input)) &&
            input.st_dev == output.st_dev && input.st_ino == output.st_ino)
            return 1;
    }
    return 0;
}

void inputs_report(const struct inputs *inputs, struct log *log)
{
    const struct inputs_skipped *binary = &inputs->not_text, *hidden = &inputs->hidden;
    char skipped[2][256] = {"", ""};
    if (binary->count)
        snprintf(skipped[0], sizeof skipped[0], "%lld that %s not text (%s%s)",
                 (long long)binary->count, binary->count > 1 ? "are" : "is", binary->first,
                 binary->count > 1 ? ", ..." : "");
    if (hidden->count)
        snprintf(skipped[1], sizeof skipped[1], "%lld hidden (%s%s)", (long long)hidden->count,
                 hidden->first, hidden->count > 1 ? ", ..." : "");
    if (binary->count || hidden->count)
        log_info(log, "skipped %s%s%s", skipped[0], binary->count && hidden->count ? ", " : "",
                 skipped[1]);
    if (inputs->json.count)
        log_warn(log,
                 "%s: JSON is taken as it is, names and brackets too; for one field of it: jq -r "
                 ".text FILE | trireme tokenize - -o FILE.h5",
                 inputs->json.first);
}

void inputs_free(struct inputs *inputs)
{
    for (int i = 0; i < inputs->count; i++)
        free(inputs->paths[i]);
    free(inputs->paths);
    free(inputs->not_text.first);
    free(inputs->hidden.first);
    free(inputs->json.first);
    *inputs = (struct inputs){0};
}
