/* jsonl.c - see jsonl.h. */
#include "io/jsonl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "base/text.h"

int jsonl_is_blank(const char *line, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && strchr(" \t\r\n", line[i]) && line[i])
        i++;
    return i == bytes;
}

int jsonl_is_first(const char *text, size_t bytes)
{
    size_t front = bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    const char *end = memchr(text + front, '\n', bytes - front);
    size_t length = end ? (size_t)(end - text) - front : bytes - front;
    if (!length || text[front] != '{')
        return 0;
    struct js *json = js_parse_data(text + front, length, NULL);
    int is_object = !strcmp(js_kind(json), "an object");
    js_free(json);
    return is_object;
}

/* Texts */

/* Set err to "WHAT is KIND, not WANTED".  Returns -1. */
static int wrong_type(const struct js *value, const char *what, const char *wanted,
                      struct error *err)
{
    return error_set(err, "%s is %s, not %s", what, js_kind(value), wanted);
}

/* Read a member that has to be a text.  Returns 0, or -1 with err set. */
static int read_text(const struct js *object, const char *name, struct jsonl_text *text,
                     struct error *err)
{
    const struct js *value = js_get(object, name);
    char what[128] = "field ";
    text->text = js_bytes(value, &text->bytes);
    if (text->text)
        return 0;
    text_append(what, sizeof what, "\"%s\"", name);
    return value ? wrong_type(value, what, "a text", err) : error_set(err, "no %s", what);
}

/* Conversations */

/* Read the role of message number `at`, member `name`.  Returns 0, or -1 with err set. */
static int read_role(const struct js *message, const char *name, int at, enum chat_role *role,
                     struct error *err)
{
    const char *text = js_get_string(message, name, NULL);
    int found = text ? chat_role_find(text) : -1;
    *role = (enum chat_role)found;
    if (!text)
        return error_set(err, "message %d has no text \"%s\"", at, name);
    if (found < 0)
        return error_set(err, "message %d is of \"%.40s\"; there are " CHAT_ROLE_NAMES, at, text);
    return 0;
}

/* Returns 1 if a message has "from" and "value", as ShareGPT's; 0: "role" and "content". */
static int is_of_sharegpt(const struct js *message)
{
    return !js_has(message, "role") && (js_has(message, "from") || js_has(message, "value"));
}

/* Returns 1 if an object has a member that is not null or empty; the text "[]" is empty too, for
 * some data keep lists as texts. */
static int has_content(const struct js *object, const char *name)
{
    const struct js *value = js_get(object, name);
    const char *text = js_get_string(object, name, "");
    return js_length(value) > 0 || js_next_key(value, NULL) || (text[0] && strcmp(text, "[]") != 0);
}

/* Read whether the model is to learn a message: "weight", 0 or 1, says so in OpenAI's data, and
 * "train" or "training", true or false, in axolotl's, "loss" in ms-swift's; *weight is 1 without
 * them.  Returns 0, or -1 with err set. */
static int read_weight(const struct js *message, int at, int *weight, struct error *err)
{
    static const char *const truths[] = {"train", "training", "loss"};
    double number = js_get_real(message, "weight", -1);
    *weight = number != 0;
    for (size_t i = 0; i < sizeof truths / sizeof truths[0]; i++) {
        if (js_check(message, truths[i], JS_TRUTH, err))
            return error_prefix(err, "message %d", at);
        *weight &= js_get_bool(message, truths[i], 1);
    }
    if (!js_has(message, "weight") || number == 0 || number == 1)
        return 0;
    return error_set(err, "message %d: \"weight\" is %s, not 0 or 1", at,
                     number >= 0 ? "another number" : js_kind(js_get(message, "weight")));
}

/* Refuse a message with members beside its content that no chat template here writes, or that leave
 * some of it out of what is learned and are not read.  Returns 0, or -1 with err set. */
