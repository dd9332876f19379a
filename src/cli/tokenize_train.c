/* tokenize_train.c - making a tokenizer of texts, which are read in pieces that end where a word
 * ends; see tokenize_train.h. */
#include "cli/tokenize_train.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/inputs.h"
#include "cli/output_path.h"
#include "io/tokenizer.h"
#include "io/tokenizer_train.h"

enum { PIECE_BYTES = 4 << 20, MOST_TOKENS = 1 << 24 };

/* Text that was read, and whose words were not counted yet. */
struct piece {
    char *text;
    size_t bytes, capacity;
};

int tokenize_train_is_asked(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "--train-bpe", strlen("--train-bpe")))
            return 1;
    return 0;
}

/* Read until the piece is full or the file ends.  A full piece becomes larger.  Returns 1: the file
 * goes on; 0: it has ended; or -1 with err set. */
static int fill(struct piece *piece, int fd, const char *path, struct error *err)
{
    if (piece->bytes == piece->capacity) { /* the piece is one word, or empty at first */
        piece->capacity = piece->capacity ? 2 * piece->capacity : PIECE_BYTES;
        piece->text = array_need(realloc(piece->text, piece->capacity), piece->capacity);
    }
    while (piece->bytes < piece->capacity) {
        ssize_t got = read(fd, piece->text + piece->bytes, piece->capacity - piece->bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, "cannot read input %s", path);
        if (!got)
            return 0;
        piece->bytes += (size_t)got;
    }
    return 1;
}

static int add_file(struct tokenizer_trainer *trainer, struct piece *piece,
                    const struct inputs_file *input, struct error *err)
{
    struct inputs_stream stream;
    int more = 1, is_start = 1;
    if (inputs_open(&stream, input, err))
        return -1;
    piece->bytes = 0;
    while (more > 0 && (more = fill(piece, stream.fd, input->path, err)) >= 0) {
        size_t bom = is_start ? text_bom_bytes(piece->text, piece->bytes) : 0;
        piece->bytes -= bom;
        memmove(piece->text, piece->text + bom, piece->bytes);
        is_start = 0;
        size_t cut =
            more ? tokenizer_trainer_cut(trainer, piece->text, piece->bytes) : piece->bytes;
        if (tokenizer_trainer_add(trainer, piece->text, cut, err))
            more = -1;
        memmove(piece->text, piece->text + cut, piece->bytes - cut);
        piece->bytes -= cut;
    }
    return inputs_close(&stream, !more, err) || more < 0 ? -1 : 0;
}

/* Refuse another vocabulary than the one of the file at path: runs and token files are of use with
 * their own alone.  made: a new file of the vocabulary that was trained. */
static int check_same(const char *path, const char *made, struct error *err)
{
    struct tokenizer *old = NULL, *new = NULL;
    int rc = tokenizer_open(&old, path, err) || tokenizer_open(&new, made, err) ? -1 : 0;
    if (!rc && strcmp(old->name, new->name) != 0)
        rc = error_set(err,
                       "%s is there and has tokenizer %s, which runs and token files may need; "
                       "remove it, or name another output",
                       path, old->name);
    tokenizer_close(old);
    tokenizer_close(new);
    return rc;
}

/* Write the vocabulary to path, unless there is a file of the same one.  Returns 0 and the number
 * of its tokens, or -1 with err set. */
static int write_vocabulary(struct tokenizer_trainer *trainer, int64_t tokens, const char *path,
                            int64_t *made, struct error *err)
{
    struct stat info;
    if (stat(path, &info) || !info.st_size)
        return tokenizer_trainer_write(trainer, tokens, path, made, err);
    char *beside = array_format("%s.%d", path, (int)getpid());
    int rc = tokenizer_trainer_write(trainer, tokens, beside, made, err);
    if (!rc) {
        rc = check_same(path, beside, err);
        unlink(beside);
    }
    free(beside);
    return rc;
}

/* Add the special tokens of a list "a,b"; NULL: none. */
static int add_specials(struct tokenizer_trainer *trainer, const char *list, struct error *err)
{
    for (const char *token = list; token;) {
        size_t bytes = strcspn(token, ",");
        if (tokenizer_trainer_add_special(trainer, token, bytes, err))
            return error_prefix(err, "--special-tokens");
        token = token[bytes] ? token + bytes + 1 : NULL;
    }
    return 0;
}

static int train(struct app *app, const struct inputs *inputs, int64_t tokens, const char *specials,
                 const char *path, struct error *err)
{
    struct tokenizer_trainer *trainer;
    struct piece piece = {0};
    int64_t made = 0;
    tokenizer_trainer_create(&trainer);
    int rc = add_specials(trainer, specials, err);
    for (int i = 0; !rc && i < inputs->count; i++)
        rc = add_file(trainer, &piece, &inputs->list[i], err);
    rc = rc || write_vocabulary(trainer, tokens, path, &made, err);
    tokenizer_trainer_destroy(trainer);
    free(piece.text);
    if (rc)
        return -1;
    inputs_report(inputs, &app->log);
    if (made < tokens)
        log_warn(&app->log, "the text has pairs for %lld tokens only: no other pair occurs twice",
                 (long long)made);
    printf("%s: byte-level BPE, %lld tokens\n", path, (long long)made);
    return 0;
}

/* Read -o, and refuse options of other uses of tokenize. */
static int read_output(int *argc, char **argv, const char **path, struct error *err)
{
    *path = arguments_option("-o", argc, argv);
    if (arguments_flag("--verify", argc, argv) || arguments_flag("--seal", argc, argv))
        return error_set(err, "--verify and --seal take token files; --train-bpe takes texts");
    for (int i = 1; i < *argc; i++)
        if (!strncmp(argv[i], "--", 2))
            return error_set(err,
                             "--train-bpe makes a tokenizer and no token file: %.*s is not for it",
                             (int)strcspn(argv[i], "="), argv[i]);
    if (!*path)
        return error_set(err,
                         "no output: trireme tokenize INPUT... --train-bpe N -o tokenizer.json");
    return 0;
}

/* Refuse inputs that are not texts: a tokenizer should not learn the names and brackets of JSON. */
static int check_texts(const struct inputs *inputs, struct error *err)
{
    for (int i = 0; i < inputs->count; i++)
        if (inputs->list[i].format != INPUT_TEXT)
            return error_set(err,
                             "--train-bpe takes texts, which %s is not; of JSON lines: jq -r "
                             ".text FILE | trireme tokenize - --train-bpe N -o tokenizer.json",
                             inputs->list[i].path);
    return 0;
}

int tokenize_train(struct app *app, int argc, char **argv, struct error *err)
{
    struct inputs inputs = {0};
    const char *path, *specials = arguments_option("--special-tokens", &argc, argv);
    int64_t tokens;
    if (arguments_count("--train-bpe", &argc, argv, TOKENIZER_FEWEST, MOST_TOKENS, &tokens, 0,
                        err) ||
        read_output(&argc, argv, &path, err))
        return -1;
    int rc = inputs_list(&inputs, argv + 1, argc - 1, err) || check_texts(&inputs, err) ||
             output_path_check(path, OUTPUT_TOKENIZER, &inputs, err) ||
             output_path_make_folder(path, err);
    if (!rc) {
        output_path_warn_ending(path, OUTPUT_TOKENIZER, &app->log);
        rc = train(app, &inputs, tokens, specials, path, err);
    }
    inputs_free(&inputs);
    return rc ? -1 : 0;
}
