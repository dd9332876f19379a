/* inputs.c - listing what tokenize reads.
 *
 * Each argument is walked as a tree (fts): a folder, or a file alone.  Hidden files in folders are
 * left out and counted.  A file is "named" if it is itself an argument.  Its format, or why it is
 * refused, follows from its name and its first bytes:
 *
 *  - the first bytes of gzip, zstd, xz or bzip2, where it was named or has an ending of theirs: it
 *    is unpacked as it is read, and is what its name without the ending and its unpacked bytes say
 *  - .jsonl, .ndjson, and .json that was named: JSON lines; refused where it begins with [
 *  - the first bytes of numpy's or llm.c's files, or Megatron's .idx beside it: numbers, if it was
 *    named
 *  - HDF5 that was named: a token file
 *  - a byte of 0 among the first, or a README.md of a dataset in a folder: left out and counted
 *  - archives, Parquet, Arrow, numpy's .npz, and .csv and .tsv that were named: refused
 *  - anything else: text
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
#include "base/text.h"
#include "io/h5.h"
#include "io/megatron.h"
#include "io/npy.h"

enum { PROBE_BYTES = 8000, SKIPPED_TEXT = 768 };

static void skip(struct inputs_skipped *skipped, const char *path)
{
    if (!skipped->count++)
        skipped->first = array_text(path);
}

/* A file's first bytes. */
struct probe {
    char bytes[PROBE_BYTES];
    ssize_t count;
};

static int read_probe(struct probe *probe, const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    probe->count = fd < 0 ? -1 : read(fd, probe->bytes, sizeof probe->bytes);
    int rc = probe->count < 0 ? error_errno(err, "cannot read input %s", path) : 0;
    if (fd >= 0)
        close(fd);
    return rc;
}

static int begins_with(const struct probe *probe, const char *front)
{
    size_t bytes = strlen(front);
    return (size_t)probe->count >= bytes && !memcmp(probe->bytes, front, bytes);
}

static int is_jsonl(const char *path)
{
    return text_ends_with(path, ".jsonl") || text_ends_with(path, ".ndjson");
}

/* Replace the first bytes of a compressed file by those of what it holds. */
static int unpack_probe(struct probe *probe, const char *path, const char *packer,
                        struct error *err)
{
    struct unpack unpack;
    ssize_t got = 1;
    if (unpack_open(&unpack, path, packer, err))
        return -1;
    probe->count = 0;
    while (probe->count < PROBE_BYTES && got) {
        got = read(unpack.fd, probe->bytes + probe->count, (size_t)(PROBE_BYTES - probe->count));
        if (got < 0 && errno != EINTR)
            break;
        probe->count += got > 0 ? got : 0;
    }
    if (got < 0)
        error_errno(err, "cannot read what %s unpacks of %s", packer, path);
    return unpack_close(&unpack, !got, err) || got < 0 ? -1 : 0;
}

static int is_archive(const char *path, const struct probe *probe)
{
    enum { TAR_AT = 257 };
    if (text_ends_with(path, ".zip"))
        return 1;
    return probe && (begins_with(probe, "PK\x03\x04") ||
                     (probe->count > TAR_AT + 5 && !memcmp(probe->bytes + TAR_AT, "ustar", 5)));
}

/* Refuse archives, Parquet and Arrow.  probe NULL: by their names alone. */
static int refuse_archive(const char *path, const struct probe *probe, struct error *err)
{
    if (is_archive(path, probe))
        return error_set(err, "%s is an archive of files; unpack it into a folder first", path);
    if (text_ends_with(path, ".parquet"))
        return error_set(err,
                         "%s is Parquet, which trireme does not read; make JSON lines of it: "
                         "python3 -c 'import pandas, sys; pandas.read_parquet(\"%s\").to_json("
                         "sys.stdout, orient=\"records\", lines=True)' | trireme tokenize - "
                         "--format jsonl ...",
                         path, path);
    if (text_ends_with(path, ".arrow"))
        return error_set(err,
                         "%s is Arrow, as Hugging Face's datasets keep it, which trireme does not "
                         "read; make JSON lines of it: python3 -c 'import datasets, sys; "
                         "datasets.Dataset.from_file(\"%s\").to_json(sys.stdout.buffer)' | trireme "
                         "tokenize - --format jsonl ...",
                         path, path);
    return 0;
}

static int is_table(const char *path)
{
    return text_ends_with(path, ".csv") || text_ends_with(path, ".tsv");
}

/* Refuse a table, .csv or .tsv: read as text it would be one document, with names of columns and
 * quotes in it. */
static int refuse_table(const char *path, const char *name, struct error *err)
{
    int has_tabs = text_ends_with(name, ".tsv");
    if (!is_table(name))
        return 0;
    return error_set(err,
                     "%s is a table, which trireme does not read; make JSON lines of it: python3 "
                     "-c 'import pandas, sys; pandas.read_csv(\"%s\"%s).to_json(sys.stdout, "
                     "orient=\"records\", lines=True)' | trireme tokenize - --format jsonl ...; or "
                     "take it as one text: --format text",
                     path, path, has_tabs ? ", sep=\"\\t\"" : "");
}

