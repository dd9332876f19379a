/* transformer.h - what decoder families share: their units (embedding, equal blocks, head), and
 * functions that declare parameters and append nodes.
 *
 * "Own rows": where a model's layers are divided among tensor ranks (graph->tensor), each rank has
 * its own rows of the residual stream, and of all that works on single rows: norms, biases after a
 * sum, the sum itself (Korthikanti et al. 2022, "sequence parallelism").  In a group of one a
 * rank's own rows are all rows, and these functions exchange nothing.
 *
 *   x own rows -> norm -> gather -> linear (own rows of w) -> ... -> linear (own columns of w)
 *                                       -> a term -> sum over ranks, scattered: own rows -> + x
 */
#ifndef TRIREME_MODEL_TRANSFORMER_H
#define TRIREME_MODEL_TRANSFORMER_H

#include "model/model.h"

enum { TRANSFORMER_EMBED, TRANSFORMER_BLOCK, TRANSFORMER_HEAD };

/* Allocate and fill model's units: the embedding, the blocks "layers.0." and so on, and the head,
 * which shares the embedding's parameter where embeddings are tied. */
void transformer_units(struct model *model);

/* One of the logical tensors that are stacked into a parameter. */
struct transformer_tensor {
    const char *name; /* logical, relative to the unit: "attn.q" */
    int64_t rows;     /* of the whole tensor */
};

/* Does one layout or another stack two logical tensors of a block into one parameter, or are they
 * the same?  It does queries, keys and values, and what adapters have beside them
 * ("attn.q.lora_B"), which tensor ranks and dropout have apart. */
int transformer_stacks(const char *one, const char *other);

/* Declare a whole matrix [sum of rows, in] of normal deviates times std; returns its value.  For
 * tests: models divide all of their matrices. */
int transformer_matrix(struct graph *graph, const struct transformer_tensor *tensors, int count,
                       int64_t in, double std);

/* Declare a whole vector of ones or zeros; returns its value. */
int transformer_vector(struct graph *graph, const struct transformer_tensor *tensors, int count,
                       enum graph_param_init init);

/* The same of which a rank has a part: each stacked tensor is divided by its own rows, or all are
 * divided by columns.  Return the value of the rank's part. */
int transformer_divided_matrix(struct graph *graph, const struct transformer_tensor *tensors,
                               int count, int64_t in, double std, struct graph_division division);
int transformer_divided_vector(struct graph *graph, const struct transformer_tensor *tensors,
                               int count, enum graph_param_init init,
                               struct graph_division division);

/* Divide by rows, or by columns, among the tensor ranks, in `chunks` equal parts of which none is
 * cut (0: every row or column may go to another rank). */
struct graph_division transformer_rows(const struct graph *graph, int64_t chunks);
struct graph_division transformer_columns(const struct graph *graph, int64_t chunks);

/* Declare that boundaries are own rows; to be called first in every unit. */
void transformer_begin(struct graph *graph);
/* Declare a whole vector that is applied to own rows, so that its gradient is a term on each rank;
 * returns its value. */
int transformer_row_vector(struct graph *graph, const struct transformer_tensor *tensor,
                           enum graph_param_init init);
/* Gather all rows of h (own rows), for divided layers to read. */
int transformer_all_rows(struct graph *graph, int h);
/* x w^T, and what w's adapter adds. */
int transformer_linear(struct graph *graph, int x, int w);
/* Own rows of addend + the sum over ranks of x w^T, and of what w's adapter adds, where each rank
 * has its own columns of w.  addend: own rows, or -1: none. */
int transformer_back(struct graph *graph, int x, int w, int addend);
/* addend + dropout(x), both own rows (build_dropout()). */
int transformer_dropout(struct graph *graph, int x, int addend, double share, const char *site);

/* The parameters of queries, keys and values, as values of a graph; -1: there is none.  As a rule w
 * stacks all three, divided by heads.  Where a key head is read by query heads of several ranks, w
 * has the queries alone, and every rank has all keys and values in kv, whose gradient is a term. */
struct transformer_qkv {
    int w, bias;
    int kv, kv_bias;
    int q_norm, k_norm; /* weights [head_dim] of norms over each head of queries and of keys */
};
enum transformer_bias { TRANSFORMER_PLAIN, TRANSFORMER_BIASED };
/* Declare the parameters of queries, keys and values. */
struct transformer_qkv transformer_qkv(struct graph *graph, const struct config_model *config,
                                       enum transformer_bias bias);
/* Declare the matrix after attention, of which a rank has the columns of its heads. */
int transformer_attention_back(struct graph *graph, const struct config_model *config);
/* Positions that data gives, of rows in their packed documents or, in generation, in their
 * sequences (build_row_positions()); -1: a row's position is its number in the sequence. */
int transformer_positions(struct graph *graph);
/* Causal attention of h [rows, hidden] by the rank's heads: o [rows, rank's heads * head_dim].
 * Before it queries and keys are normed, where the model has norms for them, and rotated by table
 * (-1: not rotated).  A query sees the model's sliding window, and of packed documents its own. */
int transformer_attention(struct graph *graph, const struct config_model *config, int h,
                          const struct transformer_qkv *qkv, int table);

/* Standard deviation of the projections back into the residual stream: that of other matrices
 * divided by the square root of the number of such projections (Radford et al. 2019). */
double transformer_back_std(const struct config_model *config);

/* End the chain with the loss of the normed hidden states h [own rows, hidden], or with
 * MODEL_LOGITS put out the logits of one row of each sequence. */
void transformer_head(const struct config_model *config, int h, enum model_purpose purpose,
                      float loss_factor, struct graph *graph);

#endif
