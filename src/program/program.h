/* program.h - one rank's step as a list of instructions.
 *
 * The list is what is checked (verify.h), measured (memory.h) and run (execute.h).  Order in
 * the list is the order in which instructions are issued; each runs on one stream, in order
 * within it, and waits for the instructions of other streams it names.
 */
#ifndef TRIREME_PROGRAM_PROGRAM_H
#define TRIREME_PROGRAM_PROGRAM_H

#include <stdint.h>
#include <stdio.h>

#include "comm/mesh.h"
#include "program/state.h"
#include "segment/segment.h"

enum program_stream {
    STREAM_COMPUTE,
    STREAM_GATHER,
    STREAM_REDUCE,
    STREAM_POINT, /* messages: program_point() */
    STREAM_POINT_1,
    STREAM_POINT_2,
    STREAM_POINT_3,
    STREAM_POINT_4,
    STREAM_POINT_5,
    STREAM_POINT_6,
    STREAM_POINT_7,
    STREAM_FETCH,
    STREAM_SPILL,
    STREAM_READ, /* reads of the swap file; STREAM_WRITE: writes */
    STREAM_WRITE,
    STREAM_UPDATE, /* UPDATE beside forward, on a GPU */
    STREAM_HOST,   /* the host's own work, where its memory is apart from the device's */
    STREAMS
};

enum instr_kind {
    INSTR_ZERO,      /* clear the step's sums */
    INSTR_LOAD,      /* tokens, targets and what else data says of the rows of a micro-batch */
    INSTR_RUN,       /* a piece of a segment */
    INSTR_ADD,       /* add one buffer to another */
    INSTR_CAST,      /* fp32 to the format it is sent in: gradients, masters */
    INSTR_GATHER,    /* shard -> whole flat parameter */
    INSTR_REDUCE,    /* whole gradient -> sum over ranks of the own shard */
    INSTR_ALLREDUCE, /* sum or maximum over ranks, in place */
    INSTR_ALLTOALL,  /* a part of a buffer to each rank, one from each into another buffer */
    INSTR_SEND,
    INSTR_RECV,     /* SEND, RECV: a boundary, its gradient, or a flat's, between stages */
    INSTR_FETCH,    /* from where state lives to where it is used */
    INSTR_SPILL,    /* and from there back to where it lives */
    INSTR_NORM,     /* add a gradient's sum of squares to the step's sums */
    INSTR_SCALE,    /* the factor of the update from the step's sums: mean, loss scale, clipping */
    INSTR_MOMENTUM, /* of an optimizer whose rule is of matrices: update its state, and replace the
                       gradient by the matrices that ORTHOGONALIZE then makes orthogonal */
    INSTR_ORTHOGONALIZE, /* the matrices of a flat that this rank owns, in place */
    INSTR_UPDATE,        /* the optimizer on one flat */
    INSTR_RELEASE,       /* the buffers it names are dead */
    INSTR_KINDS
};

/* Operand slots; RUN uses one per segment space instead. */
enum {
    SLOT_FROM = 0,
    SLOT_TO = 1, /* transfers, copies, ADD, CAST */
    SLOT_LOAD_TOKENS =
        0, /* LOAD: what a segment reads of each; SLOT_LOAD_TOKENS + k of sequence k */
    SLOT_LOAD_TARGETS = SLOT_LOAD_TOKENS + SEQUENCES,
    SLOT_LOAD_POSITIONS = SLOT_LOAD_TARGETS + SEQUENCES,
    SLOT_LOAD_DOCUMENTS = SLOT_LOAD_POSITIONS + SEQUENCES,
    SLOT_LOAD_SAMPLES = SLOT_LOAD_DOCUMENTS + SEQUENCES,
    LOAD_SLOTS = SLOT_LOAD_SAMPLES + SEQUENCES,
    SLOT_SUMS = 0,       /* ZERO, NORM, SCALE, MOMENTUM, UPDATE */
    SLOT_SHARD_GRAD = 1, /* NORM, MOMENTUM, UPDATE */
    SLOT_WORK = 0,
    SLOT_MATRICES = 1, /* ORTHOGONALIZE */
    SLOT_MASTER = 2,
    SLOT_PARAM,
    SLOT_OPTIMIZER, /* the first of its slots; MOMENTUM, UPDATE */
    SLOTS = SPACE_COUNT
};

