/* tokenizer_train.c - see tokenizer_train.h.
 *
 * 1. Count how often each different word occurs.
 * 2. Make a row of symbols of each word, at first one per byte.  Count all pairs of neighbouring
 *    symbols, those of a word as often as the word occurs, and list for every pair the words that
 *    have it.  Put all pairs on a heap, the most frequent one at the top.
 * 3. Pop a pair.  Its count on the heap is out of date where merges have changed the pair's count
 *    since: then push it again with the right count.  Else make a new symbol, put it in place of
 *    the pair in all words of the pair, and change the counts of the pairs to the left and right of
 *    each place.  Push the pairs that are new.
 * 4. Repeat step 3 until there are enough symbols, or no pair occurs twice.
 */
#include "io/tokenizer_train.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_alphabet.h"
#include "io/tokenizer_private.h"
#include "io/tokenizer_train_private.h"

/* Words */

void tokenizer_trainer_create(struct tokenizer_trainer **created)
{
    struct tokenizer_trainer *trainer = *created = array_make(1, sizeof *trainer);
    trainer->classes = tokenizer_unicode_classes();
    trainer->scan = tokenizer_scan_of(tokenizer_scan_gpt2);
    tokenizer_vocab_add(&trainer->tokens, "<|endoftext|>", 13, 0);
    trainer->specials = 1;
}

int tokenizer_trainer_add_special(struct tokenizer_trainer *trainer, const char *text, size_t bytes,
                                  struct error *err)
{
    enum { MOST_BYTES = 100 };
    int shown = (int)(bytes < MOST_BYTES ? bytes : MOST_BYTES), is_visible = bytes > 0;
    for (size_t i = 0; i < bytes; i++)
        is_visible &= text[i] > ' ' && text[i] < 127;
    if (!is_visible || bytes > MOST_BYTES)
        return error_set(err, "special token \"%.*s\": it has 1 to %d visible characters of ASCII",
                         shown, text, MOST_BYTES);
    if (bytes == 1 || tokenizer_vocab_find(&trainer->tokens, text, bytes) >= 0)
        return error_set(err, "special token \"%.*s\" is a token already", shown, text);
    if (trainer->specials > TOKENIZER_MOST_SPECIALS)
        return error_set(err, "more than %d special tokens", TOKENIZER_MOST_SPECIALS);
    tokenizer_vocab_add(&trainer->tokens, text, bytes, (uint32_t)trainer->specials++);
    return 0;
}

/* Free the tables of pairs. */
static void free_pairs(struct tokenizer_trainer *trainer)
{
    for (int i = 0; i < trainer->pair_count; i++)
        free(trainer->pairs[i].words);
    free(trainer->pairs);
    free(trainer->slots);
    free(trainer->heap);
}

void tokenizer_trainer_destroy(struct tokenizer_trainer *trainer)
{
    if (!trainer)
        return;
    free_pairs(trainer);
    tokenizer_vocab_free(&trainer->words);
    tokenizer_vocab_free(&trainer->tokens);
    free(trainer->counts);
    free(trainer->merges);
    free(trainer->symbols);
    free(trainer->starts);
    free(trainer->lengths);
    free(trainer->classes);
    free(trainer);
}

/* Count one more occurrence of a word.  Returns 0, or -1 with err set: there are too many different
 * words. */
static int count_word(struct tokenizer_trainer *trainer, const char *word, size_t bytes,
                      struct error *err)
{
    int64_t id = tokenizer_vocab_find(&trainer->words, word, bytes);
    if (id < 0) {
        id = trainer->words.count;
        if (id == TOKENIZER_MOST_IDS - 1 ||
            trainer->words.pool_bytes + bytes > UINT32_MAX - UINT16_MAX)
            return error_set(err, "the text has more than %lld different words; train on less",
                             (long long)id);
        tokenizer_vocab_add(&trainer->words, word, bytes, (uint32_t)id);
        trainer->counts =
            array_grow(trainer->counts, (int)id, &trainer->count_capacity, sizeof *trainer->counts);
    }
    trainer->counts[id]++;
    return 0;
}

int tokenizer_trainer_add(struct tokenizer_trainer *trainer, const char *text, size_t bytes,
                          struct error *err)
{
    struct tokenizer_buffer repaired = {0};
    int rc = 0;
    if (tokenizer_unicode_valid(text, bytes) < bytes) {
        tokenizer_unicode_repair(text, bytes, 0, &repaired);
        text = repaired.text;
        bytes = repaired.bytes;
    }
    for (size_t at = 0, length; !rc && at < bytes; at += length) {
        length = trainer->scan(trainer->classes, text + at, bytes - at);
        rc = count_word(trainer, text + at, length, err);
    }
    free(repaired.text);
    return rc;
}

