/* chat_encode.c - encodes the pieces of a conversation; see chat_encode.h.
 *
 * Neighbouring pieces that are all trained, or all not, make a stretch, which is encoded at once:
 * so the template's "user\n" and the message after it become the tokens that they are in the whole
 * text.  If a message in a stretch holds the text of a special token, the stretch is encoded piece
 * by piece instead, its messages as plain text.
 *
 * Some tokenizers put a space before the text that follows a special token, some do not.  A stretch
 * that follows a special token is therefore encoded with that token in front, whose id is then left
 * out.
 */
#include "io/chat_encode.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"

int chat_encode_check(const struct chat_template *chat, const struct tokenizer *tokenizer,
                      struct error *err)
{
    const char *token;
    char lacking[128] = "";
    int count = 0;
    for (int i = 0; (token = chat_token(chat, i)); i++)
        if (tokenizer_id(tokenizer, token) < 0) {
            text_join(lacking, sizeof lacking, ", ", "%s", token);
            count++;
        }
    return count
               ? error_set(err,
                           "chat template %s has the token%s %s, which tokenizer %s has not; take "
                           "the template and the tokenizer of the same model",
                           chat_name(chat), count > 1 ? "s" : "", lacking, tokenizer->name)
               : 0;
}

/* Special tokens: a linked list for each first byte */

struct chat_special {
    const char *text; /* the tokenizer's */
    size_t bytes;
    int next; /* index in list of the next one with the same first byte; -1: none */
};

struct chat_specials {
    const struct tokenizer *tokenizer;
    struct chat_special *list;
    int count, capacity;
    int first[256]; /* by first byte: index in list of the first one; -1: none */
};

struct chat_specials *chat_specials_create(const struct tokenizer *tokenizer)
{
    struct chat_specials *specials = array_make(1, sizeof *specials);
    specials->tokenizer = tokenizer;
    memset(specials->first, -1, sizeof specials->first);
    for (int64_t id = 0; id < tokenizer->vocab; id++) {
        const char *text = tokenizer_text(tokenizer, id);
        if (!tokenizer_is_special(tokenizer, id) || !text || !text[0])
            continue;
        int *first = &specials->first[(unsigned char)text[0]];
        specials->list = array_grow(specials->list, specials->count, &specials->capacity,
                                    sizeof *specials->list);
        specials->list[specials->count] = (struct chat_special){text, strlen(text), *first};
        *first = specials->count++;
    }
    return specials;
}

void chat_specials_destroy(struct chat_specials *specials)
{
    if (specials)
        free(specials->list);
    free(specials);
}

int chat_specials_in(const struct chat_specials *specials, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        for (int k = specials->first[(unsigned char)text[i]]; k >= 0; k = specials->list[k].next)
            if (specials->list[k].bytes <= bytes - i &&
                !memcmp(specials->list[k].text, text + i, specials->list[k].bytes))
                return 1;
    return 0;
}

/* Encoding */

/* Append the ids of text.  left_out: 1: without the first id.  Returns 0, or -1 with err set. */
static int add(struct chat_encoder *encoder, const char *text, size_t bytes, int flags, int trained,
               int left_out, struct token_list *list, struct error *err)
{
    const uint32_t *ids;
    int64_t count;
    if (tokenizer_encoder_run(encoder->encoder, text, bytes, flags, &ids, &count, err))
        return -1;
    left_out = left_out && count;
    return token_list_add(list, ids + left_out, count - left_out, trained, err);
}

/* Append the ids of pieces, each encoded by itself; a message's text with special tokens in it as
 * plain text.  Returns 0, or -1 with err set. */
static int add_pieces(struct chat_encoder *encoder, const struct chat_piece *pieces, int count,
                      int flags, struct token_list *list, struct error *err)
{
    for (int i = 0; i < count; i++) {
        const struct chat_piece *piece = &pieces[i];
        int how = flags | (piece->is_content ? 0 : TOKENIZER_SPECIALS);
        if (add(encoder, piece->text, piece->bytes, how, piece->trained, 0, list, err))
            return -1;
        flags |= TOKENIZER_CONTINUED;
    }
    return 0;
}

/* Make encoder->text at least `bytes` large.  Returns 0, or -1 with err set. */
static int need(struct chat_encoder *encoder, size_t bytes, struct error *err)
{
    if (bytes <= encoder->capacity)
        return 0;
    char *wider = realloc(encoder->text, 2 * bytes);
    if (!wider)
        return error_set(err, "out of memory: a conversation of %zu bytes", bytes);
    encoder->text = wider;
    encoder->capacity = 2 * bytes;
    return 0;
}

/* Returns the text of the special token with which the ids of the conversation, list->ids[start]
 * and on, end so far; "": they do not end with one. */
static const char *special_before(const struct chat_encoder *encoder, const struct token_list *list,
                                  int64_t start)
{
    const struct tokenizer *tokenizer = encoder->specials->tokenizer;
    int64_t last = list->count > start ? (int64_t)list->ids[list->count - 1] : -1;
    return last >= 0 && tokenizer_is_special(tokenizer, last) ? tokenizer_text(tokenizer, last)
                                                              : "";
}

/* Append the ids of a stretch: `count` pieces of which all are trained or none is.  start: where
 * the conversation's ids begin in list.  Returns 0, or -1 with err set. */
static int add_stretch(struct chat_encoder *encoder, const struct chat_piece *pieces, int count,
                       int64_t start, struct token_list *list, struct error *err)
{
    const char *before = special_before(encoder, list, start);
    int flags = list->count > start ? TOKENIZER_CONTINUED : 0;
    size_t at = strlen(before), bytes = at;
    for (int i = 0; i < count; i++) {
        bytes += pieces[i].bytes;
        if (pieces[i].is_content &&
            chat_specials_in(encoder->specials, pieces[i].text, pieces[i].bytes))
            return add_pieces(encoder, pieces, count, flags, list, err);
    }
    if (need(encoder, bytes, err))
        return -1;
    memcpy(encoder->text, before, at);
    for (int i = 0; i < count; at += pieces[i++].bytes)
        memcpy(encoder->text + at, pieces[i].text, pieces[i].bytes);
    return add(encoder, encoder->text, bytes, flags | TOKENIZER_SPECIALS, pieces->trained,
               before[0] != 0, list, err);
}

int chat_encode(struct chat_encoder *encoder, const struct chat_text *text, struct token_list *list,
                struct error *err)
{
    int64_t start = list->count;
    int end;
    for (int i = 0; i < text->count; i = end) {
        for (end = i + 1; end < text->count; end++)
            if (text->pieces[end].trained != text->pieces[i].trained)
                break;
        if (add_stretch(encoder, &text->pieces[i], end - i, start, list, err))
            return -1;
    }
    return 0;
}

void chat_encoder_free(struct chat_encoder *encoder)
{
    free(encoder->text);
    encoder->text = NULL;
    encoder->capacity = 0;
}
