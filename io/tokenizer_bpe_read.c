/* tokenizer_bpe_read.c - the model "BPE" of a tokenizer.json: a vocabulary and a list of merges, in
 * the order of their ranks, each "left right" or ["left", "right"]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_alphabet.h"
#include "io/tokenizer_bpe.h"
#include "io/tokenizer_read.h"

/* Put the bytes that a token's letters stand for (tokenizer_alphabet.h) into out.  Returns 1, or 0
 * where a character of text stands for no byte. */
static int spell(const char *text, size_t bytes, struct tokenizer_buffer *out)
{
    out->bytes = 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        int byte = tokenizer_alphabet_byte(tokenizer_code(text + at, &length));
        char character = (char)byte;
        if (byte < 0)
            return 0;
        tokenizer_buffer_add(out, &character, 1);
    }
    return 1;
}

/* Fill bpe->words with the tokens of a byte-level vocabulary, spelled in plain bytes.  Tokens with
 * characters that stand for no byte are left out: merges never make them. */
static void spell_words(struct tokenizer_bpe *bpe, const struct tokenizer_vocab *vocab)
{
    struct tokenizer_buffer word = {0};
    size_t bytes;
    for (int64_t id = 0; id < vocab->size; id++) {
        const char *text = tokenizer_vocab_text(vocab, id, &bytes);
        if (text && spell(text, bytes, &word) && word.bytes)
            tokenizer_vocab_add(&bpe->words, word.text, word.bytes, (uint32_t)id);
    }
    free(word.text);
}

/* Fill bpe->byte_id.  Returns 1 if every byte can be encoded by a token of its own, else 0. */
static int find_bytes(struct tokenizer_bpe *bpe, int byte_level)
{
    char text[8];
    int has_all = 1;
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        bpe->byte_id[i] = byte_level ? tokenizer_vocab_find(&bpe->words, &byte, 1)
                                     : tokenizer_vocab_find(&bpe->words, text, 6);
        has_all &= bpe->byte_id[i] >= 0;
    }
    return has_all && (byte_level || bpe->byte_fallback);
}

/* Merges */

/* Split merge number i into its two texts.  *left has *left_bytes bytes and may have no 0 after
 * them; *right ends in 0.  Both belong to merge.  Returns 0, or -1 with err set. */
static int split_merge(const struct js *merge, int i, const char **left, size_t *left_bytes,
                       const char **right, struct error *err)
{
    const char *text = js_string(merge), *space = text ? strchr(text, ' ') : NULL;
    if (js_length(merge) == 2 && (*left = js_string(js_at(merge, 0))) &&
        (*right = js_string(js_at(merge, 1)))) {
        *left_bytes = strlen(*left);
        return 0;
    }
    if (!space || strchr(space + 1, ' '))
        return error_set(err, "merge %d is neither \"left right\" nor [\"left\", \"right\"]", i);
    *left = text;
    *left_bytes = (size_t)(space - text);
    *right = space + 1;
    return 0;
}

/* Look up a token of merge number i.  Returns 0 with *id, or -1 with err set. */
static int find_token(const struct tokenizer_vocab *vocab, const char *text, size_t bytes, int i,
                      uint32_t *id, struct error *err)
{
    int64_t found = tokenizer_vocab_find(vocab, text, bytes);
    if (found < 0)
        return error_set(err, "merge %d has \"%.*s\", which is not in the vocabulary", i,
                         (int)(bytes < 100 ? bytes : 100), text);
    *id = (uint32_t)found;
    return 0;
}

/* Put merge number i into the table of pairs, with i as its rank.  both: a buffer to use.  Returns
 * 0, or -1 with err set. */
static int add_merge(struct tokenizer_bpe *bpe, const struct tokenizer_vocab *vocab,
                     const struct js *merge, int i, struct tokenizer_buffer *both,
                     struct error *err)
{
    const char *left = NULL, *right = NULL;
    size_t left_bytes = 0;
    uint32_t a = 0, b = 0, made = 0;
    if (split_merge(merge, i, &left, &left_bytes, &right, err))
        return -1;
    both->bytes = 0;
    tokenizer_buffer_add(both, left, left_bytes);
    tokenizer_buffer_add(both, right, strlen(right));
    if (find_token(vocab, left, left_bytes, i, &a, err) ||
        find_token(vocab, right, strlen(right), i, &b, err) ||
        find_token(vocab, both->text, both->bytes, i, &made, err))
        return -1;
    struct tokenizer_pair *pair = tokenizer_bpe_pair(bpe, a, b);
    *pair =
        (struct tokenizer_pair){.key = tokenizer_pair_key(a, b), .rank = (uint32_t)i, .id = made};
    return 0;
}

/* Returns 1 for "#version: 0.2": the first line of a merges.txt, which some lists still have. */
static int is_version(const struct js *merge)
{
    const char *text = js_string(merge);
    return text && !strncmp(text, "#version", 8);
}