static int check_message(const struct js *message, int at, struct error *err)
{
    static const char *const unused[] = {"reasoning_content", "reasoning", "thinking"};
    if (has_content(message, "tool_calls") || has_content(message, "function_call"))
        return error_set(err, "message %d calls a tool, which no chat template here has", at);
    for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++)
        if (has_content(message, unused[i]))
            return error_set(err,
                             "message %d has \"%s\", which no chat template here writes; leave it "
                             "out, or make it part of the content",
                             at, unused[i]);
    int is_masked = js_has(message, "masked") && js_get_bool(message, "masked", 1);
    if (is_masked || has_content(message, "train_detail"))
        return error_set(err,
                         "message %d has \"%s\", which is not read; \"train\": false leaves a "
                         "whole message out of what is learned",
                         at, is_masked ? "masked" : "train_detail");
    return 0;
}

/* Refuse a record whose answer is one to avoid.  Returns 0, or -1 with err set. */
static int check_label(const struct js *json, struct error *err)
{
    if (js_get_bool(json, "label", 1))
        return 0;
    return error_set(err,
                     "the record's \"label\" is false: its answer is a rejected one (KTO), which "
                     "trireme does not train by; leave such records out: jq -c 'select(.label)' "
                     "FILE >data.jsonl");
}

/* Refuse a record with members that are not read, and that its answer was written for: without them
 * something else would be learned.  Returns 0, or -1 with err set. */
static int check_record(const struct js *json, enum jsonl_kind kind, struct error *err)
{
    static const char *const system[] = {"system", "system_prompt"};
    static const char *const unread[] = {"system", "system_prompt", "history"};
    static const char *const other[] = {"images", "image", "videos", "audios"};
    if (has_content(json, "tools") || has_content(json, "functions"))
        return error_set(err, "the record has tools, which no chat template here has");
    for (size_t i = 0; kind == JSONL_CHAT && i < sizeof system / sizeof system[0]; i++)
        if (has_content(json, system[i]))
            return error_set(err,
                             "the record has \"%s\" beside its messages; make it the first of "
                             "them, with role system",
                             system[i]);
    for (size_t i = 0; i < sizeof unread / sizeof unread[0]; i++)
        if (has_content(json, unread[i]))
            return error_set(err,
                             "the record has \"%s\", which is not read; make messages of it: "
                             "{\"messages\": [{\"role\": ..., \"content\": ...}, ...]}",
                             unread[i]);
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (has_content(json, other[i]))
            return error_set(err, "the record has \"%s\", and trireme trains on text alone",
                             other[i]);
    return 0;
}

/* Append a message to the record.  Returns 0, or -1 with err set. */
static int read_message(struct jsonl_record *record, const struct js *message, int trained,
                        struct error *err)
{
    int at = record->message_count + 1, is_sharegpt = is_of_sharegpt(message);
    const char *content = is_sharegpt ? "value" : "content";
    struct chat_message m = {.trained = trained};
    int weight = 1;
    char what[64] = "";
    if (strcmp(js_kind(message), "an object")) {
        text_append(what, sizeof what, "message %d", at);
        return wrong_type(message, what, "an object", err);
    }
    if (check_message(message, at, err) || read_weight(message, at, &weight, err) ||
        read_role(message, is_sharegpt ? "from" : "role", at, &m.role, err))
        return -1;
    m.trained &= weight;
    const struct js *value = js_get(message, content);
    m.text = js_bytes(value, &m.bytes);
    if (!m.text) {
        text_append(what, sizeof what, "message %d: \"%s\"", at, content);
        return wrong_type(value, what,
                          js_length(value) ? "a text; join its parts into one" : "a text", err);
    }
    record->messages = array_grow(record->messages, record->message_count,
                                  &record->message_capacity, sizeof *record->messages);
    record->messages[record->message_count++] = m;
    return 0;
}

/* Append the messages of a member.  trained: 1: the model is to learn the assistant's.  Returns 0,
 * or -1 with err set. */
