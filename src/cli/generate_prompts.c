/* generate_prompts.c - reading prompts and making tokens of them; see generate.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/generate.h"
#include "comm/world.h"
#include "io/chat_encode.h"
#include "io/jsonl.h"

enum { MOST_BYTES = 1 << 20 }; /* of standard input */

static void free_given(struct generate_given *given)
{
    free(given->text);
    free(given->messages);
}

/* Add a prompt of the ids of list, and empty list.  texts owns what given points to from now on;
 * after a failure it is freed. */
static int add(struct generate_texts *texts, struct token_list *list, struct generate_given given,
               struct error *err)
{
    if (!list->count) {
        free_given(&given);
        return error_set(err, "the tokenizer has no token that begins or ends texts, so that a "
                              "prompt cannot be empty");
    }
    texts->prompt =
        array_grow(texts->prompt, texts->count, &texts->capacity, sizeof *texts->prompt);
    size_t bytes = (size_t)texts->capacity * sizeof *texts->given;
    texts->given = array_need(realloc(texts->given, bytes), bytes);
    int32_t *ids = array_make((size_t)list->count, sizeof *ids);
    for (int64_t i = 0; i < list->count; i++)
        ids[i] = (int32_t)list->ids[i];
    texts->prompt[texts->count] = (struct generator_prompt){ids, list->count};
    texts->given[texts->count] = given;
    texts->texts = ++texts->count;
    list->count = 0;
    return 0;
}

static char *copy_of(const char *text, size_t bytes)
{
    char *copy = array_make(bytes + 1, 1);
    memcpy(copy, text, bytes);
    return copy;
}

/* Add a text as a prompt: what the tokenizer puts before texts, and the text.  An empty prompt
 * without such tokens is the token that ends a text. */
static int add_text(struct generate_texts *texts, const struct tokenizer *tokenizer,
                    const char *text, size_t bytes, struct error *err)
{
    struct tokenizer_wrap wrap;
    struct token_list list = {0};
    uint32_t *ids = NULL, end = (uint32_t)tokenizer->end_of_text;
    int64_t count = 0;
    if (tokenizer_wrap_find(&wrap, tokenizer, err))
        return -1;
    int rc = tokenizer_encode(tokenizer, text, bytes, 0, &ids, &count, err) ||
             token_list_add(&list, wrap.before, wrap.before_count, 1, err) ||
             token_list_add(&list, ids, count, 1, err);
    if (!rc && !list.count && tokenizer->end_of_text >= 0)
        rc = token_list_add(&list, &end, 1, 1, err);
    if (!rc)
        rc = add(texts, &list, (struct generate_given){copy_of(text, bytes), bytes}, err);
    tokenizer_wrap_free(&wrap);
    token_list_free(&list);
    free(ids);
    return rc ? -1 : 0;
}

/* Add a conversation as a prompt, and `given`, which texts owns from now on. */
static int add_chat(struct generate_texts *texts, const struct generate_model *model,
                    const struct chat_message *messages, int count, struct generate_given given,
                    struct error *err)
{
    struct chat_text text = {0};
    struct token_list list = {0};
    struct chat_specials *specials = chat_specials_create(model->tokenizer);
    struct chat_encoder encoder = {.specials = specials};
    int rc = tokenizer_encoder_create(&encoder.encoder, model->tokenizer, err) ||
             chat_render(model->chat, messages, count, CHAT_PROMPT, &text, err) ||
             chat_encode(&encoder, &text, &list, err);
    if (rc)
        free_given(&given);
    else
        rc = add(texts, &list, given, err);
    chat_free(&text);
    chat_encoder_free(&encoder);
    tokenizer_encoder_destroy(encoder.encoder);
    chat_specials_destroy(specials);
    token_list_free(&list);
    return rc ? -1 : 0;
}

int generate_texts_chat(struct generate_texts *texts, const struct generate_model *model,
                        const struct chat_message *messages, int count, struct error *err)
{
    return add_chat(texts, model, messages, count, (struct generate_given){0}, err);
}

/* ---- files ---- */

/* Return the messages as a list in JSON, for free(). */
static char *list_of(const struct chat_message *messages, int count)
{
    static const char *const names[CHAT_ROLES] = {
        [CHAT_SYSTEM] = "system", [CHAT_USER] = "user", [CHAT_ASSISTANT] = "assistant"};
    struct js *list = js_array();
    for (int i = 0; i < count; i++) {
        struct js *message = js_object();
        js_add_string(message, "role", names[messages[i].role]);
        js_add_bytes(message, "content", messages[i].text, messages[i].bytes);
        js_add(list, NULL, message);
    }
    char *text = js_text(list, JS_ONE_LINE, NULL);
    js_free(list);
    return text;
}

/* Add a line of text: a prompt, or with --chat a conversation of this one message of the user. */
static int add_line(struct generate_texts *texts, const struct generate_model *model,
                    const char *text, size_t bytes, struct error *err)
{
    const struct chat_message message = {.role = CHAT_USER, .text = text, .bytes = bytes};
    return model->chat ? add_chat(texts, model, &message, 1,
                                  (struct generate_given){copy_of(text, bytes), bytes}, err)
                       : add_text(texts, model->tokenizer, text, bytes, err);
}

