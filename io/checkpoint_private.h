/* checkpoint_private.h - what the files of checkpoint_*.c share. */
#ifndef TRIREME_IO_CHECKPOINT_PRIVATE_H
#define TRIREME_IO_CHECKPOINT_PRIVATE_H

#include "io/catalog.h"
#include "io/checkpoint.h"
#include "io/shard.h"

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

/* A checkpoint that is being saved (checkpoint_save.c, checkpoint_write.c). */
struct checkpoint_saving {
    struct world *world;
    const char *dir; /* the folder of checkpoints */
    int64_t step;
    const struct checkpoint_piece *pieces; /* [count] this rank's */
    int count;
    char *path, *partial;          /* the checkpoint's folder: final and while it is written */
    char *shard;                   /* path of this rank's file in partial */
    size_t *sizes;                 /* [ranks] bytes that each rank sent with the last gather */
    struct catalog_entry *entries; /* [count] the description of this rank's pieces */
    struct shard_place *places;    /* [1 + count] the row of this rank's file, then its pieces' */
    struct catalog catalog;        /* offsets and checksums on rank 0 alone */
};

/* Make the paths and arrays of save, and describe the pieces.  Returns 0, or -1 with err set. */
int checkpoint_save_begin(struct checkpoint_saving *save, struct error *err);

/* Do step 1 of checkpoint_save.c.  Collective.  Returns 0, or -1 with err set on every rank. */
int checkpoint_save_plan(struct checkpoint_saving *save, struct error *err);

/* Make this rank's file without the bytes of its pieces.  Returns 0, or -1 with err set. */
int checkpoint_save_make_shard(struct checkpoint_saving *save, struct error *err);

/* Where rc is 0, this rank's file was written: keep its row.  Agree on the outcome.  Collective.
 * Returns 0, or -1 with err set on every rank. */
int checkpoint_save_agree_on_shard(struct checkpoint_saving *save, int rc,
                                   const struct catalog_file *row, struct error *err);

/* Do step 3 of checkpoint_save.c.  Collective.  Returns 0, or -1 with err set on every rank. */
int checkpoint_save_commit(struct checkpoint_saving *save, struct js *meta, struct error *err);

/* Free what save has; after a failure (rc), remove the folder on rank 0.  Returns 0, or -1 where rc
 * is not 0. */
int checkpoint_save_finish(struct checkpoint_saving *save, int rc);

#endif
