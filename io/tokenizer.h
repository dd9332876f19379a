/* tokenizer.h - text to tokens and back.
 *
 * A tokenizer is "bytes", or comes from a tokenizer.json, the file that Hugging Face's `tokenizers`
 * writes: byte-level BPE (GPT-2, Llama 3, Qwen), BPE of characters with byte fallback
 * (SentencePiece's, of Llama 2 and Mistral), WordPiece (BERT).  What such a file asks for and
 * trireme does not have is refused by name when it is opened.  Ids equal those of `tokenizers`.
 *
 * Text may be any bytes.  The tokenizer "bytes" takes them as they are.  The others take UTF-8;
 * bytes that are not UTF-8 are replaced by U+FFFD first, as by Python's
 * bytes.decode(errors="replace"): one U+FFFD for a beginning of a character that breaks off, as
 * long as it gets, and one for any other byte.
 *
 * An open tokenizer is never changed: any number of threads may use it, each with encoders and
 * decoders of its own.
 */
#ifndef TRIREME_IO_TOKENIZER_H
#define TRIREME_IO_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { TOKENIZER_NAME = 64 };

/* What some tokens are for.  They come from tokenizer_config.json, special_tokens_map.json and
 * generation_config.json beside tokenizer.json, the first that has one; else from well-known names
 * ("<s>", "<|endoftext|>", "[PAD]", ...). */
enum tokenizer_role {
    TOKENIZER_BOS, /* begins a text */
    TOKENIZER_EOS, /* ends an answer; an end of documents may be another token */
    TOKENIZER_PAD,
    TOKENIZER_UNK,
    TOKENIZER_ROLES
};

/* An open tokenizer, whose fields are only read. */
struct tokenizer {
    /* "bytes"; of a file its kind and a hash of all that ids depend on, such as
     * "byte-bpe-0123456789abcdef", the same wherever the file lies and whoever wrote it anew */
    char name[TOKENIZER_NAME];
    char *path;                    /* of tokenizer.json; NULL: no file */
    int64_t vocab;                 /* the highest id, added tokens included, plus 1 */
    int64_t end_of_text;           /* id to put after each document; -1: the tokenizer has none */
    int64_t role[TOKENIZER_ROLES]; /* id; -1: the tokenizer has none */
    /* of generation_config.json, an id for each role that is that of no token, such as of a padded
     * vocabulary; -1: there is none */
    int64_t unknown_id[TOKENIZER_ROLES];
    struct tokenizer_data *data; /* private to io/tokenizer*.c */
};

/* Open "bytes", a tokenizer.json, or a folder that holds one.  Not collective.
 * Returns 0 and a tokenizer for tokenizer_close(), or -1 with err naming the file and what is
 * wrong: missing, not JSON, a part that trireme does not support, impossible ids or merges. */
int tokenizer_open(struct tokenizer **tokenizer, const char *name_or_path, struct error *err);
void tokenizer_close(struct tokenizer *tokenizer);

/* Returns the id of the token that the file spells as text ("<|eot_id|>", "Ġthe", "▁the"), or -1.
 */
int64_t tokenizer_id(const struct tokenizer *tokenizer, const char *text);
/* Returns the text of token id as the file spells it, ending in 0, or NULL where there is no such
 * token.  It lives as long as the tokenizer. */
const char *tokenizer_text(const struct tokenizer *tokenizer, int64_t id);
/* Returns 1 if token id is special: it does not stand for text (bos, <|eot_id|>, [MASK]...). */
int tokenizer_is_special(const struct tokenizer *tokenizer, int64_t id);
/* Returns 1 if generated text ends at token id: TOKENIZER_EOS, end_of_text, and each eos_token_id
 * of generation_config.json. */
int tokenizer_is_stop(const struct tokenizer *tokenizer, int64_t id);

/* How to encode and decode: a sum of these, or 0. */
enum tokenizer_flags {
    /* encode: "<|eot_id|>" and the like in text become those tokens.  Without the flag they are
     * text like any other, which is what untrusted text needs.
     * decode: special tokens are written.  Without the flag they are left out. */
    TOKENIZER_SPECIALS = 1,
    /* encode: add the ids that the file's post-processor puts before and after a text (bos, [CLS])
     */
    TOKENIZER_WRAP = 2,
    /* The text continues another one.  encode: no space is put before it.  decode: its first token
     * keeps its space. */
    TOKENIZER_CONTINUED = 4
};