/* Add a line of JSON: a prompt, a text, or a conversation. */
static int add_record(struct generate_texts *texts, const struct generate_model *model,
                      const char *line, size_t bytes, struct error *err)
{
    struct js *json = js_parse_data(line, bytes, NULL);
    const struct jsonl_fields fields = {.text = js_has(json, "prompt") ? "prompt" : NULL,
                                        .advice = "give prompt, text or messages"};
    struct jsonl_record record = {0};
    js_free(json);
    int rc = jsonl_read(&record, &fields, line, bytes, err);
    const struct jsonl_text *text = record.kind == JSONL_TEXT ? &record.text : &record.prompt;
    if (!rc && record.kind == JSONL_INSTRUCTION)
        rc = error_set(err, "instruction, input and output are for training; give a prompt");
    else if (!rc && record.kind == JSONL_CHAT && !model->chat)
        rc = error_set(err, "conversations are continued by a chat template: --chat");
    else if (!rc && record.kind == JSONL_CHAT)
        rc = add_chat(
            texts, model, record.messages, record.message_count,
            (struct generate_given){.messages = list_of(record.messages, record.message_count)},
            err);
    else if (!rc)
        rc = add_line(texts, model, text->text, text->bytes, err);
    jsonl_free(&record);
    return rc ? -1 : 0;
}

/* Read a file with a prompt in each line: JSON where its name ends in .jsonl, else text.  A BOM
 * before the first line is left out. */
static int read_file(struct generate_texts *texts, const struct generate_model *model,
                     const char *path, struct error *err)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return error_set(err, "--prompts %s: %s", path, strerror(errno));
    size_t length = strlen(path), capacity = 0;
    int is_json = length > 6 && !strcmp(path + length - 6, ".jsonl"), rc = 0;
    char *line = NULL;
    ssize_t bytes;
    for (int64_t number = 1; !rc && (bytes = getline(&line, &capacity, file)) >= 0; number++) {
        size_t bom = number == 1 ? text_bom_bytes(line, (size_t)bytes) : 0;
        size_t n = (size_t)bytes - bom;
        const char *text = line + bom;
        if (jsonl_is_blank(text, n))
            continue;
        while (!is_json && n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
            n--;
        rc =
            is_json ? add_record(texts, model, text, n, err) : add_line(texts, model, text, n, err);
        if (rc)
            error_prefix(err, "%s:%lld", path, (long long)number);
        else
            texts->given[texts->count - 1].line = number;
    }
    if (!rc && ferror(file))
        rc = error_set(err, "--prompts %s: %s", path, strerror(errno));
    if (!rc && !texts->count)
        rc = error_set(err, "--prompts %s has no prompt", path);
    free(line);
    fclose(file);
    return rc;
}

static int read_input(struct generate_texts *texts, const struct generate_model *model,
                      struct error *err)
{
    char *text = malloc(MOST_BYTES + 1);
    size_t bytes = text ? fread(text, 1, MOST_BYTES + 1, stdin) : 0;
    size_t bom = text_bom_bytes(text, bytes);
    int rc = text && !ferror(stdin) && bytes <= MOST_BYTES
                 ? add_text(texts, model->tokenizer, text + bom, bytes - bom, err)
                 : error_set(err, "standard input cannot be a prompt: %s",
                             !text           ? "out of memory"
                             : ferror(stdin) ? "it cannot be read"
                                             : "it has more than 1 MiB");
    free(text);
    return rc;
}

int generate_texts_read(struct generate_texts *texts, const struct generate_model *model,
                        const struct generate_options *options, struct error *err)
{
    if (options->prompt)
        return add_text(texts, model->tokenizer, options->prompt, strlen(options->prompt), err);
    return options->prompts ? read_file(texts, model, options->prompts, err)
                            : read_input(texts, model, err);
}

void generate_texts_share(struct generate_texts *texts, struct world *world)
{
    int is_root = world_rank(world) == 0;
    world_broadcast(world, &texts->count, sizeof texts->count, 0);
    if (!is_root)
        texts->prompt = array_make((size_t)texts->count + 1, sizeof *texts->prompt);
    for (int i = 0; i < texts->count; i++) {
        struct generator_prompt *prompt = &texts->prompt[i];
        world_broadcast(world, &prompt->count, sizeof prompt->count, 0);
        int32_t *ids =
            is_root ? (int32_t *)prompt->ids : array_make((size_t)prompt->count, sizeof *ids);
        world_broadcast(world, ids, (size_t)prompt->count * sizeof *ids, 0);
        prompt->ids = ids;
    }
}

int64_t generate_texts_longest(const struct generate_texts *texts)
{
    int64_t longest = 0;
    for (int i = 0; i < texts->count; i++)
        longest = texts->prompt[i].count > longest ? texts->prompt[i].count : longest;
    return longest;
}

int generate_texts_warn(const struct generate_texts *texts, const struct config *config,
                        struct log *log)
{
    int64_t longest = generate_texts_longest(texts), context = config->data.seq_len;
    int64_t most = config->model.max_seq_len;
    char advice[128] = "";
    if (longest <= context)
        return 0;
    if (most > context)
        text_append(advice, sizeof advice,
                    "; data.seq_len=N makes the context longer, up to model.max_seq_len (%lld)",
                    (long long)most);
    log_warn(log,
             "the longest prompt has %lld tokens, the context %lld: its first %lld are not "
             "read%s",
             (long long)longest, (long long)context, (long long)(longest - context), advice);
    return 1;
}

void generate_texts_free(struct generate_texts *texts)
{
    for (int i = 0; i < texts->count; i++)
        free((int32_t *)texts->prompt[i].ids);
    for (int i = 0; i < texts->texts; i++)
        free_given(&texts->given[i]);
    free(texts->prompt);
    free(texts->given);
    *texts = (struct generate_texts){0};
}
