/* transformer.h - shared parts of decoder families: embedding, equal blocks and a head as units,
 * and the declaration of their parameters. */
#ifndef TRIREME_MODEL_TRANSFORMER_H
#define TRIREME_MODEL_TRANSFORMER_H

#include "model/model.h"

enum { TRANSFORMER_EMBED, TRANSFORMER_BLOCK, TRANSFORMER_HEAD };

/* Fill model's units: the embedding, "layers.0." and so on, and the head, which shares the
 * embedding's flat parameter where embeddings are tied. */
void transformer_units(struct model *model);

/* One of the logical tensors that are stacked into a parameter. */
struct transformer_part {
    const char *name;
    int64_t rows;
};

/* Declare a matrix [sum of rows, in] of normal deviates; returns its value.  For tests: models
 * divide all of their matrices. */
int transformer_matrix(struct graph *graph, const struct transformer_part *parts, int count,
                       int64_t in, double std);

/* Declare a vector of ones or zeros. */
int transformer_vector(struct graph *graph, const struct transformer_part *parts, int count,
                       enum graph_param_init init);

/* A matrix of which a rank has the part that division says: each tensor by its own rows, or all by
 * their columns.  division.chunks, where it is not 0, divides each of them along that dimension. */
int transformer_divided_matrix(struct graph *graph, const struct transformer_part *parts, int count,
                               int64_t in, double std, struct graph_division division);

/* Where a model's layers are divided among tensor ranks (graph->tensor), these have their own rows
 * of the residual stream and of all that works on rows alone: norms, biases behind a sum, the sum
 * itself (Korthikanti et al. 2022, "sequence parallelism").  In a group of one all of these are
 * what they are called.
 *
 *   x own rows -> norm -> gather -> linear (own rows of w) -> ... -> linear (own columns of w)
 *                                                   -> a term -> scatter, sum: own rows -> + x
 */
/* Say that boundaries are own rows; to be called first in every unit. */
void transformer_begin(struct graph *graph);
/* A vector that works on own rows. */
int transformer_row_vector(struct graph *graph, const struct transformer_part *part,
                           enum graph_param_init init);
/* All rows of h, for divided layers to read. */
int transformer_all_rows(struct graph *graph, int h);
/* x w^T, with what an adapter of w adds. */
int transformer_linear(struct graph *graph, int x, int w);
/* Own rows of the sum of x w^T over the ranks, which have own columns of w, and of addend (own
 * rows; -1: none). */
int transformer_back(struct graph *graph, int x, int w, int addend);
/* addend + x, both own rows, of which training drops a share of x (build_dropout()). */
int transformer_dropout(struct graph *graph, int x, int addend, double share, const char *site);
/* Division by rows or columns of a matrix, in chunks (0: of one row or column) that are not cut. */
struct graph_division transformer_rows(const struct graph *graph, int64_t chunks);
struct graph_division transformer_columns(const struct graph *graph, int64_t chunks);

/* Weights and biases (-1: none) of queries, keys and values: stacked and divided by heads; or,
 * where grouped queries on several ranks read one key head, queries alone, and in kv keys and
 * values, which every rank has whole, and whose gradients are terms. */
struct transformer_qkv {
    int w, bias, kv, kv_bias;
    int q_norm, k_norm; /* weights of norms over each head of queries and of keys; -1: none */
};
enum transformer_bias { TRANSFORMER_PLAIN, TRANSFORMER_BIASED };
/* Declare them, and the matrix behind attention, which has columns for the rank's heads. */
struct transformer_qkv transformer_qkv(struct graph *graph, const struct config_model *config,
                                       enum transformer_bias bias);
int transformer_attention_back(struct graph *graph, const struct config_model *config);
/* Of packed documents the position of each row in its own, of rows that continue sequences that in
 * the sequence; else -1. */
int transformer_positions(struct graph *graph);
/* Causal attention of h [rows, hidden] by the rank's heads, within the model's sliding window and
 * within documents where these are packed; queries and keys go through their norms and are rotated
 * by table first (-1: not). */
int transformer_attention(struct graph *graph, const struct config_model *config, int h,
                          const struct transformer_qkv *qkv, int table);

/* A vector of ones or zeros of which a rank has the part that division says. */
int transformer_divided_vector(struct graph *graph, const struct transformer_part *parts, int count,
                               enum graph_param_init init, struct graph_division division);

/* Deviation of the projections back into the residual stream: they start smaller, by the square
 * root of how many there are (Radford et al. 2019). */
double transformer_back_std(const struct config_model *config);

/* The end of the chain: the loss of normed hidden states h, or with MODEL_LOGITS the logits of one
 * row of each sequence. */
void transformer_head(const struct config_model *config, int h, enum model_purpose purpose,
                      float loss_factor, struct graph *graph);

#endif
