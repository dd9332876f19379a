/* flat.h - a flat parameter: tensors laid end to end that share one fate.
 *
 * The tensors of a flat belong to one unit and are sharded, summed, kept and updated alike, and
 * their gradients have one number format.  They lie end to end, each started at a multiple of
 * FLAT_ALIGN elements, the whole padded so that every rank of the shard group owns one contiguous
 * shard of equal size.  Padding exists only here: checkpoints hold the logical tensors.  Of a
 * tensor that is divided among ranks a flat holds a box (base/box.h); what a rank's shard has of it
 * is an interval of the box's elements.
 *
 *   | attn.qkv: q, k, v | pad | attn.o | ffn.up | pad | norm | pad to the shards |
 *   |<- shard of rank 0 ->|<- shard of rank 1 ->|<- shard of rank 2 ->|
 *
 * Where an optimizer, or the format in which frozen weights are kept, has blocks of a tensor's
 * elements, tensors and shards begin with a block.
 *
 * A flat is made once and used by the runs of one unit or of several (a matrix that two units
 * share).  Tensors whose gradients the same segments write form a section: whether a run writes a
 * gradient or adds to it is decided for each section.
 */
#ifndef TRIREME_SEGMENT_FLAT_H
#define TRIREME_SEGMENT_FLAT_H

#include <stdint.h>

#include "base/nf4.h"
#include "graph/graph.h"
#include "model/model.h"

/* FLAT_USES: flats that one unit may use.  FLAT_SECTIONS: sections of a flat. */
enum { FLAT_ALIGN = 32, FLAT_NAME = 72, FLAT_USES = 7, FLAT_SECTIONS = 8 };

/* A logical tensor inside. */
struct flat_tensor {
    char name[FLAT_NAME];  /* "layers.3.attn.q" */
    struct box box;        /* what the flat has of it: of the whole, where nothing divides it */
    struct box blocks;     /* the same in blocks of elements, where the flat is in blocks */
    int64_t offset, elems; /* of the box, in the flat parameter */
    enum graph_param_init init;
    float std;
    int section;
};

struct flat_range {
    int64_t start, count;
};

struct flat {
    char name[MODEL_PREFIX + 24]; /* for messages and buffers: "layers.3", "layers.3 frozen" */
    int unit;                     /* whose tensors they are */
    int trained;                  /* 0: frozen: no gradient, no optimizer state */
    int is_frozen_adapter; /* 1: frozen by train.freeze, and not of the model that the adapters are
                              beside: every checkpoint holds it */
    int is_nf4; /* 1: its parameters are kept in 4 bits (base/nf4.h), of which each use makes the
                   format that is computed with; frozen */
    enum config_optimizer optimizer; /* whose rule its tensors take, where they are trained */
    enum dtype grad_dtype;           /* fp32; or bf16: nothing is ever added to it */
    unsigned divided_axes; /* mesh axes (bits of enum mesh_axis): each rank has its boxes, */
    unsigned shard_axes;   /* its shard: 0 where every rank has the whole, */
    unsigned sum_axes;     /* or a term of the gradient; of more than one rank each */
    int sections;          /* 0 where no unit writes a gradient */
    int tensors;
    struct flat_tensor *tensor;
    int64_t elems;       /* of all boxes */
    int64_t block;       /* elements that no shard cuts, from the first of a tensor on; 1: none */
    int64_t padded;      /* with padding: shards * shard_elems */
    int64_t shard_elems; /* == padded where every rank has the whole */
    int pads;
    struct flat_range *pad; /* the ranges that belong to no tensor */
};

/* Lay out the parameters of graph that the flat takes (1 for each; NULL: all that graph owns), for
 * `shards` ranks; names get the prefix of their block.  block: a power of two; tensors that one
 * parameter lays end to end must be whole blocks.  name is copied.  The flat is one of trained
 * tensors, until the caller sets another fate.  A flat without tensors has no elements.
 * flat_destroy() frees what it holds. */
void flat_create(struct flat *flat, const char *name, int unit, const struct graph *graph,
                 const struct model_unit *unit_block, const char *takes, int shards, int64_t block);
void flat_destroy(struct flat *flat);

/* The number of the tensor of that name, or -1. */
int flat_find(const struct flat *flat, const char *name);

/* Elements of its tensors, with the parts that other tensor ranks have. */
int64_t flat_whole_elems(const struct flat *flat);

/* Bytes in which parameters are kept: so many elements of it, whole blocks, where dtype is what is
 * computed with. */
static inline size_t flat_kept_bytes(const struct flat *flat, int64_t elems, enum dtype dtype)
{
    return flat->is_nf4 ? nf4_bytes(elems) : (size_t)elems * dtype_bytes(dtype);
}

/* Is it split into shards?  A small flat may be whole where others are split. */
static inline int flat_is_sharded(const struct flat *flat)
{
    return flat->shard_elems < flat->padded;
}

/* Where in it begins what the rank at place `shard` of its shard group owns. */
static inline int64_t flat_shard_start(const struct flat *flat, int shard)
{
    return flat_is_sharded(flat) ? shard * flat->shard_elems : 0;
}

/* The part of one tensor that lies in a range of the flat. */
struct flat_part {
    const struct flat_tensor *tensor;
    int64_t start, count; /* elements of the tensor's box, in row-major order */
    int64_t at;           /* where they begin, in elements from the start of the range */
};

/* Go through the tensors that have elements in [from, to) of flat, in order: set *part to the next
 * one after tensor number `after` (-1: the first).  Returns its number, or -1 where none is left.
 */
int flat_next_part(const struct flat *flat, int64_t from, int64_t to, int after,
                   struct flat_part *part);

#endif
