/* tokenizer_added.c - texts of added tokens found in a text: the leftmost, and of those that begin
 * there the longest.
 *
 * They are a tree of bytes: a node's children are a list, those of the root an array, so that a
 * byte that begins no token costs one look.
 */
#include <stdlib.h>

#include "base/array.h"
#include "io/tokenizer_private.h"

static uint32_t new_node(struct tokenizer_added *added, unsigned char byte)
{
    added->nodes =
        array_grow(added->nodes, added->node_count, &added->node_capacity, sizeof *added->nodes);
    added->nodes[added->node_count] = (struct tokenizer_added_node){.byte = byte, .token = -1};
    return (uint32_t)added->node_count++;
}

static uint32_t find_child(const struct tokenizer_added *added, uint32_t node, unsigned char byte)
{
    if (!node)
        return added->root[byte];
    uint32_t child = added->nodes[node].child;
    while (child && added->nodes[child].byte != byte)
        child = added->nodes[child].sibling;
    return child;
}

static uint32_t need_child(struct tokenizer_added *added, uint32_t node, unsigned char byte)
{
    uint32_t child = find_child(added, node, byte);
    if (child)
        return child;
    child = new_node(added, byte);
    if (!node) {
        added->root[byte] = child;
    } else {
        added->nodes[child].sibling = added->nodes[node].child;
        added->nodes[node].child = child;
    }
    return child;
}

void tokenizer_added_add(struct tokenizer_added *added, const char *text, size_t bytes,
                         struct tokenizer_added_token token)
{
    uint32_t node = 0;
    if (!added->node_count)
        new_node(added, 0);
    for (size_t i = 0; i < bytes; i++)
        node = need_child(added, node, (unsigned char)text[i]);
    if (!bytes || added->nodes[node].token >= 0)
        return; /* the first of two that are alike is found */
    added->tokens =
        array_grow(added->tokens, added->count, &added->capacity, sizeof *added->tokens);
    added->nodes[node].token = added->count;
    added->tokens[added->count++] = token;
}

int tokenizer_added_find(const struct tokenizer_added *added, const char *text, size_t bytes,
                         size_t from, size_t *start, size_t *end,
                         const struct tokenizer_added_token **token)
{
    for (; added->count && from < bytes; from++) {
        uint32_t node = added->root[(unsigned char)text[from]];
        int found = 0;
        for (size_t at = from + 1; node; at++) {
            if (added->nodes[node].token >= 0) {
                found = 1;
                *start = from;
                *end = at;
                *token = &added->tokens[added->nodes[node].token];
            }
            node = at < bytes ? find_child(added, node, (unsigned char)text[at]) : 0;
        }
        if (found)
            return 1;
    }
    return 0;
}

void tokenizer_added_free(struct tokenizer_added *added)
{
    free(added->nodes);
    free(added->tokens);
    *added = (struct tokenizer_added){0};
}
