/* build.h - the functions that models are written with: each appends one forward node.
 *
 * Values are indices into the graph.  Tensors are [rows, columns]; rows = batch * seq.  The first
 * mistake is kept in the graph's err; functions called after it return any value.  In a graph that
 * is trained, w, b and m, and the tables of embeddings and of positions, are parameters: autodiff()
 * refuses others.
 */
#ifndef TRIREME_GRAPH_BUILD_H
#define TRIREME_GRAPH_BUILD_H

#include "graph/graph.h"

/* Declare a parameter; returns its value, which is the rank's part of one that is divided.  One
 * that is `shared` belongs to another unit. */
int build_param(struct graph *graph, const struct graph_param *param);

/* Work on one of the model's sequences from here on; a graph begins with sequence 0. */
void build_sequence(struct graph *graph, int sequence);
int build_tokens(struct graph *graph);  /* int32 [rows], of the sequence worked on */
int build_targets(struct graph *graph); /* the same, -1 where masked; a model has those of one */
/* What data says of where rows of the sequence worked on are, for the functions that take it; -1
 * there stands for the row's number in its sequence, which is one document.  int32 [rows]: the
 * position of each row in its document; and where that begins, counted from the first row of the
 * sequence, the whole one where ranks divide it.  Of each a unit reads those of one sequence. */
int build_row_positions(struct graph *graph);
int build_row_documents(struct graph *graph);
/* The samples of the sequence worked on, for the functions that drop numbers. */
int build_samples(struct graph *graph);
/* The boundary of that name, [rows of a sequence, width]: what the nearest unit before this one
 * puts out by it, or in a unit of several blocks the nearest block. */
int build_boundary(struct graph *graph, const char *name, int sequence, int64_t width);
/* That of the name "hidden", of the sequence worked on. */
int build_input(struct graph *graph, int64_t width);
/* The model's constants, of the positions of the rows that the rank has of the sequence; of all
 * positions of a sequence where these come from data (graph->packed, graph->cache). */
int build_rope_table(struct graph *graph, int64_t head_dim);
/* Make value, the result of a node, the unit's output, which units behind it read by that name (or
 * the caller, after the last unit). */
void build_output_named(struct graph *graph, const char *name, int value);
/* By the name "hidden". */
void build_output(struct graph *graph, int value);

/* Rows of a table; where that is a parameter whose rows are divided, a term of their sum over the
 * ranks. */
int build_embedding(struct graph *graph, int tokens, int table);
/* y = norm(x) * w */
int build_rmsnorm(struct graph *graph, int x, int w, float eps);
/* *sum = x + delta; y = norm(*sum) * w, which something has to read where *sum has a gradient */
int build_rmsnorm_residual(struct graph *graph, int x, int delta, int w, float eps, int *sum);
/* y = (x - mean) / deviation * w + b, of each row */
int build_layernorm(struct graph *graph, int x, int w, int b, float eps);
/* x w^T + addend; addend -1 for none */
int build_linear(struct graph *graph, int x, int w, int addend);
/* x w^T in fp32, whatever the graph's format: logits that are put out, and terms of a sum over
 * ranks that is taken in fp32 */
int build_linear_fp32(struct graph *graph, int x, int w);
/* Norm each head of queries with wq, and of keys with wk (head_dim elements each), of packed
 * projections; RMSNorm. */
int build_qk_norm(struct graph *graph, int qkv, int wq, int wk, int64_t heads, int64_t kv_heads,
                  int64_t head_dim, float eps);
/* Rotate queries and keys of packed projections; heads or kv_heads 0: keys and values alone, or
 * queries.  positions: of rows, or -1 */
int build_rope(struct graph *graph, int qkv, int table, int positions, int64_t heads,
               int64_t kv_heads, int64_t head_dim);
/* Causal attention over packed projections; where ranks divide each sequence (graph->context), of
 * own rows with the keys and values of all. */
int build_attention(struct graph *graph, int qkv, int64_t heads, int64_t kv_heads,
                    int64_t head_dim);
/* Causal attention over packed projections of rows that continue sequences (graph->cache), from the
 * positions that data says; window as in struct build_attention. */
int build_attention_cached(struct graph *graph, int qkv, int64_t heads, int64_t kv_heads,
                           int64_t head_dim, int64_t window);
/* Attention in other forms; where ranks divide each sequence, of packed projections and causal. */
struct build_attention {
    int q;  /* [rows, heads * head_dim], or packed projections where kv is -1 */
    int kv; /* -1, or keys and values [kv_rows, 2 * kv_heads * head_dim] of as many sequences,
               which may be of another length */
    int documents; /* of rows, which then see their own document alone; or -1 */
    enum { BUILD_CAUSAL, BUILD_FULL } mask; /* FULL: all keys are seen */
    int64_t window; /* keys that a query sees, its own and those before it; 0: all before */
    int64_t heads, kv_heads, head_dim;
    double dropout;     /* share of the weights that is dropped; 0: none */
    const char *site;   /* its name in the block, and */
    int64_t first_head; /* how many of the model's heads are before those of q; for dropout */
};
int build_attention_of(struct graph *graph, const struct build_attention *form);
/* Packed projections of own query heads, `first` of `heads` being the first of them, and of those
 * of all `kv_heads` key and value heads that they read: for build_rope() and build_attention(),
 * with as many key heads as *packed says. */
