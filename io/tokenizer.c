/* tokenizer.c - tokenizers opened, and asked for their tokens; see tokenizer.h. */
#include "io/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_private.h"

static void flag(struct tokenizer *tokenizer, int64_t id, int flags)
{
    if (id >= 0)
        tokenizer->data->flags[id] |= (uint8_t)flags;
}

/* The tokens of "bytes" are spelled as byte fallback spells them. */
static void open_bytes(struct tokenizer *tokenizer)
{
    struct tokenizer_data *data = tokenizer->data;
    char text[8];
    data->model = &tokenizer_bytes;
    for (int i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        tokenizer_vocab_add(&data->texts, text, 6, (uint32_t)i);
    }
    tokenizer_vocab_add(&data->texts, "<|endoftext|>", 13, 256);
    tokenizer->end_of_text = tokenizer->role[TOKENIZER_EOS] = 256;
}

int tokenizer_open(struct tokenizer **opened, const char *name_or_path, struct error *err)
{
    struct tokenizer *tokenizer = array_make(1, sizeof *tokenizer);
    *opened = NULL;
    tokenizer->data = array_make(1, sizeof *tokenizer->data);
    tokenizer->end_of_text = -1;
    for (int i = 0; i < TOKENIZER_ROLES; i++)
        tokenizer->role[i] = -1;
    if (strcmp(name_or_path, "bytes")) {
        error_set(err, "no tokenizer \"%s\"; there are: bytes", name_or_path);
        goto fail;
    }
    open_bytes(tokenizer);
    snprintf(tokenizer->name, sizeof tokenizer->name, "%s", tokenizer->data->model->name);
    tokenizer->vocab = tokenizer->data->texts.size;
    tokenizer->data->flags = array_make((size_t)tokenizer->vocab, 1);
    flag(tokenizer, tokenizer->end_of_text, TOKENIZER_IS_SPECIAL | TOKENIZER_IS_STOP);
    *opened = tokenizer;
    return 0;
fail:
    tokenizer_close(tokenizer);
    return -1;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    tokenizer_vocab_free(&tokenizer->data->texts);
    free(tokenizer->data->flags);
    free(tokenizer->data);
    free(tokenizer->path);
    free(tokenizer);
}

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
