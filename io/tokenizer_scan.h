/* tokenizer_scan.h - loops in place of regular expressions, for the published patterns that cut
 * texts into words. */
#ifndef TRIREME_IO_TOKENIZER_SCAN_H
#define TRIREME_IO_TOKENIZER_SCAN_H

#include <stddef.h>
#include <stdint.h>

/* A loop for one pattern.  Returns the bytes of the match that begins at text, which is valid UTF-8
 * of 1 byte or more: at least 1, for these patterns match at every place.  classes is the table of
 * tokenizer_unicode_classes(). */
typedef size_t tokenizer_scan(const uint16_t *classes, const char *text, size_t bytes);

/* Returns the loop for a pattern as tokenizer.json spells it; NULL: there is none, and PCRE2 has to
 * match the pattern. */
tokenizer_scan *tokenizer_scan_of(const char *pattern);
/* GPT-2's pattern.  A byte-level pre-tokenizer uses it without naming it in the file. */
extern const char tokenizer_scan_gpt2[];
/* Returns the i-th pattern that has a loop, NULL after the last one. */
const char *tokenizer_scan_pattern(int i);

#endif
