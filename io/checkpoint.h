/* checkpoint.h - logical tensors on disk, written and read by intervals.
 *
 * A checkpoint is a directory step-00001000/ with shard-NNNNN.h5 (one per rank), index.h5
 * (which shows every tensor whole, by virtual datasets), meta.json and, last, COMMIT.
 * It is written under the name step-00001000.partial, fsynced, renamed, and the parent
 * directory fsynced.  Nothing here knows models or layouts: a rank says which intervals of which
 * tensors, or of which boxes of tensors (base/box.h), it holds or wants:
 *
 *     tensor attn.o [4, 6], tensor parallelism of 2, its box [0+4,3+3] sharded over 2 ranks
 *     rank 2 holds elements 0 to 5 of the box      rank 3 holds elements 6 to 11
 *
 * world may be NULL in every function: then this process is a world of one.
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
    void *data; /* count elements; saving only reads them */
    /* For saving where data is not plain host memory (a GPU's, a file): copy `bytes` bytes of the
     * piece, from byte `offset` on, to `to`.  Returns 0, or -1 with err set.  NULL: data is plain
     * memory. */
    int (*fetch)(const struct checkpoint_piece *piece, void *to, int64_t offset, size_t bytes,
                 struct error *err);
    void *user;            /* for fetch; the caller's */
    const struct box *box; /* start counts its elements; the caller's; NULL: the whole tensor */
};

/* Save the pieces of all ranks as dir/step-NNNNNNNN.  Collective over world.  dir is made if it is
 * absent, but not the folders above it.  meta (rank 0's is used, others may pass NULL; NULL: empty)
 * becomes meta.json; the keys "format", "step" and "ranks" are added to it.  Every element of every
 * named tensor must be in exactly one piece of one rank; any two pieces of a tensor are of the same
 * box or of boxes that do not overlap.  Free space is checked first.  An older checkpoint of the
 * same step is replaced once the new one is whole; what cannot be removed of it is left for
 * checkpoint_clean().
 * Returns 0, or -1 on every rank with err set (an element in no piece or in two: its tensor and
 * number; disk full; unwritable).  On failure committed checkpoints are untouched and the partial
 * directory is removed. */
int checkpoint_save(struct world *world, const char *dir, int64_t step,
                    const struct checkpoint_piece *pieces, int count, struct js *meta,
                    struct error *err);

/* A checkpoint that is written in the background, each rank's file by a thread of its own. */
struct checkpoint_writing;

/* Returns the bytes of memory that checkpoint_begin() copies this rank's pieces to. */
size_t checkpoint_copy_bytes(const struct checkpoint_piece *pieces, int count);

/* Begin what checkpoint_save() does, with the same conditions, and return while the files are
 * written.  The pieces are copied to `copy`, of `bytes` bytes, and may change after the return;
 * copy is the caller's and may be neither freed nor changed before checkpoint_end().  meta is freed
 * with the checkpoint, also after a failure.  Until checkpoint_end() nothing else may save or
 * delete checkpoints in dir.  Collective over world.  Returns 0 and a checkpoint for
 * checkpoint_end(); or -1 on every rank with err set (also where bytes are fewer than
 * checkpoint_copy_bytes()), *writing NULL, and on disk what checkpoint_save() leaves after a
 * failure. */
int checkpoint_begin(struct checkpoint_writing **writing, struct world *world, const char *dir,
                     int64_t step, const struct checkpoint_piece *pieces, int count,
                     struct js *meta, void *copy, size_t bytes, struct error *err);

/* Have the threads of all ranks ended, so that checkpoint_end() need not wait for them?  One small
 * message: it may be asked after every step.  Collective. */
int checkpoint_is_written(const struct checkpoint_writing *writing);

/* Wait for the threads, commit the checkpoint and free `writing`.  Collective.  Returns as
 * checkpoint_save() does. */
int checkpoint_end(struct checkpoint_writing *writing, struct error *err);

/* An opened, committed checkpoint.  Callers only read its fields. */
struct checkpoint {
    char *path;
    struct js *meta; /* meta.json */
    int64_t step;
    int64_t bytes; /* of all shard files */
    int ranks;     /* that wrote it, so shard files */
    int tensors;
    /* private to io/checkpoint*.c */
    struct catalog *catalog;
};

/* Open the checkpoint at path (".../step-00001000").  Not collective: every rank that calls this
 * reads the index.  Returns 0 and a checkpoint for checkpoint_close(), or -1 with err set: it is
 * not committed, its index does not match COMMIT's digest, an element is not stored exactly once,
 * or a folder named step-N holds another step. */
int checkpoint_open(struct checkpoint **checkpoint, const char *path, struct error *err);
void checkpoint_close(struct checkpoint *checkpoint); /* NULL allowed */

/* Returns tensor number i, 0 to checkpoint->tensors - 1, as a piece that covers all of it; data is
 * NULL, and name lives as long as the checkpoint. */
struct checkpoint_piece checkpoint_tensor(const struct checkpoint *checkpoint, int i);
/* Returns the number of pieces that tensor number i is stored in. */
int64_t checkpoint_pieces(const struct checkpoint *checkpoint, int i);
/* Returns the number of the tensor with this name, or -1. */
int checkpoint_find_tensor(const struct checkpoint *checkpoint, const char *name);

/* Read meta.json of the committed checkpoint at path and compare its checksum with COMMIT's,
 * without opening the rest.  Returns a value for js_free(), or NULL with err set. */
struct js *checkpoint_read_meta(const char *path, struct error *err);

