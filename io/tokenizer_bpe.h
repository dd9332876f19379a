/* tokenizer_bpe.h - a vocabulary with merges: the model of tokenizer_bpe.c. */
#ifndef TRIREME_IO_TOKENIZER_BPE_H
#define TRIREME_IO_TOKENIZER_BPE_H

#include "io/tokenizer_private.h"

/* A merge: two neighbouring tokens become one. */
struct tokenizer_pair {
    uint64_t key;  /* tokenizer_pair_key() of the two; 0: a free slot */
    uint32_t rank; /* of the merges that are possible, the one with the least rank is done first */
    uint32_t id;   /* the token that they become */
};

struct tokenizer_bpe {
    struct tokenizer_vocab words; /* tokens by their text; byte-level: by plain bytes, no letters */
    struct tokenizer_pair *pairs; /* [pair_slots] hash table with open addressing */
    size_t pair_slots;            /* a power of two */
    int64_t byte_id[256]; /* of each byte (byte-level), of "<0xHH>" (byte fallback); -1: none */
    int64_t unk;          /* id of the unknown token; -1: what is not known is left out */
    int byte_fallback, fuse_unk, ignore_merges; /* as tokenizer.json says */
};

static inline uint64_t tokenizer_pair_key(uint32_t left, uint32_t right)
{
    return ((uint64_t)left << 32 | right) + 1;
}

/* Returns the merge of two tokens, or the free slot (key 0) where it would be. */
static inline struct tokenizer_pair *tokenizer_bpe_pair(const struct tokenizer_bpe *bpe,
                                                        uint32_t left, uint32_t right)
{
    uint64_t key = tokenizer_pair_key(left, right);
    size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (bpe->pair_slots - 1);
    while (bpe->pairs[at].key && bpe->pairs[at].key != key)
        at = (at + 1) & (bpe->pair_slots - 1);
    return &bpe->pairs[at];
}

/* Read "vocab" and "merges" of a model (tokenizer_bpe_read.c).  Returns 0, or -1 with err set. */
int tokenizer_bpe_read(struct tokenizer_data *data, const struct js *model, struct error *err);

#endif
