/* weights_private.h - what weights.c does for weights_init.c and weights_pieces.c: the buffers of
 * the rank's state by flat, wherever they live. */
#ifndef TRIREME_TRAIN_WEIGHTS_PRIVATE_H
#define TRIREME_TRAIN_WEIGHTS_PRIVATE_H

#include "train/session.h"

/* One kind of state of a flat, under one prefix of names: parameters, or one of the optimizer's. */
struct weights_slot {
    const char *prefix, *name; /* of tensors: prefix, and name/ where there is one */
    enum dtype dtype;
    int buffer;
};

enum { WEIGHTS_SLOTS = 1 + OPTIMIZER_SLOTS };

/* The state of a flat that is saved and loaded; returns how many.  The first are the parameters:
 * masters where there are any. */
int weights_slots(const struct session *s, int flat, struct weights_slot slots[WEIGHTS_SLOTS]);

/* The address of a buffer that is plain memory of this process; else NULL. */
void *weights_plain(const struct session *s, int buffer);

/* Clear all state of a flat, padding included, which no checkpoint holds.  0, or -1 with err set.
 */
int weights_clear(struct session *s, int flat, struct error *err);

/* The same, but for buffer `but` (-1: none), which the caller fills whole. */
int weights_clear_but(struct session *s, int flat, int but, struct error *err);

/* Cast the masters of a flat to the parameters that are computed with.  Returns 0, or -1 with err
 * set. */
int weights_refresh(struct session *s, int flat, struct error *err);

/* What a rank's parameters are filled with, part by part. */
typedef int weights_fill_part(void *user, const struct flat_part *part, float *to,
                              struct error *err);
struct weights_filler {
    /* Put what a part of a tensor begins with into to, fp32 [part->count].  Several threads call
     * it, each for pieces of a part.  0, or -1 with err set. */
    weights_fill_part *fill;
    /* The same in another format, where that is the one in which they are read; NULL: they never
     * are.  1: this part is not in it, and fill is called; 0, or -1 with err set. */
    int (*fill_as)(void *user, const struct flat_part *part, enum dtype dtype, void *to,
                   struct error *err);
    /* The elements of a piece of a part that suit fill; NULL, or 0: any number. */
    int64_t (*piece)(void *user, const struct flat_part *part, int threads);
    void *user;
};

/* Fill the rank's parameters flat by flat (those with a 1 in flats; NULL: all) and clear the
 * optimizer's state.  Takes host memory for a piece a thread and, where parameters are not in
 * memory of this process, for one shard.  0, or -1 with err set. */
int weights_fill(struct session *s, const char *flats, const struct weights_filler *filler,
                 struct error *err);

/* Set elements of the rank's parameters of a flat, from its element `at` on; values are rounded in
 * place to the format that the parameters are kept in.  0, or -1 with err set. */
int weights_write(struct session *s, int flat, int64_t at, float *values, int64_t count,
                  struct error *err);

/* Fill these flats from the files of config.model_path.  Collective where config.model_loading is
 * node; what it returns is the rank's own: 0, or -1 with err set. */
int weights_import_flats(struct session *s, const char *flats, struct error *err);

/* What a part begins with from the seed; user is the session. */
weights_fill_part weights_init_part;

/* Fill to with the norms of the rows of the matrix to which the magnitudes of a part belong, whose
 * rows `fill` gives: whole ones, of any rank.  0, or -1 with err set. */
int weights_norms_part(const struct session *s, const struct flat_part *part,
                       weights_fill_part *fill, void *user, float *to, struct error *err);

/* Host memory for the largest shard of one kind of state; NULL with err set. */
float *weights_make_shard(const struct session *s, struct error *err);

#endif
