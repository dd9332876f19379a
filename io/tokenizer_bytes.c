/* tokenizer_bytes.c - the tokenizer "bytes": a token per byte, and one more for ends of texts. */
#include "io/tokenizer_private.h"

/* Append the bytes of text as ids (struct tokenizer_model.encode). */
static int encode_bytes(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                        struct error *err)
{
    if (tokenizer_encoder_need(encoder, bytes, err))
        return -1;
    for (size_t i = 0; i < bytes; i++)
        encoder->ids[encoder->count + (int64_t)i] = (unsigned char)text[i];
    encoder->count += (int64_t)bytes;
    return 0;
}

const struct tokenizer_model tokenizer_bytes = {
    .name = "bytes", .takes_bytes = 1, .encode = encode_bytes};
