/* weights_private.h - what the files of weights*.c share: the buffers of the rank's state by flat,
 * wherever they live (weights.c); filling parameters part by part (weights_init.c). */
#ifndef TRIREME_TRAIN_WEIGHTS_PRIVATE_H
#define TRIREME_TRAIN_WEIGHTS_PRIVATE_H

#include "train/session.h"

/* One kind of state of a flat, under one prefix of names: parameters, or one of the optimizer's. */
struct weights_slot {
    const char *prefix, *name; /* of tensors: prefix, and name/ where that is not "" */
    enum dtype dtype;
    int64_t block; /* elements of the flat for each number */
    int buffer;    /* index into the state's */
    int is_nf4;    /* 1: parameters in records of 4 bits (base/nf4.h); dtype is fp32, of the numbers
                      in checkpoints */
};

enum { WEIGHTS_SLOTS = 1 + OPTIMIZER_SLOTS };

/* List the state of a flat that is saved and loaded; returns how many kinds, 0 where the rank does
 * not use the flat.  The first are the parameters: masters where there are any. */
int weights_slots(const struct session *s, int flat, struct weights_slot slots[WEIGHTS_SLOTS]);

/* The address of a buffer that is plain memory of this process; else NULL. */
void *weights_plain(const struct session *s, int buffer);

/* The address of one kind of state whose numbers are plain memory of this process, in the slot's
 * dtype; else NULL. */
void *weights_numbers(const struct session *s, const struct weights_slot *slot);

/* Where the buffer of one kind of state has element `at` of a flat's shard, in bytes; the first of
 * a block, where the slot has blocks. */
size_t weights_byte_offset(const struct weights_slot *slot, int64_t at);

/* Clear all state of a flat, padding included, which no checkpoint holds.  0, or -1 with err set.
 */
int weights_clear(struct session *s, int flat, struct error *err);

/* Clear all state of a flat but buffer `but` (-1: none), which the caller fills whole.  0, or -1
 * with err set. */
int weights_clear_but(struct session *s, int flat, int but, struct error *err);

/* Cast the masters of a flat to the parameters that are computed with.  Returns 0, or -1 with err
 * set. */
int weights_refresh(struct session *s, int flat, struct error *err);

/* Fill to with the initial values of a part of a tensor, fp32 [part->count].  0, or -1 with err
 * set.
 */
typedef int weights_fill_part(void *user, const struct flat_part *part, float *to,
                              struct error *err);

/* What a rank's parameters are filled with, part by part.  Several threads call these functions,
 * each for pieces of a part. */
struct weights_filler {
    weights_fill_part *fill;
    /* Fill to with the values in this format, if they are stored in it; NULL: they never are.
     * Returns 1: they are not, and fill is called; 0, or -1 with err set. */
    int (*fill_as)(void *user, const struct flat_part *part, enum dtype dtype, void *to,
                   struct error *err);
    /* Return how many elements a piece of a part should have; NULL, or 0: any number. */
    int64_t (*piece)(void *user, const struct flat_part *part, int threads);
    void *user;
};

/* Fill the rank's parameters flat by flat (those with a 1 in flats; NULL: all) and clear the
 * optimizer's state.  Takes host memory for a piece a thread and, where parameters are not in
 * memory of this process, for one shard.  0, or -1 with err set. */
int weights_fill(struct session *s, const char *flats, const struct weights_filler *filler,
                 struct error *err);

/* Set elements of the rank's parameters of a flat, from its element `at` on; values are rounded in
 * place to the format that the parameters are kept in, of 4 bits whole blocks.  0, or -1 with err
 * set. */
int weights_write(struct session *s, int flat, int64_t at, float *values, int64_t count,
                  struct error *err);

/* Fill these flats from the files of config.model_path.  Collective where config.model_loading is
 * node; what it returns is the rank's own: 0, or -1 with err set. */
int weights_import_flats(struct session *s, const char *flats, struct error *err);

/* Fill a part from the seed; user is the session. */
weights_fill_part weights_init_part;

/* Fill to with the initial values of a part of magnitudes: the norms of rows of the matrix to which
 * they belong, as it is kept.  fill reads these, whole rows, also those of other ranks.  0, or -1
 * with err set. */
int weights_norms_part(const struct session *s, const struct flat_part *part,
                       weights_fill_part *fill, void *user, float *to, struct error *err);

#endif
