/* build.h - the functions that models are written with: each appends forward nodes to a graph.
 *
 * A function takes and returns values as indices into the graph.  Tensors are [rows, columns], with
 * rows = graph->rows of the current sequence.  No function reports failure: the first mistake is
 * kept in graph->err, and functions called after it return any index.  In a graph that is trained,
 * the arguments w, wq, wk, b, m and the tables of embeddings and of learned positions have to be
 * parameters; autodiff() refuses others.
 *
 *     int x = build_input(graph, hidden);
 *     int w = build_param(graph, &param);
 *     build_output(graph, build_linear(graph, x, w, -1));
 */
#ifndef TRIREME_GRAPH_BUILD_H
#define TRIREME_GRAPH_BUILD_H

#include "graph/graph.h"

/* Declare a parameter; param is copied.  Returns its value, of the shape of the rank's part where
 * the parameter is divided. */
int build_param(struct graph *graph, const struct graph_param *param);

/* Make one of the model's sequences the current one.  A graph begins with sequence 0. */
void build_sequence(struct graph *graph, int sequence);
int build_tokens(struct graph *graph);  /* int32 [rows], of the current sequence */
int build_targets(struct graph *graph); /* int32 [rows], -1 where masked */
/* What data says about the rows of the current sequence, int32 [rows]: the position of each row in
 * its document; and the position of the document's first row, counted in the whole sequence also
 * where ranks divide it.  Functions below that take one of these also take -1: the sequence is one
 * document, and a row's position is its number.  A unit may read targets, positions, documents and
 * samples each of one sequence only. */
int build_row_positions(struct graph *graph);
int build_row_documents(struct graph *graph);
/* The sample numbers of the current sequence (VALUE_SAMPLES), for functions that drop numbers. */
int build_samples(struct graph *graph);
/* Read the boundary `name` [rows of the sequence, width]: what the nearest earlier unit puts out
 * under that name, or in a unit of several blocks the block before. */
int build_boundary(struct graph *graph, const char *name, int sequence, int64_t width);
/* Read the boundary "hidden" of the current sequence. */
int build_input(struct graph *graph, int64_t width);
/* The model's table of rotary cosines and sines, fp32 [positions, head_dim].  It has a row for each
 * row that the rank has of a sequence or, where positions come from data (graph->packed,
 * graph->cache), for each position of a whole sequence. */
int build_rope_table(struct graph *graph, int64_t head_dim);
/* Make value, the result of a node, the unit's one output.  Later units read it by `name`; after
 * the last unit the caller does. */
void build_output_named(struct graph *graph, const char *name, int value);
/* The same under the name "hidden". */
void build_output(struct graph *graph, int value);

/* y[r] = row tokens[r] of table.  Where the table is a parameter divided by rows, y is the rank's
 * term of the sum over ranks: rows that other ranks have are 0. */
int build_embedding(struct graph *graph, int tokens, int table);
/* y = norm(x) * w */
int build_rmsnorm(struct graph *graph, int x, int w, float eps);
/* *sum = x + delta; y = norm(*sum) * w.  Where *sum has a gradient something has to read y too. */
int build_rmsnorm_residual(struct graph *graph, int x, int delta, int w, float eps, int *sum);
/* y = (x - mean) / deviation * w + b, mean and deviation being those of the row */
int build_layernorm(struct graph *graph, int x, int w, int b, float eps);
/* x w^T + addend; x [rows, in], w [out, in], addend [rows, out] or -1: none */
int build_linear(struct graph *graph, int x, int w, int addend);
/* x w^T in fp32, whatever the graph's format: for logits that the unit puts out, and for terms that
 * ranks sum in fp32 */
int build_linear_fp32(struct graph *graph, int x, int w);

/* "Packed projections" are [rows, (heads + 2 * kv_heads) * head_dim]: of each row all query heads,
 * then all key heads, then all value heads. */

/* Apply RMSNorm to each head of queries with weights wq, and of keys with wk (head_dim elements
 * each), of packed projections. */
int build_qk_norm(struct graph *graph, int qkv, int wq, int wk, int64_t heads, int64_t kv_heads,
                  int64_t head_dim, float eps);
