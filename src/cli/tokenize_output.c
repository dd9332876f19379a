/* tokenize_output.c - writing token files; see tokenize.h.
 *
 * A file has a loss mask only if some token is not a target.  When the first such token comes, the
 * mask of all tokens before it, which are targets, is written first.
 */
#include <stdio.h>
#include <string.h>

#include "base/round.h"
#include "cli/tokenize.h"
#include "io/partial.h"
#include "io/tokens.h"

void tokenize_output_sweep(const char *path, struct log *log)
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

struct tokenize_output *tokenize_output_choose(struct tokenize_job *job, int64_t *seen)
{
    double share = job->valid.path ? job->options.valid_fraction : 0;
    int64_t i = (*seen)++;
    return (int64_t)((double)(i + 1) * share) > (int64_t)((double)i * share) ? &job->valid
                                                                             : &job->train;
}

int tokenize_output_begin(struct tokenize_output *output, struct error *err)
{
    output->documents++;
    return tokens_append(output->writer, NULL, 0, err);
}

/* Write the mask of `count` targets. */
static int add_targets(struct tokenize_output *output, int64_t count, struct error *err)
{
    uint8_t ones[4096];
    memset(ones, 1, sizeof ones);
    for (int64_t i = 0; i < count; i += (int64_t)sizeof ones)
        if (tokens_extend_mask(output->writer, ones, min_i64(count - i, sizeof ones), err))
            return -1;
    return 0;
}

int tokenize_output_add(struct tokenize_output *output, const uint32_t *ids, const uint8_t *mask,
                        int64_t count, struct error *err)
{
    int64_t targets = mask ? 0 : count;
    for (int64_t i = 0; mask && i < count; i++)
        targets += mask[i];
    if (targets < count && !output->has_mask) {
        output->has_mask = 1;
        if (add_targets(output, output->tokens, err))
            return -1;
    }
    if (output->has_mask && (mask ? tokens_extend_mask(output->writer, mask, count, err)
                                  : add_targets(output, count, err)))
        return -1;
    output->tokens += count;
    output->targets += targets;
    return tokens_extend(output->writer, ids, count, err);
}

int tokenize_output_finish(struct tokenize_output *output, const char *chat, struct error *err)
{
    if (output->writer)
        tokens_set_chat(output->writer, chat);
    int rc = output->writer ? tokens_finish(output->writer, err) : 0;
    output->writer = NULL;
    return rc;
}

void tokenize_output_print(const struct tokenize_output *output, const char *before)
{
    if (!output->path)
        return;
    printf("%s%s: %lld tokens in %lld %s", before, output->path, (long long)output->tokens,
           (long long)output->documents, output->documents == 1 ? "document" : "documents");
    if (output->has_mask)
        printf(", %lld of them targets", (long long)output->targets);
}
