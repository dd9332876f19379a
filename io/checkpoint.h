/* checkpoint.h - logical tensors on disk, written and read by intervals.
 *
 * A checkpoint is a directory step-00001000/ with shard-NNNNN.h5 (one per rank), index.h5
 * (which shows every tensor whole, by virtual datasets), meta.json and, last, COMMIT.
 * It is written under the name step-00001000.partial, fsynced, renamed, and the parent
 * directory fsynced.  Nothing here knows models or layouts: a rank says which flat intervals
 * of which tensors, or of which boxes of them, it holds or wants.
 *
 * A world may be NULL everywhere: then this process is a world of one.
 */
#ifndef TRIREME_IO_CHECKPOINT_H
#define TRIREME_IO_CHECKPOINT_H

#include <stdint.h>

#include "base/box.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "comm/world.h"

enum { CHECKPOINT_RANK_MAX = BOX_DIMS };

/* Elements [start, start + count) of the row-major tensor `name`, or of a box of it, in memory at
 * data.  Names are paths: "model/layers.0.attn.q", "optimizer/exp_avg/layers.0.attn.q". */
struct checkpoint_piece {
    const char *name; /* the caller's */
    enum dtype dtype; /* of data, and of the tensor on disk when saving */
    int rank;
    int64_t dims[CHECKPOINT_RANK_MAX];
    int64_t start, count;
    void *data; /* saving only reads it */
    /* Saving: a function that reads bytes of data from `offset` on, where data is not plain memory;
     * NULL: it is. */
    int (*fetch)(const struct checkpoint_piece *piece, void *to, int64_t offset, size_t bytes,
                 struct error *err);
    void *user;            /* of fetch */
    const struct box *box; /* what start and count are of, the caller's; NULL: the whole tensor */
};

/* Save the pieces of all ranks as dir/step-NNNNNNNN; dir is made, the folders above it are there.
 * Collective over world.  meta (rank 0's counts; others may pass NULL) becomes meta.json, with the
 * writer's own keys "format", "step", "ranks" added.  Every element of every named tensor must be
 * held by exactly one piece of one rank, or it is an error that names tensor and element; all
 * pieces of a tensor are of boxes that do not overlap, or of the same.  Free space is checked
 * first.  A checkpoint of the same step that exists already is replaced once the new one is whole.
 * Returns 0; on failure (disk full, unwritable) nothing committed is touched, the partial directory
 * is removed, and -1 is returned on every rank with err set. */
int checkpoint_save(struct world *world, const char *dir, int64_t step,
                    const struct checkpoint_piece *pieces, int count, struct js *meta,
                    struct error *err);

/* An opened, committed checkpoint, whose fields are only read. */
struct checkpoint {
    char *path;
    struct js *meta;
    int64_t step, bytes; /* bytes: of all shard files */
    int ranks, tensors;  /* ranks: shard files */
    /* private to io/checkpoint*.c */
    struct catalog *catalog;
};

/* Open one by its own path (".../step-00001000").  Not collective: every rank opens.  Returns 0 and
 * a checkpoint for checkpoint_close(), or -1 with err set: it is not committed, its index does not
 * match COMMIT's digest, or a folder named step-N holds another step. */
int checkpoint_open(struct checkpoint **checkpoint, const char *path, struct error *err);
void checkpoint_close(struct checkpoint *checkpoint); /* NULL allowed */

/* The i-th of its tensors as a piece covering it whole (data NULL; its name lives as long as the
 * checkpoint). */
struct checkpoint_piece checkpoint_tensor(const struct checkpoint *checkpoint, int i);
int64_t checkpoint_pieces(const struct checkpoint *checkpoint, int i); /* it is stored in */
/* The number of the tensor of a name, or -1. */
int checkpoint_find_tensor(const struct checkpoint *checkpoint, const char *name);

/* meta.json of a committed checkpoint, its checksum compared, without opening the rest.  Returns
 * it for js_free(), or NULL with err set. */
struct js *checkpoint_read_meta(const char *path, struct error *err);

/* Fill the wanted pieces from whatever boxes and intervals are stored (any layout), converting
 * between fp32, bf16 and fp16 where dtypes differ.  Not collective.  Returns 0, or -1 with err set:
 * a tensor is absent or has other dims, an element is not stored exactly once, or bytes cannot be
 * read. */
