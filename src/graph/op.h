/* op.h - what each op means to graph, autodiff, plan and device: a row of its own, listed here. */
#ifndef TRIREME_GRAPH_OP_H
#define TRIREME_GRAPH_OP_H

#include "device/device.h"
#include "graph/graph.h"

struct autodiff;

/* One execution: resolved pointers (NULL where a value is absent). */
struct op_call {
    struct device *device;
    const struct graph *graph;
    const struct graph_node *node;
    void *in[NODE_INS];
    void *out[NODE_OUTS];
    const int64_t *shape; /* of input 0 */
    int accumulate;       /* 1: add to the gradient among the outputs, of a parameter or an input */
    int layer;            /* the number, in the model, of the unit's first block */
    void *scratch;
};

/* What ranks exchange at a node: a segment is cut there. */
enum op_transfer {
    TRANSFER_NONE,
    TRANSFER_SUM,     /* in place */
    TRANSFER_MAXIMUM, /* in place */
    TRANSFER_GATHER,  /* everybody's values to everybody */
    TRANSFER_SCATTER, /* sums, of which each gets a part */
    TRANSFER_SWAP     /* a part of the values to each */
};

/* A product of matrices that an op runs so many times; its operands and addend are not set. */
struct op_product {
    struct gemm gemm;
    int64_t times;
};
enum { OP_PRODUCTS = 6 };

struct op {
    const char *name;
    enum op_transfer transfer;
    /* Check the inputs, make the output values; mistakes by graph_fail(). */
    void (*shapes)(struct graph *graph, struct graph_node *node);
    /* The backward rule: append nodes that compute the inputs' gradients from the outputs'.  dy:
     * that of output 0, or -1 where this is a loss; without it the rule is not asked, and a
     * gradient of another output is a mistake.  node: a copy, as appending moves nodes. */
    void (*gradient)(struct autodiff *ad, const struct graph_node *node, int dy);
    /* Floating point operations (a multiply-add is two).  NULL: flops_each for each element of
     * input 0. */
    double flops_each;
    double (*flops)(const struct graph *graph, const struct graph_node *node);
    /* The products it runs, which the device's memory may divide: fill the first of product, and
     * return how many.  NULL: none. */
    int (*products)(const struct device *device, const struct graph *graph,
                    const struct graph_node *node, struct op_product product[OP_PRODUCTS]);
    /* Bytes that it reads and writes, beside its products' operands.  NULL: those of all operands,
     * or none where there are products. */
    double (*bytes)(const struct graph *graph, const struct graph_node *node);
    /* Of attention: the positions of a sequence whose keys its queries look at.  NULL: it is none.
     */
    int64_t (*positions)(const struct graph *graph, const struct graph_node *node);
    /* Bytes of scratch on this device (NULL: none). */
    size_t (*scratch)(struct device *device, const struct graph *graph,
                      const struct graph_node *node);
    int (*run)(const struct op_call *call, struct error *err);
    /* It will be run: begin what takes long before the first time.  NULL: nothing does. */
    void (*prepare)(struct device *device, const struct graph *graph,
                    const struct graph_node *node);
    /* Does the device offer what this node asks of the op?  0, or -1 with err saying what it lacks;
     * NULL: always. */
    int (*offered)(struct device *device, const struct graph *graph, const struct graph_node *node,
                   struct error *err);
    /* Inputs that the op reads in the graph's format, which graph_node() checks (bit i: input i);
     * others are in any, or in one of their own. */
    unsigned in_format;
    /* Output 0 may take the memory of one of these inputs when that dies here (bit i: input i). */
    unsigned in_place;
    /* Inputs whose rows are those of output 0 (bit i: input i), where a part of the rows can be
     * computed by itself; 0: it cannot. */
    unsigned by_rows;
    /* Outputs that the op leaves out where nothing needs them (bit i: output i). */
    unsigned optional;
    /* 1: expensive to compute, compared with the memory to keep its result; recompute=selective
     * keeps it. */
    int keep;
};

/* The shapes of an op whose output 0 is like input 0, or like input 1, without a condition. */
void op_shaped_as_first(struct graph *graph, struct graph_node *node);
void op_shaped_as_second(struct graph *graph, struct graph_node *node);

/* Rows of input 0, whose positions are their numbers in a sequence, have to be those of the graph's
 * sequences of attrs.seq. */
void op_check_sequences(struct graph *graph, const struct graph_node *node);

/* Floating-point operations of a node, a multiplication and an addition counting as two. */
double op_flops(const struct graph *graph, const struct graph_node *node);
/* Fill the first of product with the products that the node runs; returns how many, 0: none. */
int op_products(const struct device *device, const struct graph *graph,
                const struct graph_node *node, struct op_product product[OP_PRODUCTS]);
/* Bytes that the node reads and writes, beside its products' operands: those of all its operands
 * where it has no products, unless the op says otherwise. */
double op_bytes(const struct graph *graph, const struct graph_node *node);

/* All ops, a row each: node->op == &op_linear.  One file each group. */
extern const struct op op_embedding, op_embedding_backward, op_rmsnorm, op_rmsnorm_backward,
    op_linear, op_linear_input_grad, op_linear_weight_grad, op_rope, op_attention,
    op_attention_backward, op_attention_cached, op_swiglu, op_swiglu_backward, op_add,
    op_accumulate, op_layernorm, op_layernorm_backward, op_bias, op_bias_backward, op_gelu,
    op_gelu_backward, op_positions, op_positions_backward, op_head_loss, op_head_loss_train,
    op_head_part, op_head_term, op_head_part_loss, op_head_part_train, op_all_reduce,
    op_all_reduce_max, op_all_gather, op_reduce_scatter, op_all_to_all, op_scale, op_adapter,
    op_adapter_input_grad, op_adapter_weight_grad, op_row_squares, op_magnitude,
    op_magnitude_input_grad, op_magnitude_weight_grad, op_fit_rows, op_place_columns, op_pack_heads,
    op_pack_heads_backward, op_split_heads, op_order_chunks, op_dropout, op_round, op_qk_norm,
    op_qk_norm_backward;

/* The mask of a node with attrs.dropped, whose samples are input k. */
struct dropout_mask op_dropout_mask(const struct op_call *call, int k);

/* What ops with attrs.adapted have in common (op_adapter.c).  The columns of parts before part p,
 * of parts->parts those of all: where a part begins in b, m and squares. */
int64_t op_adapter_columns_before(const struct graph_adapter *parts, int p);
/* Parts have to follow one another within so many columns, and to be of slices that there are, each
 * of which has a part. */
void op_check_adapter(struct graph *graph, const struct graph_node *node, int64_t columns);

/* Is what is exchanged changed where it lies? */
static inline int op_reduces_in_place(const struct op *op)
{
    return op->transfer == TRANSFER_SUM || op->transfer == TRANSFER_MAXIMUM;
}

#endif
