/* graph.h - the ops of one unit, as a model writes them.
 *
 * A graph is a list of nodes over values.  A model builds the forward nodes with the functions of
 * build.h; autodiff.h appends the backward nodes.  The first mistake is kept in the graph
 * (graph_error), so that a model is written without checks in between.
 */
#ifndef TRIREME_GRAPH_GRAPH_H
#define TRIREME_GRAPH_GRAPH_H

#include <stdint.h>

#include "base/box.h"
#include "base/dtype.h"
#include "base/error.h"
#include "device/ops.h"

/* Limits: dimensions of a value, inputs and outputs of a node, bytes of a parameter's name. */
enum { GRAPH_DIMS = 4, NODE_INS = 7, NODE_OUTS = 3, GRAPH_NAME = 48 };
/* Limits: boundaries that one unit may read, bytes of a boundary's name. */
enum { BOUNDARY_USES = 3, BOUNDARY_NAME = 24 };

/* How many token sequences a sample of a model may have.  Sequence 0 is the one that models begin
 * with; a second one may have another length, such as a text that the model translates.  The
 * targets are those of one of the two. */
enum { SEQUENCES = 2 };

/* What a value is.  Those of rows are int32 [rows], a number for each row of sequence `index`. */
enum graph_value_role {
    VALUE_TEMP,        /* made by a node, used inside the unit */
    VALUE_INPUT,       /* boundary `index` that the unit reads: an activation of an earlier unit */
    VALUE_OUTPUT,      /* the activation that the unit puts out for later units */
    VALUE_OUTPUT_GRAD, /* gradient of the output: the sum of what all its readers give */
    VALUE_INPUT_GRAD,  /* gradient of input `index`, or this unit's term of it */
    VALUE_PARAM,       /* parameter `index` */
    VALUE_PARAM_GRAD,  /* gradient of parameter `index`, in its grad_dtype; written or added to */
    VALUE_TOKENS,      /* of rows: token ids */
    VALUE_TARGETS,     /* of rows: ids of the tokens to be predicted, -1 where masked */
    VALUE_POSITIONS,   /* of rows: position in the row's document, below graph->positions */
    VALUE_DOCUMENTS,   /* of rows: position, in the row's sequence, of its document's first token */
    VALUE_SAMPLES,     /* int32 [batch, 2]: number of each sequence's sample, counted from the start
                          of training: lower 32 bits, upper 32 bits */
    VALUE_CACHE,      /* keys and values of earlier positions of block `index`, kept between runs */
    VALUE_CONST,      /* constant table, made once: rotary cosines and sines, fp32 */
    VALUE_LOSS,       /* fp64 [2], added to: sum of token losses, number of targets */
    VALUE_LOSS_SCALE, /* fp64 [1]: factor of the loss in its gradients */
    VALUE_EXPERT_TOKENS, /* fp64 [experts], added to: tokens at each expert of a router; index:
                            experts of the unit's routers before it */
};

/* Ranks that work on one graph together, each on a part of it. */
struct graph_group {
    unsigned axes;  /* mesh axes along which the ranks lie: bits of enum mesh_axis */
    int size, rank; /* how many ranks; which of them the graph is for, from 0 */
    int row_chunks; /* chunks in which rows are gathered and scattered (op_collective.c); at least 1
                       where size exceeds 1; divides the rows */
    int fp32; /* 1: ranks exchange the terms of linear layers' sums in fp32, whatever the format */
};

/* The axes over which a group divides, sums or exchanges; 0 for a group of one. */
static inline unsigned graph_axes(struct graph_group group)
{
    return group.size > 1 ? group.axes : 0;
}

struct graph_value {
    enum graph_value_role role;
    enum dtype dtype;
    int dims;
    int64_t dim[GRAPH_DIMS];
    int index;                  /* number of the parameter, input, sequence or block, by role */
    int producer;               /* node whose output it is, or -1 */
    struct graph_group divided; /* size above 1: each of these ranks computes a term of the value's
                                   gradient, and autodiff sums the terms (build_divided()) */
};

/* How a parameter is divided among the ranks of a group: a rank has an interval of the rows (dim 0)
 * or of the columns (dim 1) of each stacked tensor.  In a group of size 0 or 1 a rank has all. */
struct graph_division {
    struct graph_group group;
    int dim;
    int64_t chunks; /* equal parts of a tensor along dim that must not be cut, such as heads;
                       0: every row or column may go to another rank */
};

/* Tensors that one parameter may stack: query, key and value, say. */
enum { PARAM_TENSORS = 3 };
enum graph_param_init {
    INIT_NORMAL,  /* normal deviates times std */
    INIT_UNIFORM, /* uniform numbers from -std to std */
    INIT_ONES,
    INIT_ZEROS,
    INIT_ROW_NORMS /* the norms of the rows of the adapted matrix (model/adapters.h) */
};

