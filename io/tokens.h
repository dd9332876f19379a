/* tokens.h - token files, which doc/token-files.md describes: HDF5 with `tokens` (u16 or u32),
 * `documents` (u64 offsets of document starts, and the total at the end), attributes that name
 * tokenizer, vocabulary and chat template; optional `loss_mask` (u8, 1: counts as a target, 0: does
 * not).
 *
 * Nothing in a file is trusted.  Files of format 2 carry checksums (seal.h), which are verified
 * whenever bytes are read; HDF5 opens such a file only after its own part of it has been verified.
 * Files of format 1, of older versions and other programs, have no checksums.  In both, sizes are
 * checked when a file is opened, and tokens and mask are compared with their allowed values when
 * they are read.
 */
#ifndef TRIREME_IO_TOKENS_H
#define TRIREME_IO_TOKENS_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "io/seal.h"

enum { TOKENS_SOURCE = 1024, TOKENS_CHAT = 32 };

/* What the file system says of a file, which changes when the file is written to. */
struct tokens_stamp {
    int64_t bytes;
    int64_t written_ns; /* mtime, which some programs set back */
    int64_t changed_ns; /* ctime: also of a new name, owner or mode */
};

struct tokens {
    char *path;
    enum dtype dtype;       /* DTYPE_U16 or DTYPE_U32, as stored */
    int64_t count;          /* tokens in the file */
    int64_t documents;      /* the file holds documents + 1 starts */
    int64_t vocab;          /* of the tokenizer: every token is less */
    char tokenizer[64];     /* its name, as tokenizer_open() takes it */
    char chat[TOKENS_CHAT]; /* chat template of its conversations (chat_name()); "": it has none,
                             * or does not say */
    char source[TOKENS_SOURCE]; /* where the tokens came from; "": the file does not say */
    int has_other_source; /* 1: the file says where from, but not by one text that fits in source */
    int has_mask;         /* 1: the file has a loss_mask */
    int has_checksums;    /* 1: format 2 */
    int has_hash;         /* 1: the file has a hash */
    uint64_t hash;        /* XXH3 of the token bytes, as stored; tokens_verify() compares it */
    /* private to io/tokens*.c */
    struct tokens_stamp stamp;
    struct seal seal;
    int64_t tokens_at, documents_at, mask_at; /* offsets in the file */
    char across[8]; /* copy of an element that lies across the end of the seal's buffer */
};

/* Open a token file; one thread uses it.  Not collective.  Returns 0 and tokens for
 * tokens_close(), or -1 with err naming the file and what is wrong: missing, not a regular file,
 * not a token file, truncated, damaged, sizes that cannot be.  A disk that fails sets the code
 * EXIT_NODE, as in the functions below. */
int tokens_open(struct tokens *tokens, const char *path, struct error *err);
void tokens_close(struct tokens *tokens);

/* Read tokens [first, first + count) into ids.  Returns 0, or -1 with err set: not all are in the
 * file, the file is damaged or was truncated after it was opened, or a token is outside the
 * vocabulary (its position and value are named). */
int tokens_read(struct tokens *tokens, int64_t first, int64_t count, int32_t *ids,
                struct error *err);

/* targets holds tokens [first, first + count) of the file: set those to -1 that loss_mask leaves
 * out.  Does nothing without a loss_mask.  Returns 0, or -1 as above; a mask other than 0 and 1 is
 * an error. */
int tokens_mask(struct tokens *tokens, int64_t first, int64_t count, int32_t *targets,
                struct error *err);

/* Read elements [first, first + count) of the documents + 1 document starts into starts.  Returns
 * 0, or -1 with err set, also where one is not in [0, tokens->count] or is below the start before
 * it. */
int tokens_starts(struct tokens *tokens, int64_t first, int64_t count, uint64_t *starts,
                  struct error *err);

/* Returns a hash that identifies the contents of a file without a stored hash: XXH3 of the number
 * of tokens and of 64 runs of TOKENS_RUN tokens, spread from the first token to the last; or of all
 * tokens where the file has no more.  0 where they cannot be read. */
enum { TOKENS_RUN = 2048 };
uint64_t tokens_sample_hash(struct tokens *tokens);

/* Has the open file been written to, since it was opened or since the last call, so that it may
 * hold other tokens?  Another thread may read the tokens meanwhile.  What a file with checksums
 * says of its tokens is compared, so that new times alone count only where there are none.  A file
 * that was replaced by another of its name, or deleted, has not been written to.  Returns 0: no; or
 * -1 with err saying when. */
int tokens_check_unchanged(struct tokens *tokens, struct error *err);

/* Read and check the whole file: every checksum (format 2), every token, start and mask, and the
 * hash.  Returns 0, or -1 with err naming the first thing that is wrong. */
int tokens_verify(struct tokens *tokens, struct error *err);

/* Verify the file of format 1 at path, and replace it by a file of format 2 once that is whole.
 * Returns 0, or -1 with err set and the file as it was; also where its source would be lost. */
int tokens_seal(const char *path, struct error *err);

/* Writing: tokens_create(), documents, tokens_finish().  The file has a name of its own beside path
 * (partial.h) until it is whole, and is renamed then; so where two processes write one path, the
 * file of one of them remains.  These functions return 0, or -1 with err set. */
struct tokens_writer;
/* Returns 0 and a writer, which tokens_finish() or tokens_abandon() frees.  After an append has
 * failed the writer can only be abandoned. */
int tokens_create(struct tokens_writer **writer, const char *path, const char *tokenizer,
                  int64_t vocab, const char *source, struct error *err);
/* Say by which chat template (chat_name()) the conversations in the file are written; "": it has
 * none, as without this call.  At any time before tokens_finish(). */
void tokens_set_chat(struct tokens_writer *writer, const char *name);
/* Add a document of count tokens; a token that is not below vocab is an error. */
int tokens_append(struct tokens_writer *writer, const uint32_t *document, int64_t count,
                  struct error *err);
/* Add count tokens to the end of the last document, so that a long one need not be held in memory.
 */
int tokens_extend(struct tokens_writer *writer, const uint32_t *ids, int64_t count,
                  struct error *err);
/* Add loss mask, 0 or 1 for each of the next count tokens; calls may cut it anywhere.  When the
 * file is finished, all tokens must have it, or none. */
int tokens_extend_mask(struct tokens_writer *writer, const uint8_t *mask, int64_t count,
                       struct error *err);
/* Make the file whole and give it its name.  Frees the writer in any case; on failure what was
 * written is removed. */
int tokens_finish(struct tokens_writer *writer, struct error *err);
/* Remove what was written, and free the writer; NULL allowed. */
void tokens_abandon(struct tokens_writer *writer);

#endif
