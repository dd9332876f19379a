/* tokenizer_lookup.c - tokens of an open tokenizer by text and by id. */
#include <string.h>

#include "io/tokenizer_private.h"

int64_t tokenizer_id(const struct tokenizer *tokenizer, const char *text)
{
    return tokenizer_vocab_find(&tokenizer->data->texts, text, strlen(text));
}

const char *tokenizer_text(const struct tokenizer *tokenizer, int64_t id)
{
    size_t bytes;
    return tokenizer_vocab_text(&tokenizer->data->texts, id, &bytes);
}

static int has_flag(const struct tokenizer *tokenizer, int64_t id, int flags)
{
    return id >= 0 && id < tokenizer->vocab && (tokenizer->data->flags[id] & flags) != 0;
}

int tokenizer_is_special(const struct tokenizer *tokenizer, int64_t id)
{
    return has_flag(tokenizer, id, TOKENIZER_IS_SPECIAL);
}

int tokenizer_is_stop(const struct tokenizer *tokenizer, int64_t id)
{
    return has_flag(tokenizer, id, TOKENIZER_IS_STOP);
}
