/* tokenizer_regex.h - the patterns of a tokenizer.json, by PCRE2, whose one home is
 * tokenizer_regex.c.
 *
 * They are written for Oniguruma in Ruby's syntax.  Parts that mean something else to PCRE2 are
 * translated (\s, \w, \d, \v, \uHHHH; ^ and $ match at the ends of lines); a pattern with a part
 * that has no translation is refused.
 */
#ifndef TRIREME_IO_TOKENIZER_REGEX_H
#define TRIREME_IO_TOKENIZER_REGEX_H

#include <stddef.h>

#include "base/error.h"

struct tokenizer_regex;
/* What one thread needs to match. */
struct tokenizer_match;

/* Compile a pattern.  Returns 0 and a regex for tokenizer_regex_destroy(), which threads may share,
 * or -1 with err saying what is wrong and where in the pattern. */
int tokenizer_regex_create(struct tokenizer_regex **regex, const char *pattern, struct error *err);
void tokenizer_regex_destroy(struct tokenizer_regex *regex);
int tokenizer_match_create(struct tokenizer_match **match, struct error *err);
void tokenizer_match_destroy(struct tokenizer_match *match);

/* Find the first match in text, valid UTF-8, that begins at byte `from` or after it.  Returns 1
 * with the match in bytes [*start, *end); 0: there is none; -1 with err set: matching takes too
 * long or too much memory. */
int tokenizer_regex_find(const struct tokenizer_regex *regex, struct tokenizer_match *match,
                         const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
                         struct error *err);

#endif
