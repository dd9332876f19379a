/* chat_program.c - the common form of a program in Jinja; see chat_program.h.
 *
 * Published programs differ in white space, in quotes, and in how their output is divided among
 * {{ }} and text.  The form of
 *
 *     {%- for m in messages -%}
 *         {{ "<|im_start|>" + m.role }}{{ '\n' + m['content'] }}
 *     {%- endfor %}
 *
 * is one line, with a character 10 where the program has \n:
 *
 *     {%for m in messages%}{{'<|im_start|>'+m['role']+'\n'+m['content']}}{%endfor%}
 *
 * Text between tags becomes a literal, without the white space that Jinja leaves out (transformers
 * sets trim_blocks and lstrip_blocks).  Neighbouring literals become one.  An output {{a + b}} is
 * divided into its terms at each + outside of brackets, unless it has an operator that binds weaker
 * than +: {{a + b if c}} stays whole, in parentheses.
 *
 * Source: Jinja 3.1, jinja2/lexer.py.
 */
#include "io/chat_program.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

struct form {
    char *text;
    size_t bytes;
    size_t literal; /* byte of text after the last literal's characters, where its quote is; 0:
                     * none in this output */
    int is_output;  /* 1: a {{ is open */
};

/* Append text.  The form has space for the form of the whole program. */
static void put(struct form *form, const char *text, size_t bytes)
{
    memcpy(form->text + form->bytes, text, bytes);
    form->bytes += bytes;
}

static void put_text(struct form *form, const char *text)
{
    put(form, text, strlen(text));
}

/* Begin a term of the output: put "{{", or "+" after the term before it. */
static void begin_term(struct form *form)
{
    put_text(form, form->is_output ? "+" : "{{");
    form->is_output = 1;
}

/* Close the output, if one is open. */
static void end_output(struct form *form)
{
    if (form->is_output)
        put_text(form, "}}");
    form->is_output = 0;
    form->literal = 0;
}

/* Append the characters of a literal.  has_escapes: 1: \ begins an escape in text.  "\n" becomes an
 * end of line and "\"" a plain quote; ' and \ get a \ before them, and other escapes keep theirs.
 */
static void put_literal(struct form *form, const char *text, size_t bytes, int has_escapes)
{
    for (size_t i = 0; i < bytes; i++) {
        int is_escape = has_escapes && text[i] == '\\' && i + 1 < bytes;
        char c = text[i += (size_t)is_escape];
        if (is_escape && c == 'n')
            c = '\n';
        else if (c == '\'' || c == '\\' || (is_escape && c != '"'))
            put_text(form, "\\");
        put(form, &c, 1);
    }
}

/* Append a literal to the output: to the last term, if that is a literal, else as a new term. */
static void add_literal(struct form *form, const char *text, size_t bytes, int has_escapes)
{
    if (!bytes)
        return;
    if (form->literal && form->literal + 1 == form->bytes) {
        form->bytes = form->literal;
    } else {
        begin_term(form);
        put_text(form, "'");
    }
    put_literal(form, text, bytes, has_escapes);
    form->literal = form->bytes;
    put_text(form, "'");
}

/* Returns 1 for a character of names and numbers. */
static int is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Returns where the quoted text that begins at `at` ends, after its closing quote; `end` if it has
 * none. */
static const char *quoted_end(const char *at, const char *end)
{
    const char *c = at + 1;
    while (c < end && *c != *at)
        c += *c == '\\' && c + 1 < end ? 2 : 1;
    return c < end ? c + 1 : end;
}

/* Append code in its common form: without white space that means nothing, 'a' for "a", x['y'] for
 * x.y (but x.y() as it is). */
static void put_code(struct form *form, const char *at, const char *end)
{
    size_t start = form->bytes;
    while (at < end) {
        char last = form->bytes > start ? form->text[form->bytes - 1] : 0;
        const char *next = at;
        if (isspace((unsigned char)*at)) {
            while (next < end && isspace((unsigned char)*next))
                next++;
            if (next < end && is_word(last) && is_word(*next))
                put_text(form, " ");
        } else if (*at == '\'' || *at == '"') {
            next = quoted_end(at, end);
            put_text(form, "'");
            put_literal(form, at + 1, (size_t)(next - at) - 1 - (next[-1] == *at && next > at + 1),
                        1);
            put_text(form, "'");
        } else if (*at == '.' && at + 1 < end && (is_word(last) || last == ']') &&
                   !isdigit((unsigned char)at[1])) {
            for (next = at + 1; next < end && is_word(*next);)
                next++;
            int is_called = next < end && *next == '(';
            put_text(form, is_called ? "." : "['");
            put(form, at + 1, (size_t)(next - at) - 1);
            put_text(form, is_called ? "" : "']");
        } else {
            put(form, next++, 1);
        }
        at = next;
    }
}

/* Returns 1 if code is a sum of texts and names, with brackets and filters: no operator in it binds
 * weaker than +. */
