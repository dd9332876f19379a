/* op.h - the op table: what each op means to graph, autodiff, plan and device.
 *
 * An op is a const struct op, a row whose functions check shapes, differentiate, count and run a
 * node.  The rows are declared below and defined in op_*.c, a file for each group of ops.
 */
#ifndef TRIREME_GRAPH_OP_H
#define TRIREME_GRAPH_OP_H

#include "device/device.h"
#include "graph/graph.h"

struct autodiff;

/* One execution of a node, with the addresses of its values. */
struct op_call {
    struct device *device;
    const struct graph *graph;
    const struct graph_node *node;
    void *in[NODE_INS];   /* device memory; NULL: the value is absent */
    void *out[NODE_OUTS]; /* the same */
    const int64_t *shape; /* dimensions of input 0 */
    int accumulate;       /* 1: add to the outputs that are gradients of parameters or of inputs */
    int layer;            /* number, in the model, of the unit's first block */
    void *scratch;        /* of the bytes that op->scratch() returned */
};

/* What ranks exchange at a node: a segment is cut there. */
enum op_transfer {
    TRANSFER_NONE,
    TRANSFER_SUM,        /* all-reduce in place: the sum */
    TRANSFER_MAXIMUM,    /* all-reduce in place: the maximum */
    TRANSFER_GATHER,     /* all-gather */
    TRANSFER_SCATTER,    /* reduce-scatter */
    TRANSFER_ALL_TO_ALL, /* all-to-all */
    OP_TRANSFERS
};

/* A matrix product that an op runs `times` times.  Sizes, formats and strides are set; a, b, c and
 * addend are not. */
struct op_product {
    struct gemm gemm;
    int64_t times;
};
enum { OP_PRODUCTS = 6 }; /* different products of an op, at most */

struct op {
    const char *name;
    enum op_transfer transfer;
    /* Check the inputs and append the output values.  Reports mistakes by graph_fail(). */
    void (*shapes)(struct graph *graph, struct graph_node *node);
    /* The backward rule: append nodes that compute the gradients of the inputs from those of the
     * outputs.  dy is the gradient of output 0, or -1 where output 0 is a loss.  autodiff calls the
     * rule of no other node whose output 0 has no gradient, and refuses such a node if another of
     * its outputs has one.  node is a copy, because appending moves the graph's nodes. */
    void (*gradient)(struct autodiff *ad, const struct graph_node *node, int dy);
    /* Count floating-point operations; a multiply-add is two.  NULL: flops_each for each element of
     * input 0. */
    double flops_each;
    double (*flops)(const struct graph *graph, const struct graph_node *node);
    /* Fill product[] with the matrix products that the node runs on this device, whose memory may
     * decide into how many they are divided.  Returns how many.  NULL: none. */
    int (*products)(const struct device *device, const struct graph *graph,
                    const struct graph_node *node, struct op_product product[OP_PRODUCTS]);
    /* Count the bytes that the node reads and writes, without the operands of its products.  NULL:
     * the bytes of all its values or, for an op with products, 0. */
    double (*bytes)(const struct graph *graph, const struct graph_node *node);
    /* Return how many keys a sequence has, by which machines have the speed of attention.  NULL:
     * the op is no attention, or machines do not have its speed so. */
    int64_t (*keys)(const struct graph *graph, const struct graph_node *node);
    /* Return the bytes of scratch that run() needs on this device.  NULL: 0. */
    size_t (*scratch)(struct device *device, const struct graph *graph,
                      const struct graph_node *node);
    /* Run the node.  Returns 0, or -1 with err set. */
    int (*run)(const struct op_call *call, struct error *err);
    /* Begin what takes long before the first run, such as compilation.  NULL: nothing does. */
    void (*prepare)(struct device *device, const struct graph *graph,
                    const struct graph_node *node);
    /* Does the device offer what this node asks of the op?  0, or -1 with err saying what it lacks;
     * NULL: always. */
    int (*offered)(struct device *device, const struct graph *graph, const struct graph_node *node,
                   struct error *err);
    /* Inputs that have to be in the graph's format, which graph_node() checks (bit i: input i).
     * Other inputs may have any format, or have one that the op fixes. */
    unsigned in_format;
    /* Inputs whose memory output 0 may take when this node is the last to read them (bit i). */
    unsigned in_place;
    /* Inputs of which run() needs only the rows that it computes of output 0 (bit i).  0: the op
     * cannot compute some rows alone. */
    unsigned by_rows;
    /* Outputs that run() leaves out where nothing reads them (bit i: output i). */
    unsigned optional;
    /* 1: the result costs much to compute for the memory that it takes: recompute=selective keeps
     * it for backward. */
    int keep;
};

/* For struct op's shapes: give output 0 the shape and format of input 0, or of input 1. */
void op_shaped_as_first(struct graph *graph, struct graph_node *node);
void op_shaped_as_second(struct graph *graph, struct graph_node *node);

/* Check that input 0 has graph->batch * attrs.seq rows, for an op that takes a row's position from
 * its number in the sequence.  Reports a mistake by graph_fail(). */
void op_check_sequences(struct graph *graph, const struct graph_node *node);

/* Does node n multiply by a router's matrix, that is, does op_route read the product, as it is or
 * with a bias?  Such a matrix is kept and multiplied in no fewer bits than activations: a choice
 * among experts is a step. */
int op_is_router(const struct graph *graph, int n);

/* Return how many experts the routers have among the first n nodes. */
int64_t op_experts_before(const struct graph *graph, int n);

/* What struct op's flops, products and bytes say of a node, with their defaults; of a node that
 * runs in attrs.row_chunks chunks: of one chunk. */
double op_flops(const struct graph *graph, const struct graph_node *node);
int op_products(const struct device *device, const struct graph *graph,
                const struct graph_node *node, struct op_product product[OP_PRODUCTS]);
double op_bytes(const struct graph *graph, const struct graph_node *node);

/* The rows.  A node is of an op if node->op is the row's address: node->op == &op_linear. */
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
    op_qk_norm_backward, op_route, op_route_backward, op_dispatch, op_combine, op_experts,
    op_experts_input_grad, op_experts_weight_grad, op_swiglu_scaled, op_swiglu_scaled_backward;

/* Make the mask of a node that drops numbers by attrs.dropped; input k is its VALUE_SAMPLES. */
struct dropout_mask op_dropout_mask(const struct op_call *call, int k);

/* For ops with attrs.adapted (op_adapter.c).  Sum the columns of the tensors before tensor t, where
 * the rows of tensor t begin in b, m and squares; with t = adapted->tensors: all adapted columns.
 */
int64_t op_adapter_columns_before(const struct graph_adapter *adapted, int t);
/* Check that the tensors lie one after the other within `columns` columns, and that their slices
 * are 0 to slices - 1, each used.  Reports mistakes by graph_fail(). */
void op_check_adapter(struct graph *graph, const struct graph_node *node, int64_t columns);

/* Does the exchange overwrite its input, as all-reduces do? */
static inline int op_reduces_in_place(const struct op *op)
{
    return op->transfer == TRANSFER_SUM || op->transfer == TRANSFER_MAXIMUM;
}

#endif
