/* tokenize.c - trireme tokenize: make a token file, or one for training and one for
 * validation, of text files.  Text is read and written in pieces: memory stays small. */
#include "cli/command.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/disk.h"
#include "io/tokenizer.h"
#include "io/tokens.h"

enum { CHUNK_BYTES = 1 << 20, SOURCE_TEXT = 1000 };

struct inputs {
    char **paths; /* "-" is standard input */
    int count;
};

/* One output: for training or for validation. */
struct output {
    const char *path; /* NULL: not asked for */
    struct tokens_writer *writer;
    int64_t tokens, documents;
};

struct job {
    const char *tokenizer_name;
    double valid_fraction;
    struct output train, valid;
    struct inputs inputs;
    struct tokenizer *tokenizer;
    char *chunk;
};

/* Inputs */

static int add_input(struct inputs *inputs, const char *path, struct error *err)
{
    static const char *const packed[] = {".gz", ".xz", ".zst", ".bz2", ".zip"};
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++)
        if (length > strlen(packed[i]) && !strcmp(path + length - strlen(packed[i]), packed[i]))
            return error_set(err,
                             "%s is compressed; unpack it first, or pipe its text to "
                             "trireme tokenize -",
                             path);
    char **more = realloc(inputs->paths, ((size_t)inputs->count + 1) * sizeof *more);
    if (more)
        inputs->paths = more;
    char *copy = more ? strdup(path) : NULL;
    if (!copy)
        return error_set(err, "out of memory listing the inputs");
    inputs->paths[inputs->count++] = copy;
    return 0;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* A file, or all regular files below a folder, in the order of their names. */
static int add_tree(struct inputs *inputs, char *path, struct error *err)
{
    char *roots[] = {path, NULL};
    FTS *tree = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    FTSENT *entry;
    int rc = tree ? 0 : error_errno(err, "cannot read input %s", path);
    while (!rc && (entry = fts_read(tree))) {
        errno = entry->fts_errno;
        if (entry->fts_info == FTS_F || (entry->fts_info == FTS_DEFAULT && !entry->fts_level))
            rc = add_input(inputs, entry->fts_path, err);
        else if (entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS ||
                 entry->fts_info == FTS_DNR || entry->fts_info == FTS_SLNONE)
            rc = error_errno(err, "cannot read input %s", entry->fts_path);
    }
    if (tree)
        fts_close(tree);
    return rc;
}

static int list_inputs(struct inputs *inputs, char **arguments, int count, struct error *err)
{
    for (int i = 0; i < count; i++)
        if (strcmp(arguments[i], "-") ? add_tree(inputs, arguments[i], err)
                                      : add_input(inputs, "-", err))
            return -1;
    return inputs->count ? 0 : error_set(err, "no input: trireme tokenize INPUT... -o FILE.h5");
}

/* Documents */

/* Append up to `bytes` bytes of text (all there is if negative) as one document. */
static int add_document(struct job *job, int fd, const char *path, int64_t bytes,
                        struct output *output, struct error *err)
{
    uint32_t end = (uint32_t)tokenizer_end_of_text(job->tokenizer);
    int rc = tokens_append(output->writer, NULL, 0, err);
    while (!rc && bytes) {
        size_t most = bytes < 0 || bytes > CHUNK_BYTES ? CHUNK_BYTES : (size_t)bytes;
        uint32_t *ids = NULL;
        int64_t count;
        ssize_t got = read(fd, job->chunk, most);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, "cannot read input %s", path);
        if (!got)
            break;
        rc = tokenizer_encode(job->tokenizer, job->chunk, (size_t)got, &ids, &count, err) ||
             tokens_extend(output->writer, ids, count, err);
        free(ids);
        output->tokens += rc ? 0 : count;
        bytes -= bytes < 0 ? 0 : got;
    }
    output->tokens++;
    output->documents++;
    return rc || tokens_extend(output->writer, &end, 1, err) ? -1 : 0;
}

/* Too few documents to share out: the tail of each is for validation. */
static int split_document(struct job *job, int fd, const char *path, struct error *err)
{
    struct stat info;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode))
        return error_set(err,
                         "%s has no size, so that its tail cannot be split off for "
                         "validation; save it to a file first",
                         path);
    int64_t tail = (int64_t)((double)info.st_size * job->valid_fraction);
    return add_document(job, fd, path, info.st_size - tail, &job->train, err) ||
                   add_document(job, fd, path, -1, &job->valid, err)
               ? -1
               : 0;
}

/* Every 1/F-th document is for validation, if there are so many. */
static int add_input_text(struct job *job, int i, struct error *err)
{
    const char *path = job->inputs.paths[i];
    double share = job->valid.path ? job->valid_fraction : 0;
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    int rc;
    if (fd < 0)
        return error_errno(err, "cannot open input %s", path);
    if (job->valid.path && job->inputs.count * share < 1)
        rc = split_document(job, fd, path, err);
    else if ((int64_t)((i + 1) * share) > (int64_t)(i * share))
        rc = add_document(job, fd, path, -1, &job->valid, err);
    else
        rc = add_document(job, fd, path, -1, &job->train, err);
    if (fd != STDIN_FILENO)
        close(fd);
    return rc;
}

