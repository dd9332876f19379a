/* tokenizer_bpe.h - a vocabulary with merges: the model of tokenizer_bpe.c. */
#ifndef TRIREME_IO_TOKENIZER_BPE_H
#define TRIREME_IO_TOKENIZER_BPE_H

#include "io/tokenizer_private.h"

/* A merge: left and right become id; the least rank goes first. */
struct tokenizer_pair {
    uint64_t key; /* tokenizer_pair_key(); 0: a free slot */
    uint32_t rank, id;
};

struct tokenizer_bpe {
    struct tokenizer_vocab words; /* by bytes; byte-level ones without their letters */
    struct tokenizer_pair *pairs; /* [pair_slots], a power of two: open addressing */
    size_t pair_slots;
    int64_t byte_id[256]; /* of each byte (byte-level), of "<0xHH>" (byte fallback); -1: none */
    int64_t unk;          /* -1: what is not known is left out */
    int byte_fallback, fuse_unk, ignore_merges;
};

static inline uint64_t tokenizer_pair_key(uint32_t left, uint32_t right)
{
    return ((uint64_t)left << 32 | right) + 1;
}

/* The merge of two tokens, or a free slot. */
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
