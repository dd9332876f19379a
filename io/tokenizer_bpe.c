/* tokenizer_bpe.c - byte pair encoding.
 *
 * A word begins as one token (symbol) per byte or character.  As long as two neighbours have a
 * merge, the pair whose merge has the least rank is replaced by the merge's token, the leftmost of
 * pairs of equal rank.  With the merges "h e" (rank 0) and "he n" (rank 1): t h e n, t he n, t hen.
 *
 * Most words are short: up to SHORT symbols the least rank is found by looking at the ranks of all
 * pairs.  The pairs of a longer word are on a heap and its symbols in a linked list; an entry of
 * the heap whose pair is no longer in the word is dropped when it is popped.
 */
#include "io/tokenizer_bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { SHORT = 48, GONE = -1 };

/* A token of a long word. */
struct tokenizer_symbol {
    uint32_t id;
    int32_t before, after; /* indices of its neighbours; GONE: none.  before == its own index: it
                            * was merged into the symbol before it */
};

/* An entry of the heap: a pair that has a merge. */
struct tokenizer_pair_at {
    uint32_t rank; /* of the merge */
    int32_t at;    /* index of the pair's left symbol */
    uint32_t id;   /* token that the merge makes */
};

/* Short words */

/* Set rank[at] to the rank of the merge of ids[at] and ids[at + 1], and made[at] to its token.
 * Without such a merge rank[at] is UINT32_MAX. */
static void look_up(const struct tokenizer_bpe *bpe, const uint32_t *ids, int at, int count,
                    uint32_t *rank, uint32_t *made)
{
    rank[at] = UINT32_MAX;
    if (at < 0 || at + 1 >= count)
        return;
    const struct tokenizer_pair *pair = tokenizer_bpe_pair(bpe, ids[at], ids[at + 1]);
    if (pair->key) {
        rank[at] = pair->rank;
        made[at] = pair->id;
    }
}

/* Merge count ids, at most SHORT, in place.  Returns how many are left. */
static int merge_short(const struct tokenizer_bpe *bpe, uint32_t *ids, int count)
{
    uint32_t ranks[SHORT + 1], made[SHORT + 1];
    for (int i = 0; i < count; i++)
        look_up(bpe, ids, i, count, ranks, made);
    for (;;) {
        int best = 0;
        for (int i = 1; i < count - 1; i++)
            best = ranks[i] < ranks[best] ? i : best;
        if (count < 2 || ranks[best] == UINT32_MAX)
            return count;
        ids[best] = made[best];
        count--;
        size_t after = (size_t)(count - best - 1) * sizeof *ids;
        memmove(ids + best + 1, ids + best + 2, after);
        memmove(ranks + best + 1, ranks + best + 2, after);
        memmove(made + best + 1, made + best + 2, after);
        look_up(bpe, ids, best, count, ranks, made);
        if (best)
            look_up(bpe, ids, best - 1, count, ranks, made);
    }
}

/* Long words */

