/* program.h - one rank's step as a list of instructions.
 *
 * The list is what is checked (verify.h), measured (memory.h) and run (execute.h).  Order in
 * the list is the order in which instructions are issued; each runs on one stream, in order
 * within it, and waits for the instructions of other streams it names.
 */
#ifndef TRIREME_STEP_PROGRAM_H
#define TRIREME_STEP_PROGRAM_H

#include <stdint.h>
#include <stdio.h>

#include "base/mem.h"
#include "comm/mesh.h"
#include "segment/optimizer.h"
#include "segment/segment.h"
#include "segment/units.h"

enum stream {
    STREAM_COMPUTE,
    STREAM_GATHER,
    STREAM_REDUCE,
    STREAM_POINT,
    STREAM_FETCH,
    STREAM_SPILL,
    STREAM_READ, /* from a file, and to it */
    STREAM_WRITE,
    STREAM_HOST, /* the host's own work, where its memory is apart from the device's */
    STREAMS
};

enum instr_kind {
    INSTR_ZERO,      /* clear the step's sums */
    INSTR_LOAD,      /* tokens and targets of a micro-batch, from the host */
    INSTR_RUN,       /* a segment */
    INSTR_CAST,      /* fp32 to the format it is sent in: gradients, masters */
    INSTR_GATHER,    /* shard -> whole flat parameter */
    INSTR_REDUCE,    /* whole gradient -> sum over ranks of the own shard, fp32 */
    INSTR_ALLREDUCE, /* sum over ranks, in place */
    INSTR_SEND,
    INSTR_RECV,    /* a boundary to or from another pipeline stage */
    INSTR_FETCH,   /* from where state lives to where it is used */
    INSTR_SPILL,   /* and back */
    INSTR_NORM,    /* add a gradient's sum of squares to the step's sums */
    INSTR_SCALE,   /* the factor of the update from the step's sums: mean, loss scale, clipping */
    INSTR_UPDATE,  /* the optimizer on one unit */
    INSTR_RELEASE, /* the buffers it names are dead */
    INSTR_KINDS
};

/* Operand slots; RUN uses one per segment space instead. */
enum {
    SLOT_FROM = 0,
    SLOT_TO = 1, /* transfers, CAST */
    SLOT_LOAD_TOKENS = 0,
    SLOT_LOAD_TARGETS = 1, /* LOAD */
    SLOT_SUMS = 0,         /* ZERO, NORM, SCALE, UPDATE */
    SLOT_SHARD_GRAD = 1,   /* NORM, UPDATE */
    SLOT_MASTER = 2,
    SLOT_PARAM,
    SLOT_OPTIMIZER, /* the first of its slots; UPDATE */
    SLOTS = SPACE_COUNT
};

/* Groups a transfer may run over: the mesh's axes, and all data ranks. */
enum { GROUP_DATA = MESH_AXES, GROUPS };

/* A run of memory in one pool's slab. */
struct buffer {
    char name[40];
    enum mem_pool pool;
    size_t bytes;
    int persistent;      /* lives across steps; holds values before the step begins */
    int partial;         /* persistent, but before the step only its views hold values */
    int whole;           /* -1; of a view: the buffer it is part of, whose hazards are its own */
    size_t from, offset; /* of a view: where it begins in that; in the slab */
};

struct instr {
    enum instr_kind kind;
    enum stream stream;
    enum segment_phase phase; /* RUN */
    int unit, micro;          /* -1 where it has no meaning */
    int group, peer;          /* transfers; peer for SEND and RECV */
    int64_t elems;            /* transfers: per rank for GATHER and REDUCE; CAST */
    enum dtype dtype;
    unsigned accumulate;    /* RUN: bits of spaces; REDUCE: 0 or 1 */
    int buffer[SLOTS];      /* -1 where unused */
    unsigned reads, writes; /* bit per slot */
    int wait[STREAMS];      /* the last instruction of each other stream that must be complete */
};

enum program_kind { PROGRAM_TRAIN, PROGRAM_EVALUATE, PROGRAM_LOGITS };

/* What a rank has whole, and for how long: the sharding strategies.  Where the shard axis is one,
 * shards are whole and nothing of this matters. */
enum whole_params {
    PARAMS_ALWAYS, /* whole and updated whole: stage 0 */
    PARAMS_STEP,   /* whole in place, gathered once a step from what each rank updated: 1, 2 */
    PARAMS_USE     /* gathered for each use, then gone: 3 */
};
enum whole_grads {
    GRADS_ALWAYS, /* accumulated whole over the step: stages 0, 1 */
    GRADS_MICRO   /* reduced to the shard after each micro-batch, or after the last: 2, 3 */
};

