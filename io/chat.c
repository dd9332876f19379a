/* chat.c - finding a chat template, and writing conversations by it; see chat.h.
 *
 * A template writes a conversation as pieces of text:
 *
 *     begin   before lead text end after   before lead text end after ...
 *             |--- first message -----|    |--- second message ----|
 *
 * Of a message of the assistant that is to be learned, lead, text and end are trained pieces: what
 * the model itself has to write, with the token that ends its answer.
 */
#include "io/chat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/special_file.h"
#include "base/text.h"
#include "io/chat_program.h"
#include "io/chat_rows.h"
#include "io/chat_space.h"

/* Names */

int chat_role_find(const char *name)
{
    static const struct {
        const char *name;
        enum chat_role role;
    } names[] = {
        {.name = "system", .role = CHAT_SYSTEM},       {.name = "user", .role = CHAT_USER},
        {.name = "assistant", .role = CHAT_ASSISTANT}, {.name = "human", .role = CHAT_USER},
        {.name = "gpt", .role = CHAT_ASSISTANT},       {.name = "model", .role = CHAT_ASSISTANT},
        {.name = "chatgpt", .role = CHAT_ASSISTANT},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name, names[i].name))
            return (int)names[i].role;
    return -1;
}

const struct chat_template *chat_find(const char *name)
{
    for (int i = 0; i < chat_row_count; i++)
        if (!strcmp(name, chat_rows[i].name))
            return &chat_rows[i];
    return NULL;
}

const char *chat_names(char *text, size_t size)
{
    text[0] = 0;
    for (int i = 0; i < chat_row_count; i++)
        text_join(text, size, ", ", "%s", chat_rows[i].name);
    return text;
}

const char *chat_name(const struct chat_template *chat)
{
    return chat->name;
}

const char *chat_token(const struct chat_template *chat, int i)
{
    return i < CHAT_TOKENS ? chat->tokens[i] : NULL;
}

/* Templates of files */

/* Returns 1 if a program in Jinja of this common form is the template of a row. */
static int is_row(const struct chat_template *row, const char *form)
{
    uint64_t hash = hash_bytes(form, strlen(form));
    int found = 0;
    for (int i = 0; !found && i < CHAT_PROGRAMS && row->program[i]; i++) {
        char *known = chat_program_form(row->program[i]);
        found = !strcmp(form, known);
        free(known);
    }
    for (int i = 0; !found && i < CHAT_PROGRAMS && row->form[i]; i++)
        found = row->form[i] == hash;
    return found;
}

const struct chat_template *chat_of_jinja(const char *jinja)
{
    const struct chat_template *found = NULL;
    char *form = chat_program_form(jinja);
    for (int i = 0; !found && i < chat_row_count; i++)
        if (is_row(&chat_rows[i], form))
            found = &chat_rows[i];
    free(form);
    return found;
}

/* Returns 1 if a folder has a file of that name, or a link, wherever it leads. */
static int is_there(const char *path)
{
    struct stat info;
    return !lstat(path, &info);
}

/* Returns a file's text to be free()d; NULL with err set: it cannot be read, or is too long for a
 * chat template. */
static char *read_text(const char *path, struct error *err)
{
    enum { MOST = 1 << 20 };
    FILE *file = special_file_refuse(path, err) ? NULL : fopen(path, "rb");
    if (!file) {
        if (!special_file_kind(path))
            error_file(err, "cannot open", path);
        return NULL;
    }
    char *text = array_make(MOST, 1);
    errno = 0;
    size_t bytes = fread(text, 1, MOST, file);
    int failed = ferror(file) ? error_file(err, "cannot read", path) : 0;
    fclose(file);
    if (!failed && bytes == MOST)
        failed = error_set(err, "%s: no chat template has %d bytes or more", path, MOST);
    if (!failed)
        return text; /* with a 0 after it, as array_make() zeroes */
    free(text);
    return NULL;
}

/* Returns "chat_template" of tokenizer_config.json, which is a text, or a list of {name, template},
 * of which "default" is taken; NULL: there is none. */
