/* tokenizer_memory.c - memory that grows with the text: bytes and ids. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_private.h"

void tokenizer_buffer_add(struct tokenizer_buffer *buffer, const char *text, size_t bytes)
{
    if (buffer->bytes + bytes + 1 > buffer->capacity) {
        buffer->capacity = 2 * (buffer->bytes + bytes) + 64;
        buffer->text = array_need(realloc(buffer->text, buffer->capacity), buffer->capacity);
    }
    memcpy(buffer->text + buffer->bytes, text, bytes);
    buffer->bytes += bytes;
    buffer->text[buffer->bytes] = 0;
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