static int read_merges(struct tokenizer_bpe *bpe, const struct tokenizer_vocab *vocab,
                       const struct js *model, struct error *err)
{
    const struct js *merges = js_get(model, "merges");
    struct tokenizer_buffer both = {0};
    int count = js_length(merges), rc = 0;
    if (!merges)
        return error_set(err, "it has no merges");
    for (bpe->pair_slots = 64; bpe->pair_slots < (size_t)count * 2;)
        bpe->pair_slots *= 2;
    bpe->pairs = array_make(bpe->pair_slots, sizeof *bpe->pairs);
    for (int i = 0; !rc && i < count; i++)
        if (!is_version(js_at(merges, i)))
            rc = add_merge(bpe, vocab, js_at(merges, i), i, &both, err);
    free(both.text);
    return rc;
}

/* Words within a text */

/* "▁" stands for the space in vocabularies of SentencePiece. */
static const char space[] = "\xE2\x96\x81";

/* Returns 1 if a merge makes a token that has a space after another character.  If none does, a
 * text may be cut before its spaces, and each of the words that result be encoded by itself, which
 * the cache of words makes fast. */
static int crosses_spaces(const struct tokenizer_bpe *bpe)
{
    size_t bytes;
    for (size_t i = 0; i < bpe->pair_slots; i++) {
        if (!bpe->pairs[i].key)
            continue;
        const char *text = tokenizer_vocab_text(&bpe->words, bpe->pairs[i].id, &bytes);
        while (text && !strncmp(text, space, 3))
            text += 3;
        if (!text || strstr(text, space))
            return 1;
    }
    return 0;
}

/* Returns the bytes of the word at text: its leading spaces, and all up to the next space
 * (tokenizer_scan). */
static size_t scan_spaced_word(const uint16_t *classes, const char *text, size_t bytes)
{
    size_t at = 0;
    while (bytes - at >= 3 && !memcmp(text + at, space, 3))
        at += 3;
    const char *next = memmem(text + at, bytes - at, space, 3);
    return next ? (size_t)(next - text) : bytes;
}

/* Add a step that cuts before spaces, where this changes no ids. */
static void cut_at_spaces(struct tokenizer_data *data)
{
    const struct tokenizer_bpe *bpe = data->bpe;
    int is_whole = 1; /* 1: no step before this one cuts */
    if (data->model->byte_level || bpe->ignore_merges || data->step_count == TOKENIZER_MOST_STEPS ||
        tokenizer_vocab_find(&bpe->words, space, 3) < 0 || crosses_spaces(bpe))
        return;
    for (int i = 0; i < data->step_count; i++)
        is_whole &= !data->steps[i].find && !data->steps[i].scan;
    data->steps[data->step_count++] =
        (struct tokenizer_step){.scan = scan_spaced_word, .behavior = TOKENIZER_ISOLATED};
    if (is_whole)
        data->cuts = TOKENIZER_CUT_SPACE;
}

/* The model */

/* Refuse options that trireme does not have.  Returns 0, or -1 with err set. */
static int check_options(const struct js *model, struct error *err)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *text;
    for (int i = 0; i < 2; i++) {
        if (tokenizer_read_text(model, affixes[i], "", &text, err))
            return -1;
        if (*text)
            return error_set(err, "%s \"%s\" is nothing that trireme has", affixes[i], text);
    }
    if (js_get_real(model, "dropout", 0) > 0)
        return error_set(err, "dropout is set: ids would be random");
    return 0;
}

static int read_options(struct tokenizer_bpe *bpe, const struct js *model, struct error *err)
{
    return check_options(model, err) ||
           tokenizer_read_bool(model, "byte_fallback", 0, &bpe->byte_fallback, err) ||
           tokenizer_read_bool(model, "fuse_unk", 0, &bpe->fuse_unk, err) ||
           tokenizer_read_bool(model, "ignore_merges", 0, &bpe->ignore_merges, err);
}

int tokenizer_bpe_read(struct tokenizer_data *data, const struct js *model, struct error *err)
{
    struct tokenizer_vocab vocab = {0};
    struct tokenizer_bpe *bpe = data->bpe = array_make(1, sizeof *bpe);
    const char *unk;
    int rc = read_options(bpe, model, err) || tokenizer_read_vocab(model, &vocab, err) ||
             read_merges(bpe, &vocab, model, err) ||
             tokenizer_read_text(model, "unk_token", NULL, &unk, err);
    if (!rc) {
        bpe->unk = unk ? tokenizer_vocab_find(&vocab, unk, strlen(unk)) : -1;
    }
    if (!rc && data->model->byte_level) {
        spell_words(bpe, &vocab);
    } else {
        bpe->words = vocab;
        vocab = (struct tokenizer_vocab){0};
    }
    tokenizer_vocab_free(&vocab);
    if (rc)
        return -1;
    int has_all = find_bytes(bpe, data->model->byte_level);
    if (unk && bpe->unk < 0 && !has_all)
        return error_set(err, "unk_token \"%.100s\" is not in the vocabulary", unk);
    cut_at_spaces(data);
    return 0;
}