static const char *config_template(const struct js *config)
{
    const struct js *list = js_get(config, "chat_template");
    size_t bytes;
    for (int i = 0; i < js_length(list); i++)
        if (!strcmp(js_get_string(js_at(list, i), "name", ""), "default"))
            return js_get_string(js_at(list, i), "template", NULL);
    return js_bytes(list, &bytes);
}

/* Find the template of a program in Jinja (NULL: none), which was read from path.  Returns 0, or -1
 * with err set. */
static int choose(const struct chat_template **chat, const char *jinja, const char *path,
                  struct error *err)
{
    char names[256];
    *chat = jinja ? chat_of_jinja(jinja) : NULL;
    if (*chat)
        return 0;
    return error_set(
        err, "%s: %s; name one that fits (doc/token-files.md): --chat-template NAME, of %s", path,
        jinja ? "its chat template is none that trireme knows, which compares whole "
                "programs"
              : "the tokenizer has no chat template",
        chat_names(names, sizeof names));
}

int chat_of_tokenizer(const struct chat_template **chat, const char *path, struct error *err)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    int folder = slash ? (int)(slash - path) + 1 : 0;
    int rc;
    if (!path)
        return choose(chat, NULL, "bytes", err);
    char *jinja_path = array_format("%.*schat_template.jinja", folder, path);
    char *config_path = array_format("%.*stokenizer_config.json", folder, path);
    int has_jinja = is_there(jinja_path), has_config = !has_jinja && is_there(config_path);
    char *jinja = has_jinja ? read_text(jinja_path, err) : NULL;
    struct js *config = has_config ? js_read(config_path, err) : NULL;
    if ((has_jinja && !jinja) || (has_config && !config))
        rc = -1;
    else if (jinja)
        rc = choose(chat, jinja, jinja_path, err);
    else
        rc =
            choose(chat, config ? config_template(config) : NULL, config ? config_path : path, err);
    js_free(config);
    free(jinja);
    free(jinja_path);
    free(config_path);
    return rc;
}

/* Conversations */

/* Append a piece of `bytes` bytes; none if it is empty. */
static void add(struct chat_text *out, const char *text, size_t bytes, int trained, int is_content)
{
    if (!bytes)
        return;
    out->pieces = array_grow(out->pieces, out->count, &out->capacity, sizeof *out->pieces);
    out->pieces[out->count++] = (struct chat_piece){text, bytes, trained, is_content};
}

/* Append text of the template; NULL: nothing. */
static void add_fixed(struct chat_text *out, const char *text, int trained)
{
    if (text)
        add(out, text, strlen(text), trained, 0);
}

/* Append the text of a message. */
static void add_content(struct chat_text *out, const struct chat_message *message, int trims_left,
                        int trims_right, int trained)
{
    const char *text = message->text;
    size_t bytes = message->bytes;
    if (trims_left)
        chat_space_left(&text, &bytes);
    if (trims_right)
        chat_space_right(text, &bytes);
    add(out, text, bytes, trained, 1);
}

/* Append a message with what is written around it.  inside: a system message to be put in front of
 * its text; NULL: none.  is_last: it is the conversation's last one, and gets last_answer if it is
 * an answer. */
static void add_message(const struct chat_template *chat, const struct chat_message *message,
                        const struct chat_message *inside, int is_last, struct chat_text *out)
{
    const struct chat_wrap *wrap = &chat->role[message->role], *system = &chat->role[CHAT_SYSTEM];
    int trained = message->role == CHAT_ASSISTANT && message->trained;
    struct chat_message text = *message;
    add_fixed(out, wrap->before, 0);
    if (inside) {
        add_fixed(out, system->before, 0);
        add_content(out, inside, system->trims, system->trims, 0);
        add_fixed(out, system->end, 0);
    }
    if (is_last && message->role == CHAT_ASSISTANT && chat->last_answer) {
        add_fixed(out, chat->last_answer, 0);
        for (; text.bytes && *text.text == '\n'; text.bytes--)
            text.text++;
    }
    add_fixed(out, wrap->lead, trained);
    add_content(out, &text, wrap->trims && !inside, wrap->trims, trained);
    add_fixed(out, wrap->end, trained);
    add_fixed(out, wrap->after, 0);
}

