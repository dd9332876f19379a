/* checkpoint_private.h - what the files of checkpoint_*.c share. */
#ifndef TRIREME_IO_CHECKPOINT_PRIVATE_H
#define TRIREME_IO_CHECKPOINT_PRIVATE_H

#include "io/catalog.h"
#include "io/checkpoint.h"

/* A checkpoint that knows its path alone, for checkpoint_close(). */
struct checkpoint *checkpoint_make(const char *path);

/* Fill in the numbers that follow from its catalog. */
void checkpoint_count(struct checkpoint *checkpoint);

/* Is there a file COMMIT?  Returns 0, or -1 with err set. */
int checkpoint_check_committed(const char *path, struct error *err);

/* checkpoint_open() on rank 0, which alone reads files; the others look whether COMMIT is there,
 * and get what rank 0 read.  path is the same on all ranks.  Collective; world may be NULL.
 * Returns 0, or -1 on every rank with err set and *checkpoint NULL. */
int checkpoint_open_shared(struct checkpoint **checkpoint, struct world *world, const char *path,
                           struct error *err);

/* Rank 0's text on every rank, for free(); the others' is not looked at.  Collective; world may be
 * NULL. */
char *checkpoint_share_text(struct world *world, const char *text);

/* What a piece's elements are of. */
struct box checkpoint_box(const struct checkpoint_piece *piece);

/* Is that box one of a tensor of the piece's dimensions, and within it? */
int checkpoint_box_fits(const struct checkpoint_piece *piece);

/* Whether a name is "step-00001000", or with suffix: what was renamed while it was replaced or
 * written; *step gets the number. */
int checkpoint_parse_name(const char *name, const char *suffix, int64_t *step);

#endif