/* A parameter of the unit: `tensors` logical tensors stacked by rows, so that one matrix product
 * serves them all.  A model declares it with the sizes of the whole tensors; where the parameter is
 * divided, build_param() replaces dim and tensor_rows with the sizes of the rank's part. */
struct graph_param {
    int tensors;
    char tensor_name[PARAM_TENSORS][GRAPH_NAME]; /* logical, relative to the unit */
    int64_t tensor_rows[PARAM_TENSORS];
    int dims;
    int64_t dim[GRAPH_DIMS]; /* of all tensors together; dim[0] is the sum of tensor_rows */
    struct graph_division division;
    struct box box[PARAM_TENSORS]; /* the part of each tensor that the rank has; by build_param() */
    enum graph_param_init init;
    float std;
    int is_borrowed;    /* 1: it belongs to another unit (model_unit.lender), whose flat has it */
    int frozen;         /* 1: it is not trained: backward makes no gradient of it */
    int frozen_adapter; /* 1: and it is of an adapter, or of a module of lora.modules_to_save */
    int is_low_rank;    /* 1: of an adapter, beside a matrix that is frozen */
    enum dtype grad_dtype; /* in which backward makes its gradient: fp32, or, of a matrix that one
                              op_linear alone multiplies by, that of the graph */
    int block;             /* number within the unit of the block it belongs to */
};

/* A boundary that the unit reads: what the nearest earlier unit puts out under this name. */
struct graph_input {
    char name[BOUNDARY_NAME];
    int value;
    int frozen; /* 1: no trained parameter precedes it: backward makes no gradient of it */
    int has_more_readers; /* 1: other units read it too: this unit adds its term to the gradient */
    struct graph_group row_group; /* ranks that each have their own rows of it */
};

/* Which columns of a product y = x W^T an adapter changes, where W stacks several tensors.  Each
 * adapted tensor has its columns of y, and the slice of a row of u from which the addition to these
 * columns is made (drawing in op_adapter.c). */
struct graph_adapter {
    int64_t rank;        /* columns of u in a slice */
    int slices, tensors; /* slices of u; adapted tensors */
    struct {
        int64_t first, columns; /* of y: [first, first + columns) */
        int slice;              /* from 0 */
    } tensor[PARAM_TENSORS];
};

/* Which numbers an op drops.  The mask is that of struct dropout_mask, under a key made of seed,
 * layer and site.  It is a function of a number's row and column in the whole tensor, so that all
 * layouts drop the same numbers: `first` gives the rank's first column or head, attrs.part its rows
 * of each sequence, and row_group its rows where ranks share them. */
struct graph_dropout {
    double share;  /* of all numbers, to be dropped, from 0 to below 1; 0: none */
    uint64_t site; /* key of the name of the place in the block (build_dropout()) */
    int block;     /* number of the block within the unit */
    int64_t first; /* columns, or heads of attention, that lie before the rank's own */
    struct graph_group row_group; /* ranks that share the rows; size 0 or 1: the rank has all */
};

/* A mixture of experts (device/ops_experts.h). */
struct graph_experts {
    int64_t count, chosen; /* experts; of which each row has so many */
    int normed;            /* as in struct route */
    float balance;         /* the same, of gradients as attrs.scale has them */
};

/* Numbers an op needs beyond its inputs' shapes; each op uses a few of them. */
struct op_attrs {
    float eps;   /* of norms */
    float scale; /* of attention's scores, of op_scale, of the loss's gradients, of an adapter */
    int64_t seq; /* rows of a sequence */
    int64_t heads, kv_heads, head_dim;   /* of the rank; head_dim in elements */
    int64_t model_heads, model_kv_heads; /* of the whole model: of pack_heads and split_heads */
    unsigned forms;                      /* of attention: bits of enum attention_form */
    int64_t window;                      /* of attention: see struct attention */
    /* By op:          first                           columns              rows
     * head_*          rank's first logit's column     rank's columns       of a chunk; 0: the
     *                                                                      device chooses
     * embedding       rank's first row of the table
     * positions       rank's first row of the table                        of the whole table
     * place_columns   x's first column in y           of y
     * fit_rows                                                             of the result
     * pack_heads      query heads of the
     *                 ranks before */
    int64_t first, columns, rows;
    int inverse;               /* 1: rope rotates back, order_chunks goes from order to gathered */
    struct sequence_part part; /* the rank's rows of each sequence, where ranks divide it: of
                                  attention, positions, dropout and order_chunks */
    enum dtype out; /* format of the result of linear, reduce_scatter and combine, and of a head's
                       logits */
    int grad_fp32;  /* 1: the gradient of the input of a linear, or of dispatch, is fp32 */
    int fp8;        /* 1: a linear and its gradients multiply in fp8 */
    int row_chunks; /* of a gather and a reduce-scatter: see op_collective.c; of an op that a
                       segment runs in chunks (segment_row_chunks.c): how many; else 0 or 1 */
    unsigned axes;  /* of a collective: the mesh axes of its group */
    int members;    /* of a collective and order_chunks: ranks of the group */
    int gathered;   /* 1: the result has the rows of all ranks.  Forward keeps only the rank's own
                       rows for backward, which gathers the others again (recompute other than
                       none) */
    struct graph_adapter adapted; /* of an adapter */
    struct graph_experts experts; /* of route, dispatch, combine and experts */
    struct graph_dropout dropped; /* of dropout and attention */
};