/* Rotate queries and keys of packed projections by rows of table.  heads 0: qkv has keys and values
 * alone; kv_heads 0: queries alone.  positions: of build_row_positions(), or -1. */
int build_rope(struct graph *graph, int qkv, int table, int positions, int64_t heads,
               int64_t kv_heads, int64_t head_dim);
/* Causal attention over packed projections: o [rows, heads * head_dim].  Where ranks divide each
 * sequence (graph->context), the rank's queries see the keys and values of all ranks. */
int build_attention(struct graph *graph, int qkv, int64_t heads, int64_t kv_heads,
                    int64_t head_dim);
/* Causal attention in generation: rows of packed projections continue sequences from the positions
 * that data gives, and see the keys and values kept in a cache (graph->cache).  window as in struct
 * build_attention. */
int build_attention_cached(struct graph *graph, int qkv, int64_t heads, int64_t kv_heads,
                           int64_t head_dim, int64_t window);
/* Attention with options.  Where ranks divide each sequence, only causal and of packed projections.
 */
struct build_attention {
    int q;         /* [rows, heads * head_dim], or packed projections where kv is -1 */
    int kv;        /* -1, or keys and values [kv_rows, 2 * kv_heads * head_dim], for as many
                      sequences as q has, but perhaps of another length */
    int documents; /* of build_row_documents(): a query sees its own document alone; or -1 */
    enum { BUILD_CAUSAL, BUILD_FULL } mask; /* BUILD_FULL: a query sees all keys */
    int64_t window; /* keys that a query sees: its own and window - 1 before it; 0: all before */
    int64_t heads, kv_heads, head_dim;
    double dropout;     /* share of the weights to be dropped in training; 0: none */
    const char *site;   /* for dropout: a name that no other place in the block has */
    int64_t first_head; /* for dropout: how many of the model's heads lie before those of q */
};
int build_attention_of(struct graph *graph, const struct build_attention *form);
/* Pack the rank's query heads q with those of all kv_heads key and value heads that they read.  The
 * rank's heads begin at `first` of the model's `heads`.  Sets *packed to the number of key heads in
 * a packed row, which is kv_heads for the functions above. */
int build_pack_heads(struct graph *graph, int q, int kv, int64_t first, int64_t heads,
                     int64_t kv_heads, int64_t head_dim, int64_t *packed);
/* silu(gate) * up [rows, ffn]; gate_up [rows, 2 * ffn], gate first */
int build_swiglu(struct graph *graph, int gate_up);
/* x + b, and gelu(x + b) in its tanh form; b is added to each row */
int build_bias(struct graph *graph, int x, int b);
int build_gelu(struct graph *graph, int x, int b);
/* x + learned positions, table [at least seq, width]: to row r is added the table's row
 * positions[r] (of build_row_positions()) or, with positions -1, the row of r's number in its
 * sequence. */
int build_positions(struct graph *graph, int x, int table, int positions);
/* x * factor */
int build_scale(struct graph *graph, int x, float factor);
/* y [rows, columns], where to the columns of each adapted tensor t is added u_t b_t^T.  u_t are the
 * columns of u [rows, slices * rank] of slice adapted->tensor[t].slice; b_t are the tensor's rows
 * of b [sum of the tensors' columns, rank].  Hu et al. 2021 (arXiv 2106.09685). */
int build_adapter(struct graph *graph, int y, int u, int b, const struct graph_adapter *adapted);
/* The sum of squares of each adapted row of w + factor * b a, fp32 [sum of the tensors' columns],
 * with a [slices * rank, columns].  Where w and a are divided by columns: the rank's term of each
 * sum. No gradient passes through. */
int build_row_squares(struct graph *graph, int w, int a, int b, float factor,
                      const struct graph_adapter *adapted);
/* y, where each adapted column i is multiplied by m[i] / sqrt(squares[i]).  Liu et al. 2024 (arXiv
 * 2402.09353). */
int build_magnitude(struct graph *graph, int y, int m, int squares,
                    const struct graph_adapter *adapted);
