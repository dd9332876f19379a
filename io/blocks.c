/* blocks.c - see blocks.h.
 *
 * A block is filled with text and cut; the text after the cut is kept and begins the next block.
 * If there is no place to cut, the block is made twice as large and filled further.  A block during
 * whose filling the text ends takes all of it and is not cut.  Cut after ends of lines:
 *
 *     file    one\ntwo\nthr | ee\nfour         read in two parts
 *     block   one\ntwo\n                       "thr" is kept
 *     block   three\nfour                      the last one
 */
#include "io/blocks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t blocks_cut_line(const void *arg, const char *text, size_t bytes)
{
    const char *end = memrchr(text, '\n', bytes);
    (void)arg;
    return end ? (size_t)(end - text) + 1 : 0;
}

/* Make *text, of *capacity bytes, at least `bytes` large.  Returns 0, or -1 with err set. */
static int reserve(char **text, size_t *capacity, size_t bytes, const char *path, struct error *err)
{
    if (bytes <= *capacity)
        return 0;
    char *wider = realloc(*text, bytes);
    if (!wider)
        return error_set(err, "%s: out of memory: %zu bytes of text", path, bytes);
    *text = wider;
    *capacity = bytes;
    return 0;
}

/* Read until the block holds `wanted` bytes or the text ends.  Returns 0, or -1 with err set. */
static int fill(struct blocks *blocks, struct blocks_buffer *block, size_t wanted,
                struct error *err)
{
    if (reserve(&block->text, &block->capacity, wanted, blocks->path, err))
        return -1;
    while (!blocks->at_end && block->bytes < wanted) {
        size_t most = wanted - block->bytes;
        if (blocks->left >= 0 && (int64_t)most > blocks->left)
            most = (size_t)blocks->left;
        ssize_t got = most ? read(blocks->fd, block->text + block->bytes, most) : 0;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, "cannot read input %s", blocks->path);
        block->bytes += (size_t)got;
        blocks->left -= blocks->left < 0 ? 0 : got;
        blocks->at_end = !got;
    }
    return 0;
}

int blocks_next(struct blocks *blocks, struct blocks_buffer *block, struct error *err)
{
    size_t wanted = BLOCKS_BYTES, cut = 0;
    block->bytes = 0;
    if (reserve(&block->text, &block->capacity, blocks->rest_bytes + 1, blocks->path, err))
        return -1;
    if (blocks->rest_bytes)
        memcpy(block->text, blocks->rest, blocks->rest_bytes);
    block->bytes = blocks->rest_bytes;
    blocks->rest_bytes = 0;
    while (!cut) {
        while (wanted <= block->bytes)
            wanted *= 2;
        if (wanted > BLOCKS_MOST_BYTES)
            return error_set(err,
                             "%s: %d MiB without a place to cut the text: a line as long, or no "
                             "text at all",
                             blocks->path, BLOCKS_MOST_BYTES >> 20);
        if (fill(blocks, block, wanted, err))
            return -1;
        cut = blocks->at_end ? block->bytes : blocks->cut(blocks->arg, block->text, block->bytes);
        if (blocks->at_end)
            return block->bytes > 0;
    }
    size_t rest = block->bytes - cut;
    if (reserve(&blocks->rest, &blocks->rest_capacity, rest, blocks->path, err))
        return -1;
    if (rest)
        memcpy(blocks->rest, block->text + cut, rest);
    blocks->rest_bytes = rest;
    block->bytes = cut;
    return 1;
}

int blocks_is_last(const struct blocks *blocks)
{
    return blocks->at_end;
}

void blocks_free(struct blocks *blocks)
{
    free(blocks->rest);
    blocks->rest = NULL;
    blocks->rest_bytes = blocks->rest_capacity = 0;
}

void blocks_buffer_free(struct blocks_buffer *block)
{
    free(block->text);
    *block = (struct blocks_buffer){0};
}
