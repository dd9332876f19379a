/* tokenize.c - trireme tokenize: make a token file, or one for training and one for
 * validation, of text files; verify token files, and give older ones checksums.  Text is read and
 * written in pieces: memory stays small. */
#include "base/array.h"
#include "base/text.h"
#include "cli/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/arguments.h"
#include "cli/inputs.h"
#include "cli/output_path.h"
#include "cli/tokenize_train.h"
#include "io/disk.h"
#include "io/partial.h"
#include "io/tokenizer.h"
#include "io/tokens.h"

enum { CHUNK_BYTES = 1 << 20, SOURCE_TEXT = 1000 };

/* One output: for training or for validation. */
struct output {
    const char *path; /* NULL: not asked for */
    struct tokens_writer *writer;
    int64_t tokens, documents;
};

enum tokenize_use { MAKE, VERIFY, SEAL };

struct job {
    enum tokenize_use use;
    const char *tokenizer_name;
    double valid_fraction;
    struct output train, valid;
    struct inputs inputs;
    struct tokenizer *tokenizer;
    struct tokenizer_encoder *encoder;
    char *chunk; /* [capacity], of which held bytes are read */
    size_t held, capacity;
};

/* Documents */

/* Encode the text in the buffer and append it; with more to come only up to a place where it can be
 * cut, and the rest goes to the front of the buffer. */
static int encode_chunk(struct job *job, struct output *output, int flags, int more,
                        struct error *err)
{
    const uint32_t *ids;
    int64_t count;
    size_t cut = more ? tokenizer_cut(job->tokenizer, job->chunk, job->held) : job->held;
    if (tokenizer_encoder_run(job->encoder, job->chunk, cut, cut ? flags : 0, &ids, &count, err) ||
        tokens_extend(output->writer, ids, count, err))
        return -1;
    job->held -= cut;
    memmove(job->chunk, job->chunk + cut, job->held);
    output->tokens += count;
    return 0;
}

/* Fill the buffer, which doubles where nothing of it could be encoded, with up to *bytes bytes (all
 * there is if negative).  Returns 1, 0 at the end, or -1 with err set. */
static int fill_chunk(struct job *job, int fd, const char *path, int64_t *bytes, struct error *err)
{
    if (job->held == job->capacity) {
        job->capacity = job->capacity ? 2 * job->capacity : CHUNK_BYTES;
        job->chunk = array_need(realloc(job->chunk, job->capacity), job->capacity);
    }
    while (*bytes && job->held < job->capacity) {
        size_t most = job->capacity - job->held;
        if (*bytes > 0 && (size_t)*bytes < most)
            most = (size_t)*bytes;
        ssize_t got = read(fd, job->chunk + job->held, most);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, "cannot read input %s", path);
        if (!got)
            return 0;
        job->held += (size_t)got;
        *bytes -= *bytes < 0 ? 0 : got;
    }
    return *bytes != 0;
}

/* Append up to `bytes` bytes of text (all there is if negative) as one document. */
static int add_document(struct job *job, int fd, const char *path, int64_t bytes,
                        struct output *output, struct error *err)
{
    uint32_t end = (uint32_t)job->tokenizer->end_of_text;
    int more = 1, flags = 0;
    job->held = 0;
    if (tokens_append(output->writer, NULL, 0, err))
        return -1;
    while (more > 0) {
        int64_t before = output->tokens;
        more = fill_chunk(job, fd, path, &bytes, err);
        if (more < 0 || encode_chunk(job, output, flags, more, err))
            return -1;
        if (output->tokens > before)
            flags = TOKENIZER_CONTINUED;
    }
    output->tokens++;
    output->documents++;
    return tokens_extend(output->writer, &end, 1, err);
}

/* With few documents the end of each is for validation. */
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

/* With many documents every 1/F-th one is for validation. */
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

static int check_outputs(const struct job *job, struct error *err)
{
    if (output_path_check(job->train.path, &job->inputs, err) ||
        output_path_check(job->valid.path, &job->inputs, err))
        return -1;
    if (job->valid.path && output_path_is(job->train.path, job->valid.path))
        return error_set(err, "-o and --valid name the same file");
    return 0;
}

/* Remove unfinished files that killed `tokenize` commands left beside this path, and name those
 * that cannot be removed. */
static void sweep_output(const char *path, struct log *log)
{
    struct partial_found found;
    if (!path)
        return;
    partial_sweep(path, &found);
    if (found.removed)
        log_info(log, "removed %d unfinished %s of a tokenize to %s that was killed", found.removed,
                 found.removed == 1 ? "file" : "files", path);
    if (found.kept)
        log_warn(
            log,
            "beside %s there %s %d unfinished %s of other nodes or earlier times (%s%s); if no "
            "tokenize to it runs elsewhere, remove %s",
            path, found.kept == 1 ? "is" : "are", found.kept, found.kept == 1 ? "file" : "files",
            found.example, found.kept == 1 ? "" : ", ...", found.kept == 1 ? "it" : "them");
}

