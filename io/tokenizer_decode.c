/* tokenizer_decode.c - ids to text.
 *
 * The text of a token goes through the steps of the file's decoder (tokenizer_undo.c) and is
 * appended to the bytes that are held back; the whole characters of these are handed out, and an
 * incomplete one at their end stays held.  With tokens that are bytes, "é" is C3 A9:
 *
 *     token   held before   handed out   held after
 *     C3                                 C3
 *     A9      C3            é
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_private.h"

struct tokenizer_decoder {
    const struct tokenizer *tokenizer;
    int flags;                     /* enum tokenizer_flags */
    int has_begun;                 /* 1: the next token is not the text's first one */
    int64_t strips;                /* tokenizer_decoder_strips() */
    struct tokenizer_buffer piece; /* the text of one token, as the decoder's steps make it */
    struct tokenizer_buffer held;  /* bytes that are held back */
    struct tokenizer_buffer out;   /* what the last call handed out */
};

/* Make the decoder ready for the beginning of a text. */
static void begin(struct tokenizer_decoder *decoder)
{
    decoder->has_begun = decoder->flags & TOKENIZER_CONTINUED;
    decoder->strips = decoder->has_begun ? 0 : -1;
    decoder->held.bytes = 0;
}

void tokenizer_decoder_create(struct tokenizer_decoder **created, const struct tokenizer *tokenizer,
                              int flags)
{
    struct tokenizer_decoder *decoder = *created = array_make(1, sizeof *decoder);
    decoder->tokenizer = tokenizer;
    decoder->flags = flags;
    begin(decoder);
}

void tokenizer_decoder_destroy(struct tokenizer_decoder *decoder)
{
    if (!decoder)
        return;
    free(decoder->piece.text);
    free(decoder->held.text);
    free(decoder->out.text);
    free(decoder);
}

int tokenizer_decoder_began(const struct tokenizer_decoder *decoder)
{
    return decoder->has_begun;
}

int64_t *tokenizer_decoder_strips(struct tokenizer_decoder *decoder)
{
    return &decoder->strips;
}

/* Make a buffer the empty text, with a 0 after it. */
static void clear(struct tokenizer_buffer *buffer)
{
    buffer->bytes = 0;
    tokenizer_buffer_add(buffer, "", 0);
}

/* Set decoder->piece to the text of a token, after the steps of the file's decoder. */
static void decode_piece(struct tokenizer_decoder *decoder, uint32_t id)
{
    const struct tokenizer_data *data = decoder->tokenizer->data;
    size_t bytes;
    const char *text = tokenizer_vocab_text(&data->texts, id, &bytes);
    char byte = (char)id;
    clear(&decoder->piece);
    if (data->model->takes_bytes && id < 256) {
        tokenizer_buffer_add(&decoder->piece, &byte, 1);
        return;
    }
    tokenizer_buffer_add(&decoder->piece, " ", data->joins && decoder->has_begun ? 1 : 0);
    tokenizer_buffer_add(&decoder->piece, text, bytes);
    /* The file spells added tokens in plain text, not in the letters that stand for bytes. */
    if (!data->is_byte_level || !(data->flags[id] & TOKENIZER_IS_ADDED))
        for (int i = 0; i < data->undo_count; i++)
            data->undos[i].apply(&data->undos[i], decoder, &decoder->piece);
    decoder->has_begun = 1;
}

/* Append piece to held, and move what can be handed out from held to out: whole characters; if no
 * more tokens follow (more is 0), all, with U+FFFD for what is not UTF-8 (the tokenizer "bytes"
 * hands such bytes out as they are). */
static void hand_out(struct tokenizer_decoder *decoder, int more)
{
    struct tokenizer_buffer *held = &decoder->held, *out = &decoder->out;
    if (decoder->piece.bytes)
        tokenizer_buffer_add(held, decoder->piece.text, decoder->piece.bytes);
    size_t taken = held->bytes;
    if (decoder->tokenizer->data->model->takes_bytes)
        taken = more ? tokenizer_unicode_whole(held->text, held->bytes) : held->bytes;
    if (decoder->tokenizer->data->model->takes_bytes)
        tokenizer_buffer_add(out, taken ? held->text : "", taken);
    else
        taken = tokenizer_unicode_repair(held->text, held->bytes, more, out);
    if (taken < held->bytes)
        memmove(held->text, held->text + taken, held->bytes - taken);
    held->bytes -= taken;
}

const char *tokenizer_decoder_add(struct tokenizer_decoder *decoder, uint32_t id, size_t *bytes)
{
    const struct tokenizer *tokenizer = decoder->tokenizer;
    clear(&decoder->out);
    if (tokenizer_text(tokenizer, id) &&
        (decoder->flags & TOKENIZER_SPECIALS || !tokenizer_is_special(tokenizer, id))) {
        decode_piece(decoder, id);
        hand_out(decoder, 1);
    }
    *bytes = decoder->out.bytes;
    return decoder->out.text;
}

const char *tokenizer_decoder_finish(struct tokenizer_decoder *decoder, size_t *bytes)
{
    clear(&decoder->out);
    clear(&decoder->piece);
    hand_out(decoder, 0);
    begin(decoder);
    *bytes = decoder->out.bytes;
    return decoder->out.text;
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
