/* segment.h - a straight-line list of ops for one unit and phase, with every operand resolved
 * to a memory space and an offset.  Compiled once per kind of unit, run for all of them.
 *
 * A segment is cut after each step whose op exchanges values with other ranks.  What lies between
 * two cuts is a piece; a program runs pieces, and the exchanges between them:
 *
 *   steps      norm, linear, swiglu, linear, all_reduce | norm, linear
 *   program    RUN piece 0                    ALLREDUCE   RUN piece 1
 *
 * Values that cross a cut, or are exchanged, lie in SPACE_CARRY, which outlives a piece as
 * SPACE_WORK does not.  A segment without exchanges is one piece.
 *
 * Rows may be exchanged in chunks, and products that read them, or make them, run in chunks too
 * (segment_row_chunks.c), each chunk in a piece of its own: then what two instructions touch of a
 * space says whether one must wait for the other, and not whether both touch the space.
 */
#ifndef TRIREME_SEGMENT_SEGMENT_H
#define TRIREME_SEGMENT_SEGMENT_H

#include <stddef.h>

#include "config/config.h"
#include "device/device.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "segment/flat.h"

/* What a segment touches; a RUN instruction binds a buffer to each.  The flats that a unit uses
 * (units.h) have numbers: SPACE_PARAM + k is the k-th of them, whole, SPACE_GRAD + k its gradient.
 * So have the boundaries that it reads: SPACE_INPUT + k, and SPACE_INPUT_GRAD + k its gradient.
 */
enum segment_space {
    SPACE_PARAM,
    SPACE_GRAD = SPACE_PARAM + FLAT_USES, /* in the flat's format of gradients */
    SPACE_INPUT = SPACE_GRAD + FLAT_USES,
    SPACE_OUTPUT = SPACE_INPUT + BOUNDARY_USES,
    SPACE_OUTPUT_GRAD,
    SPACE_INPUT_GRAD,
    SPACE_SAVED = SPACE_INPUT_GRAD + BOUNDARY_USES, /* what forward keeps for backward */
    SPACE_DEFERRED, /* what backward's input part keeps for its weight part */
    SPACE_TOKENS,   /* SPACE_TOKENS + k: of sequence k */
    SPACE_TARGETS =
        SPACE_TOKENS + SEQUENCES, /* of the one sequence of which the unit reads them; */
    SPACE_POSITIONS,              /* so are these */
    SPACE_DOCUMENTS,
    SPACE_SAMPLES,
    SPACE_CACHE, /* keys and values of positions before, of each block of the unit: read and written
                  */
    SPACE_CONST,
    SPACE_LOSS,          /* double[2] at its start */
    SPACE_LOSS_SCALE,    /* double[1]; may be absent: 1 */
    SPACE_EXPERT_TOKENS, /* double[units_expert_tokens_elems()] */
    SPACE_WORK,          /* temporaries and scratch */
    SPACE_CARRY,         /* temporaries that live from piece to piece */
    SPACE_COUNT
};
_Static_assert(SPACE_COUNT <= 64, "sets of spaces are bits of a uint64_t");
_Static_assert(BOUNDARY_USES + FLAT_USES * FLAT_SECTIONS <= 64, "each has a bit of `accumulate`");

/* The set of one space, or of one of an instruction's slots. */
static inline uint64_t space_bit(int space)
{
    return UINT64_C(1) << space;
}

/* Which of a unit's boundaries has its place, or the place of its gradient, in a space; -1: none.
 */
static inline int segment_input(int space)
{
    return space >= SPACE_INPUT && space < SPACE_INPUT + BOUNDARY_USES ? space - SPACE_INPUT : -1;
}

static inline int segment_input_grad(int space)
{
    int k = space - SPACE_INPUT_GRAD;
    return k >= 0 && k < BOUNDARY_USES ? k : -1;
}

enum segment_phase {
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_BACKWARD_INPUT,  /* the part of it that the gradient of the unit's input needs, */
    PHASE_BACKWARD_WEIGHT, /* and the rest, which can wait: gradients of parameters */
    PHASE_BOTH,            /* the unit that ends in the loss: forward and backward in one */
    PHASES
};

/* Is it backward, or a part of it? */
static inline int segment_phase_is_backward(enum segment_phase phase)
{
    return phase >= PHASE_BACKWARD && phase <= PHASE_BACKWARD_WEIGHT;
}

const char *segment_phase_name(enum segment_phase phase);

struct segment_ref {
    int space; /* -1: absent */
    size_t offset;
};

/* Where a parameter of the graph lies: in which of the flats that the unit uses, from which of its
 * tensors on, and at which element. */
struct segment_param_place {
    int use, tensor; /* use -1: in none of them */
    int64_t offset;
};

struct segment_step {
    int node, piece;
    int row_chunk, row_chunks; /* row_chunks above 1: it is for that chunk of the node's rows, the
                                  first being 0 */
    struct segment_ref in[NODE_INS], out[NODE_OUTS], scratch;
    size_t scratch_bytes;
    int grad_use;          /* number of the used flat whose gradient it writes; -1: none */
    int tensor[NODE_OUTS]; /* per output: the first tensor whose gradient it is, or -1 */
    int adds_input;        /* the input to whose gradient it can add; -1: none */
};