int build_pack_heads(struct graph *graph, int q, int kv, int64_t first, int64_t heads,
                     int64_t kv_heads, int64_t head_dim, int64_t *packed);
int build_swiglu(struct graph *graph, int gate_up);
/* x + b, and gelu(x + b) in its tanh form; b is added to each row */
int build_bias(struct graph *graph, int x, int b);
int build_gelu(struct graph *graph, int x, int b);
/* x + table of positions [at least seq, width]: its row t is added to token t of each sequence, or
 * to the rows that have this position; positions: of rows, or -1 */
int build_positions(struct graph *graph, int x, int table, int positions);
/* x * factor */
int build_scale(struct graph *graph, int x, float factor);
/* y [rows, columns], and to its columns of each adapted tensor p added: u_p b_p^T, where u_p are
 * the columns of u [rows, slices * r] that are slice parts->part[p].slice, and b_p the tensor p of
 * b [sum of part columns, r].  Hu et al. 2021 (arXiv 2106.09685). */
int build_adapter(struct graph *graph, int y, int u, int b, const struct graph_adapter *parts);
/* Of the rows of w + factor * b a that are adapted, the sums of their squares, fp32 [sum of part
 * columns]: a [slices * r, columns].  Where w and a are divided by columns: terms of them.  No
 * gradient passes through. */
int build_row_squares(struct graph *graph, int w, int a, int b, float factor,
                      const struct graph_adapter *parts);
/* y, each adapted column i times m[i] / sqrt(squares[i]).  Liu et al. 2024 (arXiv 2402.09353). */
int build_magnitude(struct graph *graph, int y, int m, int squares,
                    const struct graph_adapter *parts);
/* x, in fp32, in the graph's format */
int build_round(struct graph *graph, int x);
/* addend (-1: none) + x, of which a share is dropped, the rest being larger for it: in a graph of
 * training, else nothing is.  site: a name, for this place alone in the block; first: columns of
 * the whole tensor before those of x.  own_rows: the ranks that each have their own rows of x
 * (build_divide_boundaries()), or one of size 0: x has all.  A share of 0: addend + x. */
int build_dropout(struct graph *graph, int x, int addend, double share, const char *site,
                  int64_t first, struct graph_group own_rows);
/* x + y */
int build_add(struct graph *graph, int x, int y);

/* ---- among the ranks of a group ---- */

/* Say that of boundaries read or put out from here on each rank of a group has its own rows, an
 * equal number (where the group does not divide them, the last ranks' are padded); in a group of
 * one: the whole again. */
void build_divide_boundaries(struct graph *graph, struct graph_group group);
/* The rank's own rows of the sum of all ranks' terms, and all ranks' own rows, which are of the
 * sequence worked on, without padding: reduce-scatter and all-gather of rows that a group need not
 * divide. */
int build_scatter_rows(struct graph *graph, int term, struct graph_group group);
int build_gather_rows(struct graph *graph, int own, struct graph_group group);
/* All columns of y, a product with matrix w, whose rows may be divided: no gradient passes. */
int build_gather_columns(struct graph *graph, int y, int w);

/* What ranks exchange of x, by one of these ops, and no other; in a group of one: x.
 *
 *   op_all_reduce      the sum of all ranks' x: whole, the same on all
 *   op_all_reduce_max  the largest of all ranks' x, element by element: whole, the same on all, NaN
 *                      where one is (but see group.h).  No gradient passes through it: who reads it
 *                      gives it none
 *   op_all_gather      all ranks' rows, one rank's behind the other's, for computations that are
 *                      divided among them
 *   op_reduce_scatter  of the sum of all ranks' x, taken in fp32 and rounded once to x's format,
 *                      the rank's share of the rows, which must divide evenly, also in group.parts
 *   op_all_to_all      an equal share of the rows to each rank: the shares from all, in their order
 */
int build_exchange(struct graph *graph, const struct op *op, int x, struct graph_group group);
/* Say that x, whole and the same on all ranks, is read by nothing but computations that are divided
 * among them: the gradients that these give are terms, which backward sums; those of a parameter
 * are summed with the flat that it is in.  x stays as it is. */
void build_divided(struct graph *graph, int x, struct graph_group group);

/* The loss of logits = h w^T, which are of the graph's format for them; gradients are multiplied by
 * scale. */
void build_head_loss(struct graph *graph, int h, int w, int targets, float scale);
/* The same where w is a parameter whose rows may be divided among the ranks of a group, and rows
 * from `vocab` of the whole on are padding: their logits count as -infinity, their gradients are 0.
 * h is whole, the same on all of them, and read by nothing else that needs a gradient of it: it is
 * declared as divided here, unless it is gathered from their own rows. */
void build_head_loss_divided(struct graph *graph, int h, int w, int targets, int64_t vocab,
                             float scale);

#endif
