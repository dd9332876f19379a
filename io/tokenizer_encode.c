/* tokenizer_encode.c - text to ids: the steps that the head of tokenizer_private.h lists.
 *
 * Added tokens are found in two passes: those of set 0 in the text as it is, those of set 1 in what
 * is between them, normalized.  What is between these goes to tokenizer_split().  With "<s>" in
 * set 0, "[X]" in set 1 (normalized: "[x]") and a normalizer that makes lower case:
 *
 *     "A<s>B[X]C"  ->  "A", <s>, "B[X]C"             after set 0
 *                  ->  "a", <s>, "b[x]c"             normalized
 *                  ->  "a", <s>, "b", [X], "c"       after set 1
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_private.h"

int tokenizer_encoder_create(struct tokenizer_encoder **created, const struct tokenizer *tokenizer,
                             struct error *err)
{
    struct tokenizer_encoder *encoder = *created = calloc(1, sizeof *encoder);
    if (!encoder)
        return error_set(err, "out of memory: an encoder");
    encoder->tokenizer = tokenizer;
    encoder->data = tokenizer->data;
    if (!tokenizer_match_create(&encoder->match, err))
        return 0;
    tokenizer_encoder_destroy(encoder);
    *created = NULL;
    return -1;
}

void tokenizer_encoder_destroy(struct tokenizer_encoder *encoder)
{
    if (!encoder)
        return;
    for (int i = 0; i < TOKENIZER_MOST_STEPS; i++)
        free(encoder->step[i].text);
    free(encoder->normal[0].text);
    free(encoder->normal[1].text);
    free(encoder->repaired.text);
    free(encoder->cache);
    free(encoder->symbols);
    free(encoder->heap);
    free(encoder->ids);
    tokenizer_match_destroy(encoder->match);
    free(encoder);
}

/* Append an id.  Returns 0, or -1 with err set. */
static int add_id(struct tokenizer_encoder *encoder, uint32_t id, struct error *err)
{
    if (tokenizer_encoder_need(encoder, 1, err))
        return -1;
    encoder->ids[encoder->count++] = id;
    return 0;
}

/* Added tokens */

/* Returns the classes of the character before byte *at, which is above 0, and moves *at to its
 * start. */
static unsigned class_before(const uint16_t *classes, const char *text, size_t *at)
{
    size_t length;
    do
        --*at;
    while (*at && ((unsigned char)text[*at] & 0xc0) == 0x80);
    return classes[tokenizer_code(text + *at, &length)];
}

/* Returns the classes of the character at byte *at, and moves *at past it. */
static unsigned class_after(const uint16_t *classes, const char *text, size_t *at)
{
    size_t length;
    unsigned class = classes[tokenizer_code(text + *at, &length)];
    *at += length;
    return class;
}

/* Returns 1 if bytes [start, end) are only a part of a word: a character of a word is before or
 * after them. */
static int is_in_word(const uint16_t *classes, const char *text, size_t bytes, size_t start,
                      size_t end)
{
    return (start && (class_before(classes, text, &start) & TOKENIZER_WORD)) ||
           (end < bytes && (class_after(classes, text, &end) & TOKENIZER_WORD));
}

/* Widen a token's bytes [*start, *end) by the spaces before and after it that belong to it; *start
 * stays at `least` or after it. */
static void take_spaces(const uint16_t *classes, const struct tokenizer_added_token *token,
                        const char *text, size_t bytes, size_t least, size_t *start, size_t *end)
{
    size_t at = *start;
    while (token->left && at > least && (class_before(classes, text, &at) & TOKENIZER_SPACE))
        *start = at;
    at = *end;
    while (token->right && at < bytes && (class_after(classes, text, &at) & TOKENIZER_SPACE))
        *end = at;
}

static int encode_section(struct tokenizer_encoder *encoder, int set, const char *text,
                          size_t bytes, enum tokenizer_place place, struct error *err);

/* Append the ids of text: those of the added tokens of a set, and, by the sets above it, those of
 * what is between them.  Returns 0, or -1 with err set. */
static int cut_out_added(struct tokenizer_encoder *encoder, int set, const char *text, size_t bytes,
                         enum tokenizer_place place, struct error *err)
{
    const struct tokenizer_added *added = &encoder->data->added[set];
    const struct tokenizer_added_token *token;
    const uint16_t *classes = encoder->data->classes;
    size_t done = 0, start, end, from = 0;
    while (tokenizer_added_find(added, text, bytes, from, &start, &end, &token)) {
        from = end;
        if ((token->special && !(encoder->flags & TOKENIZER_SPECIALS)) ||
            (token->single_word && is_in_word(classes, text, bytes, start, end)))
            continue;
        take_spaces(classes, token, text, bytes, done, &start, &end);
        if (token->left && end <= done)
            continue; /* it is among the spaces of the token before */
        if ((start > done && encode_section(encoder, set + 1, text + done, start - done,
                                            done ? TOKENIZER_INSIDE : place, err)) ||
            add_id(encoder, token->id, err))
            return -1;
        done = end;
    }
    if (done >= bytes)
        return 0;
    return encode_section(encoder, set + 1, text + done, bytes - done,
                          done ? TOKENIZER_INSIDE : place, err);
}

