/* flat.h - the flat parameter of a unit.
 *
 * A unit's parameters lie end to end, each started at a multiple of FLAT_ALIGN elements, the
 * whole padded so that every rank of the shard group owns one contiguous shard of equal size.
 * Padding exists only here: checkpoints hold the logical tensors.
 */
#ifndef TRIREME_STEP_FLAT_H
#define TRIREME_STEP_FLAT_H

#include <stdint.h>

#include "graph/graph.h"
#include "model/model.h"

enum { FLAT_ALIGN = 32, FLAT_NAME = 72 };

/* A logical tensor inside. */
struct flat_tensor {
    char name[FLAT_NAME]; /* "layers.3.attn.q" */
    int dims;
    int64_t dim[GRAPH_DIMS];
    int64_t offset, elems; /* in the flat parameter */
    enum param_init init;
    float std;
};

struct flat_range {
    int64_t start, count;
};

struct flat {
    int tensors;
    struct flat_tensor *tensor;
    int64_t *param_offset; /* per graph parameter; -1 for shared ones */
    int64_t elems;         /* logical elements */
    int64_t padded;        /* with padding: shards * shard_elems */
    int64_t shard_elems;   /* == padded where every rank has the whole */
    int pads;
    struct flat_range *pad; /* the ranges that belong to no tensor */
};

/* Lay out the parameters graph owns for `shards` ranks; names get the prefix of their block. */
void flat_create(struct flat *flat, const struct graph *graph, const struct model_unit *block,
                 int shards);
void flat_destroy(struct flat *flat);

/* Is it split over the ranks of the shard axis? */
static inline int flat_is_sharded(const struct flat *flat)
{
    return flat->shard_elems < flat->padded;
}

/* Where in it begins what the rank at place `shard` of that axis owns. */
static inline int64_t flat_shard_start(const struct flat *flat, int shard)
{
    return flat_is_sharded(flat) ? shard * flat->shard_elems : 0;
}

#endif
