/* tokenizer.c - the kinds of tokenizers, one row each; see tokenizer.h. */
#include "io/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"

/* bytes: a token per byte */

static int bytes_encode(const char *text, size_t bytes, uint32_t **ids, int64_t *count,
                        struct error *err)
{
    *count = (int64_t)bytes;
    *ids = malloc(bytes * sizeof **ids + 1);
    if (!*ids)
        return error_set(err, "out of memory: %zu bytes of text to encode", bytes);
    for (size_t i = 0; i < bytes; i++)
        (*ids)[i] = (unsigned char)text[i];
    return 0;
}

static size_t bytes_decode(uint32_t id, char *out)
{
    if (id > 255)
        return 0;
    *out = (char)id;
    return 1;
}

static const struct tokenizer kinds[] = {
    {.name = "bytes",
     .vocab = 257,
     .end_of_text = 256,
     .encode = bytes_encode,
     .decode = bytes_decode},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static int unknown(const char *name, struct error *err)
{
    char names[256] = "";
    for (int i = 0; i < KINDS; i++)
        text_join(names, sizeof names, ", ", "%s", kinds[i].name);
    return error_set(err, "no tokenizer \"%s\"; there are: %s", name, names);
}

int tokenizer_open(struct tokenizer **tokenizer, const char *name, struct error *err)
{
    *tokenizer = NULL;
    int i = 0;
    while (i < KINDS && strcmp(kinds[i].name, name))
        i++;
    if (i == KINDS)
        return unknown(name, err);
    *tokenizer = array_make(1, sizeof **tokenizer);
    **tokenizer = kinds[i];
    return 0;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    free(tokenizer);
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                     uint32_t **ids, int64_t *count, struct error *err)
{
    return tokenizer->encode(text, bytes, ids, count, err);
}

size_t tokenizer_decode(const struct tokenizer *tokenizer, uint32_t id, char *out)
{
    return tokenizer->decode(id, out);
}