/* Check that the template can write these messages.  Returns 0, or -1 with err naming the message.
 */
static int check_roles(const struct chat_template *chat, const struct chat_message *messages,
                       int count, enum chat_use use, struct error *err)
{
    int first = count && messages[0].role == CHAT_SYSTEM;
    if (count == first)
        return error_set(err, "a conversation without a message%s",
                         first ? " but the system's" : "");
    if (first && chat->system == CHAT_SYSTEM_REFUSED)
        return error_set(err, "chat template %s has no system message", chat->name);
    for (int i = first; i < count; i++) {
        const struct chat_message *m = &messages[i];
        if (m->role == CHAT_SYSTEM)
            return error_set(err, "message %d is the system's; it can only be the first", i + 1);
        if (chat->alternates && m->role != ((i - first) % 2 ? CHAT_ASSISTANT : CHAT_USER))
            return error_set(err,
                             "message %d is of the %s: by chat template %s user and assistant "
                             "alternate, from the user on",
                             i + 1, m->role == CHAT_USER ? "user" : "assistant", chat->name);
        if (chat->refused && m->role == CHAT_ASSISTANT &&
            memmem(m->text, m->bytes, chat->refused, strlen(chat->refused)))
            return error_set(err,
                             "message %d holds %s, which chat template %s does not keep as it is; "
                             "--chat-template %s does",
                             i + 1, chat->refused, chat->name, chat->keeps);
    }
    if (use == CHAT_PROMPT && messages[count - 1].role == CHAT_ASSISTANT)
        return error_set(err, "the last message is the assistant's: there is nothing to answer");
    return 0;
}

/* Returns 1 if a user's message is a question: one that is all of a tool's response is none. */
static int is_question(const struct chat_message *message)
{
    static const char begin[] = "<tool_response>", end[] = "</tool_response>";
    const size_t first = sizeof begin - 1, last = sizeof end - 1;
    int is_response = message->bytes >= last && !memcmp(message->text, begin, first) &&
                      !memcmp(message->text + message->bytes - last, end, last);
    return message->role == CHAT_USER && !is_response;
}

/* Returns the number of the message that may get last_answer, the last one; -1: none does, as
 * nothing is asked. */
static int answer_at(const struct chat_message *messages, int count)
{
    for (int i = 0; i < count; i++)
        if (is_question(&messages[i]))
            return count - 1;
    return -1;
}

/* Returns the index of the user message that messages[0], the system's, is written into; -1: it is
 * written as a message of its own. */
static int system_at(const struct chat_template *chat, const struct chat_message *messages,
                     int count)
{
    int at = 1;
    if (chat->system == CHAT_SYSTEM_OWN)
        return -1;
    for (int i = 1; chat->system == CHAT_SYSTEM_LAST_USER && i < count; i++)
        at = messages[i].role == CHAT_USER ? i : at;
    return at;
}

int chat_render(const struct chat_template *chat, const struct chat_message *messages, int count,
                enum chat_use use, struct chat_text *out, struct error *err)
{
    out->count = 0;
    if (check_roles(chat, messages, count, use, err))
        return -1;
    int has_system = messages[0].role == CHAT_SYSTEM;
    int inside = has_system ? system_at(chat, messages, count) : -1;
    int answer = answer_at(messages, count);
    add_fixed(out, chat->begin, 0);
    if (!has_system && chat->system_default) {
        struct chat_message system = {CHAT_SYSTEM, chat->system_default,
                                      strlen(chat->system_default), 0};
        add_message(chat, &system, NULL, 0, out);
    }
    for (int i = has_system && inside >= 0; i < count; i++)
        add_message(chat, &messages[i], i == inside ? &messages[0] : NULL, i == answer, out);
    if (use == CHAT_PROMPT) {
        add_fixed(out, chat->role[CHAT_ASSISTANT].before, 0);
        add_fixed(out, chat->last_answer, 0);
    }
    return 0;
}

void chat_free(struct chat_text *text)
{
    free(text->pieces);
    *text = (struct chat_text){0};
}
