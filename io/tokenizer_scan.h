/* tokenizer_scan.h - the published patterns that words are made by, as loops. */
#ifndef TRIREME_IO_TOKENIZER_SCAN_H
#define TRIREME_IO_TOKENIZER_SCAN_H

#include <stddef.h>
#include <stdint.h>

/* The length of the match at text, of bytes > 0 bytes of valid UTF-8: more than 0, for these
 * patterns match everywhere.  classes: of tokenizer_unicode.h. */
typedef size_t tokenizer_scan(const uint16_t *classes, const char *text, size_t bytes);

/* The loop for a pattern, as tokenizer.json spells it; NULL: there is none, PCRE2 looks for it. */
tokenizer_scan *tokenizer_scan_of(const char *pattern);
/* GPT-2's pattern, which byte-level pre-tokenizers name no more. */
extern const char tokenizer_scan_gpt2[];
/* The i-th pattern that has a loop, NULL behind the last. */
const char *tokenizer_scan_pattern(int i);

#endif