/* Steps from `first` to before `end`, of which only the last one may exchange values. */
struct segment_piece {
    int first, end;
    int runs;                   /* 1: there is something to run before the exchange */
    int first_touch, end_touch; /* of segment->touch */
    uint64_t reads, writes;     /* space_bit()s */
    double flops;
};

/* Bytes [from, to) of a space; to is SIZE_MAX for scratch. */
struct segment_touch {
    int space; /* -1: the step has no such operand */
    size_t from, to;
    int writes;
};

struct segment {
    const struct graph *graph; /* the caller's */
    enum segment_phase phase;
    int has_row_chunks; /* 1: some of its steps are for a chunk of a node's rows */
    int steps;
    struct segment_step *step;
    int pieces;
    struct segment_piece *piece;
    struct segment_touch *touch; /* where it has row chunks: what each piece touches, by space; of a
                                    space first what it reads, then what it writes; else NULL */
    size_t work_bytes, saved_bytes, deferred_bytes, carry_bytes;
    uint64_t reads, writes; /* space_bit()s */
};

/* Compile the nodes of a phase.  Of a graph that ends in the loss, the loss is made in backward,
 * with its gradient.  A graph without backward nodes has only PHASE_FORWARD and keeps nothing.
 * recompute, the same for both phases, says what forward keeps: the rest of what backward needs is
 * made again there, by the same ops to the same bits.  device sizes the scratch; place, one for
 * each parameter of the graph, says where parameters are: neither is kept. Returns 0 and a segment
 * for segment_destroy(), or -1 with err set. */
int segment_compile(struct segment *segment, const struct graph *graph, enum segment_phase phase,
                    enum config_recompute recompute, const struct segment_param_place *place,
                    struct device *device, struct error *err);
void segment_destroy(struct segment *segment);

/* The step that exchanges values after a piece, or NULL: none does. */
const struct segment_step *segment_exchange(const struct segment *segment, int piece);

/* The node of a step. */
static inline const struct graph_node *segment_node(const struct segment *segment,
                                                    const struct segment_step *step)
{
    return &segment->graph->nodes[step->node];
}

/* The node as a step runs it: of a chunk of its rows, where the step is for one. */
static inline struct graph_node segment_step_node(const struct segment *segment,
                                                  const struct segment_step *step)
{
    struct graph_node node = segment->graph->nodes[step->node];
    if (node.op->transfer == TRANSFER_NONE)
        node.attrs.row_chunks = step->row_chunks;
    return node;
}

/* What a step touches of a space.  Its operands have numbers: inputs, outputs, scratch. */
enum { STEP_OPERANDS = NODE_INS + NODE_OUTS + 1 };
struct segment_touch segment_touch(const struct segment *segment, const struct segment_step *step,
                                   int operand);

/* The sections of flat, the use-th that the unit uses, whose gradients a piece writes: a bit each.
 */
unsigned segment_piece_sections(const struct segment *segment, int piece, int use,
                                const struct flat *flat);

/* The same for the whole segment. */
unsigned segment_sections(const struct segment *segment, int use, const struct flat *flat);

/* Does it write the gradient of tensor t of the use-th flat? */
int segment_writes_tensor(const struct segment *segment, int use, int t);

/* The bit of `accumulate` with which a run adds to the gradients of a section of the use-th flat.
 */
static inline uint64_t segment_adds(int use, int section)
{
    return UINT64_C(1) << (use * FLAT_SECTIONS + section);
}

/* The bit of `accumulate` with which a run adds to the gradient of input k. */
static inline uint64_t segment_adds_input(int k)
{
    return UINT64_C(1) << (FLAT_USES * FLAT_SECTIONS + k);
}

/* Can a piece add to the gradient of input k? */
int segment_piece_can_add(const struct segment *segment, int piece, int k);

/* The sections of the use-th flat that are added to, a bit each. */
static inline unsigned segment_added(uint64_t accumulate, int use)
{
    return (unsigned)(accumulate >> use * FLAT_SECTIONS) & ((1u << FLAT_SECTIONS) - 1);
}

/* Called around every op when tracing; 0, or -1 with err set. */
struct segment_watch {
    int (*begins)(struct segment_watch *watch, const char *name, struct error *err);
    int (*ended)(struct segment_watch *watch, const char *name, struct error *err);
};

/* Do steps drop numbers, and so depend on the layer? */
static inline int segment_drops(const struct segment *segment)
{
    return segment->reads >> SPACE_SAMPLES & 1;
}

/* Run the ops of a piece.  layer: the number in the model of the unit's first block.  flat: the
 * flats that the unit uses.  base holds the address of each space the segment touches.  accumulate:
 * bits of segment_adds() and segment_adds_input(): these gradients are added to what is there, the
 * others are written.  Who writes section 0 also zeroes the padding of the gradient. watch may be
 * NULL. */
int segment_run_piece(const struct segment *segment, int piece, int layer,
                      const struct flat *const *flat, struct device *device, void *const *base,
                      uint64_t accumulate, struct segment_watch *watch, struct error *err);

#endif
