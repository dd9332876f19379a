/* checkpoint_private.h - what the files of checkpoint_*.c share. */
#ifndef TRIREME_IO_CHECKPOINT_PRIVATE_H
#define TRIREME_IO_CHECKPOINT_PRIVATE_H

#include "io/catalog.h"
#include "io/checkpoint.h"

/* Returns a checkpoint with this path and an empty catalog, for checkpoint_close(). */
struct checkpoint *checkpoint_make(const char *path);

/* Set step, bytes, ranks and tensors from the catalog. */
void checkpoint_count(struct checkpoint *checkpoint);

/* Check that the folder at path has a file COMMIT.  Returns 0, or -1 with err set. */
int checkpoint_check_committed(const char *path, struct error *err);

/* Call checkpoint_open() on rank 0, and copy what it read to the other ranks, which only check that
 * they see COMMIT.  path is the same on all ranks.  Collective; world may be NULL.  Returns 0 and a
 * checkpoint for checkpoint_close(), or -1 on every rank with err set and *checkpoint NULL. */
int checkpoint_open_shared(struct checkpoint **checkpoint, struct world *world, const char *path,
                           struct error *err);

/* Copy rank 0's text to all ranks; the other ranks' text is not used and may be NULL.  Collective;
 * world may be NULL.  Returns the text, to be free()d. */
char *checkpoint_share_text(struct world *world, const char *text);

/* Returns the box whose elements piece->start and piece->count count: piece->box, or the whole
 * tensor. */
struct box checkpoint_box(const struct checkpoint_piece *piece);

/* Returns 1 if that box is of a tensor with the piece's dimensions, and lies within it. */
int checkpoint_box_fits(const struct checkpoint_piece *piece);

/* Returns 1 and the number in *step if name is "step-00001000" followed by suffix: "", ".partial"
 * (being written), ".old" (being replaced) or ".old.partial". */
int checkpoint_parse_name(const char *name, const char *suffix, int64_t *step);

#endif
