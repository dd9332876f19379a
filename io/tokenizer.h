/* tokenizer.h - text to tokens and back.
 *
 * A tokenizer is "bytes", or comes from a tokenizer.json, the file that Hugging Face's `tokenizers`
 * writes: byte-level BPE (GPT-2, Llama 3, Qwen), BPE of characters with byte fallback
 * (SentencePiece's, of Llama 2 and Mistral), WordPiece (BERT).  What such a file asks for and
 * trireme does not have is refused by name when it is opened.  Ids equal those of `tokenizers`.
 *
 * Text is any bytes.  The tokenizer "bytes" takes them as they are; the others take UTF-8, and what
 * is none becomes U+FFFD first, as many as Python's bytes.decode(errors="replace") makes: one for
 * each longest beginning of a character that breaks off, else one for the byte.
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
    char *path;          /* of tokenizer.json; NULL: no file */
    int64_t vocab;       /* every id is less: the highest one, added tokens among them, and 1 */
    int64_t end_of_text; /* id to put after each document; -1: the tokenizer has none */
    int64_t role[TOKENIZER_ROLES]; /* id; -1: the tokenizer has none */
    struct tokenizer_data *data;   /* private to io/tokenizer*.c */
};

/* Open "bytes", a tokenizer.json, or a folder that holds one.  Not collective.
 * Returns 0 and a tokenizer for tokenizer_close(), or -1 with err naming the file and what is
 * wrong: missing, not JSON, a part that trireme does not have, ids or merges that cannot be. */
int tokenizer_open(struct tokenizer **tokenizer, const char *name_or_path, struct error *err);
void tokenizer_close(struct tokenizer *tokenizer);

/* Tokens by their text, as the file spells it ("<|eot_id|>", "Ġthe", "▁the"): id or -1; and back:
 * text ending in 0, or NULL of an id that is none.  It lives as long as the tokenizer. */
int64_t tokenizer_id(const struct tokenizer *tokenizer, const char *text);
const char *tokenizer_text(const struct tokenizer *tokenizer, int64_t id);
/* Is the token special: none that stands for text (bos, <|eot_id|>, [MASK]...)? */
int tokenizer_is_special(const struct tokenizer *tokenizer, int64_t id);
/* Does a generated text end at id?  At TOKENIZER_EOS, end_of_text, and each eos_token_id of
 * generation_config.json. */
int tokenizer_is_stop(const struct tokenizer *tokenizer, int64_t id);

/* How to encode and decode; any sum of these.  0: the text alone, whole. */
enum tokenizer_flags {
    /* encode: "<|eot_id|>" and the like in text are those tokens.  Without it they are text like
     * any other, which is what untrusted text needs.  decode: special tokens are written, not left
     * out. */
    TOKENIZER_SPECIALS = 1,
    /* encode: put before and after the text what the file's post-processor puts there: bos, [CLS]
     */
    TOKENIZER_WRAP = 2,
    /* The text goes on from another one: no space is put before it (encode), and its first token
     * keeps its space (decode). */
    TOKENIZER_CONTINUED = 4
};

/* What one thread needs to encode: buffers and a cache of words; about 4 MiB.
 * tokenizer_encoder_create() returns 0 and an encoder for tokenizer_encoder_destroy(), which is to
 * go before its tokenizer, or -1 with err set. */
struct tokenizer_encoder;
int tokenizer_encoder_create(struct tokenizer_encoder **encoder, const struct tokenizer *tokenizer,
                             struct error *err);
void tokenizer_encoder_destroy(struct tokenizer_encoder *encoder);

/* Tokens of text: *ids belongs to the encoder and is valid until its next call.  Memory grows with
 * the longest text; tokenizer_cut() divides long ones.  Returns 0, or -1 with err set: memory is
 * out, a pattern of the file takes too long. */
int tokenizer_encoder_run(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                          int flags, const uint32_t **ids, int64_t *count, struct error *err);

/* How many bytes of the text of the last call were no UTF-8 and became U+FFFD. */
size_t tokenizer_encoder_broken(const struct tokenizer_encoder *encoder);

/* As tokenizer_encoder_run(), with an encoder for this call alone, for short texts; *ids is free()d
 * by the caller. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, int flags,
                     uint32_t **ids, int64_t *count, struct error *err);

/* text with U+FFFD for what is no UTF-8, which "bytes" may decode to; of *length bytes, free() it.
 */
char *tokenizer_utf8(const char *text, size_t bytes, size_t *length);

/* Ids that TOKENIZER_WRAP puts before and after any text, such as that which begins texts; an end
 * of text at the very end is left out, as it goes behind documents in any case.  Returns 0 and what
 * tokenizer_wrap_free() frees, or -1 with err set. */
struct tokenizer_wrap {
    uint32_t *before, *after;
    int64_t before_count, after_count;
};
int tokenizer_wrap_find(struct tokenizer_wrap *wrap, const struct tokenizer *tokenizer,
                        struct error *err);
void tokenizer_wrap_free(struct tokenizer_wrap *wrap);

/* The last place in text, from 1 to bytes - 1, where it can be cut in two: ids of the first part
 * and, with TOKENIZER_CONTINUED, of the rest are together ids of the whole, whatever follows these
 * bytes.  0: there is none, or none is known for this tokenizer's patterns; encode it whole. */
size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t bytes);

/* Ids to text, one after the other, in whole characters: the bytes of one may be in several tokens.
 * The text of a call is valid until the next; the last one ends with tokenizer_decoder_finish(),
 * which gives what was held back (a character that never became whole is U+FFFD) and makes the
 * decoder as new.  Ids that are none have no text.  Not one decoder for several threads.
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

/* The whole text of ids; free() it.  A 0 follows it. */
char *tokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, int64_t count,
                       int flags, size_t *bytes);

#endif
