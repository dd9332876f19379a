/* tokenizer_encode.c - text to ids: the steps of tokenizer_private.h, with the state of a thread.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_private.h"

int tokenizer_encoder_create(struct tokenizer_encoder **created, const struct tokenizer *tokenizer,
                             struct error *err)
{
    struct tokenizer_encoder *encoder = *created = calloc(1, sizeof *encoder);
    if (!encoder)
        return error_set(err, "out of memory: an encoder of %s", tokenizer->name);
    encoder->tokenizer = tokenizer;
    encoder->data = tokenizer->data;
    return 0;
}

void tokenizer_encoder_destroy(struct tokenizer_encoder *encoder)
{
    if (!encoder)
        return;
    free(encoder->ids);
    free(encoder);
}

int tokenizer_encoder_need(struct tokenizer_encoder *encoder, size_t more, struct error *err)
{
    int64_t need = encoder->count + (int64_t)more;
    if (need <= encoder->capacity)
        return 0;
    int64_t capacity = need > 2 * encoder->capacity ? need + 64 : 2 * encoder->capacity;
    uint32_t *ids = realloc(encoder->ids, (size_t)capacity * sizeof *ids);
    if (!ids)
        return error_set(err, "out of memory: %lld tokens of text", (long long)capacity);
    encoder->ids = ids;
    encoder->capacity = capacity;
    return 0;
}

int tokenizer_encoder_run(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                          int flags, const uint32_t **ids, int64_t *count, struct error *err)
{
    encoder->count = 0;
    int rc = encoder->data->model->encode(encoder, text, bytes, err);
    *ids = encoder->ids;
    *count = encoder->count;
    return rc;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, int flags,
                     uint32_t **ids, int64_t *count, struct error *err)
{
    struct tokenizer_encoder *encoder;
    const uint32_t *made;
    *ids = NULL;
    *count = 0;
    if (tokenizer_encoder_create(&encoder, tokenizer, err))
        return -1;
    int rc = tokenizer_encoder_run(encoder, text, bytes, flags, &made, count, err);
    if (!rc && *count)
        *ids = encoder->ids;
    else
        free(encoder->ids);
    encoder->ids = NULL;
    tokenizer_encoder_destroy(encoder);
    return rc;
}

size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t bytes)
{
    return tokenizer->data->model->takes_bytes && bytes > 1 ? bytes - 1 : 0;
}
