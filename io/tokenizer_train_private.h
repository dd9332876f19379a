/* tokenizer_train_private.h - what training and writing a vocabulary share. */
#ifndef TRIREME_IO_TOKENIZER_TRAIN_PRIVATE_H
#define TRIREME_IO_TOKENIZER_TRAIN_PRIVATE_H

#include "io/tokenizer_private.h"

/* Two neighbours: left << 32 | right; how often, and in which words. */
struct tokenizer_trained_pair {
    uint64_t key;
    int64_t count;
    int *words;
    int word_count, word_capacity;
};

/* A pair on the heap, with its count when it came there. */
struct tokenizer_trained_top {
    int64_t count;
    uint64_t key;
    int pair;
};

struct tokenizer_trainer {
    uint16_t *classes;
    tokenizer_scan *scan;
    struct tokenizer_vocab words;  /* different ones, numbered as they came */
    int64_t *counts;               /* of each word */
    struct tokenizer_vocab tokens; /* as bytes; [0] is "<|endoftext|>" */
    uint64_t *merges;              /* [merge_count] keys of pairs */
    uint32_t *symbols;             /* of all words, end to end */
    size_t *starts;                /* [words] in symbols */
    uint32_t *lengths;             /* [words] */
    struct tokenizer_trained_pair *pairs;
    uint32_t *slots; /* pairs by hash: index + 1; 0: free */
    struct tokenizer_trained_top *heap;
    size_t slot_count;
    int count_capacity, merge_count, merge_capacity;
    int pair_count, pair_capacity, heap_count, heap_capacity;
};

/* Merge pairs until there are as many tokens, or none is left. */
void tokenizer_trainer_merge(struct tokenizer_trainer *trainer, int64_t tokens);

#endif
