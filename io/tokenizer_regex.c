/* tokenizer_regex.c - see tokenizer_regex.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/tokenizer_regex.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_private.h"

enum { MOST_PATTERN = 64 << 10, STACK_START = 32 << 10, STACK_MOST = 16 << 20 };

struct tokenizer_regex {
    pcre2_code *code;
};

struct tokenizer_match {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* Translation */

/* What \X is in PCRE2, within [] and outside.  NULL: no translation. */
static const struct escape {
    char letter;
    const char *outside, *within;
} escapes[] = {
    {.letter = 's', .outside = "\\p{White_Space}", .within = "\\p{White_Space}"},
    {.letter = 'S', .outside = "\\P{White_Space}", .within = "\\P{White_Space}"},
    {.letter = 'd', .outside = "\\p{Nd}", .within = "\\p{Nd}"},
    {.letter = 'D', .outside = "\\P{Nd}", .within = "\\P{Nd}"},
    {.letter = 'w',
     .outside = "[\\p{L}\\p{M}\\p{Nd}\\p{Pc}]",
     .within = "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"},
    {.letter = 'W', .outside = "[^\\p{L}\\p{M}\\p{Nd}\\p{Pc}]"},
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

enum { ESCAPES = sizeof escapes / sizeof escapes[0] };

/* Append the translation of an escape, at[0] being '\\'; returns how many bytes it has, 0: none. */
static size_t translate_escape(const char *at, int within, struct tokenizer_buffer *out)
{
    char letter = at[1], hex[16];
    unsigned code;
    int used = 0;
    if (letter == 'u' && sscanf(at + 2, "%4x%n", &code, &used) == 1 && used == 4) {
        snprintf(hex, sizeof hex, "\\x{%x}", code);
        tokenizer_buffer_add(out, hex, strlen(hex));
        return 6;
    }
    for (int i = 0; i < ESCAPES; i++) {
        const char *text = within ? escapes[i].within : escapes[i].outside;
        if (escapes[i].letter == letter && text) {
            tokenizer_buffer_add(out, text, strlen(text));
            return 2;
        }
    }
    if (!letter || strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", letter))
        return 0;
    tokenizer_buffer_add(out, at, (unsigned char)letter < 0x80 ? 2 : 1);
    return (unsigned char)letter < 0x80 ? 2 : 1;
}

static int translate(const char *pattern, struct tokenizer_buffer *out, struct error *err)
{
    int within = 0; /* of [] */
    size_t opened = 0;
    for (size_t at = 0, used; pattern[at]; at += used) {
        used = 1;
        if (pattern[at] == '\\') {
            used = translate_escape(pattern + at, within, out);
            if (!used)
                return error_set(err, "\"\\%c\" in it at byte %zu is nothing that trireme has",
                                 pattern[at + 1], at);
            continue;
        }
        if (within && (pattern[at] == '[' || !strncmp(pattern + at, "&&", 2)))
            return error_set(
                err, "sets within a set, in it at byte %zu, are nothing that trireme has", at);
        if (!within && pattern[at] == '[') {
            within = 1;
            opened = at + (pattern[at + 1] == '^');
        } else if (within && pattern[at] == ']' && at > opened + 1) {
            within = 0;
        }
        tokenizer_buffer_add(out, pattern + at, 1);
    }
    return 0;
}

/* Patterns */

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
    struct tokenizer_buffer text = {0};
    struct tokenizer_regex *regex = array_make(1, sizeof *regex);
    *created = NULL;
    int rc = strlen(pattern) > MOST_PATTERN
                 ? error_set(err, "it has more than %d bytes", MOST_PATTERN)
                 : translate(pattern, &text, err);
    tokenizer_buffer_add(&text, "", 0);
    rc = rc || compile(regex, &text, err);
    free(text.text);
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
