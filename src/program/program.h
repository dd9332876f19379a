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
    STREAM_FETCH, /* offloaded state, host to device */
    STREAM_SPILL, /* and device to host */
    STREAM_READ,  /* reads of the swap file; STREAM_WRITE: writes */
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
    INSTR_DECODE,    /* parameters of 4 bits to the format that is computed with */
    INSTR_GATHER,    /* shard -> whole flat parameter */
    INSTR_REDUCE,    /* whole gradient -> sum over ranks of the own shard */
    INSTR_ALLREDUCE, /* sum or maximum over ranks, in place */
    INSTR_ALLTOALL,  /* a part of a buffer to each rank, one from each into another buffer */
    INSTR_SEND,  /* a boundary, or the gradient of one or of a flat, to the rank of another stage */
    INSTR_RECV,  /* what the SEND of another rank sends */
    INSTR_FETCH, /* copy offloaded state from where it lives to where it is used */
    INSTR_SPILL, /* copy it from where it is used back to where it lives */
    INSTR_NORM,  /* add a gradient's sum of squares to the step's sums */
    INSTR_SCALE, /* the factor of the update from the step's sums: mean, loss scale, clipping */
    INSTR_MOMENTUM, /* of an optimizer whose rule is of matrices: update its state, and replace the
                       gradient by the matrices that ORTHOGONALIZE then makes orthogonal */
    INSTR_ORTHOGONALIZE, /* the matrices of a flat that this rank owns, in place */
    INSTR_UPDATE,        /* the optimizer on one flat */
    INSTR_RELEASE,       /* the buffers it names are dead */
    INSTR_KINDS
};

/* Operand slots: indices into struct instr's buffer[], by kind of instruction.  RUN has a slot for
 * each segment space instead.  LOAD has a slot for each sequence of each kind of data: tokens of
 * sequence k are in SLOT_LOAD_TOKENS + k. */
