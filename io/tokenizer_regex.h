/* tokenizer_regex.h - the patterns of a tokenizer.json, by PCRE2, whose one home is
 * tokenizer_regex.c.
 *
 * They are written for Oniguruma in Ruby's syntax.  What means another thing there is translated
 * (\s, \w, \d, \v, \uHHHH, \p{Han}, x{1,3}+, x{,3}, (?m); ^ and $ are of lines); what has no
 * translation is refused.
 */
#ifndef TRIREME_IO_TOKENIZER_REGEX_H
#define TRIREME_IO_TOKENIZER_REGEX_H

#include <stddef.h>

#include "base/error.h"

struct tokenizer_regex;
/* What one thread needs to match. */
struct tokenizer_match;

/* Returns 0 and a pattern for tokenizer_regex_destroy(), or -1 with err saying what is wrong where
 * in the pattern. */
int tokenizer_regex_create(struct tokenizer_regex **regex, const char *pattern, struct error *err);
void tokenizer_regex_destroy(struct tokenizer_regex *regex);
int tokenizer_match_create(struct tokenizer_match **match, struct error *err);
void tokenizer_match_destroy(struct tokenizer_match *match);

/* The first match in text, valid UTF-8, at `from` or behind it: 1 and its place; 0: there is none;
 * -1 with err set: it takes too long or too much memory. */
int tokenizer_regex_find(const struct tokenizer_regex *regex, struct tokenizer_match *match,
                         const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
                         struct error *err);

#endif
