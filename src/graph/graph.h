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

/* BOUNDARY_USES: boundaries that one unit may read. */
enum { GRAPH_DIMS = 4, NODE_INS = 7, NODE_OUTS = 3, GRAPH_NAME = 48 };
enum { BOUNDARY_USES = 3, BOUNDARY_NAME = 24 };

/* SEQUENCES: of tokens that a model may have: the one whose targets it is trained on, and another,
 * of another length, such as the text that it translates. */
enum { SEQUENCES = 2 };

enum graph_value_role {
    VALUE_TEMP,        /* made by a node, used inside the unit */
    VALUE_INPUT,       /* boundary `index` that the unit reads: an activation of one before it */
    VALUE_OUTPUT,      /* activation for the units that read it */
    VALUE_OUTPUT_GRAD, /* its gradient, the sum over these */
    VALUE_INPUT_GRAD,  /* gradient of input `index`, or a term of it */
    VALUE_PARAM,       /* parameter `index` */
    VALUE_PARAM_GRAD,  /* its gradient, in its grad_dtype, written or accumulated into */
    VALUE_TOKENS,      /* int32 [rows] of sequence `index` */
    VALUE_TARGETS,     /* the same, as are the next two */
    VALUE_POSITIONS,   /* of each row in its document, below graph->positions */
    VALUE_DOCUMENTS,   /* the position in its sequence at which its document begins */
    VALUE_SAMPLES,     /* int32 [batch, 2]: of each sequence the number of its sample, counted from
                          the start of training: its lower half, its upper half */
    VALUE_CACHE, /* keys and values of positions before, of block `index`: kept from run to run */
    VALUE_CONST, /* table made once: rotary cosines and sines, fp32 */
    VALUE_LOSS,  /* double[2]: sum of token losses, number of targets; added to */
    VALUE_LOSS_SCALE, /* double[1]: what the loss is multiplied by for its gradients */
};

/* Ranks that work on one graph together, each on a part of it: the mesh axes along which they lie
 * (bits of enum mesh_axis), how many they are, and which of them the graph is for. */
struct graph_group {
    unsigned axes;
    int size, rank;
    int parts; /* how many parts rows are gathered and scattered in (op_collective.c), at least 1
                  where there are several ranks; they divide the rows */
    int fp32;  /* 1: terms of sums of linear layers are exchanged in fp32, whatever the format */
};

/* The axes over which something is divided, summed or exchanged in a group; 0: in a group of one.
 */
static inline unsigned graph_axes(struct graph_group group)
{
    return group.size > 1 ? group.axes : 0;
}

struct graph_value {
    enum graph_value_role role;
    enum dtype dtype;
    int dims;
    int64_t dim[GRAPH_DIMS];
    int index;                  /* of the parameter, the input, the sequence or the block */
    int producer;               /* node, or -1 */
    struct graph_group divided; /* size above 1: each of them makes a term of its gradient */
};

/* How a parameter is divided among the ranks of a group: of each of its stacked tensors a rank has
 * an interval of the rows (dim 0) or of the columns (dim 1).  In a group of size 0 or 1 each has
 * all. */
struct graph_division {
    struct graph_group group;
    int dim;
    int64_t chunks; /* equal ones that each tensor has along dim, none of which is cut: heads;
                       0: its rows or columns */
};

/* A parameter of the unit; `parts` logical tensors stacked by rows form it, so that one
 * matrix product serves several (query, key and value, say).  It is declared with the sizes of the
 * whole tensors; where it is divided, build_param() puts those of the rank's part in their place.
 */
enum { PARAM_PARTS = 3 };
/* Normal deviates times std, or numbers from -std to std, all as likely; all ones or zeros; or of
 * each row of the matrix that it belongs to the norm (model/adapters.h). */
enum graph_param_init { INIT_NORMAL, INIT_UNIFORM, INIT_ONES, INIT_ZEROS, INIT_ROW_NORMS };
struct graph_param {
    int parts;
    char part[PARAM_PARTS][GRAPH_NAME]; /* logical names, relative to the unit */
    int64_t part_rows[PARAM_PARTS];
    int dims;
    int64_t dim[GRAPH_DIMS]; /* of all parts; dim[0] is the sum of part_rows */
    struct graph_division division;
    struct box box[PARAM_PARTS]; /* what the rank has of each tensor; by build_param() */
    enum graph_param_init init;
    float std;
    int shared;            /* 1: it is a parameter of the unit that the model names as shared */
    int frozen;            /* 1: it is not trained: backward makes no gradient of it */
    int frozen_adapter;    /* 1: and it is of an adapter, or of a module of lora.modules_to_save */
    int is_low_rank;       /* 1: of an adapter, beside a matrix that is frozen */
    enum dtype grad_dtype; /* in which backward makes its gradient: fp32, or, of a matrix that one
                              op_linear alone multiplies by, that of the graph */
    int block;             /* number within the unit of the block it belongs to */
};

/* A boundary that the unit reads: what the nearest unit before it puts out by that name. */
struct graph_input {
    char name[BOUNDARY_NAME];
    int value;
    int frozen; /* 1: nothing that it is made of is trained: backward makes no gradient of it */
    int shared; /* 1: other units read it too, and its gradient is the sum of theirs */
    struct graph_group own_rows; /* the ranks that each have their own rows of it */
};

/* Of an adapter (op_adapter.c): the tensors of a stacked matrix that are adapted.  Of each, where
 * its columns begin in a row of the product and how many they are, and which slice of a row of u,
 * rank numbers each, makes what is added to them. */
