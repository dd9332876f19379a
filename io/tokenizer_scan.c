/* tokenizer_scan.c - see tokenizer_scan.h; tests hold each loop against its pattern in PCRE2.
 *
 * A pattern is a list of alternatives, of which the first that matches is taken.  Its loop tries
 * them in the same order, mostly by the class of the first character.  All patterns end in the same
 * two alternatives for white space:
 *     \s+(?!\S)   a run of spaces; without its last space where another character follows the run
 *     \s+         that last space alone, where it does not belong to the word after it
 * GPT-2's pattern cuts "it's  12 a" into  it | 's | " " | " 12" | " a".
 */
#include "io/tokenizer_scan.h"

#include <string.h>

#include "io/tokenizer_unicode.h"

enum { WORDLY = TOKENIZER_LETTER | TOKENIZER_NUMBER, NOT_SIGN = WORDLY | TOKENIZER_SPACE };

/* Returns the classes of the character at text; *length becomes its bytes. */
static inline unsigned class_at(const uint16_t *classes, const char *text, size_t *length)
{
    unsigned char byte = (unsigned char)*text;
    if (byte < 0x80) {
        *length = 1;
        return classes[byte];
    }
    return classes[tokenizer_code(text, length)];
}

/* Returns the end of the run of characters of the wanted classes that begins at byte at. */
static inline size_t run(const uint16_t *classes, const char *text, size_t at, size_t bytes,
                         unsigned wanted)
{
    size_t length;
    while (at < bytes && (class_at(classes, text + at, &length) & wanted))
        at += length;
    return at;
}

/* Returns the end of the run of characters that begins at byte at and has neither letters, numbers
 * nor spaces. */
static inline size_t run_of_signs(const uint16_t *classes, const char *text, size_t at,
                                  size_t bytes)
{
    size_t length;
    while (at < bytes && !(class_at(classes, text + at, &length) & NOT_SIGN))
        at += length;
    return at;
}

/* Match \s+(?!\S)|\s+ at text, which begins with a space.  Returns the bytes of the match. */
static size_t spaces(const uint16_t *classes, const char *text, size_t bytes)
{
    size_t at = 0, last = 0, length;
    while (at < bytes && (class_at(classes, text + at, &length) & TOKENIZER_SPACE)) {
        last = at;
        at += length;
    }
    return at < bytes && last ? last : at;
}

/* Match 's|'t|'re|'ve|'m|'ll|'d at text, which begins with '.  Returns the bytes of the match; 0:
 * there is none. */
static size_t contraction(const char *text, size_t bytes)
{
    char a = bytes > 1 ? text[1] : 0, b = bytes > 2 ? text[2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* Match (?i:'s|'t|'re|'ve|'m|'ll|'d), likewise.  To (?i) the long s, U+017F, is an s too. */
static size_t contraction_any_case(const char *text, size_t bytes)
{
    char low[3] = {'\''};
    for (size_t i = 1; i < 3 && i < bytes; i++)
        low[i] = (char)(text[i] | ((text[i] >= 'A' && text[i] <= 'Z') ? 32 : 0));
    size_t length = contraction(low, bytes);
    return length ? length : bytes > 2 && !memcmp(text + 1, "\xC5\xBF", 2) ? 3 : 0;
}

static size_t scan_gpt2(const uint16_t *classes, const char *text, size_t bytes)
{
    size_t first, length = 0, at;
    if (*text == '\'' && (length = contraction(text, bytes)))
        return length;
    at = *text == ' ' && bytes > 1;
    unsigned class = class_at(classes, text + at, &first);
    if (class & TOKENIZER_LETTER)
        return run(classes, text, at + first, bytes, TOKENIZER_LETTER);
    if (class & TOKENIZER_NUMBER)
        return run(classes, text, at + first, bytes, TOKENIZER_NUMBER);
    if (!(class & TOKENIZER_SPACE))
        return run_of_signs(classes, text, at + first, bytes);
    return spaces(classes, text, bytes);
}

/* Match \s*[\r\n]+|\s+(?!\S)|\s+ at text, which begins with a space: the run of spaces up to and
 * with its last end of line, if it has one.  Returns the bytes of the match. */
static size_t spaces_and_lines(const uint16_t *classes, const char *text, size_t bytes)
{
    size_t end = run(classes, text, 0, bytes, TOKENIZER_SPACE);
    for (size_t at = end; at; at--)
        if (text[at - 1] == '\n' || text[at - 1] == '\r')
            return at;
    return spaces(classes, text, bytes);
}

/* Match Llama 3's or Qwen 2's pattern, which differ in the most digits of one match. */
static inline size_t scan_lines(const uint16_t *classes, const char *text, size_t bytes,
                                int most_digits)
{
    size_t length, at, next;
    if (*text == '\'' && (length = contraction_any_case(text, bytes)))
        return length;
    unsigned class = class_at(classes, text, &length);
    if (class & TOKENIZER_LETTER)
        return run(classes, text, length, bytes, TOKENIZER_LETTER);
    if (class & TOKENIZER_NUMBER) {
        at = length;
        for (int i = 1; i < most_digits && at < bytes; i++, at += length)
            if (!(class_at(classes, text + at, &length) & TOKENIZER_NUMBER))
                break;
        return at;
    }
    if (!(class & TOKENIZER_NEWLINE) && length < bytes &&
        (class_at(classes, text + length, &next) & TOKENIZER_LETTER))
        return run(classes, text, length + next, bytes, TOKENIZER_LETTER);
    at = *text == ' ' && bytes > 1;
    if (class_at(classes, text + at, &length) & NOT_SIGN)
        return spaces_and_lines(classes, text, bytes);
    at = run_of_signs(classes, text, at + length, bytes);
    while (at < bytes && (text[at] == '\r' || text[at] == '\n'))
        at++;
    return at;
}

static size_t scan_llama3(const uint16_t *classes, const char *text, size_t bytes)
{
    return scan_lines(classes, text, bytes, 3);
}

static size_t scan_qwen2(const uint16_t *classes, const char *text, size_t bytes)
{
    return scan_lines(classes, text, bytes, 1);
}

#define LINES   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LETTERS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"

const char tokenizer_scan_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static const struct {
    const char *pattern;
    tokenizer_scan *scan;
} scans[] = {
    {.pattern = tokenizer_scan_gpt2, .scan = scan_gpt2},
    {.pattern = LETTERS "\\p{N}{1,3}" LINES, .scan = scan_llama3},
    {.pattern = LETTERS "\\p{N}" LINES, .scan = scan_qwen2},
};

enum { SCANS = sizeof scans / sizeof scans[0] };

tokenizer_scan *tokenizer_scan_of(const char *pattern)
{
    for (int i = 0; i < SCANS; i++)
        if (!strcmp(scans[i].pattern, pattern))
            return scans[i].scan;
    return NULL;
}

const char *tokenizer_scan_pattern(int i)
{
    return i < SCANS ? scans[i].pattern : NULL;
}
