/* tokenize_record.c - making tokens of a record of JSON lines; see tokenize.h.
 *
 *     record        tokens                                         targets
 *     text          before text after end_of_text                  all
 *     prompt        before prompt completion eos                   completion and eos
 *     instruction   before Alpaca's form, completion eos           completion and eos
 *     messages      by the chat template                           what the assistant writes
 *
 * before, after: tokens that the tokenizer puts around texts.  With --chat-template, a prompt or
 * instruction is a user's message, and its completion the assistant's.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/tokenize.h"

/* The text that Alpaca's training puts around an instruction. */
#define ALPACA       "Below is an instruction that describes a task"
#define ALPACA_INPUT ", paired with an input that provides further context"
#define ALPACA_TASK \
    ". Write a response that appropriately completes the request.\n\n### Instruction:\n"

static int encode(struct tokenize_record *r, struct jsonl_text text, int flags, int trained,
                  struct token_list *list, struct error *err)
{
    const uint32_t *ids;
    int64_t count;
    flags |= r->job->options.specials ? TOKENIZER_SPECIALS : 0;
    return tokenizer_encoder_run(r->encoder, text.text, text.bytes, flags, &ids, &count, err) ||
                   token_list_add(list, ids, count, trained, err)
               ? -1
               : 0;
}

static int add_id(int64_t id, int trained, struct token_list *list, struct error *err)
{
    uint32_t one = (uint32_t)id;
    return id < 0 ? 0 : token_list_add(list, &one, 1, trained, err);
}

int tokenize_record_check_end(const struct tokenize_job *job, struct error *err)
{
    if (job->end_of_text >= 0 || job->wrap.after_count)
        return 0;
    return error_set(err,
                     "tokenizer %s has no token that ends texts, which goes after each document; "
                     "name it as eos_token in tokenizer_config.json beside it",
                     job->tokenizer->path);
}

static int add_text(struct tokenize_record *r, struct token_list *list, struct error *err)
{
    const struct tokenizer_wrap *wrap = &r->job->wrap;
    return tokenize_record_check_end(r->job, err) ||
                   token_list_add(list, wrap->before, wrap->before_count, 1, err) ||
                   encode(r, r->record.text, 0, 1, list, err) ||
                   token_list_add(list, wrap->after, wrap->after_count, 1, err) ||
                   add_id(r->job->end_of_text, 1, list, err)
               ? -1
               : 0;
}

static int add_prompt(struct tokenize_record *r, struct jsonl_text prompt, struct token_list *list,
                      struct error *err)
{
    const struct tokenize_job *job = r->job;
    int64_t eos = job->tokenizer->role[TOKENIZER_EOS];
    int continued = prompt.bytes ? TOKENIZER_CONTINUED : 0;
    return tokenize_record_check_end(job, err) ||
                   token_list_add(list, job->wrap.before, job->wrap.before_count, 0, err) ||
                   encode(r, prompt, 0, 0, list, err) ||
                   encode(r, r->record.completion, continued, 1, list, err) ||
                   add_id(eos < 0 ? job->end_of_text : eos, 1, list, err)
               ? -1
               : 0;
}

/* Join parts end to end in r->scratch, where *all is valid until the next call. */
static int join(struct tokenize_record *r, const struct jsonl_text *parts, int count,
                struct jsonl_text *all, struct error *err)
{
    size_t bytes = 0, at = 0;
    for (int i = 0; i < count; i++)
        bytes += parts[i].bytes;
    char *wider = realloc(r->scratch, bytes + 1);
    if (!wider)
        return error_set(err, "out of memory: a prompt of %zu bytes", bytes);
    r->scratch = wider;
    for (int i = 0; i < count; at += parts[i++].bytes)
        if (parts[i].bytes)
            memcpy(r->scratch + at, parts[i].text, parts[i].bytes);
    *all = (struct jsonl_text){r->scratch, bytes};
    return 0;
}

static struct jsonl_text fixed(const char *text)
{
    return (struct jsonl_text){text, strlen(text)};
}