struct instr {
    enum instr_kind kind;
    enum program_stream stream;
    enum segment_phase phase; /* RUN, exchanges, messages */
    int unit;                 /* whose segment is run, whose output or its gradient is sent; -1 */
    int micro;                /* of which micro-batch; -1: of no single one */
    int piece;                /* RUN, exchanges: of the segment; else -1 */
    int flat;                 /* whose parameters, gradient or state it works on, or -1 */
    unsigned axes;            /* transfers: of their group (mesh.h); else 0 */
    int peer;                 /* SEND and RECV: the member at the other end */
    int64_t elems;     /* elements that it works on; of GATHER and REDUCE, and of ALLTOALL after a
                          piece, those of one member */
    int first_part;    /* ALLTOALL: index into program->part, where its parts begin, one for
                          each member; else -1 */
    int64_t from;      /* ORTHOGONALIZE: elements [from, from + elems) of the flat */
    int64_t place[2];  /* ALLTOALL of a flat, ORTHOGONALIZE: by slot, where in the flat a
                          buffer begins */
    enum dtype dtype;  /* transfers: the format sent; CAST: the format made; ADD: of both buffers */
    enum dtype result; /* REDUCE: of the sum: fp32, or dtype; else fp32 */
    enum group_reduction reduction; /* ALLREDUCE; else GROUP_SUM */
    uint64_t accumulate; /* RUN: bits of segment_adds() and segment_adds_input(); REDUCE: 0 or 1 */
    int buffer[SLOTS];   /* -1 where unused */
    uint64_t reads, writes; /* space_bit() per slot */
    uint64_t bound;         /* the same per slot that instr_bind() gave a buffer: for quick loops */
    int wait[STREAMS];      /* the last instruction of each other stream that must be complete */
};

enum program_kind {
    PROGRAM_TRAIN,
    PROGRAM_EVALUATE,
    PROGRAM_UPDATE, /* what PROGRAM_TRAIN leaves to the next step, where layout.overlap_update */
    PROGRAM_PROMPT, /* generation, forward alone: GENERATE_PROMPT, */
    PROGRAM_TOKEN   /* and GENERATE_TOKEN */
};

struct program {
    const struct state *state; /* the caller's; its buffers are the first of the program's */
    const struct units *units; /* the state's, as is the layout */
    const struct layout *layout;
    enum program_kind kind;
    int micros; /* micro-batches a step */
    struct program_buffer *buffer;
    int buffers, buffer_capacity;
    struct instr *instr;
    int instrs, instr_capacity; /* capacity 0: program_share_list() took another's list */
    int has_waits;              /* 0: made by program_create_without_waits() */
    struct comm_part *part;     /* of all ALLTOALLs */
    int parts, part_capacity;
    struct overlap_update *overlap; /* while compiling; NULL: UPDATE is at the end */
    int *finished; /* per bucket, while compiling: of how many flats the gradients are complete */
    int logits;    /* buffer that generation ends in, fp32 [sequences, vocab], of the rank with the
                      last unit; else -1 */
    size_t pool_bytes[POOL_COUNT]; /* slab sizes, set by memory_plan() */
};

void program_destroy(struct program *program); /* NULL allowed */

/* Where a program's instructions are the same as another's, let it read those in place of its own,
 * which are freed: the lists of most ranks of a large mesh differ in their buffers alone.  From
 * then on neither list is changed, and the program is not read once the other is destroyed. */
void program_share_list(struct program *program, const struct program *other);

/* Does it begin with the update by the gradients of the step before, which that has left? */
static inline int program_updates_first(const struct program *program)
{
    return program->kind == PROGRAM_UPDATE ||
           (program->kind == PROGRAM_TRAIN && program->layout->overlap_update);
}

/* Which pass of generation it is; -1: none. */
static inline int program_generates(const struct program *program)
{
    return program->kind == PROGRAM_PROMPT  ? GENERATE_PROMPT
           : program->kind == PROGRAM_TOKEN ? GENERATE_TOKEN
                                            : -1;
}

/* Sequences of a micro-batch in this kind of program. */
static inline int64_t program_batch(const struct program *program)
{
    const struct units_request *r = &program->units->request;
    if (program_generates(program) >= 0)
        return r->generate.batch;
    return program->kind == PROGRAM_EVALUATE && r->eval_batch ? r->eval_batch : r->batch;
}

/* Tokens that a micro-batch has of each of its sequences. */
static inline int64_t program_seq(const struct program *program, int sequence)
{
    const struct units_request *r = &program->units->request;
    if (program_generates(program) < 0)
        return r->seq[sequence];
    return sequence ? 0 : program->kind == PROGRAM_PROMPT ? r->generate.prompt : 1;
}

