/* checkpoint_private.h - what the files of checkpoint_*.c share. */
#ifndef TRIREME_IO_CHECKPOINT_PRIVATE_H
#define TRIREME_IO_CHECKPOINT_PRIVATE_H

#include "io/catalog.h"
#include "io/checkpoint.h"

/* What a piece's elements are of. */
struct box checkpoint_box(const struct checkpoint_piece *piece);

/* Is that box one of a tensor of the piece's dimensions, and within it? */
int checkpoint_box_fits(const struct checkpoint_piece *piece);

/* Whether a name is "step-00001000", or with suffix: what was renamed while it was replaced or
 * written; *step gets the number. */
int checkpoint_parse_name(const char *name, const char *suffix, int64_t *step);

#endif