/* Round x, which is in fp32, to the graph's format; x itself where it has that format. */
int build_round(struct graph *graph, int x);
/* addend + dropout(x): in a graph for training a share of x is set to 0 and the rest multiplied by
 * 1 / (1 - share); elsewhere, or with a share of 0, x is not changed.  addend may be -1: none.
 * site: a name that no other place in the block has; first: columns of the whole tensor that lie
 * before those of x; row_group: the ranks that each have their own rows of x
 * (build_divide_boundaries()), of size 0 or 1 where x has all rows. */
int build_dropout(struct graph *graph, int x, int addend, double share, const char *site,
                  int64_t first, struct graph_group row_group);
/* x + y */
int build_add(struct graph *graph, int x, int y);
/* The sum, for each row, of what its experts make of it, times their weights
 * (device/ops_experts.h). Where the experts' matrices are divided: the rank's term, in fp32 where
 * the ranks' group says so.
 */
struct build_experts {
    int h;             /* [rows, hidden]; the same on all ranks that divide the experts */
    int router;        /* parameter [experts, hidden] */
    int gate_up, down; /* [experts, 2, ffn, hidden], gate first; [experts, hidden, ffn] */
    int addend;        /* [rows, hidden], added to the sum; -1: none */
    int64_t chosen;    /* experts of each row */
    int normed;        /* 1: the weights of a row's experts are divided by their sum */
    float balance;     /* in training: factor of the loss that evens the load out (struct route) */
};
int build_experts(struct graph *graph, const struct build_experts *form);

/* ---- among the ranks of a group ---- */

/* Declare that each rank of the group has its own rows of the boundaries that are read or put out
 * from now on: as many on every rank, padded on the last ones where the group does not divide them.
 * A group of one: every rank has all rows again. */
void build_divide_boundaries(struct graph *graph, struct graph_group group);
/* Reduce-scatter: sum the terms of all ranks; returns the rank's own rows of the sum, padded where
 * the group does not divide them. */
int build_scatter_rows(struct graph *graph, int term, struct graph_group group);
/* All-gather: collect all ranks' own rows of the current sequence; returns all of its rows, without
 * padding. */
int build_gather_rows(struct graph *graph, int own, struct graph_group group);
/* Collect all columns of y, a product with matrix w, whose rows may be divided.  No gradient passes
 * through. */
int build_gather_columns(struct graph *graph, int y, int w);

/* Exchange x among the ranks by one of these ops.  In a group of one: returns x.
 *
 *   op_all_reduce      the sum of all ranks' x: whole, the same on all
 *   op_all_reduce_max  the largest of all ranks' x, element by element: whole, the same on all, NaN
 *                      where one is (but see group.h).  No gradient passes through it, and none may
 *                      arrive at it
 *   op_all_gather      all ranks' rows, one rank's after the other's, for computations that are
 *                      divided among them
 *   op_reduce_scatter  the rank's share of the rows of the sum of all ranks' x; the sum is taken in
 *                      fp32 and rounded once to x's format.  The group has to divide the rows, and
 *                      group.row_chunks the share
 *   op_all_to_all      the shares that all ranks send to this one, in rank order; each rank sends
 *                      an equal share of its rows to every rank
 */
int build_exchange(struct graph *graph, const struct op *op, int x, struct graph_group group);
/* Declare that x is whole and the same on all ranks, and that only computations that are divided
 * among them read it.  Then each rank has a term of x's gradient: backward sums the terms, and for
 * a parameter its flat's reduction does.  x itself is not changed. */
void build_divided(struct graph *graph, int x, struct graph_group group);

/* End the graph in the loss of logits = h w^T, whose format is graph->logits.  h [rows, hidden], w
 * [vocab, hidden]; gradients are multiplied by scale. */
void build_head_loss(struct graph *graph, int h, int w, int targets, float scale);
/* The same where the rows of parameter w may be divided among ranks, and rows of the whole w from
 * `vocab` on are padding: their logits count as -infinity, their gradients are 0.  h is whole and
 * the same on all these ranks, and nothing else that needs its gradient reads it.  This function
 * declares h as divided (build_divided()), unless h was gathered from the ranks' own rows. */
void build_head_loss_divided(struct graph *graph, int h, int w, int targets, int64_t vocab,
                             float scale);

#endif
