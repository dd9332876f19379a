/* tokenizer_train_private.h - what training and writing a vocabulary share. */
#ifndef TRIREME_IO_TOKENIZER_TRAIN_PRIVATE_H
#define TRIREME_IO_TOKENIZER_TRAIN_PRIVATE_H

#include "io/tokenizer_private.h"

/* Two neighbouring tokens. */
struct tokenizer_trained_pair {
    uint64_t key;  /* left id << 32 | right id */
    int64_t count; /* how often they occur in the text */
    int *words;    /* the words they occur in */
    int word_count, word_capacity;
};

/* A pair on the heap of the most frequent ones, with the count that it had when it was put there.
 */
struct tokenizer_trained_top {
    int64_t count;
    uint64_t key;
    int pair;
};

struct tokenizer_trainer {
    uint16_t *classes;
    tokenizer_scan *scan;
    struct tokenizer_vocab words;  /* each different word once, in the order of their coming */
    int64_t *counts;               /* [words] how often each word occurs */
    struct tokenizer_vocab tokens; /* texts as plain bytes; id 0 is "<|endoftext|>" */
    int specials;                  /* the first tokens, which no merge makes */
    uint64_t *merges;              /* [merge_count] keys of pairs, in the order of merging */
    uint32_t *symbols;             /* token ids of all words, end to end */
    size_t *starts;                /* [words] where a word begins in symbols */
    uint32_t *lengths;             /* [words] how many symbols a word has now */
    struct tokenizer_trained_pair *pairs;
    uint32_t *slots; /* [slot_count] hash table of pairs: index in pairs + 1; 0: free */
    struct tokenizer_trained_top *heap;
    size_t slot_count;
    int count_capacity, merge_count, merge_capacity;
    int pair_count, pair_capacity, heap_count, heap_capacity;
};

/* Merge pairs until there are `tokens` tokens, or no pair occurs twice. */
void tokenizer_trainer_merge(struct tokenizer_trainer *trainer, int64_t tokens);

#endif
