/* chat_encode.h - the text of a conversation (chat.h) as tokens.
 *
 * Special tokens of the template become those tokens.  What looks like one in a message stays text:
 * nobody can end a user's message, or begin a system's, from inside another.
 */
#ifndef TRIREME_IO_CHAT_ENCODE_H
#define TRIREME_IO_CHAT_ENCODE_H

#include <stddef.h>

#include "base/error.h"
#include "io/chat.h"
#include "io/token_list.h"
#include "io/tokenizer.h"

/* Check that the tokenizer has all tokens of the template.  Returns 0, or -1 with err naming those
 * that it lacks. */
int chat_encode_check(const struct chat_template *chat, const struct tokenizer *tokenizer,
                      struct error *err);

/* The texts of a tokenizer's special tokens, which threads may share; must be destroyed before the
 * tokenizer is closed. */
struct chat_specials;
struct chat_specials *chat_specials_create(const struct tokenizer *tokenizer);
void chat_specials_destroy(struct chat_specials *specials); /* NULL allowed */
/* Returns 1 if the text of a special token occurs in text. */
int chat_specials_in(const struct chat_specials *specials, const char *text, size_t bytes);

/* What one thread needs.  The caller sets encoder and specials, which stay the caller's, and the
 * rest to zero. */
struct chat_encoder {
    struct tokenizer_encoder *encoder;
    const struct chat_specials *specials;
    char *text; /* private */
    size_t capacity;
};

/* Append the tokens of text to list, with mask 1 for those of trained pieces.  The ids equal those
 * of the whole text encoded at once, with two exceptions: no token crosses from a trained piece to
 * one that is not, or back, and special tokens in messages are encoded as plain text.  Returns 0,
 * or -1 with err set. */
int chat_encode(struct chat_encoder *encoder, const struct chat_text *text, struct token_list *list,
                struct error *err);
void chat_encoder_free(struct chat_encoder *encoder);

#endif
