/* units_frozen.h - which tensors are not trained: those of train.freeze, and beside adapters. */
#ifndef TRIREME_SEGMENT_UNITS_FROZEN_H
#define TRIREME_SEGMENT_UNITS_FROZEN_H

#include "segment/units.h"

/* The logical name of tensor t of a parameter of a unit that begins with block; returns name. */
const char *units_param_name(char name[FLAT_NAME], const struct graph_param *param, int t,
                             const struct model_unit *block);

/* Freeze the parameters of a unit's graph that train.freeze names, and beside adapters all others.
 * Returns 0, or -1 with err set: of the tensors of one matrix some are frozen and some trained. */
int units_freeze(const struct units *units, int unit, struct graph *graph, struct error *err);

/* Floating point operations to train on one token (model_flops_per_token()), with what is frozen
 * left out. */
struct model_flops units_flops_per_token(const struct units *units, int64_t seq);

/* Check the patterns of train.freeze ("" or NULL: none) for a model: refuse one that matches
 * nothing, to freeze everything, and to freeze a part of a matrix that is one on any layout.
 * Returns 0, or -1 with err set. */
int units_check_freeze(const struct model *model, const char *patterns, struct error *err);

#endif
