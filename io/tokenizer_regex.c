/* tokenizer_regex.c - see tokenizer_regex.h.
 *
 * A pattern is translated from left to right into PCRE2's syntax, and compiled.  What is written in
 * another way there is an escape (\h), a group with options ((?m:), an interval ({,3}); the rest is
 * copied.  Within [] only escapes are translated.  For an interval that needs brackets the
 * translation keeps in mind where the atom began that the interval repeats:
 *
 *     \d{1,3}+   ->   (?:\p{Nd}{1,3})+
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/tokenizer_regex.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_private.h"

/* In bytes: a pattern, and the stack of a match. */
enum { MOST_PATTERN = 64 << 10, STACK_START = 32 << 10, STACK_MOST = 16 << 20 };

struct tokenizer_regex {
    pcre2_code *code;
};

struct tokenizer_match {
    pcre2_match_data *data;       /* where the last match is */
    pcre2_match_context *context; /* names the stack to pcre2_match() */
    pcre2_jit_stack *stack;       /* NULL: PCRE2 has no JIT compiler here */
};

/* Translation */

/* The characters that \w matches: letters, accents, digits, numbers that are letters ("Ⅷ"), letters
 * in circles and squares, "_".  Outside of [] Oniguruma's \w also matches "²", "³", "¹", "¼", "½"
 * and "¾". */
#define WORD                                                                    \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}" \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define WORD_OUTSIDE WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/* What the escape "\letter" becomes, outside of [] and within.  NULL: it has no translation. */
static const struct escape {
    char letter;
    const char *outside, *within;
} escapes[] = {
    {.letter = 's', .outside = "\\p{White_Space}", .within = "\\p{White_Space}"},
    {.letter = 'S', .outside = "\\P{White_Space}", .within = "\\P{White_Space}"},
    {.letter = 'd', .outside = "\\p{Nd}", .within = "\\p{Nd}"},
    {.letter = 'D', .outside = "\\P{Nd}", .within = "\\P{Nd}"},
    {.letter = 'w', .outside = "[" WORD_OUTSIDE "]", .within = WORD},
    {.letter = 'W', .outside = "[^" WORD_OUTSIDE "]"},
    {.letter = 'v', .outside = "\\x0b", .within = "\\x0b"},
    {.letter = 'r', .outside = "\\r", .within = "\\r"},
    {.letter = 'n', .outside = "\\n", .within = "\\n"},
    {.letter = 't', .outside = "\\t", .within = "\\t"},
    {.letter = 'f', .outside = "\\f", .within = "\\f"},
    {.letter = 'p', .outside = "\\p", .within = "\\p"},
    {.letter = 'P', .outside = "\\P", .within = "\\P"},
    {.letter = 'x', .outside = "\\x", .within = "\\x"},
    {.letter = 'A', .outside = "\\A"},
    {.letter = 'z', .outside = "\\z"},
    {.letter = 'Z', .outside = "\\Z"},
};

/* MOST_DEPTH: groups within each other; NAME: bytes of a property's name. */
enum { ESCAPES = sizeof escapes / sizeof escapes[0], MOST_DEPTH = 250, NAME = 64 };

/* A pattern that is being translated. */
struct translation {
    struct tokenizer_buffer out;
    size_t atom;              /* byte of out: begin of what a quantifier would repeat */
    size_t group[MOST_DEPTH]; /* [depth] bytes of out: begins of the groups that are open */
    int depth;
    int has_x;                   /* 1: option x was seen, by which "#" may begin a comment */
    int ignores_case;            /* 1: after (?i), or within (?i: */
    char outside[MOST_DEPTH];    /* [depth] ignores_case around the groups that are open */
    int options[MOST_DEPTH + 1]; /* [depth + 1] groups (?i: opened for (?i), which end with these */
};

/* Append text to the translation. */
static void put(struct translation *to, const char *text)
{
    tokenizer_buffer_add(&to->out, text, strlen(text));
}

/* Returns 1 if name is a script, and PCRE2 knows \p{sc:name}, the characters of that script alone.
 */