/* Bytes of a unit's output for one micro-batch. */
static inline size_t program_boundary_bytes(const struct program *program, int unit)
{
    const struct unit_boundaries *own = &program->units->boundary[unit];
    int pass = program_generates(program);
    if (pass >= 0)
        return own->generate_bytes[pass];
    return program->kind == PROGRAM_EVALUATE ? own->eval_bytes : own->bytes;
}

/* Is a unit one of the rank's? */
static inline int program_owns(const struct program *program, int unit)
{
    return program->units->rank[unit] == program->state->coord.at[MESH_PIPELINE];
}

/* The stream of messages from one rank of the pipeline axis to another, the same at both ends. */
static inline enum program_stream program_point(const struct program *program, int from, int to,
                                                enum mesh_way way)
{
    int ranks = program->layout->shape.degree[MESH_PIPELINE];
    return (enum program_stream)((int)STREAM_POINT + mesh_point(ranks, from, to, way));
}

const char *instr_name(enum instr_kind kind);
const char *program_stream_name(enum program_stream stream);

/* "RUN forward layers.3 micro 0", "SEND backward layers.3 micro 0" into text; returns text. */
const char *instr_text(const struct program *program, int index, char *text, size_t size);

/* Is it an exchange among ranks within a unit, after a piece of its segment? */
static inline int instr_is_exchange(const struct instr *instr)
{
    return instr->piece >= 0 && instr->kind != INSTR_RUN;
}

/* Does it run over a group? */
static inline int instr_is_transfer(const struct instr *instr)
{
    return instr->axes != 0;
}

/* Does it go to NCCL as several transfers, one after another?  Sums of 16 bits do
 * (comm/gpu/nccl.c): what comes behind in NCCL's order starts when the last of them does. */
static inline int instr_is_several_transfers(const struct instr *instr)
{
    int sums = instr->kind == INSTR_REDUCE ||
               (instr->kind == INSTR_ALLREDUCE && instr->reduction == GROUP_SUM);
    return sums && (instr->dtype == DTYPE_BF16 || instr->dtype == DTYPE_F16);
}

static inline int instr_is_message(const struct instr *instr)
{
    return instr->kind == INSTR_SEND || instr->kind == INSTR_RECV;
}

/* Is it a copy of offloaded state between pools? */
static inline int instr_is_copy(const struct instr *instr)
{
    return instr->kind == INSTR_FETCH || instr->kind == INSTR_SPILL;
}

/* The graph of a unit in this kind of program. */
const struct graph *program_graph(const struct program *program, int unit);

/* What RUN of a unit in a phase runs in this kind of program; of the program's units. */
const struct segment *program_segment(const struct program *program, int unit,
                                      enum segment_phase phase);

/* For the passes that write the list: append a buffer; returns its index. */
int program_buffer(struct program *program, enum mem_pool pool, size_t bytes, int persistent,
                   const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Append an instruction with all operands absent.  The pointer is valid until the next instruction
 * is appended (also by program_cast(), program_all_reduce(), offload_*()). */
struct instr *program_instr(struct program *program, enum instr_kind kind,
                            enum program_stream stream);

/* Have a list of so many instructions, and no space for more.  Those that are added have no values:
 * instr_make() is to give them theirs. */
void program_set_instrs(struct program *program, int instrs);

/* Make of memory an instruction with all operands absent. */
void instr_make(struct instr *instr, enum instr_kind kind, enum program_stream stream);

/* Append a part of an ALLTOALL, which has one for each member of its group, in their order; returns
 * its index. */
int program_part(struct program *program, struct comm_part part);

/* Append a sum over the ranks along axes, in place, of elements of a buffer; flat: whose gradient
 * it is, or -1; micro: the micro-batch whose backward completes what is summed, or -1 where that is
 * of the whole step. */
void program_all_reduce(struct program *program, int flat, int micro, unsigned axes, int buffer,
                        int64_t elems, enum dtype dtype);

/* Append a ZERO of the step's sums. */
void program_zero(struct program *program);

/* Append a CAST of elements of a flat. */
void program_cast(struct program *program, int flat, int micro, int from, int to, int64_t elems,
                  enum dtype dtype);

/* The buffer whose memory and hazards b's are: itself, or what it is a view of. */
static inline int buffer_root(const struct program *program, int b)
{
    return program->buffer[b].whole < 0 ? b : program->buffer[b].whole;
}

/* Bind a buffer to a slot of an instruction. */
enum instr_access { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_BOTH = 3 };
void instr_bind(struct instr *instr, int slot, int buffer, enum instr_access access);

#endif
