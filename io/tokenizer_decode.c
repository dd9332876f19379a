/* tokenizer_decode.c - ids to text, of which only whole characters are handed out. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_private.h"

struct tokenizer_decoder {
    const struct tokenizer *tokenizer;
    int flags;
    struct tokenizer_buffer held; /* bytes of a character that is not whole yet */
    struct tokenizer_buffer out;
};

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

void tokenizer_decoder_create(struct tokenizer_decoder **created, const struct tokenizer *tokenizer,
                              int flags)
{
    struct tokenizer_decoder *decoder = *created = array_make(1, sizeof *decoder);
    decoder->tokenizer = tokenizer;
    decoder->flags = flags;
}

void tokenizer_decoder_destroy(struct tokenizer_decoder *decoder)
{
    if (!decoder)
        return;
    free(decoder->held.text);
    free(decoder->out.text);
    free(decoder);
}

/* How many bytes of text, 0 to 3, begin a character that may become whole. */
static size_t unfinished(const struct tokenizer_buffer *text)
{
    for (size_t back = 1; back <= 3 && back <= text->bytes; back++) {
        unsigned char byte = (unsigned char)text->text[text->bytes - back];
        if (byte >= 0xc0)
            return back < (byte >= 0xf0 ? 4u : byte >= 0xe0 ? 3u : 2u) ? back : 0;
        if (byte < 0x80)
            return 0;
    }
    return 0;
}

const char *tokenizer_decoder_add(struct tokenizer_decoder *decoder, uint32_t id, size_t *bytes)
{
    const struct tokenizer *tokenizer = decoder->tokenizer;
    struct tokenizer_buffer *held = &decoder->held, *out = &decoder->out;
    out->bytes = 0;
    tokenizer_buffer_add(out, "", 0);
    *bytes = 0;
    int special = tokenizer_is_special(tokenizer, id);
    const char *name = tokenizer_text(tokenizer, id);
    if (!name || (special && !(decoder->flags & TOKENIZER_SPECIALS)))
        return out->text;
    if (held->bytes)
        tokenizer_buffer_add(out, held->text, held->bytes);
    held->bytes = 0;
    if (special)
        tokenizer_buffer_add(out, name, strlen(name));
    else
        tokenizer->data->model->decode(tokenizer, id, out);
    size_t keep = unfinished(out);
    tokenizer_buffer_add(held, out->text + out->bytes - keep, keep);
    out->bytes -= keep;
    out->text[out->bytes] = 0;
    *bytes = out->bytes;
    return out->text;
}

const char *tokenizer_decoder_finish(struct tokenizer_decoder *decoder, size_t *bytes)
{
    struct tokenizer_buffer *out = &decoder->out;
    out->bytes = 0;
    if (decoder->tokenizer->data->model->takes_bytes)
        tokenizer_buffer_add(out, decoder->held.bytes ? decoder->held.text : "",
                             decoder->held.bytes);
    else
        tokenizer_buffer_add(out, "\xEF\xBF\xBD", decoder->held.bytes ? 3 : 0);
    decoder->held.bytes = 0;
    *bytes = out->bytes;
    return out->text;
}

char *tokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, int64_t count,
                       int flags, size_t *bytes)
{
    struct tokenizer_buffer all = {0};
    struct tokenizer_decoder *decoder;
    const char *text;
    tokenizer_decoder_create(&decoder, tokenizer, flags);
    for (int64_t i = 0; i < count; i++) {
        text = tokenizer_decoder_add(decoder, ids[i], bytes);
        tokenizer_buffer_add(&all, text, *bytes);
    }
    text = tokenizer_decoder_finish(decoder, bytes);
    tokenizer_buffer_add(&all, text, *bytes);
    tokenizer_decoder_destroy(decoder);
    *bytes = all.bytes;
    return all.text;
}
