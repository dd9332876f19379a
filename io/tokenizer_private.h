/* tokenizer_private.h - what the files io/tokenizer*.c share.
 *
 * A text goes through these steps; any but the model may be absent:
 *
 *     repair     bytes that are not UTF-8 become U+FFFD                 tokenizer_unicode.c
 *     added      texts of added tokens are cut out, and become ids      tokenizer_added.c
 *     normalize  the text between them: NFC, lower case, spaces...      tokenizer_normalize.c
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

/* An array of bytes that grows. */
struct tokenizer_buffer {
    char *text;
    size_t bytes, capacity;
};

/* A kind of model: how words become ids.  There is one row for each kind. */
struct tokenizer_model {
    const char *name; /* the tokenizer's name begins with it */
    const char *type; /* model.type in tokenizer.json; NULL: the model is in no file */
    int byte_level;   /* 1: words are of ByteLevel's letters, which stand for bytes */
    int takes_bytes;  /* 1: takes any bytes; 0: UTF-8 only */
    /* Read the file's "model" into data.  Returns 0, or -1 with err set. */
    int (*read)(struct tokenizer_data *data, const struct js *model, struct error *err);
    /* Append the ids of a word of 1 byte or more to encoder->ids.  Returns 0, or -1 with err set.
     */
    int (*encode)(struct tokenizer_encoder *encoder, const char *word, size_t bytes,
                  struct error *err);
};

/* A normalizer is a list of rules, each of which makes a new text of a text. */
struct tokenizer_rule {
    /* Append the new text to out (tokenizer_normalize.h).  Returns 0, or -1 with err set. */
    int (*apply)(const struct tokenizer_rule *rule, struct tokenizer_encoder *encoder,
                 const char *text, size_t bytes, struct tokenizer_buffer *out, struct error *err);
    enum tokenizer_form form;      /* NFC and the like: the normal form */
    unsigned classes;              /* characters of these classes are left out */
    int left, right;               /* Strip: 1 for the ends at which spaces are left out */
    char *from, *to;               /* Replace: `from`, or, where it is NULL, regex, by `to` */
    struct tokenizer_regex *regex; /* Replace: a pattern; NULL: none */
};

/* A pre-tokenizer is a list of steps, each of which cuts every piece that the step before it made.
 * The behavior is what happens to a match; the names are those of `tokenizers`. */
enum tokenizer_behavior {
    TOKENIZER_REMOVED,
    TOKENIZER_ISOLATED,
    TOKENIZER_MERGED_WITH_PREVIOUS,
    TOKENIZER_MERGED_WITH_NEXT,
    TOKENIZER_CONTIGUOUS
};

/* A step first changes the text of a piece, if it has prefix or space; then it cuts the piece, if
 * it has find or scan. */
struct tokenizer_step {
    char *prefix;   /* put before a piece that does not begin with it; NULL: nothing */
    int first_only; /* 1: prefix is only put before the first piece of a text */
    char *space;    /* put in place of each ' '; NULL: nothing */
    /* Find the first match that begins at byte `from` or after it.  Returns 1 with the match in
     * bytes [*start, *end), 0: there is none, -1 with err set. */
    int (*find)(const struct tokenizer_step *step, struct tokenizer_encoder *encoder,
                const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
                struct error *err);
    tokenizer_scan *scan; /* used in place of find where matches lie end to end */
    /* What find looks for: one of these. */
    struct tokenizer_regex *regex;
    char *literal;
    unsigned classes;
    enum tokenizer_behavior behavior;
    int invert; /* 1: the text between matches is taken as the matches */
};

/* Where a piece is: at the beginning of a text (it may get a space before it), inside, or at the
 * beginning of a text that continues another one (TOKENIZER_CONTINUED). */
enum tokenizer_place { TOKENIZER_FIRST, TOKENIZER_INSIDE, TOKENIZER_GOES_ON };

/* A decoder is a list of steps, each of which changes the text of a token. */
struct tokenizer_undo {
    void (*apply)(const struct tokenizer_undo *undo, struct tokenizer_decoder *decoder,
                  struct tokenizer_buffer *text);
    char *from, *to; /* from: the text that is replaced or stripped, or WordPiece's prefix */
    int64_t count; /* Strip: most `from` to strip; Metaspace: 1: none becomes a space in token 1 */
    int whole;     /* Strip: 1: from the front of the whole text, 0: of each token */
    int cleanup;   /* WordPiece: its member "cleanup" */
};

enum { TOKENIZER_MOST_STEPS = 32 };

/* The texts of added tokens are kept in a tree, one node per byte: the path from the root to a node
 * spells the beginning of a text. */
struct tokenizer_added_node {
    uint32_t child, sibling; /* 0: none */
    int32_t token;           /* of tokenizer_added.tokens; -1: none ends here */
    unsigned char byte;
};