static int is_less(const struct tokenizer_pair_at *a, const struct tokenizer_pair_at *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct tokenizer_pair_at *heap, size_t *count, struct tokenizer_pair_at entry)
{
    size_t at = (*count)++;
    for (; at && is_less(&entry, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = entry;
}

static struct tokenizer_pair_at pop(struct tokenizer_pair_at *heap, size_t *count)
{
    struct tokenizer_pair_at top = heap[0], last = heap[--*count];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < *count) {
        child += child + 1 < *count && is_less(&heap[child + 1], &heap[child]);
        if (!is_less(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* Add the pair of symbol `at` and the one after it to the heap, if it has a merge. */
static void push_pair(struct tokenizer_encoder *encoder, int32_t at, size_t *count)
{
    const struct tokenizer_symbol *symbols = encoder->symbols;
    if (at == GONE || symbols[at].after == GONE)
        return;
    const struct tokenizer_pair *pair =
        tokenizer_bpe_pair(encoder->data->bpe, symbols[at].id, symbols[symbols[at].after].id);
    if (pair->key)
        push(encoder->heap, count,
             (struct tokenizer_pair_at){.rank = pair->rank, .at = at, .id = pair->id});
}

/* Returns 1 if the pair that an entry was made for is still in the word. */
static int is_there(const struct tokenizer_encoder *encoder, const struct tokenizer_pair_at *entry)
{
    const struct tokenizer_symbol *symbol = &encoder->symbols[entry->at];
    if (symbol->before == entry->at || symbol->after == GONE)
        return 0;
    const struct tokenizer_pair *pair =
        tokenizer_bpe_pair(encoder->data->bpe, symbol->id, encoder->symbols[symbol->after].id);
    return pair->key && pair->id == entry->id;
}

/* Do the merge of an entry: the left symbol becomes the merge's token, the right one is taken out,
 * and the pairs of the new token with its two neighbours go onto the heap. */
static void merge_at(struct tokenizer_encoder *encoder, const struct tokenizer_pair_at *entry,
                     size_t *count)
{
    struct tokenizer_symbol *symbols = encoder->symbols, *symbol = &symbols[entry->at];
    int32_t gone = symbol->after;
    symbol->id = entry->id;
    symbol->after = symbols[gone].after;
    if (symbol->after != GONE)
        symbols[symbol->after].before = entry->at;
    symbols[gone].before = gone;
    push_pair(encoder, symbol->before, count);
    push_pair(encoder, entry->at, count);
}

/* Make space for a word of count symbols.  The heap has at most count - 1 entries at first, and
 * each of at most count - 1 merges adds two.  Returns 0, or -1 with err set. */
static int need_long(struct tokenizer_encoder *encoder, size_t count, struct error *err)
{
    if (count <= encoder->symbol_capacity)
        return 0;
    free(encoder->symbols);
    free(encoder->heap);
    encoder->symbols = malloc(count * sizeof *encoder->symbols);
    encoder->heap = malloc(3 * count * sizeof *encoder->heap);
    encoder->symbol_capacity = encoder->symbols && encoder->heap ? count : 0;
    return encoder->symbol_capacity ? 0
                                    : error_set(err, "out of memory: a word of %zu bytes", count);
}

/* Merge *count ids in place; *count becomes how many are left.  Returns 0, or -1 with err set:
 * memory is out. */
static int merge_long(struct tokenizer_encoder *encoder, uint32_t *ids, int64_t *count,
                      struct error *err)
{
    size_t entries = 0;
    int64_t left = 0;
    if (need_long(encoder, (size_t)*count, err))
        return -1;
    for (int32_t i = 0; i < *count; i++)
        encoder->symbols[i] = (struct tokenizer_symbol){
            .id = ids[i], .before = i - 1, .after = i + 1 < *count ? i + 1 : GONE};
    for (int32_t i = 0; i < *count; i++)
        push_pair(encoder, i, &entries);
    while (entries) {
        struct tokenizer_pair_at entry = pop(encoder->heap, &entries);
        if (is_there(encoder, &entry))
            merge_at(encoder, &entry, &entries);
    }
    for (int32_t i = 0; i != GONE; i = encoder->symbols[i].after)
        ids[left++] = encoder->symbols[i].id;
    *count = left;
    return 0;
}

/* Merge the ids from encoder->ids[first] on until no merge is left.  Returns 0, or -1 with err set:
 * memory is out. */
static int merge_all(struct tokenizer_encoder *encoder, int64_t first, struct error *err)
{
    const struct tokenizer_bpe *bpe = encoder->data->bpe;
    int64_t count = encoder->count - first;
    uint32_t *ids = encoder->ids + first;
    if (count > SHORT && merge_long(encoder, ids, &count, err))
        return -1;
    if (count > 1 && count <= SHORT)
        count = merge_short(bpe, ids, (int)count);
    encoder->count = first + count;
    return 0;
}

/* Words */

/* If the file says ignore_merges and the word is a token, append it and return 1; else return 0. */
static int is_whole(struct tokenizer_encoder *encoder, const char *word, size_t bytes)
{
    const struct tokenizer_bpe *bpe = encoder->data->bpe;
    int64_t id = bpe->ignore_merges ? tokenizer_vocab_find(&bpe->words, word, bytes) : -1;
    if (id < 0)
        return 0;
    encoder->ids[encoder->count++] = (uint32_t)id;
    return 1;
}

/* A run of unknown characters.  Each becomes the token unk, or, with fuse_unk, all together one.
 * The last unk is held back until a token of the vocabulary or the word's end follows.  Tokens of
 * the byte fallback do not end a run, as in `tokenizers`. */
struct unknown {
    int is_held;
};

/* Take an unknown character into the run.  A tokenizer without unk leaves it out. */
static void add_unknown(struct tokenizer_encoder *encoder, struct unknown *unknown)
{
    const struct tokenizer_bpe *bpe = encoder->data->bpe;
    if (bpe->unk < 0)
        return;
    if (unknown->is_held && !bpe->fuse_unk)
        encoder->ids[encoder->count++] = (uint32_t)bpe->unk;
    unknown->is_held = 1;
}

/* End the run: append the unk that is held back, if there is one. */
static void end_unknown(struct tokenizer_encoder *encoder, struct unknown *unknown)
{
    if (unknown->is_held)
        encoder->ids[encoder->count++] = (uint32_t)encoder->data->bpe->unk;
    unknown->is_held = 0;
}

/* Append the ids of a word whose symbols are bytes (struct tokenizer_model.encode). */
static int encode_bytes(struct tokenizer_encoder *encoder, const char *word, size_t bytes,
                        struct error *err)
{
    const struct tokenizer_bpe *bpe = encoder->data->bpe;
    struct unknown unknown = {0};
    if (tokenizer_encoder_need(encoder, bytes + 1, err))
        return -1;
    int64_t first = encoder->count;
    if (is_whole(encoder, word, bytes))
        return 0;
    for (size_t i = 0; i < bytes; i++) {
        int64_t id = bpe->byte_id[(unsigned char)word[i]];
        if (id < 0) {
            add_unknown(encoder, &unknown);
            continue;
        }
        end_unknown(encoder, &unknown);
        encoder->ids[encoder->count++] = (uint32_t)id;
    }
    end_unknown(encoder, &unknown);
    return merge_all(encoder, first, err);
}

/* Append the tokens "<0xHH>" of a character's bytes and return 1; or return 0 where the file does
 * not say byte_fallback or lacks one of them. */
static int fall_back(struct tokenizer_encoder *encoder, const char *text, size_t bytes)
{
    const struct tokenizer_bpe *bpe = encoder->data->bpe;
    for (size_t i = 0; i < bytes; i++)
        if (!bpe->byte_fallback || bpe->byte_id[(unsigned char)text[i]] < 0)
            return 0;
    for (size_t i = 0; i < bytes; i++)
        encoder->ids[encoder->count++] = (uint32_t)bpe->byte_id[(unsigned char)text[i]];
    return 1;
}

/* Append the ids of a word whose symbols are characters (struct tokenizer_model.encode). */
static int encode_characters(struct tokenizer_encoder *encoder, const char *word, size_t bytes,
                             struct error *err)
{
    const struct tokenizer_bpe *bpe = encoder->data->bpe;
    struct unknown unknown = {0};
    if (tokenizer_encoder_need(encoder, bytes + 1, err))
        return -1;
    int64_t first = encoder->count;
    if (is_whole(encoder, word, bytes))
        return 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        tokenizer_code(word + at, &length);
        int64_t id = tokenizer_vocab_find(&bpe->words, word + at, length);
        if (id >= 0) {
            end_unknown(encoder, &unknown);
            encoder->ids[encoder->count++] = (uint32_t)id;
        } else if (!fall_back(encoder, word + at, length)) {
            add_unknown(encoder, &unknown);
        }
    }
    end_unknown(encoder, &unknown);
    return merge_all(encoder, first, err);
}

void tokenizer_bpe_free(struct tokenizer_bpe *bpe)
{
    if (!bpe)
        return;
    tokenizer_vocab_free(&bpe->words);
    free(bpe->pairs);
    free(bpe);
}

const struct tokenizer_model tokenizer_byte_bpe = {.name = "byte-bpe",
                                                   .type = "BPE",
                                                   .byte_level = 1,
                                                   .read = tokenizer_bpe_read,
                                                   .encode = encode_bytes};
const struct tokenizer_model tokenizer_char_bpe = {
    .name = "bpe", .type = "BPE", .read = tokenizer_bpe_read, .encode = encode_characters};