struct graph_adapter {
    int64_t rank;
    int slices, parts;
    struct {
        int64_t first, columns;
        int slice;
    } part[PARAM_PARTS];
};

/* Which numbers an op drops: those of struct dropout_mask, by a key of its own for each seed, layer
 * and site.  What a rank has of the whole tensor does not enter it: `first` columns, or heads of
 * attention, are before the rank's own, and rows are those of the graph's sequences (attrs.part),
 * or, where ranks share them, this rank's of own_rows. */
struct graph_dropout {
    double share;  /* of all numbers, that is dropped; 0: none */
    uint64_t site; /* of the name of the place in the block where it is done (build_dropout()) */
    int block;     /* number within the unit */
    int64_t first;
    struct graph_group own_rows;
};

/* Numbers an op needs beyond its inputs' shapes. */
struct op_attrs {
    float eps, scale;
    int64_t seq, heads, kv_heads, head_dim;
    unsigned forms;         /* of attention: bits of enum attention_form */
    int64_t window;         /* of attention: see struct attention */
    int64_t first, columns; /* of a head: its rank's first column of the logits, and how many; of an
                               embedding and of positions: its rank's first row of the table */
    int64_t rows;           /* of a result with rows put behind or left away; of a whole table; of
                               a chunk of a head's logits, 0 being as the device likes it;
                               of first, columns and rows of pack_heads: op_heads.c */
    int inverse;
    struct sequence_part part; /* of attention, positions, dropout and order_chunks: the ranks'
                                  rows */
    enum dtype out;            /* of a linear's and of a reduce-scatter's result, a head's logits */
    int grad_fp32;             /* 1: of a linear: the gradient of its input is fp32 */
    int fp8;                   /* 1: of a linear: it and its gradients multiply in fp8 */
    int parts;                 /* of a gather and a reduce-scatter: see op_collective.c; of an op
                                  that a segment runs in parts (segment_parts.c): how many; else
                                  0 or 1 */
    unsigned axes;             /* of a collective: those of its group, and its size, */
    int members;               /* which order_chunks has too */
    int gathered;              /* 1: the result is rows of all ranks, of which this one keeps its
                                  own: every recompute but none gathers them again */
    struct graph_adapter adapted; /* of an adapter */
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
    int accumulate; /* 1: its parameter gradient adds to one written earlier in this unit */
};

struct model;

struct graph {
    enum dtype dtype;                 /* of activations and parameters */
    int64_t batch, length[SEQUENCES]; /* tokens of each sequence that the rank has */
    int sequence;                     /* that is worked on, of seq tokens; rows: batch * seq */
    int64_t rows, seq;
    struct graph_group tensor;   /* among whose ranks a model may divide its layers */
    struct graph_group context;  /* among whose ranks each sequence is divided */
    struct graph_group own_rows; /* the ranks that each have their own rows of boundaries to come */
    int packed;    /* 1: sequences are of packed documents, and data says where rows are in them */
    int64_t cache; /* positions of each sequence whose keys and values are kept, which rows continue
                      from a position that data says; 0: none, sequences are whole */
    int drops;     /* 1: it is for training, where numbers are dropped if the model says so, */
    uint64_t seed; /* by this */
    int fp8;       /* 1: matrices of the model are multiplied in fp8, where sizes allow it */
    enum dtype logits;   /* of a head: fp32 or dtype */
    int64_t logits_rows; /* of a head at once; 0: as the device likes it */
    int64_t positions;   /* rows of the shortest table that positions from data index; 0: none */
    struct graph_value *values;
    int value_count, value_capacity;
    struct graph_node *nodes;
    int node_count, node_capacity;
    struct graph_param *params;
    int param_count, param_capacity;
    struct graph_input input[BOUNDARY_USES];
    int inputs;
    char output_name[BOUNDARY_NAME]; /* of what it puts out; "": it puts out nothing */
    struct graph_group output_own_rows;
    int block, blocks;         /* being built, of so many written one behind the other; 0: one */
    int carried;               /* what the block before this one put out */
    const struct model *model; /* that writes it, for the model's own functions; NULL: none */
    struct error err;          /* the first thing that went wrong */
};

/* An empty graph for batch sequences of seq tokens, of each of the model's sequences unless their
 * lengths are set.  Free with graph_destroy() (NULL allowed). */
struct graph *graph_create(int64_t batch, int64_t seq, enum dtype dtype);
void graph_destroy(struct graph *graph);

/* Append a value / a node; return its index.  The node's op checks its inputs and sets its outputs'
 * shapes; after a mistake a node may have no outputs. */
int graph_value(struct graph *graph, enum graph_value_role role, enum dtype dtype, int dims,
                const int64_t *dim);
int graph_node(struct graph *graph, const struct op *op, const int *in, int ins,
               const struct op_attrs *attrs);

/* Of each sequence, which rows a rank of the group has, where each of them has `own`: one of `size`
 * ranks has chunk `rank` and chunk 2 * size - 1 - rank of 2 * size, so that all of them have as
 * many keys to look at.  own is even where the group is of several. */
struct sequence_part graph_sequence_part(int64_t own, struct graph_group context);

/* The first value of a role, or -1. */
int graph_find(const struct graph *graph, enum graph_value_role role);

/* Elements and bytes of a value. */
int64_t graph_elems(const struct graph *graph, int value);
size_t graph_bytes(const struct graph *graph, int value);

/* Record a mistake of the builder (the first one is kept); returns -1. */
int graph_fail(struct graph *graph, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
