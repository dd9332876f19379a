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

/* Make what is computed with from the masters of a flat.  0, or -1 with err set. */
int weights_refresh(struct session *s, int flat, struct error *err);

/* Fill the rank's parameters part by part, flat by flat (those with a 1 in flats; NULL: all), with
 * what `fill` puts into to, fp32 [part->count], and clear the optimizer's state.  Takes host memory
 * for one shard.  0, or -1 with err set. */
typedef int weights_fill_part(void *user, const struct flat_part *part, float *to,
                              struct error *err);
int weights_fill(struct session *s, const char *flats, weights_fill_part *fill, void *user,
                 struct error *err);

/* Fill these flats from the files of config.model_path.  0, or -1 with err set. */
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