enum {
    SLOT_FROM = 0,
    SLOT_TO = 1,          /* transfers, copies, ADD, CAST, DECODE */
    SLOT_LOAD_TOKENS = 0, /* LOAD */
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

/* One instruction.  What its kind does not have is as instr_make() left it: -1 for unit, micro,
 * piece, flat, peer, first_part, buffer and wait, 0 for the others. */
struct instr {
    enum instr_kind kind;
    enum program_stream stream;
    enum segment_phase phase; /* RUN, exchanges, messages; DECODE: of the run that reads it */
    int unit;       /* RUN, exchanges: the unit whose segment runs; messages: the unit whose output,
                       or its gradient, is sent */
    int micro;      /* micro-batch; -1: of no single one */
    int piece;      /* RUN: the piece of the segment that runs; exchanges: the piece before */
    int flat;       /* the flat whose parameters, gradient or state it works on */
    unsigned axes;  /* transfers: the axes of their group (mesh.h) */
    int peer;       /* SEND, RECV: the member of the group at the other end */
    int64_t elems;  /* elements that it works on; of GATHER and REDUCE, and of ALLTOALL after a
                       piece, those of one member; of GATHER of parameters of 4 bits, bytes */
    int first_part; /* ALLTOALL: index into program->part, where its parts begin, one for
                       each member */
    int64_t from;   /* ORTHOGONALIZE: elements [from, from + elems) of the flat */
    int64_t first_elem[2]; /* ALLTOALL of a flat, ORTHOGONALIZE: by slot, the element of the flat
                              with which the buffer begins */
    enum dtype dtype;  /* transfers: the format sent; CAST, DECODE: the format made; ADD: of both
                          buffers */
    enum dtype result; /* REDUCE: the format of the sum: fp32, or dtype */
    enum group_reduction reduction; /* ALLREDUCE */
    uint64_t accumulate; /* RUN: bits of segment_adds() and segment_adds_input(); REDUCE: 1: add to
                            what is there */
    int buffer[SLOTS];   /* per slot: index into program->buffer */
    uint64_t reads, writes; /* space_bit() of each slot whose buffer it reads, or writes */
    uint64_t bound;         /* space_bit() of each slot that has a buffer: for quick loops */
    int wait[STREAMS];      /* per stream but its own: the last instruction that must be complete */
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
    int *finished; /* per bucket, while compiling: flats whose gradients are complete so far */
    int logits;    /* generation, on the rank with the last unit: the buffer of its result, fp32
                      [sequences, vocab]; else -1 */
    size_t pool_bytes[POOL_COUNT]; /* slab sizes, set by memory_plan() */
};

void program_destroy(struct program *program); /* NULL allowed */

/* If the instructions of both programs are the same, free those of program and let it read other's:
 * the lists of most ranks of a large mesh differ in their buffers alone.  From then on neither list
 * may change, and program may not be read once other is destroyed. */
void program_share_list(struct program *program, const struct program *other);

/* Does the program begin with the update by the gradients that the step before left in the state?
 */
static inline int program_updates_first(const struct program *program)
{
    return program->kind == PROGRAM_UPDATE ||
           (program->kind == PROGRAM_TRAIN && program->layout->overlap_update);
}

/* Return which pass of generation this kind of program is: GENERATE_PROMPT, GENERATE_TOKEN; -1:
 * none. */
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

/* Is it a part of computing a phase of a unit: a piece of its segment, or what that needs first? */
static inline int instr_is_of_phase(const struct instr *instr)
{
    return instr->kind == INSTR_RUN || instr->kind == INSTR_DECODE;
}

/* Does it run over a group? */
static inline int instr_is_transfer(const struct instr *instr)
{
    return instr->axes != 0;
}

/* Does it go to NCCL as several transfers, one after another?  Sums of 16-bit numbers do
 * (comm/gpu/nccl.c): the next transfer in NCCL's order starts when the last of these does. */
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

/* The segment that RUN of a unit in a phase runs in this kind of program; program->units owns it.
 */
const struct segment *program_segment(const struct program *program, int unit,
                                      enum segment_phase phase);

/* ---- for the passes that write the list ---- */

/* Append a buffer, whose name is made of fmt; persistent: 1 where it outlives the step.  Returns
 * its index. */
int program_add_buffer(struct program *program, enum mem_pool pool, size_t bytes, int persistent,
                       const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Append an instruction with all operands absent.  The pointer is valid until the next instruction
 * is appended (also by program_add_cast(), program_add_all_reduce(), offload_*()). */
struct instr *program_add_instr(struct program *program, enum instr_kind kind,
                                enum program_stream stream);

/* Make the list `instrs` long, with space for no more.  Instructions that this appends are not
 * initialised: call instr_make() for each. */
void program_set_instrs(struct program *program, int instrs);

/* Initialise an instruction, with all operands absent. */
void instr_make(struct instr *instr, enum instr_kind kind, enum program_stream stream);

/* Append a part of an ALLTOALL, which has one for each member of its group, in their order; returns
 * its index. */
int program_add_part(struct program *program, struct comm_part part);

/* Append a sum over the ranks along axes, in place, of elements of a buffer; flat: whose gradient
 * it is, or -1; micro: the micro-batch whose backward completes what is summed, or -1 where that is
 * of the whole step. */
void program_add_all_reduce(struct program *program, int flat, int micro, unsigned axes, int buffer,
                            int64_t elems, enum dtype dtype);

/* Append a ZERO of the step's sums. */
void program_add_zero(struct program *program);

/* Append a CAST of fp32 elements of a flat, from buffer `from`, to dtype in buffer `to`. */
void program_add_cast(struct program *program, int flat, int micro, int from, int to, int64_t elems,
                      enum dtype dtype);

/* Return the buffer that waits and lifetimes of b count for: the one that b is a view of, else b.
 */
static inline int buffer_root(const struct program *program, int b)
{
    return program->buffer[b].whole < 0 ? b : program->buffer[b].whole;
}

/* Bind a buffer to a slot of an instruction. */
enum instr_access { ACCESS_NONE = 0, ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_BOTH = 3 };
void instr_bind(struct instr *instr, int slot, int buffer, enum instr_access access);

#endif
