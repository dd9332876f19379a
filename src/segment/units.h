/* units.h - a model compiled: flat parameters of its units, segments of its kinds.
 *
 * Independent of ranks except for the number of shards; programs of all ranks share it.
 */
#ifndef TRIREME_STEP_UNITS_H
#define TRIREME_STEP_UNITS_H

#include "device/device.h"
#include "model/model.h"
#include "segment/flat.h"
#include "segment/segment.h"

/* The segments of one kind of unit: blocks of one kind, as many, recomputed alike. */
struct unit_kind {
    int block_kind, blocks;
    enum config_recompute recompute;
    struct graph *train, *evaluate, *logits;
    struct segment forward, backward; /* kinds that hand an activation on */
    struct segment both;              /* the kind that ends in the loss */
    struct segment evaluation;        /* forward without keeping anything */
    struct segment logit;
    int ends_in_loss;
};

struct units_request {
    enum dtype dtype;   /* of activations and gathered parameters */
    int64_t batch, seq; /* of one micro-batch */
    int shards;
    int64_t persist_below; /* units with fewer parameters are whole on every rank */
    enum config_recompute recompute;
    int recompute_every; /* of units that repeat, which one in so many recomputes; 0: every */
    float loss_factor;   /* gradients of the summed loss are multiplied by it */
    int with_logits;     /* compile MODEL_LOGITS too */
};

struct units {
    const struct model *model; /* the caller's */
    struct units_request request;
    int count;
    struct flat *flat;   /* per unit */
    int kinds, *kind_of; /* per unit */
    struct unit_kind *kind;
    size_t boundary_bytes; /* of the activation between units */
    size_t work_bytes;     /* of the largest segment */
};

/* Returns 0 and units for units_destroy(), or -1 with err set. */
int units_create(struct units **units, const struct model *model,
                 const struct units_request *request, struct device *device, struct error *err);
void units_destroy(struct units *units); /* NULL allowed */

static inline const struct unit_kind *units_kind(const struct units *units, int unit)
{
    return &units->kind[units->kind_of[unit]];
}

/* What a unit runs in a phase of training. */
static inline const struct segment *units_segment(const struct units *units, int unit,
                                                  enum segment_phase phase)
{
    const struct unit_kind *kind = units_kind(units, unit);
    return phase == PHASE_FORWARD    ? &kind->forward
           : phase == PHASE_BACKWARD ? &kind->backward
                                     : &kind->both;
}

/* The unit whose flat parameter holds what `unit` shares, or -1. */
static inline int units_shared(const struct units *units, int unit)
{
    return units->model->unit[unit].shared;
}

#endif
