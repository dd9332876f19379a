/* tokenizer_unicode.c - see tokenizer_unicode.h.
 *
 * Normal forms: most text is in normal form already.  A character is safe if the normal form leaves
 * it as it is, if it is a starter (its canonical combining class is 0), and if it is not the second
 * or a later part of any other character's decomposition, so that it never composes with a
 * character before it.  Only stretches of text around unsafe characters are decomposed and
 * composed: from the safe character before a run of unsafe ones up to the safe character after it.
 * "e" + U+0301 + "a" in NFC: U+0301 is unsafe, the stretch is "e" + U+0301, and becomes "é".
 */
#include "io/tokenizer_unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/array.h"
#include "io/tokenizer_private.h"

/* Returns 1 for White_Space. */
static int is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Returns 1 for characters of words whose category is not one of letters, accents or digits:
 * letters in circles and squares, and the two joiners. */
static int is_other_word(uint32_t c)
{
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c ||
           c == 0x200d;
}

static const uint16_t class_of_category[] = {
    [UTF8PROC_CATEGORY_LU] = TOKENIZER_LETTER | TOKENIZER_WORD,
    [UTF8PROC_CATEGORY_LL] = TOKENIZER_LETTER | TOKENIZER_WORD,
    [UTF8PROC_CATEGORY_LT] = TOKENIZER_LETTER | TOKENIZER_WORD,
    [UTF8PROC_CATEGORY_LM] = TOKENIZER_LETTER | TOKENIZER_WORD,
    [UTF8PROC_CATEGORY_LO] = TOKENIZER_LETTER | TOKENIZER_WORD,
    [UTF8PROC_CATEGORY_MN] = TOKENIZER_COMBINING | TOKENIZER_NONSPACING | TOKENIZER_WORD,
    [UTF8PROC_CATEGORY_MC] = TOKENIZER_COMBINING | TOKENIZER_WORD,
    [UTF8PROC_CATEGORY_ME] = TOKENIZER_COMBINING | TOKENIZER_WORD,
    [UTF8PROC_CATEGORY_ND] = TOKENIZER_NUMBER | TOKENIZER_WORD,
    [UTF8PROC_CATEGORY_NL] = TOKENIZER_NUMBER | TOKENIZER_WORD,
    [UTF8PROC_CATEGORY_NO] = TOKENIZER_NUMBER,
    [UTF8PROC_CATEGORY_PC] = TOKENIZER_PUNCTUATION | TOKENIZER_WORD,
    [UTF8PROC_CATEGORY_PD] = TOKENIZER_PUNCTUATION,
    [UTF8PROC_CATEGORY_PS] = TOKENIZER_PUNCTUATION,
    [UTF8PROC_CATEGORY_PE] = TOKENIZER_PUNCTUATION,
    [UTF8PROC_CATEGORY_PI] = TOKENIZER_PUNCTUATION,
    [UTF8PROC_CATEGORY_PF] = TOKENIZER_PUNCTUATION,
    [UTF8PROC_CATEGORY_PO] = TOKENIZER_PUNCTUATION,
    [UTF8PROC_CATEGORY_CC] = TOKENIZER_OTHER,
    [UTF8PROC_CATEGORY_CF] = TOKENIZER_OTHER,
    [UTF8PROC_CATEGORY_CS] = TOKENIZER_OTHER,
    [UTF8PROC_CATEGORY_CO] = TOKENIZER_OTHER,
};

uint16_t *tokenizer_unicode_classes(void)
{
    uint16_t *classes = array_make(TOKENIZER_CODES, sizeof *classes);
    for (uint32_t c = 0; c < TOKENIZER_CODES; c++) {
        classes[c] = class_of_category[utf8proc_category((utf8proc_int32_t)c)];
        if (is_space(c))
            classes[c] |= TOKENIZER_SPACE;
        if (is_other_word(c))
            classes[c] |= TOKENIZER_WORD;
        if (c > 32 && c < 127 && !(classes[c] & (TOKENIZER_LETTER | TOKENIZER_NUMBER)))
            classes[c] |= TOKENIZER_PUNCTUATION;
    }
    classes['\r'] |= TOKENIZER_NEWLINE;
    classes['\n'] |= TOKENIZER_NEWLINE;
    return classes;
}

/* Normal forms */

