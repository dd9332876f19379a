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

/* Declare a matrix [sum of rows, in] of normal deviates; returns its value. */
int transformer_matrix(struct graph *graph, const struct transformer_part *parts, int count,
                       int64_t in, double std);

/* Declare a vector of ones or zeros. */
int transformer_vector(struct graph *graph, const struct transformer_part *parts, int count,
                       enum graph_param_init init);

/* A matrix of which a rank has the part that division says: each tensor by its own rows, or all by
 * their columns.  division.chunks, where it is not 0, divides each of them along that dimension. */
int transformer_divided_matrix(struct graph *graph, const struct transformer_part *parts, int count,
                               int64_t in, double std, struct graph_division division);

/* Deviation of the projections back into the residual stream: they start smaller, by the square
 * root of how many there are (Radford et al. 2019). */
double transformer_back_std(const struct config_model *config);

/* The end of the chain: the loss of normed hidden states h, or with MODEL_LOGITS the logits of one
 * row. */
void transformer_head(const struct config_model *config, int h, enum model_purpose purpose,
                      float loss_factor, struct graph *graph);

#endif