/* A space after a letter of ASCII always begins a word: find the last one. */
size_t tokenizer_trainer_cut(const struct tokenizer_trainer *trainer, const char *text,
                             size_t bytes)
{
    for (size_t at = bytes; at-- > 1;) {
        unsigned char before = (unsigned char)text[at - 1];
        if ((trainer->classes[(unsigned char)text[at]] & TOKENIZER_SPACE) &&
            (unsigned char)text[at] < 0x80 && before < 0x80 &&
            (trainer->classes[before] & TOKENIZER_LETTER))
            return at;
    }
    return 0;
}

/* Pairs */

/* Returns the slot of the pair with this key, or the free slot (0) where it would be. */
static uint32_t *find_slot(const struct tokenizer_trainer *trainer, uint64_t key)
{
    size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (trainer->slot_count - 1);
    while (trainer->slots[at] && trainer->pairs[trainer->slots[at] - 1].key != key)
        at = (at + 1) & (trainer->slot_count - 1);
    return &trainer->slots[at];
}

/* Make sure that less than half of the slots are taken. */
static void grow_slots(struct tokenizer_trainer *trainer)
{
    if ((size_t)trainer->pair_count * 2 < trainer->slot_count)
        return;
    free(trainer->slots);
    trainer->slot_count = trainer->slot_count ? 2 * trainer->slot_count : 1024;
    trainer->slots = array_make(trainer->slot_count, sizeof *trainer->slots);
    for (int i = 0; i < trainer->pair_count; i++)
        *find_slot(trainer, trainer->pairs[i].key) = (uint32_t)i + 1;
}

/* Returns the index of a pair, which is added where there is none. */
static int need_pair(struct tokenizer_trainer *trainer, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << 32 | right;
    grow_slots(trainer);
    uint32_t *slot = find_slot(trainer, key);
    if (!*slot) {
        trainer->pairs = array_grow(trainer->pairs, trainer->pair_count, &trainer->pair_capacity,
                                    sizeof *trainer->pairs);
        trainer->pairs[trainer->pair_count++].key = key;
        *slot = (uint32_t)trainer->pair_count;
    }
    return (int)*slot - 1;
}

/* Add `change`, which may be negative, to a pair's count, for occurrences in word number `word`. If
 * the count grows, the word is listed with the pair.  Returns the pair's index. */
static int change_pair(struct tokenizer_trainer *trainer, uint32_t left, uint32_t right, int word,
                       int64_t change)
{
    int index = need_pair(trainer, left, right);
    struct tokenizer_trained_pair *pair = &trainer->pairs[index];
    pair->count += change;
    if (change > 0 && (!pair->word_count || pair->words[pair->word_count - 1] != word)) {
        pair->words =
            array_grow(pair->words, pair->word_count, &pair->word_capacity, sizeof *pair->words);
        pair->words[pair->word_count++] = word;
    }
    return index;
}

/* Returns 1 if a is nearer to the top of the heap than b: its count is larger, or of equal counts
 * its key is less. */
