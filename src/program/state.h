/* state.h - what outlives a step: the buffers of one rank's state, which all of its programs share.
 * Where gradients pass, they are among these buffers but do not outlive the step.
 */
#ifndef TRIREME_PROGRAM_STATE_H
#define TRIREME_PROGRAM_STATE_H

#include <stdarg.h>

#include "base/mem.h"
#include "program/layout.h"
#include "segment/optimizer.h"
#include "segment/units.h"

/* A run of memory in one pool's slab. */
struct program_buffer {
    char name[40];
    enum mem_pool pool;
    size_t bytes;
    int persistent; /* lives across steps; holds values before the step begins */
    int partial;    /* persistent, but before the step only its views hold values */
    int whole;     /* of a view: the buffer that it is part of, for which its uses count; else -1 */
    int like;      /* an earlier buffer of the same size, dead when this one begins, whose place it
                      takes; -1: none */
    size_t from;   /* of a view: its first byte in the whole */
    size_t offset; /* its first byte in the slab */
};

/* Append a buffer to a list that grows and that its owner free()s.  Its name is made of fmt and
 * args, which may point into the list.  Returns its index. */
int state_append_buffer(struct program_buffer **list, int *count, int *capacity, enum mem_pool pool,
                        size_t bytes, int persistent, const char *fmt, va_list args);

/* Make buffer b of a list a view of buffer `whole`, which is no view itself, from byte `from` of
 * that on.  b keeps its name and bytes; pool, persistent and partial become those of the whole.
 * Returns b. */
int state_make_view(struct program_buffer *list, int b, int whole, size_t from);

/* Persistent buffers of a flat: shard_elems elements each, but for the whole ones. */
struct state_flat { /* all -1: no unit of the rank uses it */
    int master; /* what UPDATE writes, fp32 or in the format of param; == param where one buffer is
                   both; -1: the flat has none */
    int slot[OPTIMIZER_SLOTS]; /* of the optimizer; -1 when not trained, and past its last */
    int param;       /* what RUN reads, or GATHER, FETCH or, of 4 bits, DECODE; -1: each GATHER
                        casts the master */
    int grad;        /* sum over micro-batches, in the flat's format; -1: not trained */
    int whole_param; /* the whole buffer of which param is a view, or param itself; -1: none */
    int whole_grad;  /* the same of grad */
    int bucket;      /* in which the gradient is summed over replicas; -1: none */
};

/* Flats whose whole gradients lie end to end and are summed, over the same axes and in one format,
 * in one transfer. */
struct state_bucket {
    int buffer;
    enum dtype dtype;
    int64_t elems;
    int flats; /* in it */
};

/* What the sums buffer holds, fp64.  Squares are kept per flat until SCALE adds them, always in the
 * same order: the bits of the norm do not depend on which stage has which flats. */
enum {
    SUM_FACTOR,               /* of gradients in the update, from SCALE; NaN: no update */
    SUM_LOSS_SCALE,           /* gradients are those of the loss times this */
    SUM_SQUARES,              /* of all gradients, from SCALE */
    SUM_OVER_DATA,            /* sums from here on are summed over data ranks and stages */
    SUM_LOSS = SUM_OVER_DATA, /* of the tokens' losses */
    SUM_TARGETS,              /* number of targets; after the loss, as SPACE_LOSS wants it */
    SUM_OVER_TENSOR, /* sums from here on are summed over tensor ranks, too: all tensor ranks
                        have the same loss, but each has counted the squares of its own
                        part */
    SUM_STOP = SUM_OVER_TENSOR, /* ranks that ask to stop */
    SUM_COUNT,                  /* number of the sums above, which do not depend on the model */
    SUM_FLATS = SUM_COUNT /* in training, per flat: squares of its gradient; 0 where another rank
                             counts them; after them, per unit and expert of its routers: tokens
                             that went there */
};

struct state {
    const struct units *units; /* the caller's, as is the layout */
    const struct layout *layout;
    struct mesh_coord coord;       /* of the rank */
    int training;                  /* 1: gradients and optimizer state exist */
    char *has;                     /* per flat: 1: a unit of the rank uses it */
    struct program_buffer *buffer; /* with their places in the slabs, if they outlive the step */
    int buffers, capacity;
    struct state_flat *flat; /* per flat */
    struct state_bucket *bucket;
    int buckets;
    int *cache;         /* per unit: buffer of keys and values that generation keeps, or -1 */
    int *expert_tokens; /* per unit: view of sums, tokens at its experts; -1: none are counted */
    int sums, constants, work; /* buffers */
    int loss_scale;            /* view of sums: SUM_LOSS_SCALE alone */
    int over_data;             /* view of sums: from SUM_OVER_DATA to the end */
    int over_tensor;           /* view of sums: from SUM_OVER_TENSOR to the end */
};