static int is_sum(const char *at, const char *end)
{
    int depth = 0, was_word = 0;
    while (at < end) {
        const char *next = at + 1;
        if (*at == '\'' || *at == '"')
            next = quoted_end(at, end);
        else if (strchr("([{", *at))
            depth++;
        else if (strchr(")]}", *at))
            depth--;
        else if (!depth && is_word(*at)) {
            if (was_word)
                return 0; /* a if b, a and b, not a */
            while (next < end && is_word(*next))
                next++;
        } else if (!depth && !strchr("+|. \t\r\n", *at))
            return 0;
        if (!isspace((unsigned char)*at))
            was_word = is_word(*at);
        at = next;
    }
    return depth == 0;
}

/* Append a term of a sum: a literal, or code. */
static void add_term(struct form *form, const char *at, const char *end)
{
    while (at < end && isspace((unsigned char)*at))
        at++;
    while (at < end && isspace((unsigned char)end[-1]))
        end--;
    if (at < end && (*at == '\'' || *at == '"') && quoted_end(at, end) == end && end[-1] == *at) {
        add_literal(form, at + 1, (size_t)(end - at) - 2, 1);
        return;
    }
    begin_term(form);
    put_code(form, at, end);
}

/* Append the code of a tag {{ }}, term by term if it is a sum. */
static void add_output(struct form *form, const char *at, const char *end)
{
    int depth = 0;
    const char *first = at;
    if (!is_sum(at, end)) {
        begin_term(form);
        put_text(form, "(");
        put_code(form, at, end);
        put_text(form, ")");
        return;
    }
    while (at < end) {
        if (*at == '\'' || *at == '"') {
            at = quoted_end(at, end);
            continue;
        }
        depth += strchr("([{", *at) ? 1 : strchr(")]}", *at) ? -1 : 0;
        if (*at == '+' && !depth) {
            add_term(form, first, at);
            first = at + 1;
        }
        at++;
    }
    add_term(form, first, end);
}

/* Tags */

/* Returns where the next tag begins, or the end of the program. */
static const char *find_tag(const char *at)
{
    while (*at && !(at[0] == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#')))
        at++;
    return at;
}

/* Returns where the code of the tag that begins at `at` ends, before the tag's last two characters;
 * NULL: the tag has no end. */
static const char *find_tag_end(const char *at)
{
    char last = at[1] == '{' ? '}' : at[1];
    const char *end = at + strlen(at);
    for (const char *c = at + 2; c < end;) {
        if (c[0] == last && c[1] == '}')
            return c;
        c = at[1] != '#' && (*c == '\'' || *c == '"') ? quoted_end(c, end) : c + 1;
    }
    return NULL;
}

/* Append the text from `at` to the tag at `end` (or the program's end) as a literal, without the
 * white space that Jinja leaves out.  is_line_start: 1: `at` is the start of a line. */
static void add_text(struct form *form, const char *at, const char *end, int is_line_start)
{
    const char *first = at;
    char sign = *end ? end[2] : 0;
    if (!*end) /* keep_trailing_newline is false */
        end -= end > at && end[-1] == '\n';
    else if (sign == '-')
        while (end > at && isspace((unsigned char)end[-1]))
            end--;
    else if (end[1] != '{' && sign != '+') {
        const char *line = end;
        while (line > first && (line[-1] == ' ' || line[-1] == '\t'))
            line--;
        if (line > first ? line[-1] == '\n' : is_line_start)
            end = line;
    }
    add_literal(form, at, (size_t)(end - at), 0);
}

/* Append the tag at `at`, whose code ends at `end`.  *is_line_start becomes 1 if the text after
 * the tag begins a line.  Returns where that text begins. */
static const char *add_tag(struct form *form, const char *at, const char *end, int *is_line_start)
{
    char kind = at[1], sign = end[-1];
    const char *code = at + 2, *next = end + 2;
    code += *code == '-' || *code == '+';
    end -= end > code && (sign == '-' || sign == '+');
    *is_line_start = 0;
    if (sign == '-') {
        for (; isspace((unsigned char)*next); next++)
            *is_line_start = *next == '\n';
    } else if (kind != '{' && sign != '+' && *next == '\n') {
        next++;
        *is_line_start = 1;
    }
    if (kind == '{') {
        add_output(form, code, end);
    } else if (kind == '%') {
        end_output(form);
        put_text(form, "{%");
        put_code(form, code, end);
        put_text(form, "%}");
    }
    return next;
}

char *chat_program_form(const char *jinja)
{
    struct form form = {.text = array_make(8 * strlen(jinja) + 16, 1)};
    int is_line_start = 1;
    while (*jinja) {
        const char *tag = find_tag(jinja);
        add_text(&form, jinja, tag, is_line_start);
        jinja = tag;
        if (!*tag)
            break;
        const char *end = find_tag_end(tag);
        if (!end) { /* not a program: the rest stays as it is */
            put_text(&form, jinja);
            break;
        }
        jinja = add_tag(&form, tag, end, &is_line_start);
    }
    end_output(&form);
    return form.text;
}