static int is_script(const char *name)
{
    char pattern[NAME + 8];
    PCRE2_SIZE offset;
    int number;
    snprintf(pattern, sizeof pattern, "\\p{sc:%s}", name);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &number,
                                     &offset, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

/* Properties of characters whose other cases do not have them: within a set that ignores case
 * Oniguruma adds those cases, PCRE2 does not. */
static const char of_one_case[] = " lu ll lt upper lower uppercase lowercase uppercaseletter "
                                  "lowercaseletter titlecaseletter greek grek common zyyy "
                                  "inherited zinh qaai ";

/* Properties of which that is true for one accent alone, U+0345, whose other cases are letters. */
static const char of_u345[] = " l lc m mn ";

/* Is the property at `at` ("{Lu}", "{^lu}", "{L_u}") in a list of names? */
static int is_property_of(const char *at, const char *list)
{
    char name[NAME] = " ";
    size_t bytes = 1;
    for (; *at && *at != '}' && bytes < sizeof name - 2; at++)
        if (!strchr("{^ _-", *at))
            name[bytes++] = (char)tolower((unsigned char)*at);
    name[bytes] = ' ';
    return strstr(list, name) != NULL;
}

/* Append the translation of what stands after \p, \P or \x: {Han}, {^Han}, {4e00}, 4e.  A script
 * becomes {sc:Han}: from 10.40 on, PCRE2's {Han} also matches characters of other scripts that are
 * used with it, such as the Chinese full stop.  Returns how many bytes of the pattern were used. */
static size_t translate_argument(const char *at, int is_property, struct translation *to)
{
    char name[NAME] = "";
    size_t bytes = *at == '{' ? strcspn(at, "}") : 0;
    if (!bytes || !at[bytes]) {
        size_t digits = is_property ? 0 : strspn(at, "0123456789abcdefABCDEF");
        bytes = digits < 2 ? digits : 2;
        tokenizer_buffer_add(&to->out, at, bytes);
        return bytes;
    }
    size_t begin = at[1] == '^' ? 2 : 1;
    if (is_property && bytes - begin < sizeof name)
        snprintf(name, sizeof name, "%.*s", (int)(bytes - begin), at + begin);
    tokenizer_buffer_add(&to->out, at, begin);
    put(to, is_script(name) ? "sc:" : "");
    tokenizer_buffer_add(&to->out, at + begin, bytes + 1 - begin);
    return bytes + 1;
}

/* Append the translation of the escape at `at`.  within: 1 within [].  Returns how many bytes of
 * the pattern were used; 0: the escape has no translation.  \p and \P have none without {NAME}:
 * Oniguruma takes them for the letter there, and PCRE2 takes \pL for a property. */
static size_t translate_escape(const char *at, int within, struct translation *to)
{
    char letter = at[1], hex[16];
    unsigned code;
    int used = 0;
    if ((letter == 'p' || letter == 'P') && (at[2] != '{' || !strchr(at, '}')))
        return 0;
    if (letter == 'u' && sscanf(at + 2, "%4x%n", &code, &used) == 1 && used == 4) {
        snprintf(hex, sizeof hex, "\\x{%x}", code);
        put(to, hex);
        return 6;
    }
    for (int i = 0; i < ESCAPES; i++) {
        const char *text = within ? escapes[i].within : escapes[i].outside;
        if (escapes[i].letter != letter || !text)
            continue;
        /* From 10.45 on, PCRE2 takes Lu, Ll and Lt for LC where case is ignored. */
        int is_apart = strchr("pP", letter) && !within && to->ignores_case;
        put(to, is_apart ? "(?-i:" : "");
        put(to, text);
        if (!strchr("pPx", letter))
            return 2;
        size_t bytes = 2 + translate_argument(at + 2, letter != 'x', to);
        put(to, is_apart ? ")" : "");
        if (letter != 'x' && within && to->ignores_case && is_property_of(at + 2, of_u345))
            put(to, "\\x{345}"); /* brings its other cases */
        return bytes;
    }
    if (!letter || strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", letter))
        return 0;
    tokenizer_buffer_add(&to->out, at, (unsigned char)letter < 0x80 ? 2 : 1);
    return (unsigned char)letter < 0x80 ? 2 : 1;
}

/* Returns the bytes of an interval "{n}", "{n,}", "{,m}" or "{n,m}" at `at`, which begins with "{";
 * 0: there is none. */
static size_t interval_bytes(const char *at)
{
    static const char digits[] = "0123456789";
    size_t least = strspn(at + 1, digits), comma = at[1 + least] == ',';
    size_t most = comma ? strspn(at + 2 + least, digits) : 0;
    size_t end = 1 + least + comma + most;
    return least + most && at[end] == '}' ? end + 1 : 0;
}

/* Append the translation of the interval at `at`.  In Oniguruma a "+" after an interval repeats
 * the whole once or more, and a "?" after {n} makes the whole optional; PCRE2 takes "+" for
 * possessive and "?" for lazy.  So x{1,3}+ becomes (?:x{1,3})+.  Returns how many bytes of the
 * pattern were used. */
static size_t translate_interval(const char *at, struct translation *to)
{
    size_t bytes = interval_bytes(at);
    int is_one_number = memchr(at, ',', bytes) == NULL;
    int is_repeated = at[bytes] == '+' || (at[bytes] == '?' && is_one_number);
    if (is_repeated) {
        put(to, "(?:");
        char *atom = to->out.text + to->atom;
        memmove(atom + 3, atom, to->out.bytes - 3 - to->atom);
        memcpy(atom, "(?:", 3);
    }
    put(to, at[1] == ',' ? "{0" : "{");
    tokenizer_buffer_add(&to->out, at + 1, bytes - 1);
    put(to, is_repeated ? ")" : "");
    return bytes;
}

/* Does case not matter after options such as "mi-x", of which there are `count`? */
static int ignores_case(const char *options, size_t count, int before)
{
    int is_off = 0;
    for (size_t i = 0; i < count; i++) {
        is_off |= options[i] == '-';
        before = options[i] == 'i' ? !is_off : before;
    }
    return before;
}

/* Append the translation of "(" and the options after it.  Oniguruma's option m, by which "."
 * matches an end of line too, is s in PCRE2.  Options alone hold for all alternatives that follow
 * in the group, which they begin: a(?i)b|c is a(?i:b|c) in Oniguruma, and (?:a(?i)b)|(?i:c) in
 * PCRE2. Returns how many bytes of the pattern were used, or 0 with err set. */
static size_t open_group(const char *at, struct translation *to, struct error *err)
{
    size_t options = at[1] == '?' ? strspn(at + 2, "imx-") : 0, used = 1;
    int has_options = options && (at[2 + options] == ':' || at[2 + options] == ')');
    size_t begin = to->out.bytes;
    int is_ignored = ignores_case(at + 2, has_options ? options : 0, to->ignores_case);
    put(to, "(");
    if (has_options)
        put(to, "?");
    for (used += has_options; has_options && used < 2 + options; used++)
        put(to, (char[]){at[used] == 'm' ? 's' : at[used], 0});
    to->has_x |= has_options && memchr(at, 'x', used);
    if (has_options && at[used] == ')') {
        put(to, to->has_x ? ")" : ":"); /* a ")" added later might be in a comment */
        to->options[to->depth] += !to->has_x;
        to->ignores_case = is_ignored;
        return used + 1;
    }
    if (to->depth == MOST_DEPTH) {
        error_set(err, "more than %d groups within each other", MOST_DEPTH);
        return 0;
    }
    to->outside[to->depth] = (char)to->ignores_case;
    to->ignores_case = is_ignored;
    to->group[to->depth++] = begin;
    to->options[to->depth] = 0;
    return used;
}

/* End the groups that were opened for options within the innermost group. */
static void close_options(struct translation *to)
{
    for (; to->options[to->depth]; to->options[to->depth]--)
        put(to, ")");
}

/* Append ")".  A quantifier after it repeats the group. */
static void close_group(struct translation *to)
{
    close_options(to);
    put(to, ")");
    if (to->depth) {
        to->atom = to->group[--to->depth];
        to->ignores_case = to->outside[to->depth];
    }
}

/* Append the translation of what stands at `at`, outside of [] and no escape.  Returns how many
 * bytes of the pattern were used, or 0 with err set. */
static size_t translate_outside(const char *at, struct translation *to, struct error *err)
{
    size_t begin = to->out.bytes;
    if (*at == '{' && interval_bytes(at))
        return translate_interval(at, to);
    if (*at == '(')
        return open_group(at, to, err);
    if (*at == ')') {
        close_group(to);
        return 1;
    }
    tokenizer_buffer_add(&to->out, at, 1);
    int is_rest = ((unsigned char)*at & 0xc0) == 0x80; /* not the first byte of a character */
    if (!is_rest && !strchr("*+?", *at))
        to->atom = begin;
    return 1;
}

/* Is the escape at `at` one of those properties that a set which ignores case does not have alone?
 */
static int is_of_one_case(const char *at)
{
    return (at[1] == 'p' || at[1] == 'P') && is_property_of(at + 2, of_one_case);
}

/* Translate a pattern.  Returns 0, or -1 with err set. */
static int translate(const char *pattern, struct translation *to, struct error *err)
{
    int within = 0; /* 1: within [] */
    size_t opened = 0;
    for (size_t at = 0, used; pattern[at]; at += used) {
        size_t begin = to->out.bytes;
        used = 1;
        if (pattern[at] == '\\') {
            if (within && to->ignores_case && is_of_one_case(pattern + at))
                return error_set(err,
                                 "\"%.*s\" within a set that ignores case, in it at byte %zu, is "
                                 "nothing that trireme has",
                                 (int)strcspn(pattern + at, "}") + 1, pattern + at, at);
            used = translate_escape(pattern + at, within, to);
            if (!used)
                return error_set(err, "\"\\%c\" in it at byte %zu is nothing that trireme has",
                                 pattern[at + 1], at);
            if (!within)
                to->atom = begin;
            continue;
        }
        if (within && (pattern[at] == '[' || !strncmp(pattern + at, "&&", 2)))
            return error_set(
                err, "sets within a set, in it at byte %zu, are nothing that trireme has", at);
        if (!within && pattern[at] == '[') {
            within = 1;
            opened = at + (pattern[at + 1] == '^');
            to->atom = begin;
        } else if (!within) {
            used = translate_outside(pattern + at, to, err);
            if (!used)
                return -1;
            continue;
        } else if (pattern[at] == ']' && at > opened + 1) {
            within = 0;
        }
        tokenizer_buffer_add(&to->out, pattern + at, 1);
    }
    close_options(to);
    return 0;
}

/* Patterns */

/* Compile a translated pattern into regex->code.  Returns 0, or -1 with err set. */
static int compile(struct tokenizer_regex *regex, const struct tokenizer_buffer *text,
                   struct error *err)
{
    PCRE2_SIZE offset;
    int number;
    char why[200];
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return error_set(err, "out of memory: a pattern");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    regex->code = pcre2_compile((PCRE2_SPTR)text->text, text->bytes,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                &number, &offset, context);
    pcre2_compile_context_free(context);
    if (!regex->code) {
        pcre2_get_error_message(number, (PCRE2_UCHAR *)why, sizeof why);
        return error_set(err, "it is no pattern for PCRE2: %s, at byte %zu of \"%.200s\"", why,
                         (size_t)offset, text->text);
    }
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE); /* where it cannot, it is interpreted */
    return 0;
}

int tokenizer_regex_create(struct tokenizer_regex **created, const char *pattern, struct error *err)
{
    struct translation to = {0};
    struct tokenizer_regex *regex = array_make(1, sizeof *regex);
    *created = NULL;
    int rc = strlen(pattern) > MOST_PATTERN
                 ? error_set(err, "it has more than %d bytes", MOST_PATTERN)
                 : translate(pattern, &to, err);
    put(&to, "");
    rc = rc || compile(regex, &to.out, err);
    free(to.out.text);
    if (!rc) {
        *created = regex;
        return 0;
    }
    tokenizer_regex_destroy(regex);
    return -1;
}

void tokenizer_regex_destroy(struct tokenizer_regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    free(regex);
}

/* Matches */

int tokenizer_match_create(struct tokenizer_match **created, struct error *err)
{
    struct tokenizer_match *match = *created = array_make(1, sizeof *match);
    match->data = pcre2_match_data_create(1, NULL);
    match->context = pcre2_match_context_create(NULL);
    match->stack = pcre2_jit_stack_create(STACK_START, STACK_MOST, NULL);
    if (match->data && match->context) {
        pcre2_jit_stack_assign(match->context, NULL, match->stack);
        return 0;
    }
    tokenizer_match_destroy(match);
    *created = NULL;
    return error_set(err, "out of memory: matches of a pattern");
}

void tokenizer_match_destroy(struct tokenizer_match *match)
{
    if (!match)
        return;
    pcre2_match_data_free(match->data);
    pcre2_match_context_free(match->context);
    pcre2_jit_stack_free(match->stack);
    free(match);
}

int tokenizer_regex_find(const struct tokenizer_regex *regex, struct tokenizer_match *match,
                         const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
                         struct error *err)
{
    char why[200];
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = pcre2_match(regex->code, subject, bytes, from, PCRE2_NO_UTF_CHECK, match->data,
                         match->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(regex->code, subject, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         match->data, match->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        return error_set(err, "a pattern of the tokenizer cannot be looked for in this text: %s",
                         why);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(match->data);
    *start = at[0];
    *end = at[1];
    return 1;
}