/* An encoder is what one thread needs to encode: buffers and a cache of words, about 4 MiB.
 * tokenizer_encoder_create() returns 0 and an encoder for tokenizer_encoder_destroy(), or -1 with
 * err set.  It must be destroyed before its tokenizer is closed. */
struct tokenizer_encoder;
int tokenizer_encoder_create(struct tokenizer_encoder **encoder, const struct tokenizer *tokenizer,
                             struct error *err);
void tokenizer_encoder_destroy(struct tokenizer_encoder *encoder);

/* Encode text of `bytes` bytes.  Returns 0 and count ids in *ids, which belongs to the encoder and
 * is valid until its next call; or -1 with err set: memory is out, a pattern of the file takes too
 * long.  The encoder's memory grows with the longest text; tokenizer_cut() divides a long one. */
int tokenizer_encoder_run(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                          int flags, const uint32_t **ids, int64_t *count, struct error *err);

/* Returns the number of bytes in the text of the last call that were not UTF-8 and became U+FFFD.
 */
size_t tokenizer_encoder_broken(const struct tokenizer_encoder *encoder);

/* Encode a short text as tokenizer_encoder_run() does, with an encoder made for this call.  *ids is
 * to be free()d. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, int flags,
                     uint32_t **ids, int64_t *count, struct error *err);

/* Returns a copy of text with U+FFFD in place of what is not UTF-8 (which "bytes" may decode to),
 * to be free()d; *length becomes its bytes. */
char *tokenizer_utf8(const char *text, size_t bytes, size_t *length);

/* Find the ids that TOKENIZER_WRAP puts before and after every text, such as bos.  If the last of
 * them is end_of_text, it is left out: that is put after documents in any case.  Returns 0 and a
 * wrap for tokenizer_wrap_free(), or -1 with err set. */
struct tokenizer_wrap {
    uint32_t *before, *after;
    int64_t before_count, after_count;
};
int tokenizer_wrap_find(struct tokenizer_wrap *wrap, const struct tokenizer *tokenizer,
                        struct error *err);
void tokenizer_wrap_free(struct tokenizer_wrap *wrap);

/* Find the last place in text where it can be cut in two, so that the ids of the first part and
 * those of the rest, encoded with TOKENIZER_CONTINUED, are together the ids of the whole text,
 * whatever follows these bytes.  Returns the place, 1 to bytes - 1; 0: there is none, or none is
 * known for this tokenizer's patterns, and the text has to be encoded whole. */
size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t bytes);

/* A decoder makes text of ids that come one by one.  It returns whole characters only: a
 * character's bytes may be in several tokens, and are held back until all are there.  An id that is
 * no token has no text.  The text that a call returns is valid until the next call.
 * tokenizer_decoder_finish() returns what was held back (U+FFFD for a character that never became
 * whole), and makes the decoder ready for another text.  One thread may use a decoder.
 *     tokenizer_decoder_create(&decoder, tokenizer, TOKENIZER_CONTINUED);
 *     while (...) {
 *         text = tokenizer_decoder_add(decoder, id, &bytes);
 *         fwrite(text, 1, bytes, out);
 *     }
 *     text = tokenizer_decoder_finish(decoder, &bytes); */
struct tokenizer_decoder;
void tokenizer_decoder_create(struct tokenizer_decoder **decoder, const struct tokenizer *tokenizer,
                              int flags);
void tokenizer_decoder_destroy(struct tokenizer_decoder *decoder);
const char *tokenizer_decoder_add(struct tokenizer_decoder *decoder, uint32_t id, size_t *bytes);
const char *tokenizer_decoder_finish(struct tokenizer_decoder *decoder, size_t *bytes);

/* Returns the text of count ids, of *bytes bytes and a 0 after them, to be free()d. */
char *tokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, int64_t count,
                       int flags, size_t *bytes);

#endif
