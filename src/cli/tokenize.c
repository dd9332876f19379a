/* tokenize.c - trireme tokenize: making token files, verifying them (--verify), and giving older
 * ones checksums (--seal); tokenize.h lists the files. */
#include <stdio.h>

#include "cli/command.h"
#include "cli/tokenize.h"
#include "cli/tokenize_train.h"
#include "io/tokens.h"

static int verify_file(const char *path, struct error *err)
{
    struct tokens tokens;
    if (tokens_open(&tokens, path, err))
        return -1;
    int rc = tokens_verify(&tokens, err);
    if (!rc)
        printf("%s: whole; %lld tokens in %lld %s, tokenizer %s, vocabulary %lld%s%s%s%s\n", path,
               (long long)tokens.count, (long long)tokens.documents,
               tokens.documents == 1 ? "document" : "documents", tokens.tokenizer,
               (long long)tokens.vocab, tokens.chat[0] ? ", chat template " : "", tokens.chat,
               tokens.has_mask ? ", loss mask" : "",
               tokens.has_checksums ? "" : "; it carries no checksums: trireme tokenize --seal");
    tokens_close(&tokens);
    return rc;
}

/* Verify a token file.  With TOKENIZE_SEAL first write a file without checksums anew with them
 * (tokens_seal()). */
static int check_file(enum tokenize_use use, const char *path, struct error *err)
{
    return (use == TOKENIZE_SEAL && tokens_seal(path, err)) || verify_file(path, err) ? -1 : 0;
}

/* Check all files, also those after a bad one. */
static int check_files(struct app *app, enum tokenize_use use, char **paths, int count,
                       struct error *err)
{
    int bad = 0;
    if (count == 1)
        return check_file(use, paths[0], err);
    for (int i = 0; i < count; i++) {
        struct error one = {0};
        if (!check_file(use, paths[i], &one))
            continue;
        log_error(&app->log, "%s", one.text);
        bad++;
    }
    return bad ? error_set(err, "%d of %d files are no whole token files", bad, count) : 0;
}

int command_tokenize(struct app *app, int argc, char **argv, struct error *err)
{
    struct tokenize_options options;
    if (tokenize_train_is_asked(argc, argv))
        return tokenize_train(app, argc, argv, err);
    if (tokenize_options_read(&options, &argc, argv, err))
        return -1;
    if (options.use != TOKENIZE_MAKE)
        return check_files(app, options.use, argv + 1, argc - 1, err);
    return tokenize_make(app, &options, argv + 1, argc - 1, err);
}