static int refuse_npz(const char *path, struct error *err)
{
    return error_set(err,
                     "%s holds arrays of numpy; save the one of token ids alone: python3 -c "
                     "'import numpy; a = numpy.load(\"%s\"); numpy.save(\"data.npy\", "
                     "a[a.files[0]])', which takes the first",
                     path, path);
}

static void add(struct inputs *inputs, const char *path, enum inputs_format format,
                const char *packer)
{
    inputs->list = array_grow(inputs->list, inputs->count, &inputs->capacity, sizeof *inputs->list);
    inputs->list[inputs->count++] = (struct inputs_file){array_text(path), format, packer};
}

/* Find the format of a file from its name and its first bytes; INPUT_ANY: it is not text. */
static enum inputs_format format_of(const char *name, const struct probe *probe, int is_named)
{
    if (is_jsonl(name) || (is_named && text_ends_with(name, ".json")))
        return INPUT_JSONL;
    if (is_named && npy_format(probe->bytes, probe->count) != NPY_NONE)
        return INPUT_NPY;
    struct error unreadable; /* ignored: npy_open() fails later with the same text */
    int type;
    if (is_named && (megatron_type(name, &type, &unreadable) || type >= 0))
        return INPUT_BIN;
    return memchr(probe->bytes, 0, (size_t)probe->count) ? INPUT_ANY : INPUT_TEXT;
}

/* Is a file the page that describes a dataset on Hugging Face's hub?  It begins with YAML. */
static int is_card(const char *path, const struct probe *probe)
{
    return text_ends_with(path, "/README.md") &&
           (begins_with(probe, "---\n") || begins_with(probe, "---\r\n"));
}

static int refuse_list(const char *path, const char *packer, const struct probe *probe,
                       struct error *err)
{
    ssize_t at = 0;
    while (at < probe->count && memchr(" \t\r\n", probe->bytes[at], 4))
        at++;
    if (at == probe->count || probe->bytes[at] != '[')
        return 0;
    if (packer)
        return error_set(err,
                         "%s is a list in JSON; write its elements as lines first: %s -dc %s | jq "
                         "-c '.[]' >data.jsonl",
                         path, packer, path);
    return error_set(err,
                     "%s is a list in JSON; write its elements as lines first: jq -c '.[]' %s "
                     ">data.jsonl",
                     path, path);
}

/* Add a file that was not refused, and note what may not be meant; or count it as no text. */
static void add_or_skip(struct inputs *inputs, const char *path, const char *name,
                        enum inputs_format format, const char *packer)
{
    if (format == INPUT_ANY) {
        skip(&inputs->not_text, path);
        return;
    }
    if (format == INPUT_TEXT && !inputs->asked && text_ends_with(name, ".json"))
        skip(&inputs->json, path);
    if (format == INPUT_TEXT && !inputs->asked && is_table(name))
        skip(&inputs->table, path);
    add(inputs, path, format, packer);
}

/* add_file() of a file whose first bytes, unpacked by packer unless that is NULL, are known; name:
 * its path without the ending of a compressed file. */
static int add_probed(struct inputs *inputs, const char *path, const char *name,
                      const struct probe *probe, const char *packer, int is_named,
                      struct error *err)
{
    int is_judged = is_named && !inputs->asked;
    if (!is_named && is_card(path, probe)) {
        skip(&inputs->card, path);
        return 0;
    }
    if (refuse_archive(path, packer || is_judged ? probe : NULL, err) ||
        (is_judged && refuse_table(path, name, err)))
        return -1;
    enum inputs_format format = inputs->asked ? inputs->asked : format_of(name, probe, is_named);
    if (packer && (format == INPUT_NPY || format == INPUT_BIN))
        return error_set(err, "%s has token ids and is compressed; unpack it first: %s -dk %s",
                         path, packer, path);
    if (format == INPUT_JSONL && refuse_list(path, packer, probe, err))
        return -1;
    if (format == INPUT_ANY && is_named && h5_is_file(path))
        format = INPUT_TOKENS;
    add_or_skip(inputs, path, name, format, packer);
    return 0;
}

/* Add a regular file, which is an argument itself (is_named), or was found in a folder; or count
 * why it is left out, or refuse it. */
