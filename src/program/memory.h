/* memory.h - where every buffer of a program lies, and what a rank needs altogether. */
#ifndef TRIREME_PROGRAM_MEMORY_H
#define TRIREME_PROGRAM_MEMORY_H

#include "program/program.h"

/* Give every buffer an offset in its pool's slab and set pool_bytes.  Persistent buffers come
 * first, in order; the others share the rest by their lifetimes in list order. */
void memory_plan(struct program *program);

/* The part of memory_plan() that is for a state: give persistent buffers, in order, offsets from
 * the start of each pool. */
void memory_place_persistent(struct program_buffer *list, int count, size_t pool_bytes[POOL_COUNT]);

/* Steps that may be in flight on a device that only enqueues. */
enum { MEMORY_STEPS = 2 };

/* What one rank needs: the one sum that a plan shows, that is checked before the start, and that
 * the executor allocates its part of. */
struct memory_need {
    size_t slab_bytes[POOL_COUNT]; /* shared by the programs, one of which runs at a time */
    size_t step_bytes;   /* on a GPU, of the host: inputs and sums of one step in flight */
    size_t logits_bytes; /* on a GPU, of the host: where logits of generation are copied to */
    size_t copy_bytes;   /* of the host: what a checkpoint in the background is written from */
    size_t pool_bytes[POOL_COUNT]; /* of a pool: slabs, steps in flight, logits, staging, copy */
    size_t staging_bytes; /* the part of POOL_COMM that is the node's memory, also on a GPU */
    size_t reserve_bytes; /* of a GPU beside the pools: its context and libraries, and NCCL */
    size_t nccl_bytes;    /* of the reserve */
    size_t total_bytes;   /* of the pools that are memory */
    size_t device_bytes;  /* of a GPU: the pools that lie there, and the reserve; 0 on the CPU */
    size_t host_bytes;    /* of the node's memory: all pools, or what a GPU leaves there */
};

/* Amounts of memory of one rank: what there is for it, 0 where nobody said; or, as a result, what
 * it needs, or lacks, of each kind. */
struct memory_limits {
    size_t device_bytes; /* of its GPU */
    size_t host_bytes;   /* its share of the node's */
    int no_disk;         /* 1: nothing can be offloaded to disk */
};

/* What the executor allocates for count > 0 programs of a rank: slab_bytes, step_bytes and
 * logits_bytes. */
void memory_slabs(struct memory_need *need, const struct program *const *programs, int count);

/* Fill all of a need, for count > 0 programs of a rank.  options: how GPUs communicate;
 * reserve_bytes: what the GPU's context and libraries will take, without NCCL.  Pure. */
void memory_need(struct memory_need *need, const struct program *const *programs, int count,
                 const struct mesh_options *options, size_t reserve_bytes);

/* Do need->device_bytes fit into free_bytes of a GPU?  Returns 0, or -1 with err giving each pool's
 * size, what is missing, and what takes less. */
int memory_fits(const struct memory_need *need, size_t free_bytes, struct error *err);

/* The life of a buffer: the first and the last instruction that names it or a view of it; -1: none,
 * or the buffer is a view. */
struct memory_lifetime {
    int first, last;
};

/* Find the lives of all buffers; for free(). */
struct memory_lifetime *memory_lifetimes(const struct program *program);

#endif