/* Append the ids of a part of the text that has no added tokens of the sets below `set`.  Returns
 * 0, or -1 with err set. */
static int encode_section(struct tokenizer_encoder *encoder, int set, const char *text,
                          size_t bytes, enum tokenizer_place place, struct error *err)
{
    if (set == 2)
        return tokenizer_split(encoder, 0, text, bytes, place, err);
    if (set == 1 && tokenizer_normalize(encoder, text, bytes, place, &text, &bytes, err))
        return -1;
    return bytes ? cut_out_added(encoder, set, text, bytes, place, err) : 0;
}

/* Texts */

/* If the call has TOKENIZER_WRAP, append ids.  Returns 0, or -1 with err set. */
static int add_ids(struct tokenizer_encoder *encoder, const uint32_t *ids, int count,
                   struct error *err)
{
    int rc = 0;
    for (int i = 0; !rc && i < count && (encoder->flags & TOKENIZER_WRAP); i++)
        rc = add_id(encoder, ids[i], err);
    return rc;
}

static int encode_text(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                       struct error *err)
{
    const struct tokenizer_data *data = encoder->data;
    enum tokenizer_place place =
        encoder->flags & TOKENIZER_CONTINUED ? TOKENIZER_GOES_ON : TOKENIZER_FIRST;
    if (bytes > INT32_MAX)
        return error_set(err, "a text of %zu bytes is too long to encode at once", bytes);
    if (data->model->takes_bytes)
        return data->model->encode(encoder, text, bytes, err);
    if (tokenizer_unicode_valid(text, bytes) < bytes) {
        encoder->broken = tokenizer_unicode_broken(text, bytes);
        encoder->repaired.bytes = 0;
        tokenizer_unicode_repair(text, bytes, 0, &encoder->repaired);
        text = encoder->repaired.text;
        bytes = encoder->repaired.bytes;
    }
    if (add_ids(encoder, data->before, data->before_count, err) ||
        encode_section(encoder, 0, text, bytes, place, err))
        return -1;
    return add_ids(encoder, data->after, data->after_count, err);
}

int tokenizer_encoder_run(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                          int flags, const uint32_t **ids, int64_t *count, struct error *err)
{
    encoder->count = 0;
    encoder->broken = 0;
    encoder->flags = flags;
    int rc = encode_text(encoder, text, bytes, err);
    *ids = encoder->ids;
    *count = encoder->count;
    return rc;
}

size_t tokenizer_encoder_broken(const struct tokenizer_encoder *encoder)
{
    return encoder->broken;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, int flags,
                     uint32_t **ids, int64_t *count, struct error *err)
{
    struct tokenizer_encoder *encoder;
    const uint32_t *made;
    *ids = NULL;
    *count = 0;
    if (tokenizer_encoder_create(&encoder, tokenizer, err))
        return -1;
    int rc = tokenizer_encoder_run(encoder, text, bytes, flags, &made, count, err);
    if (!rc) {
        *ids = encoder->ids;
        encoder->ids = NULL;
    }
    tokenizer_encoder_destroy(encoder);
    return rc;
}

/* Cuts */

/* Returns 1 if text may be cut before byte at, which is above 0.  There has to be a blank (' ', and
 * where the tokenizer allows it '\n' or '\t') that is not after another space; a '\n' has to be
 * after a letter or a number, for some patterns take it together with a sign before it. */
static int may_cut(const struct tokenizer_data *data, const char *text, size_t at)
{
    size_t before = at;
    char space = text[at];
    if (space != ' ' && (data->cuts == TOKENIZER_CUT_SPACE || (space != '\n' && space != '\t')))
        return 0;
    do
        before--;
    while (before && at - before < 4 && ((unsigned char)text[before] & 0xc0) == 0x80);
    if (tokenizer_unicode_valid(text + before, at - before) < at - before)
        return space == ' ';
    size_t length;
    uint32_t code = tokenizer_code(text + before, &length);
    unsigned class = data->classes[code];
    if ((class & TOKENIZER_SPACE) || code == 0x2581 || length != at - before)
        return 0;
    return space != '\n' || (class & (TOKENIZER_LETTER | TOKENIZER_NUMBER)) != 0;
}

size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t bytes)
{
    const struct tokenizer_data *data = tokenizer->data;
    if (data->model->takes_bytes)
        return bytes > 1 ? bytes - 1 : 0;
    if (data->cuts == TOKENIZER_CUT_NOWHERE || bytes < 2)
        return 0;
    for (size_t at = bytes - 1; at; at--)
        if (may_cut(data, text, at))
            return at;
    return 0;
}