static const utf8proc_option_t options[] = {
    [TOKENIZER_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    [TOKENIZER_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    [TOKENIZER_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    [TOKENIZER_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

enum { MOST_PARTS = 32 }; /* of one character's decomposition: Unicode has 18 */

void tokenizer_unicode_add_form(uint16_t *classes, enum tokenizer_form form)
{
    utf8proc_int32_t parts[MOST_PARTS];
    for (utf8proc_int32_t c = 0x80; c < TOKENIZER_CODES; c++) {
        if (utf8proc_category(c) == UTF8PROC_CATEGORY_CN ||
            utf8proc_category(c) == UTF8PROC_CATEGORY_CS)
            continue;
        utf8proc_ssize_t count = utf8proc_decompose_char(c, parts, MOST_PARTS, options[form], NULL);
        if (count < 0 || count > MOST_PARTS || utf8proc_get_property(c)->combining_class)
            classes[c] |= TOKENIZER_UNSAFE;
        if (count == 1 && parts[0] == c)
            continue;
        for (utf8proc_ssize_t i = 1; i < count && i < MOST_PARTS; i++)
            if (parts[i] >= 0x80)
                classes[parts[i]] |= TOKENIZER_UNSAFE;
        if (count > 0 && count <= MOST_PARTS)
            count = utf8proc_normalize_utf32(parts, count, options[form]);
        if (count != 1 || parts[0] != c)
            classes[c] |= TOKENIZER_UNSAFE;
    }
}

/* Append the normal form of a stretch of text. */
static void normalize(enum tokenizer_form form, const char *text, size_t bytes,
                      struct tokenizer_buffer *out)
{
    const utf8proc_uint8_t *from = (const utf8proc_uint8_t *)text;
    utf8proc_int32_t few[64], *codes = few;
    utf8proc_ssize_t length = (utf8proc_ssize_t)bytes;
    utf8proc_ssize_t count = utf8proc_decompose(from, length, few, 63, options[form]);
    if (count > 63) {
        size_t size = ((size_t)count + 1) * sizeof *codes;
        codes = array_need(malloc(size), size);
        count = utf8proc_decompose(from, length, codes, count, options[form]);
    }
    count = count < 0 ? count : utf8proc_reencode(codes, count, options[form]);
    if (count >= 0)
        tokenizer_buffer_add(out, (const char *)codes, (size_t)count);
    else /* impossible: the text is UTF-8 */
        tokenizer_buffer_add(out, text, bytes);
    if (codes != few)
        free(codes);
}

void tokenizer_unicode_normalize(const uint16_t *classes, enum tokenizer_form form,
                                 const char *text, size_t bytes, struct tokenizer_buffer *out)
{
    size_t done = 0, safe = 0, length;
    for (size_t at = 0; at < bytes; at += length) {
        uint32_t code = tokenizer_code(text + at, &length);
        if (!(classes[code] & TOKENIZER_UNSAFE)) {
            safe = at;
            continue;
        }
        tokenizer_buffer_add(out, text + done, safe - done);
        do {
            at += length;
        } while (at < bytes && classes[tokenizer_code(text + at, &length)] & TOKENIZER_UNSAFE);
        normalize(form, text + safe, at - safe, out);
        done = safe = at;
        length = 0;
    }
    tokenizer_buffer_add(out, text + done, bytes - done);
}

int tokenizer_unicode_lower(uint32_t code, uint32_t lower[2])
{
    lower[0] = code < 0x80 ? code + (code >= 'A' && code <= 'Z' ? 32 : 0)
                           : (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    lower[1] = 0x307;
    if (code != 0x130)
        return 1;
    lower[0] = 'i';
    return 2;
}

/* UTF-8 */

/* Returns the bytes of the valid character at `at`; or, where there is none, minus the number of
 * bytes that begin one but break off, 1 at least.  *more becomes 1 if the text of `bytes` bytes
 * ends within a character. */
static int character(const unsigned char *at, size_t bytes, int *more)
{
    unsigned low = 0x80, high = 0xbf;
    int length = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    *more = 0;
    if (length == 1)
        return 1;
    if (!length || at[0] > 0xf4)
        return -1;
    if (at[0] == 0xe0)
        low = 0xa0;
    if (at[0] == 0xed)
        high = 0x9f;
    if (at[0] == 0xf0)
        low = 0x90;
    if (at[0] == 0xf4)
        high = 0x8f;
    for (int i = 1; i < length; i++, low = 0x80, high = 0xbf) {
        *more = (size_t)i >= bytes;
        if (*more || at[i] < low || at[i] > high)
            return -i;
    }
    return length;
}

size_t tokenizer_unicode_valid(const char *text, size_t bytes)
{
    const unsigned char *from = (const unsigned char *)text;
    uint64_t eight;
    int more;
    for (size_t at = 0; at < bytes;) {
        if (at + 8 <= bytes) {
            memcpy(&eight, text + at, 8);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                at += 8;
                continue;
            }
        }
        int length = character(from + at, bytes - at, &more);
        if (length < 0)
            return at;
        at += (size_t)length;
    }
    return bytes;
}

size_t tokenizer_unicode_whole(const char *text, size_t bytes)
{
    int more;
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        const unsigned char *at = (const unsigned char *)text + bytes - back;
        if (*at >= 0xc0)
            return character(at, back, &more) < 0 && more ? bytes - back : bytes;
        if (*at < 0x80)
            break;
    }
    return bytes;
}

size_t tokenizer_unicode_broken(const char *text, size_t bytes)
{
    size_t broken = 0;
    int more;
    for (size_t at = 0; at < bytes;) {
        at += tokenizer_unicode_valid(text + at, bytes - at);
        if (at == bytes)
            break;
        int length = -character((const unsigned char *)text + at, bytes - at, &more);
        broken += (size_t)length;
        at += (size_t)length;
    }
    return broken;
}

size_t tokenizer_unicode_repair(const char *text, size_t bytes, int more,
                                struct tokenizer_buffer *out)
{
    int broken_off;
    for (size_t at = 0; at < bytes;) {
        size_t valid = tokenizer_unicode_valid(text + at, bytes - at);
        tokenizer_buffer_add(out, text + at, valid);
        at += valid;
        if (at == bytes)
            break;
        int length = character((const unsigned char *)text + at, bytes - at, &broken_off);
        if (more && broken_off)
            return at;
        tokenizer_buffer_add(out, "\xEF\xBF\xBD", 3);
        at += (size_t)-length;
    }
    return bytes;
}