static int read_messages(struct jsonl_record *record, const char *name, int trained,
                         struct error *err)
{
    const struct js *list = js_get(record->json, name);
    char what[128] = "field ";
    record->kind = JSONL_CHAT;
    text_append(what, sizeof what, "\"%s\"", name);
    if (!list || strcmp(js_kind(list), "an array"))
        return wrong_type(list, what, "a list of messages", err);
    if (check_label(record->json, err))
        return -1;
    for (int i = 0; i < js_length(list); i++)
        if (read_message(record, js_at(list, i), trained, err))
            return -1;
    return 0;
}

/* Kinds of records: each function below returns 0, or -1 with err set */

/* Returns 1 if a member is a list. */
static int is_list(const struct js *object, const char *name)
{
    return !strcmp(js_kind(js_get(object, name)), "an array");
}

/* Read a text, or a list of messages. */
static int read_plain(struct jsonl_record *record, const char *name, struct error *err)
{
    if (js_at_string(js_get(record->json, name), 0, NULL))
        return error_set(err,
                         "field \"%.60s\" is a list of texts, not a text or a list of messages; "
                         "give each text a line of its own",
                         name);
    if (is_list(record->json, name))
        return read_messages(record, name, 1, err);
    record->kind = JSONL_TEXT;
    return read_text(record->json, name, &record->text, err);
}

/* Read a prompt and its completion: two texts, or two lists of messages. */
static int read_prompt(struct jsonl_record *record, const char *prompt, const char *completion,
                       struct error *err)
{
    if (is_list(record->json, prompt) && is_list(record->json, completion))
        return read_messages(record, prompt, 0, err) || read_messages(record, completion, 1, err)
                   ? -1
                   : 0;
    record->kind = JSONL_PROMPT;
    return check_label(record->json, err) ||
                   read_text(record->json, prompt, &record->prompt, err) ||
                   read_text(record->json, completion, &record->completion, err)
               ? -1
               : 0;
}

/* Read instruction, input (it may be absent) and output. */
static int read_instruction(struct jsonl_record *record, struct error *err)
{
    record->kind = JSONL_INSTRUCTION;
    if (check_label(record->json, err))
        return -1;
    if (js_has(record->json, "input") && read_text(record->json, "input", &record->input, err))
        return -1;
    return read_text(record->json, "instruction", &record->prompt, err) ||
                   read_text(record->json, "output", &record->completion, err)
               ? -1
               : 0;
}

/* Returns the first of names that the object has; NULL: none. */
static const char *first_of(const struct js *json, const char *const *names)
{
    while (*names && !js_has(json, *names))
        names++;
    return *names;
}

enum { ADVICE_TEXT = 320 };

/* Advise on a record of preference data, with "chosen" and "rejected". */
static void advise_chosen(const struct js *json, char advice[ADVICE_TEXT])
{
    int has_prompt = js_has(json, "prompt") && is_list(json, "prompt") == is_list(json, "chosen");
    snprintf(advice, ADVICE_TEXT,
             "data of preferences, which trireme does not train by; %s trains the chosen answers",
             has_prompt ? "--prompt-field prompt --completion-field chosen" : "--field chosen");
}

/* Write into advice by which options a record can be read whose members have other names, or where
 * it says what to make of one that holds token ids or parts with masks of their own. */
static void advise(const struct js *json, char advice[ADVICE_TEXT])
{
    static const char *const prompts[] = {"prompt",  "instruction", "question", "query",
                                          "problem", "input",       "user",     NULL};
    static const char *const answers[] = {"completion", "response",  "answer", "output",
                                          "solution",   "assistant", "target", NULL};
    const char *prompt = first_of(json, prompts), *answer = first_of(json, answers);
    if (js_has(json, "chosen") && js_has(json, "rejected"))
        advise_chosen(json, advice);
    else if (js_has(json, "input_ids") || js_has(json, "segments"))
        snprintf(
            advice, ADVICE_TEXT,
            "%s with masks of their own, which are not read from JSON lines; doc/token-files.md, "
            "\"Making one with Python\", has a script that makes a token file of ids and masks",
            js_has(json, "input_ids") ? "token ids" : "parts of a text");
    else if (prompt && answer)
        snprintf(advice, ADVICE_TEXT,
                 "name the two to take (--prompt-field %s --completion-field %s)", prompt, answer);
    else
        snprintf(advice, ADVICE_TEXT, "name the one to take (--field NAME)");
}