static int goes_before(const struct tokenizer_trained_top *a, const struct tokenizer_trained_top *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static void push(struct tokenizer_trainer *trainer, int pair)
{
    struct tokenizer_trained_top *heap, entry = {.count = trainer->pairs[pair].count,
                                                 .key = trainer->pairs[pair].key,
                                                 .pair = pair};
    heap = trainer->heap = array_grow(trainer->heap, trainer->heap_count, &trainer->heap_capacity,
                                      sizeof *trainer->heap);
    int at = trainer->heap_count++;
    for (; at && goes_before(&entry, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = entry;
}

static struct tokenizer_trained_top pop(struct tokenizer_trainer *trainer)
{
    struct tokenizer_trained_top *heap = trainer->heap, top = heap[0];
    int count = --trainer->heap_count, at = 0, child;
    struct tokenizer_trained_top last = heap[count];
    while ((child = 2 * at + 1) < count) {
        child += child + 1 < count && goes_before(&heap[child + 1], &heap[child]);
        if (!goes_before(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* Symbols */

/* Make the tokens of the bytes, behind the special ones, in the order of their letters.  ids[byte]
 * becomes the id of a byte. */
static void number_bytes(struct tokenizer_trainer *trainer, uint32_t ids[256])
{
    uint32_t id = (uint32_t)trainer->specials;
    for (uint32_t code = 0; code < 256 + 68; code++) {
        int value = tokenizer_alphabet_byte(code);
        char byte = (char)value;
        if (value < 0)
            continue;
        tokenizer_vocab_add(&trainer->tokens, &byte, 1, id);
        ids[value] = id++;
    }
}

/* Fill symbols, starts, lengths, pairs and the heap from the words: step 2. */
static void spell_words(struct tokenizer_trainer *trainer)
{
    uint32_t ids[256];
    size_t count = (size_t)trainer->words.count, at = 0, bytes;
    number_bytes(trainer, ids);
    trainer->symbols = array_make(trainer->words.pool_bytes + 1, sizeof *trainer->symbols);
    trainer->starts = array_make(count + 1, sizeof *trainer->starts);
    trainer->lengths = array_make(count + 1, sizeof *trainer->lengths);
    for (size_t w = 0; w < count; w++) {
        const char *word = tokenizer_vocab_text(&trainer->words, (int64_t)w, &bytes);
        trainer->starts[w] = at;
        trainer->lengths[w] = (uint32_t)bytes;
        for (size_t i = 0; i < bytes; i++)
            trainer->symbols[at++] = ids[(unsigned char)word[i]];
        for (size_t i = 0; i + 1 < bytes; i++)
            change_pair(trainer, trainer->symbols[at - bytes + i],
                        trainer->symbols[at - bytes + i + 1], (int)w, trainer->counts[w]);
    }
    for (int i = 0; i < trainer->pair_count; i++)
        push(trainer, i);
}

/* Put the symbol made in place of each pair (left, right) of a word, and change the counts of the
 * pairs around it. */
static void merge_in_word(struct tokenizer_trainer *trainer, int word, uint32_t left,
                          uint32_t right, uint32_t made)
{
    uint32_t *symbols = trainer->symbols + trainer->starts[word];
    uint32_t length = trainer->lengths[word], to = 0;
    int64_t count = trainer->counts[word];
    for (uint32_t at = 0; at < length; at++, to++) {
        if (symbols[at] != left || at + 1 == length || symbols[at + 1] != right) {
            symbols[to] = symbols[at];
            continue;
        }
        if (to) {
            change_pair(trainer, symbols[to - 1], left, word, -count);
            change_pair(trainer, symbols[to - 1], made, word, count);
        }
        if (at + 2 < length) {
            change_pair(trainer, right, symbols[at + 2], word, -count);
            change_pair(trainer, made, symbols[at + 2], word, count);
        }
        symbols[to] = made;
        at++;
    }
    trainer->lengths[word] = to;
}

/* Returns the token of a merge: a new one, or the one with the same bytes that another merge made.
 */
static uint32_t need_token(struct tokenizer_trainer *trainer, uint32_t left, uint32_t right)
{
    struct tokenizer_buffer both = {0};
    size_t bytes;
    const char *text = tokenizer_vocab_text(&trainer->tokens, left, &bytes);
    tokenizer_buffer_add(&both, text, bytes);
    text = tokenizer_vocab_text(&trainer->tokens, right, &bytes);
    tokenizer_buffer_add(&both, text, bytes);
    int64_t id = tokenizer_vocab_find(&trainer->tokens, both.text, both.bytes);
    if (id < 0) {
        id = trainer->tokens.size;
        tokenizer_vocab_add(&trainer->tokens, both.text, both.bytes, (uint32_t)id);
    }
    free(both.text);
    return (uint32_t)id;
}

/* Do the merge of pair number index in all its words. */
static void merge_pair(struct tokenizer_trainer *trainer, int index)
{
    struct tokenizer_trained_pair pair = trainer->pairs[index];
    uint32_t left = (uint32_t)(pair.key >> 32), right = (uint32_t)pair.key;
    uint32_t made = need_token(trainer, left, right);
    int first = trainer->pair_count;
    trainer->merges = array_grow(trainer->merges, trainer->merge_count, &trainer->merge_capacity,
                                 sizeof *trainer->merges);
    trainer->merges[trainer->merge_count++] = pair.key;
    trainer->pairs[index].words = NULL;
    trainer->pairs[index].word_count = trainer->pairs[index].word_capacity = 0;
    for (int i = 0; i < pair.word_count; i++)
        merge_in_word(trainer, pair.words[i], left, right, made);
    free(pair.words);
    trainer->pairs[index].count = 0;
    for (int i = first; i < trainer->pair_count; i++)
        if (trainer->pairs[i].count > 0)
            push(trainer, i);
}

void tokenizer_trainer_merge(struct tokenizer_trainer *trainer, int64_t tokens)
{
    spell_words(trainer);
    while (trainer->heap_count && trainer->tokens.size < tokens) {
        struct tokenizer_trained_top top = pop(trainer);
        int64_t count = trainer->pairs[top.pair].count;
        if (count < 2)
            continue;
        if (count == top.count)
            merge_pair(trainer, top.pair);
        else
            push(trainer, top.pair);
    }
}
