/* tokenizer_added.c - finding added tokens in a text: the leftmost one, and of those that begin at
 * the same byte the longest.
 *
 * The texts of the tokens are a tree with a byte at each node.  The children of a node are a linked
 * list; those of the root are in an array by their byte, so that a byte with which no token begins
 * costs one look.  With the tokens "<s>" and "<b>":
 *
 *     root['<'] --> '<' --child--> 'b' --sibling--> 's'
 *                                   |child           |child
 *                                  '>' "<b>"        '>' "<s>"
 */
#include <stdlib.h>

#include "base/array.h"
#include "io/tokenizer_private.h"

/* Append a node without children.  Returns its index. */
static uint32_t new_node(struct tokenizer_added *added, unsigned char byte)
{
    added->nodes =
        array_grow(added->nodes, added->node_count, &added->node_capacity, sizeof *added->nodes);
    added->nodes[added->node_count] = (struct tokenizer_added_node){.byte = byte, .token = -1};
    return (uint32_t)added->node_count++;
}

/* Returns the index of node's child with this byte; 0: there is none.  Node 0 is the root. */
static uint32_t find_child(const struct tokenizer_added *added, uint32_t node, unsigned char byte)
{
    if (!node)
        return added->root[byte];
    uint32_t child = added->nodes[node].child;
    while (child && added->nodes[child].byte != byte)
        child = added->nodes[child].sibling;
    return child;
}

/* Returns the index of node's child with this byte, which is added where there is none. */
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
        return; /* of two tokens with the same text the first one is found */
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
