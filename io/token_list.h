/* token_list.h - token ids in memory, each with its place in the loss. */
#ifndef TRIREME_IO_TOKEN_LIST_H
#define TRIREME_IO_TOKEN_LIST_H

#include <stdint.h>

#include "base/error.h"

/* All zero is empty. */
struct token_list {
    uint32_t *ids;
    uint8_t *mask; /* 1: counts as a target */
    int64_t count, capacity;
};

/* Append ids, all with the same mask.  Returns 0, or -1 with err set: memory is out. */
int token_list_add(struct token_list *list, const uint32_t *ids, int64_t count, int mask,
                   struct error *err);
void token_list_free(struct token_list *list);

#endif
