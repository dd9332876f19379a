/* tokenizer_private.h - what the files io/tokenizer*.c share.
 *
 * A text goes through these steps; all but the model may be absent:
 *
 *     repair     what is no UTF-8 becomes U+FFFD                        tokenizer_unicode.c
 *     added      texts of added tokens are cut out                      tokenizer_added.c
 *     normalize  between them: NFC, lower case, spaces...               tokenizer_normalize.c
 *     split      into words, which no token crosses                     tokenizer_split.c
 *     model      a word to ids: a row of the table of models            tokenizer_bpe.c, ...
 *     wrap       ids before and after the text                          tokenizer_read.c
 */
#ifndef TRIREME_IO_TOKENIZER_PRIVATE_H
#define TRIREME_IO_TOKENIZER_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "io/tokenizer.h"
#include "io/tokenizer_regex.h"
#include "io/tokenizer_scan.h"
#include "io/tokenizer_unicode.h"
#include "io/tokenizer_vocab.h"

struct js;
struct tokenizer_data;
struct tokenizer_encoder;

/* Bytes that grow. */
struct tokenizer_buffer {
    char *text;
    size_t bytes, capacity;
};

/* A model: how words become ids, and ids text.  One row each. */
struct tokenizer_model {
    const char *name; /* begins the tokenizer's */
    const char *type; /* model.type in tokenizer.json; NULL: in none */
    int byte_level;   /* for words of ByteLevel's letters, or (0) for others */
    int takes_bytes;  /* any bytes, not UTF-8 alone */
    /* Read the file's "model" into data.  Returns 0, or -1 with err set. */
    int (*read)(struct tokenizer_data *data, const struct js *model, struct error *err);
    /* Append the ids of a word to the encoder's; a word is never empty. */
    int (*encode)(struct tokenizer_encoder *encoder, const char *word, size_t bytes,
                  struct error *err);
};

/* Normalizers: a list of rules, each of which writes a text anew. */
struct tokenizer_rule {
    int (*apply)(const struct tokenizer_rule *rule, struct tokenizer_encoder *encoder,
                 const char *text, size_t bytes, struct tokenizer_buffer *out, struct error *err);
    enum tokenizer_form form; /* normal forms */
    unsigned classes;         /* of the characters to leave out */
    int left, right;          /* Strip: at which ends */
    char *from, *to;          /* Replace: a text, or (from is NULL) a pattern, by another */
    struct tokenizer_regex *regex;
};

/* Pre-tokenizers: a list of steps, each of which cuts every piece of the one before. */
enum tokenizer_behavior {
    TOKENIZER_REMOVED,
    TOKENIZER_ISOLATED,
    TOKENIZER_MERGED_WITH_PREVIOUS,
    TOKENIZER_MERGED_WITH_NEXT,
    TOKENIZER_CONTIGUOUS
};

/* First the text changes, where prefix or space is there; then it is cut, where find or scan is. */
struct tokenizer_step {
    char *prefix;   /* put before a piece that does not begin with it */
    int first_only; /* before the first piece of a text alone */
    char *space;    /* put in place of each ' ' */
    /* The first match at `from` or behind it: 1 and its place, 0: none, -1: err is set. */
    int (*find)(const struct tokenizer_step *step, struct tokenizer_encoder *encoder,
                const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
                struct error *err);
    tokenizer_scan *scan; /* in place of find: matches end to end */
    struct tokenizer_regex *regex;
    char *literal;
    unsigned classes;
    enum tokenizer_behavior behavior;
    int invert; /* a match is what is between matches */
};

/* Where a piece of text is: what begins a text may get a space before it. */
enum tokenizer_place { TOKENIZER_FIRST, TOKENIZER_INSIDE, TOKENIZER_GOES_ON };

/* Decoders: a list of steps, each of which changes the text of a token. */
struct tokenizer_undo {
    void (*apply)(const struct tokenizer_undo *undo, struct tokenizer_decoder *decoder,
                  struct tokenizer_buffer *text);
    char *from, *to;
    int64_t count; /* Strip: how many */
    int whole;     /* Strip: of the whole text, not of each token */
    int cleanup;   /* WordPiece */
};

enum { TOKENIZER_MOST_STEPS = 32 };

/* Added tokens, in a tree of their bytes: one node per byte. */
struct tokenizer_added_node {
    uint32_t child, sibling; /* 0: none */
    int32_t token;           /* of tokenizer_added.tokens; -1: none ends here */
    unsigned char byte;
};

struct tokenizer_added_token {
    uint32_t id;
    int special, single_word, left, right; /* left, right: spaces there go with it */
};

/* Those that are looked for before the text is normalized, or those after. */
struct tokenizer_added {
    struct tokenizer_added_node *nodes; /* [0]: the root */
    struct tokenizer_added_token *tokens;
    int node_count, node_capacity, count, capacity;
    uint32_t root[256]; /* the root's children by byte */
};