int checkpoint_load(struct checkpoint *checkpoint, const struct checkpoint_piece *wanted, int count,
                    struct error *err);

/* Recompute the checksums of part `part` of `parts`, which have about equal bytes, however many
 * files there are; (0, 1) is all.  A piece of a tensor has one checksum and belongs to one part.
 * Returns 0, or -1 with err naming file, tensor and offset of the first mismatch. */
int checkpoint_verify(struct checkpoint *checkpoint, int part, int parts, struct error *err);

/* The sizes of all shard files are right, or -1 with err naming one that is not. */
int checkpoint_sizes(const struct checkpoint *checkpoint, struct error *err);

/* What lies under dir: checkpoints by name, newest first, without .partial ones. */
struct checkpoint_entry {
    char *path;
    int64_t step;
    int committed; /* COMMIT is there; nothing else is looked at */
};

/* Returns their number and *entries for checkpoint_list_free(); 0 if dir is absent; -1 with err
 * set if it cannot be read.  Not collective. */
int checkpoint_list(struct checkpoint_entry **entries, const char *dir, struct error *err);
void checkpoint_list_free(struct checkpoint_entry *entries, int count);

/* What this process knows of checkpoints from having read or written every byte of them. */
enum checkpoint_state { CHECKPOINT_UNKNOWN, CHECKPOINT_WHOLE, CHECKPOINT_DAMAGED };

struct checkpoint_checked {
    /* private to io/checkpoint_find.c */
    struct checkpoint_check {
        char *path;
        enum checkpoint_state state;
    } * list;
    int count, capacity;
};

/* CHECKPOINT_UNKNOWN where nothing was set. */
enum checkpoint_state checkpoint_checked_get(const struct checkpoint_checked *checked,
                                             const char *path);
void checkpoint_checked_set(struct checkpoint_checked *checked, const char *path,
                            enum checkpoint_state state);
void checkpoint_checked_free(struct checkpoint_checked *checked);

/* Open the checkpoint at path (rank 0's counts) and verify it, each rank a part; rank 0 alone reads
 * its index.  What was found out is put into checked (NULL allowed).  Collective.  Returns 0, or -1
 * on every rank with err set and *checkpoint NULL. */
int checkpoint_open_verified(struct checkpoint **checkpoint, struct world *world, const char *path,
                             struct checkpoint_checked *checked, struct error *err);

/* Open the newest committed checkpoint under dir that opens and whose checksums hold, each rank
 * verifying its part.  Collective.  Those that fail are reported to log and the one before is
 * tried.  Returns 0 and a checkpoint for checkpoint_close(), NULL where dir has none at all; or -1
 * on every rank with err set: dir cannot be read, or there are some and none verifies. */
int checkpoint_find(struct checkpoint **checkpoint, struct world *world, const char *dir,
                    struct log *log, struct error *err);

/* The same among entries that are committed, newest first (rank 0's count, others may pass NULL);
 * what was found out about them is put into checked (NULL allowed). */
int checkpoint_find_among(struct checkpoint **checkpoint, struct world *world,
                          const struct checkpoint_entry *entries, int count,
                          struct checkpoint_checked *checked, struct log *log, struct error *err);

/* Bytes that saving one rank's pieces takes on disk, generously: the sum over all ranks is what
 * checkpoint_save() asks for.  Not collective. */
double checkpoint_disk_bytes(const struct checkpoint_piece *pieces, int count);

/* Delete old checkpoints among the entries of one run (as of checkpoint_list; rank 0's count), so
 * that the newest `keep` (at least 2) undamaged ones remain.  A checkpoint that `checked` does not
 * know is verified before it counts, each rank a part of it.  A damaged one does not count, is not
 * deleted, and is reported to log when this call finds the damage.  The paths in `spared` (rank
 * 0's, ended by NULL) are never deleted.  Collective.  Returns 0, or -1 on every rank with err set
 * when something could not be deleted; what could be deleted is. */
int checkpoint_prune(struct world *world, const struct checkpoint_entry *entries, int count,
                     int keep, const char *const *spared, struct checkpoint_checked *checked,
                     struct log *log, struct error *err);

/* Delete what a save or a pruning that was killed left under dir: .partial folders, and .old ones
 * whose replacement is committed.  Not collective.  Returns 0, or -1 with err set. */
int checkpoint_clean(const char *dir, struct error *err);

#endif
