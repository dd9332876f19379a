/* chat.h - conversations as the text that a model was trained on: chat templates, one row each.
 *
 * A tokenizer's folder has its template as a program in Jinja, which trireme does not run: it knows
 * the published ones by name and by what is in their text, and writes the same text for
 * conversations of system, user and assistant without tools.  Where they allow a system message, it
 * is the first.
 */
#ifndef TRIREME_IO_CHAT_H
#define TRIREME_IO_CHAT_H

#include <stddef.h>

#include "base/error.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_ROLES };

struct chat_message {
    enum chat_role role;
    const char *text; /* UTF-8, U+0000 may be in it */
    size_t bytes;
    int trained; /* of an assistant's: is the model to learn it? */
};

/* A part of the text of a conversation.  Pieces end to end are the text. */
struct chat_piece {
    const char *text; /* of the template or the message, which live as long */
    size_t bytes;
    int trained;    /* do its tokens count as targets? */
    int is_content; /* a message's text, in which special tokens are text like any other */
};

/* All zero is empty; chat_free(). */
struct chat_text {
    struct chat_piece *pieces;
    int count, capacity;
};

struct chat_template;

/* The role of a name: "user", "human", "assistant", "gpt", "system"; -1: none.  The names that
 * there are, for a message. */
int chat_role_find(const char *name);
#define CHAT_ROLE_NAMES "system, user (human) and assistant (gpt, model)"

/* The template of a name, NULL: none.  All names, joined with ", ". */
const struct chat_template *chat_find(const char *name);
const char *chat_names(char *text, size_t size);
const char *chat_name(const struct chat_template *chat);

/* The row whose text a program in Jinja makes, by what is in it; NULL: none. */
const struct chat_template *chat_of_jinja(const char *jinja);

/* The row for the tokenizer.json at path: by chat_template.jinja or tokenizer_config.json in its
 * folder.  Returns 0, or -1 with err set: there is none, or one that is not known, by file. */
int chat_of_tokenizer(const struct chat_template **chat, const char *path, struct error *err);

/* The i-th token that the template needs, as the tokenizer's file spells it; NULL behind the last.
 */
const char *chat_token(const struct chat_template *chat, int i);

/* What a text is for: to be learned, or to be continued by the model (add_generation_prompt). */
enum chat_use { CHAT_TRAIN, CHAT_PROMPT };

/* Write a conversation's text to out, in place of what it holds.  Returns 0, or -1 with err set: no
 * message, roles in an order that the template does not have. */
int chat_render(const struct chat_template *chat, const struct chat_message *messages, int count,
                enum chat_use use, struct chat_text *out, struct error *err);
void chat_free(struct chat_text *text);

#endif
