/* tokenizer_normalize.c - the rules of a normalizer (tokenizer_normalize.h says what each does),
 * and tokenizer_normalize(), which applies them one after the other: each reads the text from one
 * of the encoder's two buffers and writes the new text to the other. */
#include <stdlib.h>
#include <string.h>

#include "io/tokenizer_normalize.h"

/* Append a character. */
static void put(struct tokenizer_buffer *out, uint32_t code)
{
    char text[4];
    tokenizer_buffer_add(out, text, tokenizer_put_code(text, code));
}

int tokenizer_rule_form(const struct tokenizer_rule *rule, struct tokenizer_encoder *encoder,
                        const char *text, size_t bytes, struct tokenizer_buffer *out,
                        struct error *err)
{
    tokenizer_unicode_normalize(encoder->data->classes, rule->form, text, bytes, out);
    return 0;
}

int tokenizer_rule_lower(const struct tokenizer_rule *rule, struct tokenizer_encoder *encoder,
                         const char *text, size_t bytes, struct tokenizer_buffer *out,
                         struct error *err)
{
    uint32_t lower[2];
    for (size_t at = 0, length; at < bytes; at += length) {
        int count = tokenizer_unicode_lower(tokenizer_code(text + at, &length), lower);
        for (int i = 0; i < count; i++)
            put(out, lower[i]);
    }
    return 0;
}

int tokenizer_rule_leave_out(const struct tokenizer_rule *rule, struct tokenizer_encoder *encoder,
                             const char *text, size_t bytes, struct tokenizer_buffer *out,
                             struct error *err)
{
    for (size_t at = 0, length; at < bytes; at += length)
        if (!(encoder->data->classes[tokenizer_code(text + at, &length)] & rule->classes))
            tokenizer_buffer_add(out, text + at, length);
    return 0;
}

int tokenizer_rule_clean(const struct tokenizer_rule *rule, struct tokenizer_encoder *encoder,
                         const char *text, size_t bytes, struct tokenizer_buffer *out,
                         struct error *err)
{
    for (size_t at = 0, length; at < bytes; at += length) {
        uint32_t code = tokenizer_code(text + at, &length);
        unsigned class = encoder->data->classes[code];
        if (code == '\t' || code == '\n' || code == '\r')
            class = TOKENIZER_SPACE;
        if (code == 0xfffd || (class & TOKENIZER_OTHER))
            continue;
        if (class & TOKENIZER_SPACE)
            tokenizer_buffer_add(out, " ", 1);
        else
            tokenizer_buffer_add(out, text + at, length);
    }
    return 0;
}

/* Returns 1 for a character that BERT's rule takes for an ideograph.  The block of 0x2b920 begins
 * at 0x2b820 in Unicode; `tokenizers` has it like this. */
static int is_ideograph(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

int tokenizer_rule_ideographs(const struct tokenizer_rule *rule, struct tokenizer_encoder *encoder,
                              const char *text, size_t bytes, struct tokenizer_buffer *out,
                              struct error *err)
{
    for (size_t at = 0, length; at < bytes; at += length) {
        int apart = is_ideograph(tokenizer_code(text + at, &length));
        tokenizer_buffer_add(out, " ", apart ? 1 : 0);
        tokenizer_buffer_add(out, text + at, length);
        tokenizer_buffer_add(out, " ", apart ? 1 : 0);
    }
    return 0;
}

int tokenizer_rule_strip(const struct tokenizer_rule *rule, struct tokenizer_encoder *encoder,
                         const char *text, size_t bytes, struct tokenizer_buffer *out,
                         struct error *err)
{
    const uint16_t *classes = encoder->data->classes;
    size_t first = bytes, after = 0;
    for (size_t at = 0, length; at < bytes; at += length)
        if (!(classes[tokenizer_code(text + at, &length)] & TOKENIZER_SPACE)) {
            first = at < first ? at : first;
            after = at + length;
        }
    first = rule->left ? first : 0;
    after = rule->right ? after : bytes;
    if (first < after)
        tokenizer_buffer_add(out, text + first, after - first);
    return 0;
}

int tokenizer_rule_prepend(const struct tokenizer_rule *rule, struct tokenizer_encoder *encoder,
                           const char *text, size_t bytes, struct tokenizer_buffer *out,
                           struct error *err)
{
    tokenizer_buffer_add(out, rule->to, strlen(rule->to));
    tokenizer_buffer_add(out, text, bytes);
    return 0;
}

int tokenizer_rule_replace_text(const struct tokenizer_rule *rule,
                                struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                                struct tokenizer_buffer *out, struct error *err)
{
    size_t from_bytes = strlen(rule->from), to_bytes = strlen(rule->to), done = 0;
    const char *found;
    while (bytes - done >= from_bytes &&
           (found = memmem(text + done, bytes - done, rule->from, from_bytes))) {
        size_t at = (size_t)(found - text);
        tokenizer_buffer_add(out, text + done, at - done);
        tokenizer_buffer_add(out, rule->to, to_bytes);
        done = at + from_bytes;
    }
    tokenizer_buffer_add(out, text + done, bytes - done);
    return 0;
}

int tokenizer_rule_replace_pattern(const struct tokenizer_rule *rule,
                                   struct tokenizer_encoder *encoder, const char *text,
                                   size_t bytes, struct tokenizer_buffer *out, struct error *err)
{
    size_t done = 0, from = 0, start, end, length;
    int found = 0;
    while (from <= bytes && (found = tokenizer_regex_find(rule->regex, encoder->match, text, bytes,
                                                          from, &start, &end, err)) > 0) {
        int is_empty = start == end;
        /* An empty match right after another match does not count, as in `tokenizers`. */
        if (!is_empty || start != done || !from) {
            tokenizer_buffer_add(out, text + done, start - done);
            tokenizer_buffer_add(out, rule->to, strlen(rule->to));
            done = end;
        }
        from = end;
        if (is_empty && end < bytes)
            tokenizer_code(text + end, &length);
        from += is_empty ? end < bytes ? length : 1 : 0;
    }
    tokenizer_buffer_add(out, text + done, bytes - done);
    return found < 0 ? -1 : 0;
}

int tokenizer_normalize(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                        enum tokenizer_place place, const char **normal, size_t *normal_bytes,
                        struct error *err)
{
    const struct tokenizer_data *data = encoder->data;
    int next = 0;
    for (int i = 0; bytes && i < data->rule_count; i++) {
        const struct tokenizer_rule *rule = &data->rules[i];
        struct tokenizer_buffer *out = &encoder->normal[next];
        if (rule->apply == tokenizer_rule_prepend && place == TOKENIZER_GOES_ON)
            continue;
        out->bytes = 0;
        tokenizer_buffer_add(out, "", 0);
        if (rule->apply(rule, encoder, text, bytes, out, err))
            return -1;
        text = out->text;
        bytes = out->bytes;
        next = !next;
    }
    *normal = text;
    *normal_bytes = bytes;
    return 0;
}
