/* tokenize_make.c - making token files: opening what the job needs, doing the work, reporting; see
 * tokenize.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/link.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/output_path.h"
#include "cli/tokenize.h"
#include "io/tokens.h"
#include "train/data_tokenizer.h"

enum { SOURCE_TEXT = 1000 };

/* The tokenizer */

static int open_tokenizer(struct tokenize_job *job, struct log *log, struct error *err)
{
    const struct tokenize_options *o = &job->options;
    job->end_of_text = -1;
    job->vocab = o->vocab;
    job->name = "unnamed";
    if (inputs_of(&job->inputs, INPUT_TOKENS))
        return tokenize_join_check(job, log, err);
    if (o->vocab)
        return 0;
    if (data_tokenizer_open_named(&job->tokenizer, o->tokenizer ? o->tokenizer : "bytes", err))
        return -1;
    job->end_of_text = job->tokenizer->end_of_text;
    job->vocab = job->tokenizer->vocab;
    job->name = job->tokenizer->name;
    job->specials = chat_specials_create(job->tokenizer);
    return tokenizer_wrap_find(&job->wrap, job->tokenizer, err);
}

/* Set job->cut_after from --eos, an id or the text of a token, or to the tokenizer's end of text.
 */
static int read_eos(struct tokenize_job *job, struct error *err)
{
    const char *eos = job->options.eos;
    job->cut_after = job->end_of_text;
    if (!eos)
        return 0;
    if (text_is_digits(eos))
        job->cut_after = strtoll(eos, NULL, 10);
    else
        job->cut_after = job->tokenizer ? tokenizer_id(job->tokenizer, eos) : -1;
    if (job->cut_after < 0 || job->cut_after >= job->vocab)
        return error_set(err, "--eos %s: no token of a vocabulary of %lld", eos,
                         (long long)job->vocab);
    return 0;
}

/* Find the chat template that was asked for, or the tokenizer's own.  Where the tokenizer has none
 * that is known, this becomes an error only when a conversation comes (job->no_chat). */
static int open_chat(struct tokenize_job *job, struct error *err)
{
    const char *asked = job->options.chat;
    char names[256];
    if (!inputs_of(&job->inputs, INPUT_JSONL))
        return 0;
    if (asked) {
        job->chat = chat_find(asked);
        if (!job->chat)
            return error_set(err, "no chat template \"%s\"; there are: %s", asked,
                             chat_names(names, sizeof names));
        return chat_encode_check(job->chat, job->tokenizer, err);
    }
    if (chat_of_tokenizer(&job->chat, job->tokenizer->path, &job->no_chat))
        return 0;
    if (chat_encode_check(job->chat, job->tokenizer, &job->no_chat))
        job->chat = NULL;
    return 0;
}

/* Outputs */

static int check_outputs(const struct tokenize_job *job, struct error *err)
{
    if (output_path_check(job->train.path, OUTPUT_TOKENS, &job->inputs, err) ||
        output_path_check(job->valid.path, OUTPUT_TOKENS, &job->inputs, err))
        return -1;
    if (job->valid.path && output_path_is(job->train.path, job->valid.path))
        return error_set(err, "-o and --valid name the same file");
    return 0;
}

static int open_output(const struct tokenize_job *job, struct tokenize_output *output,
                       const char *source, struct error *err)
{
    if (!output->path)
        return 0;
    if (output_path_make_folder(output->path, err))
        return -1;
    return tokens_create(&output->writer, output->path, job->name, job->vocab, source, err);
}

/* Refuse to write a file without documents. */
static int check_documents(const struct tokenize_job *job, struct error *err)
{
    if (job->valid.path && !job->valid.documents && job->train.documents)
        return error_set(err, "--valid-fraction %g of %lld document%s is none: raise it",
                         job->options.valid_fraction, (long long)job->train.documents,
                         job->train.documents == 1 ? "" : "s");
    if (job->train.documents)
        return 0;
    return error_set(err,
                     "no document is left for %s: %lld empty, %lld bad, %lld too long, %lld "
                     "with nothing to learn%s%s",
                     job->train.path, (long long)job->counts.empty, (long long)job->counts.bad,
                     (long long)job->counts.dropped, (long long)job->counts.untrained,
                     job->first_bad.text[0] ? "; " : "", job->first_bad.text);
}

/* The chat template by which some document was written; "": none was. */
static const char *chat_used(const struct tokenize_job *job)
{
    const int64_t *records = job->counts.records;
    int64_t count = records[JSONL_CHAT];
    if (job->options.chat)
        count += records[JSONL_PROMPT] + records[JSONL_INSTRUCTION];
    return job->joined_chat[0] ? job->joined_chat : job->chat && count ? chat_name(job->chat) : "";
}

/* The report */

/* Warn of a text that begins with a line of JSON, unless --format text was given or inputs_report()
 * has warned of JSON. */