static int add_file(struct inputs *inputs, const char *path, int is_named, struct error *err)
{
    struct probe probe;
    const char *packer = NULL;
    size_t ending = unpack_ending(path);
    if (is_named && text_ends_with(path, ".npz"))
        return refuse_npz(path, err);
    if (read_probe(&probe, path, err))
        return -1;
    if (is_named || ending)
        packer = unpack_program(probe.bytes, (size_t)probe.count);
    if (packer && unpack_probe(&probe, path, packer, err))
        return -1;
    char *name = array_format("%.*s", (int)(strlen(path) - ending), path);
    int rc = add_probed(inputs, path, name, &probe, packer, is_named, err);
    free(name);
    return rc;
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
            add(inputs, entry->fts_path, inputs->asked ? inputs->asked : INPUT_TEXT, NULL);
        return 0;
    case FTS_SLNONE:
        if (is_named)
            return error_set(err, "cannot read input %s: it is a link to a file that is not there",
                             entry->fts_path);
        skip(&inputs->dangling, entry->fts_path);
        return 0;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS: return error_errno(err, "cannot read input %s", entry->fts_path);
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
            add(inputs, "-", inputs->asked ? inputs->asked : INPUT_TEXT, NULL);
        else if (add_tree(inputs, arguments[i], err))
            return -1;
    if (inputs->count)
        return 0;
    const char *first = inputs->not_text.first;
    if (!first && count)
        return error_set(err, "no input: there is no file in %s%s%s", arguments[0],
                         count > 1 ? ", nor in the others" : "",
                         inputs->hidden.count || inputs->card.count
                             ? ", but for hidden ones and a dataset's README.md, which are left out"
                             : "");
    if (!first)
        return error_set(err, "no input: trireme tokenize INPUT... -o FILE.h5");
    if (h5_is_file(first))
        return error_set(err, "no input is text; to join token files, name them: %s", first);
    return error_set(err,
                     "no input is text: %s has bytes of 0 (UTF-16? convert it: iconv -t utf-8; "
                     "16-bit token ids? --format bin); trireme tokenize - takes any bytes",
                     first);
}

int inputs_of(const struct inputs *inputs, enum inputs_format format)
{
    int count = 0;
    for (int i = 0; i < inputs->count; i++)
        count += inputs->list[i].format == format;
    return count;
}

int inputs_contain(const struct inputs *inputs, const char *path)
{
    struct stat output, input;
    if (stat(path, &output))
        return 0;
    for (int i = 0; i < inputs->count; i++) {
        int is_stdin = !strcmp(inputs->list[i].path, "-");
        if (!(is_stdin ? fstat(STDIN_FILENO, &input) : stat(inputs->list[i].path, &input)) &&
            input.st_dev == output.st_dev && input.st_ino == output.st_ino)
            return 1;
    }
    return 0;
}

int inputs_open(struct inputs_stream *stream, const struct inputs_file *file, struct error *err)
{
    *stream = (struct inputs_stream){.fd = STDIN_FILENO, .is_packed = file->packer != NULL};
    if (file->packer && unpack_open(&stream->unpack, file->path, file->packer, err))
        return -1;
    if (file->packer)
        stream->fd = stream->unpack.fd;
    else if (strcmp(file->path, "-") != 0)
        stream->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    return stream->fd < 0 ? error_errno(err, "cannot open input %s", file->path) : 0;
}

int inputs_close(struct inputs_stream *stream, int is_read, struct error *err)
{
    if (stream->is_packed)
        return unpack_close(&stream->unpack, is_read, err);
    if (stream->fd != STDIN_FILENO)
        close(stream->fd);
    return 0;
}

/* Append to text how many files were skipped, for which reason: of one, of more. */
static void append_skipped(char text[SKIPPED_TEXT], const struct inputs_skipped *skipped,
                           const char *one, const char *more)
{
    size_t used = strlen(text);
    if (skipped->count)
        snprintf(text + used, SKIPPED_TEXT - used, "%s%lld %s (%s%s)", used ? ", " : "",
                 (long long)skipped->count, skipped->count > 1 ? more : one, skipped->first,
                 skipped->count > 1 ? ", ..." : "");
}

void inputs_report(const struct inputs *inputs, struct log *log)
{
    char skipped[SKIPPED_TEXT] = "";
    append_skipped(skipped, &inputs->not_text, "that is not text", "that are not text");
    append_skipped(skipped, &inputs->hidden, "hidden", "hidden");
    append_skipped(skipped, &inputs->dangling, "link to a file that is not there",
                   "links to files that are not there");
    append_skipped(skipped, &inputs->card, "that describes a dataset", "that describe datasets");
    if (skipped[0])
        log_info(log, "skipped %s", skipped);
    if (inputs->json.count)
        log_warn(
            log,
            "%s: JSON in a folder is taken as it is, names and brackets too; documents as JSON "
            "lines have names that end in .jsonl, or are named themselves",
            inputs->json.first);
    if (inputs->table.count)
        log_warn(log,
                 "%s: a table in a folder is taken as it is, as one document; name it, and the "
                 "message says how to make JSON lines of it",
                 inputs->table.first);
}

void inputs_free(struct inputs *inputs)
{
    for (int i = 0; i < inputs->count; i++)
        free(inputs->list[i].path);
    free(inputs->list);
    free(inputs->not_text.first);
    free(inputs->hidden.first);
    free(inputs->dangling.first);
    free(inputs->card.first);
    free(inputs->json.first);
    free(inputs->table.first);
    *inputs = (struct inputs){0};
}