struct op;

struct graph_node {
    const struct op *op;
    int in[NODE_INS];   /* values, -1 where absent */
    int out[NODE_OUTS]; /* values, -1 where absent */
    struct op_attrs attrs;
    int backward;   /* 1: appended by autodiff */
    int replaced;   /* 1: a fused forward-and-backward node stands for it in training */
    int unused;     /* 1: a backward node whose results nothing needs: it does not run */
    int accumulate; /* 1: it adds its parameter gradients to what an earlier node wrote */
};

struct model;

struct graph {
    enum dtype dtype;           /* of activations and parameters */
    int64_t batch;              /* samples; each has one of every sequence of the model */
    int64_t length[SEQUENCES];  /* tokens that the rank has of each sequence of a sample */
    int sequence;               /* number of the current sequence (build_sequence()) */
    int64_t rows, seq;          /* of the current sequence: seq = its length, rows = batch * seq */
    struct graph_group tensor;  /* ranks among which a model may divide its layers */
    struct graph_group context; /* ranks among which each sequence is divided */
    struct graph_group row_group; /* ranks that each have their own rows of a boundary: of those
                                    read or put out from now on (build_divide_boundaries()) */
    int packed;    /* 1: sequences are packed documents; data gives each row's position in its
                      document, and where that begins */
    int64_t cache; /* in generation: positions of each sequence for which keys and values are kept;
                      rows continue the sequence from positions that data gives.  0: no cache, rows
                      are whole sequences */
    int trains;    /* 1: a graph for training: dropout takes effect, and routers count and balance
                      their load */
    uint64_t seed; /* of dropout */
    int fp8;       /* 1: the model's matrices are multiplied in fp8, where sizes allow it */
    enum dtype logits;   /* format of a head's logits: fp32 or dtype */
    int64_t logits_rows; /* rows of logits that a head makes at once; 0: the device chooses */
    int64_t positions;   /* rows of the shortest table that positions from data index; 0: none */
    struct graph_value *values;
    int value_count, value_capacity;
    struct graph_node *nodes;
    int node_count, node_capacity;
    struct graph_param *params;
    int param_count, param_capacity;
    struct graph_input input[BOUNDARY_USES];
    int inputs;
    char output_name[BOUNDARY_NAME];     /* of the boundary that the unit puts out; "": none */
    struct graph_group output_row_group; /* ranks that each have their own rows of the output */
    int block, blocks;         /* number of the block that is built; blocks of the unit, 0 is 1 */
    int block_output;          /* value that the block before this one put out */
    const struct model *model; /* the model that the unit is of; NULL: none */
    struct error err;          /* the first mistake; empty: none */
};

/* Make an empty graph for batch samples.  Every sequence of a sample has seq tokens, unless the
 * caller changes graph->length.  Returns a graph for graph_destroy(); does not fail. */
struct graph *graph_create(int64_t batch, int64_t seq, enum dtype dtype);
void graph_destroy(struct graph *graph); /* NULL allowed */

/* Append a value of shape dim[dims].  Returns its index. */
int graph_value(struct graph *graph, enum graph_value_role role, enum dtype dtype, int dims,
                const int64_t *dim);

/* Append a node that reads the `ins` values in[] (-1: absent); op and what op points to stay the
 * caller's.  The op checks the inputs and appends the output values; after a mistake (graph->err) a
 * node may have no outputs.  Returns the node's index. */
int graph_node(struct graph *graph, const struct op *op, const int *in, int ins,
               const struct op_attrs *attrs);

/* Find the rows of each whole sequence that this rank of the group has, where every rank has `own`
 * rows (an even number if there are several ranks).  A sequence has 2 * size chunks, and a rank has
 * chunks `rank` and 2 * size - 1 - rank, so that all ranks have as many pairs of query and key to
 * compute.  In a group of one: all rows. */
struct sequence_part graph_sequence_part(int64_t own, struct graph_group context);

/* The index of the first value of a role, or -1. */
int graph_find(const struct graph *graph, enum graph_value_role role);

/* Elements and bytes of a value. */
int64_t graph_elems(const struct graph *graph, int value);
size_t graph_bytes(const struct graph *graph, int value);

/* Record a mistake in graph->err, unless it holds one already.  Returns -1. */
int graph_fail(struct graph *graph, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