struct tokenizer_added_token {
    uint32_t id;
    int special, single_word; /* as tokenizer.json says */
    int left, right;          /* 1: spaces on this side of the token belong to it */
};

/* The added tokens that are looked for before the text is normalized, or those looked for after. */
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
    uint16_t *classes;               /* tokenizer_unicode_classes(); NULL: "bytes" */
    struct tokenizer_added added[2]; /* before and after normalizing */
    struct tokenizer_rule rules[TOKENIZER_MOST_STEPS];
    struct tokenizer_step steps[TOKENIZER_MOST_STEPS];
    struct tokenizer_undo undos[TOKENIZER_MOST_STEPS];
    int rule_count, step_count, undo_count;
    int is_byte_level;        /* 1: words are of letters that stand for bytes */
    int is_fused;             /* while the decoder is read: a Fuse step was seen */
    int joins;                /* 1: there is no decoder, and tokens are joined with spaces */
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

/* The state of one thread. */
struct tokenizer_encoder {
    const struct tokenizer *tokenizer;
    const struct tokenizer_data *data; /* the tokenizer's */
    int flags;                         /* enum tokenizer_flags of this call */
    uint32_t *ids;                     /* [count] of the text so far */
    int64_t count, capacity;
    size_t broken; /* bytes of the text that are not UTF-8 */
    /* the text after each step: repaired, normalized (two that alternate), a word, cut by each
     * step */
    struct tokenizer_buffer repaired, normal[2], word, step[TOKENIZER_MOST_STEPS];
    struct tokenizer_match *match;
    struct tokenizer_cache_entry *cache;
    struct tokenizer_symbol *symbols; /* of tokenizer_bpe.c */
    struct tokenizer_pair_at *heap;
    size_t symbol_capacity, heap_capacity;
};

/* Make space for `more` ids after encoder->ids[count - 1].  Returns 0, or -1 with err set. */
int tokenizer_encoder_need(struct tokenizer_encoder *encoder, size_t more, struct error *err);

/* Append text to a buffer.  Where memory is out, the process ends (base/array.h). */
void tokenizer_buffer_add(struct tokenizer_buffer *buffer, const char *text, size_t bytes);

/* tokenizer_normalize.c: apply all rules to text.  *normal becomes the result, which is in a buffer
 * of the encoder; without rules it is text itself.  Returns 0, or -1 with err set. */
int tokenizer_normalize(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                        enum tokenizer_place place, const char **normal, size_t *normal_bytes,
                        struct error *err);
int tokenizer_read_rules(struct tokenizer_data *data, const struct js *normalizer,
                         struct error *err);

/* tokenizer_split.c: cut a piece by the steps from number `step` on, and encode the words that it
 * becomes.  Returns 0, or -1 with err set. */
int tokenizer_split(struct tokenizer_encoder *encoder, int step, const char *text, size_t bytes,
                    enum tokenizer_place place, struct error *err);
/* tokenizer_read_steps.c */
int tokenizer_read_steps(struct tokenizer_data *data, const struct js *pre_tokenizer,
                         struct error *err);

/* tokenizer_cache.c: append the ids of a word to encoder->ids, from the encoder's cache of words or
 * by the model.  Returns 0, or -1 with err set. */
int tokenizer_cache_encode(struct tokenizer_encoder *encoder, const char *word, size_t bytes,
                           struct error *err);

/* tokenizer_added.c: tokenizer_added_add() adds a token's text to a set.  tokenizer_added_find()
 * finds the next added token in text that begins at byte `from` or after it; it returns 1 with the
 * token and its bytes [*start, *end), or 0: there is none. */
void tokenizer_added_add(struct tokenizer_added *added, const char *text, size_t bytes,
                         struct tokenizer_added_token token);
int tokenizer_added_find(const struct tokenizer_added *added, const char *text, size_t bytes,
                         size_t from, size_t *start, size_t *end,
                         const struct tokenizer_added_token **token);
void tokenizer_added_free(struct tokenizer_added *added);

/* tokenizer_decode.c and tokenizer_undo.c */
int tokenizer_read_undos(struct tokenizer_data *data, const struct js *decoder, struct error *err);
/* tokenizer_decoder_began() returns 1 after the decoder's first token.  tokenizer_decoder_strips()
 * returns a pointer to the number of texts that a Strip of the whole text may still strip;
 * negative: the Strip has not begun. */
int tokenizer_decoder_began(const struct tokenizer_decoder *decoder);
int64_t *tokenizer_decoder_strips(struct tokenizer_decoder *decoder);

/* tokenizer_bpe.c, tokenizer_wordpiece.c */
extern const struct tokenizer_model tokenizer_bytes, tokenizer_byte_bpe, tokenizer_char_bpe,
    tokenizer_word_pieces;
void tokenizer_bpe_free(struct tokenizer_bpe *bpe);
void tokenizer_wordpiece_free(struct tokenizer_wordpiece *wordpiece);

#endif