struct tokenizer_bpe;
struct tokenizer_wordpiece;

/* Where tokenizer_cut() may cut. */
enum tokenizer_cuts { TOKENIZER_CUT_NOWHERE, TOKENIZER_CUT_BLANK, TOKENIZER_CUT_SPACE };

struct tokenizer_data {
    const struct tokenizer_model *model;
    struct tokenizer_vocab texts;    /* every token as the file spells it */
    uint8_t *flags;                  /* [vocab] enum tokenizer_token_flags */
    uint16_t *classes;               /* of characters; NULL: "bytes" */
    struct tokenizer_added added[2]; /* before and after normalizing */
    struct tokenizer_rule rules[TOKENIZER_MOST_STEPS];
    struct tokenizer_step steps[TOKENIZER_MOST_STEPS];
    struct tokenizer_undo undos[TOKENIZER_MOST_STEPS];
    int rule_count, step_count, undo_count;
    int is_byte_level;        /* words are of letters that stand for bytes */
    int is_fused;             /* what is read of the decoder is behind a Fuse */
    int joins;                /* no decoder: tokens are joined with spaces */
    uint32_t *before, *after; /* ids put around a text */
    int before_count, after_count;
    enum tokenizer_cuts cuts;
    struct tokenizer_bpe *bpe;
    struct tokenizer_wordpiece *wordpiece;
};

enum tokenizer_token_flags {
    TOKENIZER_IS_SPECIAL = 1,
    TOKENIZER_IS_STOP = 2,
    TOKENIZER_IS_ADDED = 4
};

/* The state of one thread.  ids[count] are those of the text so far. */
struct tokenizer_encoder {
    const struct tokenizer *tokenizer;
    const struct tokenizer_data *data;
    int flags;
    uint32_t *ids;
    int64_t count, capacity;
    size_t broken; /* bytes of the text that are no UTF-8 */
    struct tokenizer_buffer repaired, normal[2], word, step[TOKENIZER_MOST_STEPS];
    struct tokenizer_match *match;
    struct tokenizer_cache_entry *cache;
    struct tokenizer_symbol *symbols; /* of tokenizer_bpe.c */
    struct tokenizer_pair_at *heap;
    size_t symbol_capacity, heap_capacity;
};

/* Space for `more` ids behind the encoder's.  Returns 0, or -1 with err set. */
int tokenizer_encoder_need(struct tokenizer_encoder *encoder, size_t more, struct error *err);

/* Append to a buffer; memory that is out ends the process (base/array.h). */
void tokenizer_buffer_add(struct tokenizer_buffer *buffer, const char *text, size_t bytes);

/* tokenizer_normalize.c: the normal text of a section, in a buffer of the encoder's (or text itself
 * without rules).  Returns 0, or -1 with err set. */
int tokenizer_normalize(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                        enum tokenizer_place place, const char **normal, size_t *normal_bytes,
                        struct error *err);
int tokenizer_read_rules(struct tokenizer_data *data, const struct js *normalizer,
                         struct error *err);

/* tokenizer_split.c: cut text, a piece behind the first `step` steps, further, and encode the
 * words. */
int tokenizer_split(struct tokenizer_encoder *encoder, int step, const char *text, size_t bytes,
                    enum tokenizer_place place, struct error *err);
/* tokenizer_read_steps.c */
int tokenizer_read_steps(struct tokenizer_data *data, const struct js *pre_tokenizer,
                         struct error *err);

/* tokenizer_cache.c: encode a word by the model, or by the encoder's cache of words. */
int tokenizer_cache_encode(struct tokenizer_encoder *encoder, const char *word, size_t bytes,
                           struct error *err);

/* tokenizer_added.c: add a token's text to a set; and the next added token in text at `from` or
 * behind it, 1 with its place and token, 0: none. */
void tokenizer_added_add(struct tokenizer_added *added, const char *text, size_t bytes,
                         struct tokenizer_added_token token);
int tokenizer_added_find(const struct tokenizer_added *added, const char *text, size_t bytes,
                         size_t from, size_t *start, size_t *end,
                         const struct tokenizer_added_token **token);
void tokenizer_added_free(struct tokenizer_added *added);

/* tokenizer_decode.c and tokenizer_undo.c */
int tokenizer_read_undos(struct tokenizer_data *data, const struct js *decoder, struct error *err);
/* Is the decoder behind its first token?  Spaces that are still to be stripped from its text. */
int tokenizer_decoder_began(const struct tokenizer_decoder *decoder);
int64_t *tokenizer_decoder_strips(struct tokenizer_decoder *decoder);

/* tokenizer_bpe.c, tokenizer_wordpiece.c */
extern const struct tokenizer_model tokenizer_bytes, tokenizer_byte_bpe, tokenizer_char_bpe,
    tokenizer_word_pieces;
void tokenizer_bpe_free(struct tokenizer_bpe *bpe);
void tokenizer_wordpiece_free(struct tokenizer_wordpiece *wordpiece);

#endif