struct strategy {
    enum whole_params params;
    enum whole_grads grads;
    int accumulate_local; /* 1: gradients stay whole until the last micro-batch */
    size_t bucket_bytes;  /* of whole gradients that are summed over replicas in one transfer */
};

/* Where state lives: OFFLOAD_NONE where ops work on it. */
struct offload {
    enum config_offload_to optimizer, params, gradients;
    int apart; /* 1: the host's memory is not the device's: on a GPU */
};

struct program_request {
    enum program_kind kind;
    struct strategy strategy;
    struct offload offload;
    enum config_optimizer optimizer;
    enum dtype optimizer_dtype; /* of its state */
    enum dtype reduce_dtype;    /* of gradients on their way to shards */
    int pure; /* 1: parameters are updated in the format they are computed with: no masters */
    struct mesh_shape shape;
    struct mesh_coord coord;
    int training;                            /* 1: gradients and optimizer state exist */
    int micros;                              /* micro-batches a step */
    int prefetch_forward, prefetch_backward; /* units gathered ahead of need */
    int prefetch_late; /* 1: backward's gathers are issued behind the reduction of the run before */
};

/* Persistent buffers, by unit: shard_elems elements each, but for the whole ones. */
struct unit_state {
    int master;                /* what is updated: fp32, or as param; -1 when not training */
    int slot[OPTIMIZER_SLOTS]; /* of the optimizer; -1 when not training, and past its last */
    int param; /* what is computed with or gathered from; == master in its format; -1: each GATHER
                  casts it from master */
    int grad;  /* fp32, summed over micro-batches; -1 when not training */
    int whole_param,
        whole_grad; /* that param and grad are views of, or they themselves; -1: none */
    int bucket;     /* gradients summed over replicas together; -1: none */
};

/* Units whose whole gradients lie end to end and are summed over replicas in one transfer. */
struct bucket {
    int buffer;
    int64_t elems;
    int units, finished; /* in it; whose gradients were complete so far, while compiling */
};

struct program {
    const struct units *units; /* the caller's */
    struct program_request request;
    struct buffer *buffer;
    int buffers, buffer_capacity;
    struct instr *instr;
    int instrs, instr_capacity;
    struct unit_state *state; /* per unit */
    struct bucket *bucket;
    int buckets;
    int sums, constants, work;     /* persistent buffers; -1 if absent */
    int loss_scale;                /* a view of sums */
    int logits;                    /* buffer the LOGITS program ends in, or -1 */
    size_t pool_bytes[POOL_COUNT]; /* slab sizes, set by memory_plan() */
};

/* What the sums buffer holds, fp64. */
enum {
    SUM_LOSS,
    SUM_TARGETS,
    SUM_SQUARES,
    SUM_STOP,
    SUM_REDUCED,              /* those before are summed over data ranks */
    SUM_FACTOR = SUM_REDUCED, /* of gradients in the update, from SCALE; NaN: no update */
    SUM_LOSS_SCALE,           /* gradients are those of the loss times this */
    SUM_COUNT
};

void program_destroy(struct program *program); /* NULL allowed */

const char *instr_name(enum instr_kind kind);
const char *stream_name(enum stream stream);

/* "RUN forward layers.3 micro 0" into text; returns text. */
const char *instr_text(const struct program *program, int index, char *text, size_t size);

/* What RUN of a unit in a phase runs in this kind of program; of the program's units. */
const struct segment *program_segment(const struct program *program, int unit,
                                      enum segment_phase phase);

/* For the passes that write the list: append a buffer / an instruction with all operands
 * absent; return its index. */
int program_buffer(struct program *program, enum mem_pool pool, size_t bytes, int persistent,
                   const char *fmt, ...) __attribute__((format(printf, 5, 6)));
int program_instr(struct program *program, enum instr_kind kind, enum stream stream);

/* Append a view of bytes of buffer `whole`, which is none itself, from byte `from` on. */
int program_view(struct program *program, int whole, size_t from, size_t bytes, const char *fmt,
                 ...) __attribute__((format(printf, 5, 6)));

/* The buffer whose memory and hazards b's are: itself, or what it is a view of. */
static inline int buffer_root(const struct program *program, int b)
{
    return program->buffer[b].whole < 0 ? b : program->buffer[b].whole;
}

/* The format of masters. */
static inline enum dtype program_master_dtype(const struct program *program)
{
    return program->request.pure ? program->units->request.dtype : DTYPE_F32;
}

/* Bind a buffer to a slot of an instruction. */
enum access { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_BOTH = 3 };
void instr_bind(struct instr *instr, int slot, int buffer, enum access access);

#endif