static int add_alpaca(struct tokenize_record *r, struct token_list *list, struct error *err)
{
    const struct jsonl_record *record = &r->record;
    int has_input = record->input.bytes != 0;
    struct jsonl_text parts[] = {
        fixed(has_input ? ALPACA ALPACA_INPUT ALPACA_TASK : ALPACA ALPACA_TASK),
        record->prompt,
        fixed(has_input ? "\n\n### Input:\n" : ""),
        record->input,
        fixed("\n\n### Response:"),
    };
    struct jsonl_text prompt;
    return join(r, parts, 5, &prompt, err) || add_prompt(r, prompt, list, err) ? -1 : 0;
}

static int add_messages(struct tokenize_record *r, const struct chat_message *messages, int count,
                        struct token_list *list, struct error *err)
{
    if (!r->job->chat)
        return error_set(err, "%s", r->job->no_chat.text);
    return chat_render(r->job->chat, messages, count, CHAT_TRAIN, &r->text, err) ||
                   chat_encode(&r->chat, &r->text, list, err)
               ? -1
               : 0;
}

/* Add a prompt or instruction with its completion as a conversation. */
static int add_exchange(struct tokenize_record *r, struct token_list *list, struct error *err)
{
    const struct jsonl_record *record = &r->record;
    struct jsonl_text parts[] = {record->prompt, fixed(record->input.bytes ? "\n" : ""),
                                 record->input};
    struct jsonl_text prompt;
    if (join(r, parts, 3, &prompt, err))
        return -1;
    struct chat_message messages[] = {
        {.role = CHAT_USER, .text = prompt.text, .bytes = prompt.bytes},
        {.role = CHAT_ASSISTANT,
         .text = record->completion.text,
         .bytes = record->completion.bytes,
         .trained = 1},
    };
    return add_messages(r, messages, 2, list, err);
}

static int add_record(struct tokenize_record *r, struct token_list *list, struct error *err)
{
    int as_chat = r->job->options.chat != NULL;
    switch (r->record.kind) {
    case JSONL_CHAT: return add_messages(r, r->record.messages, r->record.message_count, list, err);
    case JSONL_PROMPT:
        return as_chat ? add_exchange(r, list, err) : add_prompt(r, r->record.prompt, list, err);
    case JSONL_INSTRUCTION: return as_chat ? add_exchange(r, list, err) : add_alpaca(r, list, err);
    default: return add_text(r, list, err);
    }
}

static int is_empty(const struct jsonl_record *record)
{
    switch (record->kind) {
    case JSONL_CHAT: return !record->message_count;
    case JSONL_TEXT: return !record->text.bytes;
    default: return !record->completion.bytes;
    }
}

/* Apply the options to the document that list has from `start` on: cut it to max_tokens, or make
 * all of it targets.  Returns 1, or 0 where it is to be left out, which counts says. */
static int keep(const struct tokenize_options *options, int64_t start, struct token_list *list,
                struct tokenize_counts *counts)
{
    int64_t count = list->count - start;
    if (!count) {
        counts->empty++;
        return 0;
    }
    int is_long = options->max_tokens && count > options->max_tokens;
    if (is_long && options->drops_long) {
        counts->dropped++;
        return 0;
    }
    if (is_long)
        list->count = start + options->max_tokens;
    if (options->loss == TOKENIZE_ALL)
        memset(list->mask + start, 1, (size_t)(list->count - start));
    if (!memchr(list->mask + start, 1, (size_t)(list->count - start))) {
        counts->untrained++;
        return 0;
    }
    counts->cut += is_long;
    return 1;
}

int tokenize_record_add(struct tokenize_record *r, const char *line, size_t bytes,
                        struct token_list *list, struct tokenize_counts *counts, struct error *err)
{
    int64_t start = list->count;
    int kept = jsonl_read(&r->record, &r->job->options.fields, line, bytes, err) ? -1 : 1;
    if (kept > 0 && is_empty(&r->record)) {
        counts->empty++;
        return 0;
    }
    if (kept > 0 && add_record(r, list, err))
        kept = -1;
    if (kept > 0)
        kept = keep(&r->job->options, start, list, counts);
    if (kept <= 0)
        list->count = start;
    else
        counts->records[r->record.kind]++;
    return kept;
}

void tokenize_record_free(struct tokenize_record *r)
{
    jsonl_free(&r->record);
    chat_free(&r->text);
    chat_encoder_free(&r->chat);
    free(r->scratch);
}