/* Outputs */

static int make_parent(const char *path, struct error *err)
{
    const char *name = strrchr(path, '/');
    if (!name || name == path)
        return 0;
    char *folder = disk_path(err, "%.*s", (int)(name - path), path);
    int rc = folder ? disk_make_folders(folder, err) : -1;
    free(folder);
    return rc;
}

static int open_output(const struct job *job, struct output *output, const char *source,
                       struct error *err)
{
    if (!output->path)
        return 0;
    if (make_parent(output->path, err))
        return -1;
    return tokens_create(&output->writer, output->path, tokenizer_name(job->tokenizer),
                         tokenizer_vocab(job->tokenizer), source, err);
}

static int finish_output(struct output *output, struct error *err)
{
    int rc = output->writer ? tokens_finish(output->writer, err) : 0;
    output->writer = NULL;
    return rc;
}

static int write_all(struct job *job, const char *source, struct error *err)
{
    job->chunk = malloc(CHUNK_BYTES);
    if (!job->chunk)
        return error_set(err, "out of memory");
    if (open_output(job, &job->train, source, err) || open_output(job, &job->valid, source, err))
        return -1;
    for (int i = 0; i < job->inputs.count; i++)
        if (add_input_text(job, i, err))
            return -1;
    return finish_output(&job->train, err) || finish_output(&job->valid, err) ? -1 : 0;
}

static void print_output(const struct output *output, const char *before)
{
    if (output->path)
        printf("%s%s: %lld tokens in %lld %s", before, output->path, (long long)output->tokens,
               (long long)output->documents, output->documents == 1 ? "document" : "documents");
}

/* The arguments, as far as there is room: what the file was made of. */
static void name_source(char source[SOURCE_TEXT], char **arguments, int count)
{
    size_t used = 0;
    source[0] = 0;
    for (int i = 0; i < count && used < SOURCE_TEXT; i++)
        used +=
            (size_t)snprintf(source + used, SOURCE_TEXT - used, "%s%s", i ? " " : "", arguments[i]);
}

/* Options */

static int read_fraction(const char *text, double *fraction, struct error *err)
{
    char *end;
    *fraction = strtod(text, &end);
    if (end == text || *end || !(*fraction > 0 && *fraction < 1))
        return error_set(err, "--valid-fraction %s: it must be between 0 and 1", text);
    return 0;
}

static int read_options(struct job *job, int argc, char **argv, struct error *err)
{
    static const struct option options[] = {
        {"tokenizer", required_argument, NULL, 't'},
        {"output", required_argument, NULL, 'o'},
        {"valid", required_argument, NULL, 'v'},
        {"valid-fraction", required_argument, NULL, 'f'},
        {0},
    };
    int option, rc = 0;
    opterr = 0;
    while (!rc && (option = getopt_long(argc, argv, ":o:", options, NULL)) >= 0) {
        switch (option) {
        case 't': job->tokenizer_name = optarg; break;
        case 'o': job->train.path = optarg; break;
        case 'v': job->valid.path = optarg; break;
        case 'f': rc = read_fraction(optarg, &job->valid_fraction, err); break;
        case ':': return error_set(err, "%s needs a value", argv[optind - 1]);
        default: return error_set(err, "no option %s; trireme --help shows them", argv[optind - 1]);
        }
    }
    if (!rc && !job->train.path)
        rc = error_set(err, "no output: trireme tokenize INPUT... -o FILE.h5");
    if (!rc && !job->valid.path != !(job->valid_fraction > 0))
        rc = error_set(err, "--valid FILE.h5 and --valid-fraction F belong together");
    if (!rc && job->valid.path && !strcmp(job->valid.path, job->train.path))
        rc = error_set(err, "-o and --valid name the same file");
    return rc;
}

int command_tokenize(struct app *app, int argc, char **argv, struct error *err)
{
    struct job job = {.tokenizer_name = "bytes"};
    char source[SOURCE_TEXT];
    int rc = read_options(&job, argc, argv, err);
    if (!rc) {
        name_source(source, argv + optind, argc - optind);
        rc = list_inputs(&job.inputs, argv + optind, argc - optind, err) ||
             tokenizer_open(&job.tokenizer, job.tokenizer_name, err) ||
             write_all(&job, source, err);
    }
    if (!rc) {
        print_output(&job.train, "");
        print_output(&job.valid, "; ");
        printf("; tokenizer %s, vocabulary %lld\n", tokenizer_name(job.tokenizer),
               (long long)tokenizer_vocab(job.tokenizer));
    }
    tokens_abandon(job.train.writer);
    tokens_abandon(job.valid.writer);
    tokenizer_close(job.tokenizer);
    for (int i = 0; i < job.inputs.count; i++)
        free(job.inputs.paths[i]);
    free(job.inputs.paths);
    free(job.chunk);
    if (!rc && (fflush(stdout) || ferror(stdout)))
        rc = error_errno(err, "standard output");
    return rc ? -1 : 0;
}
