/* chat.h - conversations as the text that a model was trained on: chat templates, one row each.
 *
 * A tokenizer's folder has its template as a program in Jinja.  trireme does not run it: it has a
 * row for each published template, finds the row by the template's name or by what is in the
 * program, and writes the same text as the program for conversations of system, user and assistant
 * without tools.  A system message, where the template allows one, is the first message.
 */
#ifndef TRIREME_IO_CHAT_H
#define TRIREME_IO_CHAT_H

#include <stddef.h>

#include "base/error.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_ROLES };

struct chat_message {
    enum chat_role role;
    const char *text; /* UTF-8, which may hold U+0000; the caller's */
    size_t bytes;
    int trained; /* 1: the model is to learn this message; for the assistant's only */
};

/* A part of the text of a conversation; the text is all pieces end to end. */
struct chat_piece {
    const char *text; /* points into the template or a message, which must live as long */
    size_t bytes;
    int trained;    /* 1: its tokens count as targets */
    int is_content; /* 1: a message's text, where what looks like a special token is plain text */
};

/* All zero is empty; for chat_free(). */
struct chat_text {
    struct chat_piece *pieces;
    int count, capacity;
};

struct chat_template;

/* Returns the enum chat_role with this name ("user", "human", "assistant", "gpt", ...), or -1.
 * CHAT_ROLE_NAMES lists the names for messages. */
int chat_role_find(const char *name);
#define CHAT_ROLE_NAMES "system, user (human) and assistant (gpt, model)"

/* chat_find() returns the template with this name, or NULL.  chat_names() writes all names, joined
 * with ", ", into text (size bytes) and returns it.  chat_name() returns a template's name. */
const struct chat_template *chat_find(const char *name);
const char *chat_names(char *text, size_t size);
const char *chat_name(const struct chat_template *chat);

/* Returns the template that writes the same text as a program in Jinja, by what is in the program;
 * NULL: none is known to. */
const struct chat_template *chat_of_jinja(const char *jinja);

/* Find the template for the tokenizer.json at path, by chat_template.jinja or tokenizer_config.json
 * in its folder.  Returns 0, or -1 with err naming the file: it has no template, or an unknown one.
 */
int chat_of_tokenizer(const struct chat_template **chat, const char *path, struct error *err);

/* Returns the i-th token that the template needs, as the tokenizer's file spells it; NULL after
 * the last one. */
const char *chat_token(const struct chat_template *chat, int i);

/* What a text is for: to be learned, or to be continued by the model (add_generation_prompt). */
enum chat_use { CHAT_TRAIN, CHAT_PROMPT };

/* Write the text of a conversation of `count` messages to out, in place of what out holds.  Returns
 * 0, or -1 with err set: there is no message, or roles are in an order that the template does not
 * allow. */
int chat_render(const struct chat_template *chat, const struct chat_message *messages, int count,
                enum chat_use use, struct chat_text *out, struct error *err);
void chat_free(struct chat_text *text);

#endif