static void warn_of_json(const struct tokenize_job *job, struct log *log)
{
    const char *path = job->first_json;
    if (!path || job->options.format == INPUT_TEXT || job->inputs.json.count)
        return;
    log_warn(log,
             "%s begins with a line of JSON, and is taken as one text, names and brackets too; "
             "--format jsonl makes a document of each line, and --format text is for what is a "
             "text",
             strcmp(path, "-") ? path : "standard input");
}

/* Say what the tokenizer's own chat template was used for.  A template that was asked for is used
 * for everything, and needs no report. */
static void report_chat(const struct tokenize_job *job, struct log *log)
{
    const int64_t *records = job->counts.records;
    if (!job->chat || job->options.chat)
        return;
    if (records[JSONL_CHAT])
        log_info(log, "conversations by chat template %s, as the tokenizer's folder has it",
                 chat_name(job->chat));
    if (records[JSONL_PROMPT] || records[JSONL_INSTRUCTION])
        log_info(log,
                 "prompts are plain text, without the chat template of the tokenizer's folder; "
                 "--chat-template %s makes conversations of them",
                 chat_name(job->chat));
}

static void report(const struct tokenize_job *job, struct log *log)
{
    const struct tokenize_counts *counts = &job->counts;
    char text[512] = "";
    for (int i = 0; i < JSONL_KINDS; i++)
        if (counts->records[i])
            text_join(text, sizeof text, ", ", "%lld by %s", (long long)counts->records[i],
                      jsonl_kind_fields((enum jsonl_kind)i));
    if (text[0])
        log_info(log, "records: %s", text);
    report_chat(job, log);
    text[0] = 0;
    if (counts->empty)
        text_join(text, sizeof text, ", ", "%lld empty", (long long)counts->empty);
    if (counts->dropped)
        text_join(text, sizeof text, ", ", "%lld longer than %lld tokens",
                  (long long)counts->dropped, (long long)job->options.max_tokens);
    if (counts->untrained)
        text_join(text, sizeof text, ", ", "%lld with nothing to learn",
                  (long long)counts->untrained);
    if (text[0])
        log_info(log, "left out: %s", text);
    if (counts->bad)
        log_warn(log, "left out %lld %s that cannot be used, first %s", (long long)counts->bad,
                 counts->bad == 1 ? "line" : "lines", job->first_bad.text);
    if (counts->broken)
        log_warn(log, "%lld bytes are no UTF-8 and became U+FFFD, first in %s",
                 (long long)counts->broken, job->first_broken);
    if (counts->zeros)
        log_warn(log, "%lld bytes of 0 are in texts, first in %s, which may be no text",
                 (long long)counts->zeros, job->first_zero);
    if (counts->cut)
        log_info(log, "cut %lld documents to %lld tokens", (long long)counts->cut,
                 (long long)job->options.max_tokens);
    inputs_report(&job->inputs, log);
    warn_of_json(job, log);
}

static int make(struct tokenize_job *job, struct log *log, char **arguments, int count,
                struct error *err)
{
    char source[SOURCE_TEXT] = "";
    for (int i = 0; i < count; i++)
        text_join(source, sizeof source, " ", "%s", arguments[i]);
    job->inputs.asked = job->options.format;
    if (inputs_list(&job->inputs, arguments, count, err) || check_outputs(job, err) ||
        tokenize_options_check(&job->options, &job->inputs, err) || open_tokenizer(job, log, err) ||
        read_eos(job, err) || open_chat(job, err) ||
        (inputs_of(&job->inputs, INPUT_TEXT) && tokenize_record_check_end(job, err)))
        return -1;
    output_path_warn_ending(job->train.path, OUTPUT_TOKENS, log);
    output_path_warn_ending(job->valid.path, OUTPUT_TOKENS, log);
    tokenize_output_sweep(job->train.path, log);
    tokenize_output_sweep(job->valid.path, log);
    if (open_output(job, &job->train, source, err) || open_output(job, &job->valid, source, err) ||
        tokenize_work(job, err) || check_documents(job, err) ||
        tokenize_output_finish(&job->train, chat_used(job), err) ||
        tokenize_output_finish(&job->valid, chat_used(job), err))
        return -1;
    report(job, log);
    tokenize_output_print(&job->train, "");
    tokenize_output_print(&job->valid, "; ");
    printf("; tokenizer %s, vocabulary %lld\n", job->name, (long long)job->vocab);
    return 0;
}

int tokenize_make(struct app *app, const struct tokenize_options *options, char **arguments,
                  int count, struct error *err)
{
    struct tokenize_job job = {.options = *options};
    char *train = link_follow(options->train, err);
    char *valid = train && options->valid ? link_follow(options->valid, err) : NULL;
    job.train.path = train;
    job.valid.path = valid;
    int rc =
        !train || (options->valid && !valid) ? -1 : make(&job, &app->log, arguments, count, err);
    tokens_abandon(job.train.writer);
    tokens_abandon(job.valid.writer);
    chat_specials_destroy(job.specials);
    tokenizer_close(job.tokenizer);
    free(job.joined);
    inputs_free(&job.inputs);
    tokenizer_wrap_free(&job.wrap);
    free(valid);
    free(train);
    return rc;
}