/* Set err: the record has none of the known fields; name those that it has.  Returns -1. */
static int no_field(const struct js *json, const char *advice, struct error *err)
{
    char names[200] = "", own[ADVICE_TEXT];
    advise(json, own);
    for (const char *key = js_next_key(json, NULL); key; key = js_next_key(json, key))
        text_join(names, sizeof names, ", ", "%.40s", key);
    return error_set(err,
                     "no field \"text\", nor messages, or prompt and completion; it has %s: %s",
                     names[0] ? names : "none", advice ? advice : own);
}

/* Read a conversation whose field no option names. */
static int read_conversation(struct jsonl_record *record, const char *name, struct error *err)
{
    return check_record(record->json, JSONL_CHAT, err) || read_messages(record, name, 1, err) ? -1
                                                                                              : 0;
}

/* Read the fields that the caller names, or else the first kind of record that json is.  Who names
 * fields has chosen them: other members are left out then without a word. */
static int read_fields(struct jsonl_record *record, const struct jsonl_fields *fields,
                       struct error *err)
{
    const struct js *json = record->json;
    if (fields->text)
        return read_plain(record, fields->text, err);
    if (fields->prompt)
        return read_prompt(record, fields->prompt, fields->completion, err);
    if (js_has(json, "messages"))
        return read_conversation(record, "messages", err);
    if (js_has(json, "conversations"))
        return read_conversation(record, "conversations", err);
    if (js_has(json, "prompt") && js_has(json, "completion"))
        return check_record(json, JSONL_PROMPT, err) ||
                       read_prompt(record, "prompt", "completion", err)
                   ? -1
                   : 0;
    if (js_has(json, "instruction") && js_has(json, "output"))
        return check_record(json, JSONL_INSTRUCTION, err) || read_instruction(record, err) ? -1 : 0;
    if (is_list(json, "text") && check_record(json, JSONL_CHAT, err))
        return -1;
    return js_get(json, "text") ? read_plain(record, "text", err)
                                : no_field(json, fields->advice, err);
}

/* Returns 1 for a line of a single { or [, with which JSON over several lines begins. */
static int is_bracket(const char *line, size_t bytes)
{
    return bytes && (*line == '{' || *line == '[') && jsonl_is_blank(line + 1, bytes - 1);
}

/* Free the record's JSON and empty it; its array of messages stays. */
static void clear(struct jsonl_record *record)
{
    js_free(record->json);
    record->json = NULL;
    record->message_count = 0;
    record->text = record->prompt = record->input = record->completion = (struct jsonl_text){0};
}

int jsonl_read(struct jsonl_record *record, const struct jsonl_fields *fields, const char *line,
               size_t bytes, struct error *err)
{
    clear(record);
    if (is_bracket(line, bytes))
        return error_set(err,
                         "a line holds a whole JSON object, and this one has nothing but %c: is it "
                         "JSON over several lines?  jq -c %s FILE >data.jsonl makes lines of it",
                         *line, *line == '[' ? "'.[]'" : ".");
    record->json = js_parse_data(line, bytes, err);
    if (!record->json)
        return -1;
    if (strcmp(js_kind(record->json), "an object"))
        return wrong_type(record->json, "the line", "an object", err);
    return read_fields(record, fields, err);
}

void jsonl_free(struct jsonl_record *record)
{
    clear(record);
    free(record->messages);
    *record = (struct jsonl_record){0};
}

const char *jsonl_kind_fields(enum jsonl_kind kind)
{
    static const char *const names[JSONL_KINDS] = {
        [JSONL_TEXT] = "text",
        [JSONL_PROMPT] = "prompt and completion",
        [JSONL_INSTRUCTION] = "instruction and output",
        [JSONL_CHAT] = "messages",
    };
    return names[kind];
}
