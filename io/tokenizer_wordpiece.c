/* tokenizer_wordpiece.c - WordPiece.
 *
 * A word is divided from the left: the longest token that the rest of the word begins with is taken
 * off, until nothing is left.  Tokens that do not begin a word are in the vocabulary with a prefix:
 * "tokens" becomes "token", "##s".  A word that cannot be divided, or has too many characters,
 * becomes the unknown token as a whole. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_read.h"

struct tokenizer_wordpiece {
    struct tokenizer_vocab first;  /* all tokens as the file spells them; they may begin a word */
    struct tokenizer_vocab inner;  /* tokens with the prefix, spelled without it */
    size_t most_first, most_inner; /* bytes of the longest token of each */
    int64_t most_characters;       /* of a word; a longer one is unknown */
    int64_t unk;                   /* id of the unknown token */
};

/* Returns the number of characters of a word of valid UTF-8. */
static size_t count_characters(const char *word, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)word[i] & 0xc0) != 0x80;
    return count;
}

/* Find the longest token with which the rest of a word, from byte at on, begins.  Returns its
 * bytes, with its id in *id, or 0. */
static size_t longest(const struct tokenizer_wordpiece *model, const char *word, size_t at,
                      size_t bytes, uint32_t *id)
{
    const struct tokenizer_vocab *vocab = at ? &model->inner : &model->first;
    size_t most = at ? model->most_inner : model->most_first;
    for (size_t length = bytes - at < most ? bytes - at : most; length; length--) {
        if (at + length < bytes && ((unsigned char)word[at + length] & 0xc0) == 0x80)
            continue; /* within a character */
        int64_t found = tokenizer_vocab_find(vocab, word + at, length);
        if (found >= 0) {
            *id = (uint32_t)found;
            return length;
        }
    }
    return 0;
}

/* Append the ids of a word (struct tokenizer_model.encode). */
static int encode_word(struct tokenizer_encoder *encoder, const char *word, size_t bytes,
                       struct error *err)
{
    const struct tokenizer_wordpiece *model = encoder->data->wordpiece;
    int64_t first = encoder->count;
    int is_known = (int64_t)count_characters(word, bytes) <= model->most_characters;
    if (tokenizer_encoder_need(encoder, bytes + 1, err))
        return -1;
    for (size_t at = 0, length; is_known && at < bytes; at += length) {
        length = longest(model, word, at, bytes, &encoder->ids[encoder->count]);
        is_known = length > 0;
        encoder->count += is_known;
    }
    if (!is_known) {
        encoder->ids[first] = (uint32_t)model->unk;
        encoder->count = first + 1;
    }
    return 0;
}

/* Fill model->inner with the tokens of model->first that have the prefix, and measure both. */
static void divide_vocabulary(struct tokenizer_wordpiece *model, const char *prefix)
{
    size_t bytes, prefix_bytes = strlen(prefix);
    for (int64_t id = 0; id < model->first.size; id++) {
        const char *text = tokenizer_vocab_text(&model->first, id, &bytes);
        if (!text)
            continue;
        model->most_first = bytes > model->most_first ? bytes : model->most_first;
        if (bytes <= prefix_bytes || memcmp(text, prefix, prefix_bytes))
            continue;
        bytes -= prefix_bytes;
        model->most_inner = bytes > model->most_inner ? bytes : model->most_inner;
        tokenizer_vocab_add(&model->inner, text + prefix_bytes, bytes, (uint32_t)id);
    }
}

/* Read the file's "model" (struct tokenizer_model.read). */
static int read_model(struct tokenizer_data *data, const struct js *json, struct error *err)
{
    struct tokenizer_wordpiece *model = data->wordpiece = array_make(1, sizeof *model);
    const char *prefix, *unk;
    if (tokenizer_read_text(json, "continuing_subword_prefix", "##", &prefix, err) ||
        tokenizer_read_text(json, "unk_token", "[UNK]", &unk, err) ||
        tokenizer_read_int(json, "max_input_chars_per_word", 100, &model->most_characters, err) ||
        tokenizer_read_vocab(json, &model->first, err))
        return -1;
    model->unk = tokenizer_vocab_find(&model->first, unk, strlen(unk));
    if (model->unk < 0)
        return error_set(err, "unk_token \"%.100s\" is not in the vocabulary", unk);
    divide_vocabulary(model, prefix);
    return 0;
}

void tokenizer_wordpiece_free(struct tokenizer_wordpiece *model)
{
    if (!model)
        return;
    tokenizer_vocab_free(&model->first);
    tokenizer_vocab_free(&model->inner);
    free(model);
}

const struct tokenizer_model tokenizer_word_pieces = {
    .name = "wordpiece", .type = "WordPiece", .read = read_model, .encode = encode_word};
