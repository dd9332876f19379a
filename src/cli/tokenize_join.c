/* tokenize_join.c - joining token files: their documents, in order, become those of one; see
 * tokenize.h. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "cli/tokenize.h"
#include "io/tokens.h"

enum { IDS = 1 << 16, STARTS = 1 << 13 };

/* A token file that is read. */
struct joining {
    struct tokens tokens;
    uint64_t starts[STARTS + 1]; /* of some documents, and the end of the last of them */
    int32_t ids[IDS], targets[IDS];
    uint8_t mask[IDS];
};

/* Write tokens [first, first + count), IDS of them at most, to the document that was begun last. */
static int add_tokens(struct joining *j, int64_t first, int64_t count,
                      struct tokenize_output *output, struct error *err)
{
    if (tokens_read(&j->tokens, first, count, j->ids, err))
        return -1;
    memcpy(j->targets, j->ids, (size_t)count * sizeof *j->ids);
    if (tokens_mask(&j->tokens, first, count, j->targets, err))
        return -1;
    for (int64_t i = 0; i < count; i++)
        j->mask[i] = j->targets[i] >= 0;
    return tokenize_output_add(output, (const uint32_t *)j->ids,
                               j->tokens.has_mask ? j->mask : NULL, count, err);
}

static int add_document(struct joining *j, int64_t begin, int64_t end,
                        struct tokenize_output *output, struct error *err)
{
    if (tokenize_output_begin(output, err))
        return -1;
    for (int64_t at = begin; at < end; at += IDS)
        if (add_tokens(j, at, min_i64(IDS, end - at), output, err))
            return -1;
    return 0;
}

static int add_documents(struct tokenize_job *job, struct joining *j, struct error *err)
{
    for (int64_t first = 0, count; first < j->tokens.documents; first += count) {
        count = min_i64(STARTS, j->tokens.documents - first);
        if (tokens_starts(&j->tokens, first, count + 1, j->starts, err))
            return -1;
        for (int64_t i = 0; i < count; i++) {
            int64_t begin = (int64_t)j->starts[i], end = (int64_t)j->starts[i + 1];
            job->counts.empty += begin == end;
            if (begin < end &&
                add_document(j, begin, end, tokenize_output_choose(job, &job->others), err))
                return -1;
        }
    }
    return 0;
}

int tokenize_join(struct tokenize_job *job, const struct inputs_file *input, struct error *err)
{
    struct joining *j = array_make(1, sizeof *j);
    int rc = tokens_open(&j->tokens, input->path, err) || add_documents(job, j, err);
    tokens_close(&j->tokens);
    free(j);
    return rc ? -1 : 0;
}

/* Keep the chat template of the files; of files by several, which this warns of, keep none.
 * *from: the first file that has one, NULL before it. */
static void join_chat(struct tokenize_job *job, const struct tokens *tokens, const char *path,
                      const char **from, struct log *log)
{
    if (!tokens->chat[0])
        return;
    if (!*from) {
        *from = path;
        memcpy(job->joined_chat, tokens->chat, sizeof job->joined_chat);
    } else if (job->joined_chat[0] && strcmp(job->joined_chat, tokens->chat) != 0) {
        log_warn(log,
                 "%s has conversations by chat template %s, and %s by %s: the joined file names "
                 "neither",
                 *from, job->joined_chat, path, tokens->chat);
        job->joined_chat[0] = 0;
    }
}

int tokenize_join_check(struct tokenize_job *job, struct log *log, struct error *err)
{
    const struct inputs *inputs = &job->inputs;
    const char *first = inputs->list[0].path, *chat_from = NULL;
    for (int i = 0; i < inputs->count; i++) {
        struct tokens tokens;
        const char *path = inputs->list[i].path;
        if (inputs->list[i].format != INPUT_TOKENS)
            return error_set(err, "token files are joined with token files alone, which %s is not",
                             path);
        int rc = tokens_open(&tokens, path, err);
        if (!rc && !i) {
            job->joined = array_text(tokens.tokenizer);
            job->vocab = tokens.vocab;
        } else if (!rc && (strcmp(tokens.tokenizer, job->joined) || tokens.vocab != job->vocab))
            rc = error_set(err,
                           "%s was made with tokenizer \"%s\" of %lld tokens, and %s with \"%s\" "
                           "of %lld: files of one tokenizer can be joined",
                           first, job->joined, (long long)job->vocab, path, tokens.tokenizer,
                           (long long)tokens.vocab);
        if (!rc)
            join_chat(job, &tokens, path, &chat_from, log);
        tokens_close(&tokens);
        if (rc)
            return -1;
    }
    job->name = job->joined;
    return 0;
}