/* Fill data of the wanted pieces from whatever boxes and intervals are stored (any layout), and
 * convert between fp32, bf16 and fp16 where dtypes differ.  Checksums are not compared: see
 * checkpoint_verify().  Not collective.  Returns 0, or -1 with err set: a tensor is absent, has
 * other dims or a dtype that is not converted, or bytes cannot be read; data is then undefined. */
int checkpoint_load(struct checkpoint *checkpoint, const struct checkpoint_piece *wanted, int count,
                    struct error *err);

/* Recompute the checksums of part number `part` of `parts` parts and compare them; (0, 1) is all of
 * the checkpoint.  Parts have about equal bytes, whatever the number of files, so that each rank
 * may take one; a piece of a tensor has one checksum and belongs to one part.  Not collective.
 * Returns 0, or -1 with err naming file, tensor and offset of the first mismatch. */
int checkpoint_verify(struct checkpoint *checkpoint, int part, int parts, struct error *err);

/* Compare the sizes of all shard files with the catalog.  Returns 0, or -1 with err naming a file
 * that is absent or has another size. */
int checkpoint_sizes(const struct checkpoint *checkpoint, struct error *err);

/* A folder named step-NNNNNNNN. */
struct checkpoint_entry {
    char *path;
    int64_t step;
    int committed; /* COMMIT is there; nothing else has been checked */
    int stays;     /* 1: checkpoint_prune() never deletes it; 0 from checkpoint_list() */
};

/* List the checkpoints in folder dir, newest first, without .partial ones.  Not collective.
 * Returns their number, with *entries for checkpoint_list_free(); 0 if dir is absent; -1 with err
 * set if it cannot be read. */
int checkpoint_list(struct checkpoint_entry **entries, const char *dir, struct error *err);
void checkpoint_list_free(struct checkpoint_entry *entries, int count);

/* What this process knows about checkpoints after it has read or written every byte of them; so
 * that none is verified twice.  All zero is an empty list. */
enum checkpoint_state { CHECKPOINT_UNKNOWN, CHECKPOINT_WHOLE, CHECKPOINT_DAMAGED };

struct checkpoint_checked {
    /* private to io/checkpoint_find.c */
    struct checkpoint_check {
        char *path;
        enum checkpoint_state state;
    } * list;
    int count, capacity;
};

/* Returns what checkpoint_checked_set() last set for path; CHECKPOINT_UNKNOWN: nothing. */
enum checkpoint_state checkpoint_checked_get(const struct checkpoint_checked *checked,
                                             const char *path);
void checkpoint_checked_set(struct checkpoint_checked *checked, const char *path,
                            enum checkpoint_state state);
void checkpoint_checked_free(struct checkpoint_checked *checked);

/* Open the checkpoint at path (rank 0's is used) and verify it, each rank a part; rank 0 alone
 * reads its index.  Where a file is there and the system cannot read it, this is tried again for
 * some seconds, with a line in the log for each try.  Whether it is whole or damaged is set in
 * checked (NULL allowed).  Collective.  Returns 0 and a checkpoint for checkpoint_close(), or -1 on
 * every rank with err set and *checkpoint NULL: it is damaged, or, with err->by_system and the code
 * EXIT_NODE, it could not be read, which says nothing about it. */
int checkpoint_open_verified(struct checkpoint **checkpoint, struct world *world, const char *path,
                             struct checkpoint_checked *checked, struct log *log,
                             struct error *err);

/* Open the newest committed checkpoint in folder dir whose checksums hold, each rank verifying a
 * part.  A damaged one is reported to log, and the next older one is tried.  Collective.  Returns
 * 0 and a checkpoint for checkpoint_close(), NULL where dir has no committed one; or -1 on every
 * rank with err set: dir has committed ones and all are damaged, or, with err->by_system, dir or
 * one that may be whole could not be read. */
int checkpoint_find(struct checkpoint **checkpoint, struct world *world, const char *dir,
                    struct log *log, struct error *err);

/* Do the same among the entries that are committed, newest first (rank 0's are used, others may
 * pass NULL); for each that is tried, checked (NULL allowed) is set as above. */
int checkpoint_find_among(struct checkpoint **checkpoint, struct world *world,
                          const struct checkpoint_entry *entries, int count,
                          struct checkpoint_checked *checked, struct log *log, struct error *err);

/* Returns an upper bound of the bytes on disk that saving one rank's pieces takes; the sum over all
 * ranks is what checkpoint_save() requires to be free.  Not collective. */
double checkpoint_disk_bytes(const struct checkpoint_piece *pieces, int count);

/* Delete old checkpoints among the entries of one run (of checkpoint_list(); rank 0's are used), so
 * that the newest `keep` (at least 2) remain.  If there is one to delete, the newest two that
 * remain are whole: what `checked` does not know of them is verified before, each rank a part of
 * it.  One known to be damaged does not count, is not deleted, and is reported to log when this
 * call finds the damage.  The paths in `spared` (rank 0's, ended by NULL) and entries that `stay`
 * are never deleted.  Collective.  Returns 0, or -1 on every rank with err set when something could
 * not be read or deleted; what could be deleted is. */
int checkpoint_prune(struct world *world, const struct checkpoint_entry *entries, int count,
                     int keep, const char *const *spared, struct checkpoint_checked *checked,
                     struct log *log, struct error *err);

/* Delete in folder dir what a save or a pruning left when it was killed: .partial folders, and .old
 * ones whose replacement is committed.  Not collective.  Returns 0, or -1 with err set. */
int checkpoint_clean(const char *dir, struct error *err);

#endif