static int open_output(const struct job *job, struct output *output, const char *source,
                       struct error *err)
{
    if (!output->path)
        return 0;
    if (output_path_make_folder(output->path, err))
        return -1;
    return tokens_create(&output->writer, output->path, job->tokenizer->name, job->tokenizer->vocab,
                         source, err);
}

static int finish_output(struct output *output, struct error *err)
{
    int rc = output->writer ? tokens_finish(output->writer, err) : 0;
    output->writer = NULL;
    return rc;
}

static int write_all(struct job *job, const char *source, struct error *err)
{
    if (job->tokenizer->end_of_text < 0)
        return error_set(err,
                         "tokenizer %s has no token that ends texts, which goes behind each "
                         "document; name it as eos_token in tokenizer_config.json beside it",
                         job->tokenizer->path);
    if (tokenizer_encoder_create(&job->encoder, job->tokenizer, err))
        return -1;
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

/* The inputs' names, cut off where they are too long: the file's attribute "source". */
static void name_source(char source[SOURCE_TEXT], char **arguments, int count)
{
    source[0] = 0;
    for (int i = 0; i < count; i++)
        text_join(source, SOURCE_TEXT, " ", "%s", arguments[i]);
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

/* Read the options, and leave the files in argv. */
static int read_options(struct job *job, int *argc, char **argv, struct error *err)
{
    const char *tokenizer = arguments_option("--tokenizer", argc, argv);
    const char *fraction = arguments_option("--valid-fraction", argc, argv);
    job->tokenizer_name = tokenizer ? tokenizer : "bytes";
    job->train.path = arguments_option("-o", argc, argv);
    job->valid.path = arguments_option("--valid", argc, argv);
    if (arguments_flag("--verify", argc, argv))
        job->use = VERIFY;
    if (arguments_flag("--seal", argc, argv))
        job->use = SEAL;
    if (fraction && read_fraction(fraction, &job->valid_fraction, err))
        return -1;
    if (job->use != MAKE && (job->train.path || job->valid.path))
        return error_set(err, "--verify and --seal take token files, and write no other");
    if (job->use != MAKE)
        return *argc > 1 ? 0 : error_set(err, "no token file: trireme tokenize --verify FILE.h5");
    if (!job->train.path)
        return error_set(err, "no output: trireme tokenize INPUT... -o FILE.h5");
    if (!job->valid.path != !(job->valid_fraction > 0))
        return error_set(err, "--valid FILE.h5 and --valid-fraction F belong together");
    return 0;
}

/* Commands */

static int verify_file(const char *path, struct error *err)
{
    struct tokens tokens;
    if (tokens_open(&tokens, path, err))
        return -1;
    int rc = tokens_verify(&tokens, err);
    if (!rc)
        printf("%s: whole; %lld tokens in %lld %s, tokenizer %s, vocabulary %lld%s%s\n", path,
               (long long)tokens.count, (long long)tokens.documents,
               tokens.documents == 1 ? "document" : "documents", tokens.tokenizer,
               (long long)tokens.vocab, tokens.has_mask ? ", loss mask" : "",
               tokens.has_checksums ? "" : "; it carries no checksums: trireme tokenize --seal");
    tokens_close(&tokens);
    return rc;
}

/* Give an older file checksums: it is verified while it is read, and the new file again once it is
 * written. */
static int check_files(const struct job *job, char **paths, int count, struct error *err)
{
    for (int i = 0; i < count; i++)
        if ((job->use == SEAL && tokens_seal(paths[i], err)) || verify_file(paths[i], err))
            return -1;
    return 0;
}

static int make_files(struct app *app, struct job *job, char **arguments, int count,
                      struct error *err)
{
    char source[SOURCE_TEXT];
    name_source(source, arguments, count);
    if (inputs_list(&job->inputs, arguments, count, err) || check_outputs(job, err) ||
        tokenizer_open(&job->tokenizer, job->tokenizer_name, err))
        return -1;
    sweep_output(job->train.path, &app->log);
    sweep_output(job->valid.path, &app->log);
    if (write_all(job, source, err))
        return -1;
    inputs_report(&job->inputs, &app->log);
    print_output(&job->train, "");
    print_output(&job->valid, "; ");
    printf("; tokenizer %s, vocabulary %lld\n", job->tokenizer->name,
           (long long)job->tokenizer->vocab);
    return 0;
}

int command_tokenize(struct app *app, int argc, char **argv, struct error *err)
{
    struct job job = {0};
    if (tokenize_train_is_asked(argc, argv))
        return tokenize_train(app, argc, argv, err);
    int rc = read_options(&job, &argc, argv, err);
    if (!rc)
        rc = job.use == MAKE ? make_files(app, &job, argv + 1, argc - 1, err)
                             : check_files(&job, argv + 1, argc - 1, err);
    tokens_abandon(job.train.writer);
    tokens_abandon(job.valid.writer);
    tokenizer_encoder_destroy(job.encoder);
    tokenizer_close(job.tokenizer);
    inputs_free(&job.inputs);
    free(job.chunk);
    return rc ? -1 : 0;
}