/* Plan the state of a rank: parameters, sums, constants and workspace; the caches of units that
 * generate; where it trains also gradients, masters and the optimizer's state.  Pure: buffers get
 * places, but no memory.  units and layout must outlive it.  state_destroy() frees it (NULL
 * allowed). */
struct state *state_create(const struct units *units, const struct layout *layout, int training,
                           int rank);
void state_destroy(struct state *state);

/* How many experts the routers of all units have whose tokens are counted: the last elements of
 * sums, in the order of units and of their routers. */
int64_t state_expert_tokens_elems(const struct state *state);

/* Is a flat updated here? */
static inline int state_trains(const struct state *state, int flat)
{
    return state->training && state->has[flat] && state->units->flat[flat].trained;
}

/* Is the unit that a flat belongs to one of the rank's?  A rank whose units only use the flat has a
 * copy of it (tied_flats.h). */
static inline int state_owns(const struct state *state, int flat)
{
    return state->units->rank[state->units->flat[flat].unit] == state->coord.at[MESH_PIPELINE];
}

/* The format of masters. */
static inline enum dtype state_master_dtype(const struct state *state)
{
    return state->layout->no_masters ? state->units->request.dtype : DTYPE_F32;
}

/* ---- where state lives, and what is whole ---- */

/* The sides memory is on, away from the device first. */
enum state_side { SIDE_DISK, SIDE_HOST, SIDE_DEVICE };

/* The side on which a pool's memory is. */
enum state_side state_side(const struct state *state, enum mem_pool pool);

/* Return the pool of state that is offloaded to `to`; with OFFLOAD_NONE: pool. */
enum mem_pool state_pool(enum config_offload_to to, enum mem_pool pool);

/* Do gradients pass (layout_grads_pass())?  Then they are in the pool of activations. */
static inline int state_grads_pass(const struct state *state)
{
    return state->training && layout_grads_pass(state->layout);
}

/* The pool of gradients. */
enum mem_pool state_grad_pool(const struct state *state);

/* The side on which the optimizer works. */
enum state_side state_update_side(const struct state *state);

/* Do parameters live on another side than the device, so that each use needs a FETCH? */
int state_fetches_params(const struct state *state);

/* Do gradients live on another side than the device, so that a run that adds to one needs a FETCH
 * before and a SPILL after? */
int state_fetches_grads(const struct state *state);

/* Are there several shards? */
static inline int state_has_shards(const struct state *state)
{
    return state->units->request.shards > 1;
}

/* May some flats be gathered, or fetched from another side, before they are used?  Which of them:
 * state_gathers_flat(). */
static inline int state_gathers_some(const struct state *state)
{
    return state_has_shards(state) || state_fetches_params(state);
}

/* Where in a flat the rank's shard begins, in elements. */
static inline int64_t state_shard_start(const struct state *state, int flat)
{
    const struct flat *of = &state->units->flat[flat];
    return flat_shard_start(of, mesh_member(&state->layout->shape, state->coord, of->shard_axes));
}

/* Does each GATHER of a flat cast the masters, so that no 16-bit shard is kept?  So it is where
 * parameters are gathered for each use, and the masters are on the device. */
static inline int state_casts(const struct state *state, int flat)
{
    const struct layout *layout = state->layout;
    enum mem_pool masters = state_pool(layout->offload.optimizer, POOL_OPTIMIZER);
    return state_trains(state, flat) && layout->strategy.params == PARAMS_USE &&
           layout->offload.params == OFFLOAD_NONE && state_side(state, masters) == SIDE_DEVICE &&
           state->units->request.dtype != state_master_dtype(state) &&
           flat_is_sharded(&state->units->flat[flat]);
}

/* Is a flat gathered, or fetched from another side, before it is used? */
static inline int state_gathers_flat(const struct state *state, int flat)
{
    return flat_is_sharded(&state->units->flat[flat]) || state_fetches_params(state);
}

#endif
