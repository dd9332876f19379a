/* tokenizer_wrap.c - the ids that a tokenizer puts around every text, found by encoding "a" with
 * and without TOKENIZER_WRAP; and a text as valid UTF-8. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer.h"
#include "io/tokenizer_private.h"
#include "io/tokenizer_unicode.h"

char *tokenizer_utf8(const char *text, size_t bytes, size_t *length)
{
    struct tokenizer_buffer out = {0};
    tokenizer_unicode_repair(text, bytes, 0, &out);
    *length = out.bytes;
    return out.text ? out.text : array_text("");
}

int tokenizer_wrap_find(struct tokenizer_wrap *wrap, const struct tokenizer *tokenizer,
                        struct error *err)
{
    uint32_t *plain = NULL, *all = NULL;
    int64_t plain_count, all_count, at = 0;
    *wrap = (struct tokenizer_wrap){0};
    int rc = tokenizer_encode(tokenizer, "a", 1, 0, &plain, &plain_count, err) ||
             tokenizer_encode(tokenizer, "a", 1, TOKENIZER_WRAP, &all, &all_count, err);
    if (!rc && plain_count && all_count > plain_count) {
        size_t bytes = (size_t)plain_count * sizeof *plain;
        while (at < all_count - plain_count && memcmp(all + at, plain, bytes))
            at++;
        wrap->before_count = at;
        wrap->after_count = all_count - plain_count - at;
        if (wrap->after_count && all[all_count - 1] == tokenizer->end_of_text)
            wrap->after_count--;
        wrap->before = array_make((size_t)all_count, sizeof *all);
        wrap->after = array_make((size_t)all_count, sizeof *all);
        memcpy(wrap->before, all, (size_t)at * sizeof *all);
        memcpy(wrap->after, all + at + plain_count, (size_t)wrap->after_count * sizeof *all);
    }
    free(plain);
    free(all);
    return rc ? -1 : 0;
}

void tokenizer_wrap_free(struct tokenizer_wrap *wrap)
{
    free(wrap->before);
    free(wrap->after);
    *wrap = (struct tokenizer_wrap){0};
}
