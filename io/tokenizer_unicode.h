/* tokenizer_unicode.h - characters: their classes, normal forms, and bytes that are not UTF-8.
 * utf8proc's one home is tokenizer_unicode.c. */
#ifndef TRIREME_IO_TOKENIZER_UNICODE_H
#define TRIREME_IO_TOKENIZER_UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum { TOKENIZER_CODES = 0x110000 };

struct tokenizer_buffer;

/* What a character is, in Unicode's general categories: bits. */
enum tokenizer_class {
    TOKENIZER_LETTER = 1,       /* L */
    TOKENIZER_NUMBER = 2,       /* N */
    TOKENIZER_SPACE = 4,        /* White_Space */
    TOKENIZER_COMBINING = 8,    /* M */
    TOKENIZER_NONSPACING = 16,  /* Mn */
    TOKENIZER_PUNCTUATION = 32, /* P, and all of ASCII's that is neither letter, digit nor space */
    TOKENIZER_OTHER = 64,       /* Cc, Cf, Cs, Co */
    TOKENIZER_WORD = 128,       /* what \w is in Unicode's recommendation: UTS #18, annex C */
    TOKENIZER_NEWLINE = 256,    /* \r and \n */
    TOKENIZER_UNSAFE = 512 /* a normal form may change it, or compose it with what is before it */
};

enum tokenizer_form { TOKENIZER_NFC, TOKENIZER_NFD, TOKENIZER_NFKC, TOKENIZER_NFKD };

/* Returns the classes of all characters: [TOKENIZER_CODES] bits of enum tokenizer_class, to be
 * free()d. */
uint16_t *tokenizer_unicode_classes(void);
/* Add TOKENIZER_UNSAFE to the classes of characters that the normal form may change or compose. */
void tokenizer_unicode_add_form(uint16_t *classes, enum tokenizer_form form);

/* Append the normal form of text, valid UTF-8, to out. */
void tokenizer_unicode_normalize(const uint16_t *classes, enum tokenizer_form form,
                                 const char *text, size_t bytes, struct tokenizer_buffer *out);

/* Put a character in lower case into lower.  Returns how many characters that are, 1 or 2 (U+0130
 * has two). */
int tokenizer_unicode_lower(uint32_t code, uint32_t lower[2]);

/* Returns how many bytes from the start of text are valid UTF-8. */
size_t tokenizer_unicode_valid(const char *text, size_t bytes);
/* Returns the bytes of text less those of an incomplete character at its end. */
size_t tokenizer_unicode_whole(const char *text, size_t bytes);
/* Returns how many bytes of text are not part of a valid character. */
size_t tokenizer_unicode_broken(const char *text, size_t bytes);
/* Append text to out, with U+FFFD for what is not UTF-8 (tokenizer.h).  If `more` is 1, text will
 * be continued, and an incomplete character at its end is not appended.  Returns how many bytes of
 * text were used. */
size_t tokenizer_unicode_repair(const char *text, size_t bytes, int more,
                                struct tokenizer_buffer *out);

/* Returns the character that begins at text, valid UTF-8, and its length in *bytes. */
static inline uint32_t tokenizer_code(const char *text, size_t *bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        *bytes = 1;
        return at[0];
    }
    if (at[0] < 0xe0) {
        *bytes = 2;
        return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
    }
    if (at[0] < 0xf0) {
        *bytes = 3;
        return (at[0] & 0xfu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    }
    *bytes = 4;
    return (at[0] & 7u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
}

/* Write a character as UTF-8 to out.  Returns its length in bytes. */
static inline size_t tokenizer_put_code(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = bytes; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00u >> bytes) | code);
    return bytes;
}

#endif
