/* fuzz_tokenizer.c - bytes as a tokenizer.json, which is refused with one line or opened; what is
 * opened encodes and decodes any text, and every id it gives is one of its own. */
#include <stdlib.h>
#include <string.h>

#include "io/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static void check_text(const struct tokenizer *tokenizer, const char *text, size_t bytes, int flags)
{
    struct error err = {0};
    uint32_t *ids;
    int64_t count;
    size_t back;
    if (tokenizer_encode(tokenizer, text, bytes, flags, &ids, &count, &err)) {
        fuzz_check_error(&err);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        if (ids[i] >= tokenizer->vocab || !tokenizer_text(tokenizer, ids[i]))
            fuzz_fail("id %u of %lld", ids[i], (long long)tokenizer->vocab);
    free(tokenizer_decode(tokenizer, ids, count, flags, &back));
    if (tokenizer_cut(tokenizer, text, bytes) >= bytes && bytes)
        fuzz_fail("cut outside the text");
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char text[] =
        "It's a\xC3\xA9 e\xCC\x81 \xE2\x96\x81x 123 \xE4\xB8\xAD  \n\n <s>[CLS]"
        "<|endoftext|> don't\t\xF0\x9F\x98\x80\xFF .";
    struct error err = {0};
    struct tokenizer *tokenizer;
    if (tokenizer_open(&tokenizer, fuzz_file("tokenizer.json", data, bytes), &err)) {
        fuzz_check_error(&err);
        return 0;
    }
    for (int flags = 0; flags < 8; flags++)
        check_text(tokenizer, text, sizeof text - 1, flags);
    check_text(tokenizer, (const char *)data, bytes < 4096 ? bytes : 4096, 0);
    tokenizer_close(tokenizer);
    return 0;
}
