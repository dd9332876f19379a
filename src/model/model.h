/* model.h - a model as a chain of units, each a forward graph.
 *
 * A unit puts out one activation under a name, and later units read it by that name
 * (graph/build.h): the next unit, or units much further on, as every block of a decoder reads an
 * encoder's output. Units of one kind have the same graph, as all blocks of a transformer do.  A
 * family makes each block a unit of its own; model_wrap() joins neighbours of one kind into larger
 * units.  A model knows the group of ranks that its layers are divided over, and nothing else of
 * parallelism, sharding or optimizers.
 *
 *     units   embed | layers.0 | layers.1 | layers.2 | head
 *     kinds     0        1          1          1        2
 */
#ifndef TRIREME_MODEL_MODEL_H
#define TRIREME_MODEL_MODEL_H

#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "graph/graph.h"

enum { MODEL_PREFIX = 24 }; /* bytes of a prefix or a unit's name */

/* What a graph is for. */
enum model_purpose {
    MODEL_LOSS,       /* training: the last unit ends in the loss */
    MODEL_EVALUATION, /* the same without dropout */
    MODEL_LOGITS      /* generation: rows continue sequences whose keys and values are kept, and the
                         last unit puts out the logits of one row of each sequence: of row
                         targets[i] of all rows, for sequence i */
};

struct model_unit {
    int kind;                  /* units of equal kind have equal graphs */
    char prefix[MODEL_PREFIX]; /* of its parameters' logical names: "layers.3."; "": none */
    int lender;                /* unit whose flat has the parameters that it borrows, or -1 */
    int first, blocks;         /* it consists of model->block[first] to [first + blocks - 1]; set by
                                  model_make(), not by families */
};

struct model;

struct model_name;

/* A family of models; one row each. */
struct model_family {
    const char *name;
    const struct model_name *names; /* Hugging Face's names of its tensors (names.h), or NULL */
    /* Allocate and fill model->unit, and set units, const_width and sequences as needed. */
    void (*units)(struct model *model);
    /* Append the forward nodes of one block of a kind to graph (graph/build.h).  With MODEL_LOSS
     * the gradients of the loss are multiplied by loss_factor. */
    void (*graph)(const struct model *model, int kind, enum model_purpose purpose,
                  float loss_factor, struct graph *graph);
    /* Fill the constant table (rotary cosines and sines), fp32 [seq, const_width]. */
    void (*table)(const struct model *model, int64_t seq, float *table);
};

/* Llama: RMSNorm, rotary positions, grouped queries, SwiGLU.  GPT-2: LayerNorm, learned positions,
 * GELU, biases. */
extern const struct model_family model_llama, model_gpt2;

struct model {
    const struct model_family *family;
    struct config_model config;
    int units;
    struct model_unit *unit;
    struct model_unit *block; /* the units before model_wrap(), whose prefixes name tensors */
    int64_t const_width;      /* columns of the constant table; 0: no table */
    int sequences;            /* token sequences of a sample: 1 unless the family sets 2 */
    struct config_lora lora;  /* adapters (adapters.h); r 0: none */
    /* Set by the caller of model_make() or model_create(), before graphs are made: */
    int packed;          /* 1: trained on packed documents (graph->packed) */
    uint64_t seed;       /* of dropout */
    int fp8;             /* 1: training and evaluation in bf16 multiply its matrices in fp8, but not
                            the head's matrix and tables */
    enum dtype logits;   /* format of a head's logits in training and evaluation, which activations
                            then have too; fp32 activations have fp32 logits */
    int64_t logits_rows; /* rows of logits that a head makes at once; 0: the device chooses */
};

/* Make a model of a family; config is copied.  Returns a model for model_destroy(); does not fail.
 */
struct model *model_make(const struct model_family *family, const struct config_model *config);

/* Make a model of the family that config names.  Returns 0 and a model for model_destroy(), or -1
 * with err set. */
int model_create(struct model **model, const struct config_model *config, struct error *err);
void model_destroy(struct model *model); /* NULL allowed */

/* Join neighbouring units of equal kind into units of `blocks` blocks; the last may have fewer.  To
 * be called once at most, before anything else is made of the units. */
void model_wrap(struct model *model, int blocks);

/* Write "layers.3", "embed" or "head" into name; returns name. */
const char *model_unit_name(const struct model *model, int unit, char name[MODEL_PREFIX]);

/* Count the logical parameters (numbers) of a unit, without those of other units that it shares. */
int64_t model_unit_params(const struct model *model, int unit);

/* What a unit's graph is made for. */
struct model_graph {
    enum model_purpose purpose;
    int64_t batch;          /* samples */
    int64_t seq[SEQUENCES]; /* tokens that a rank has of each sequence of a sample */
    int64_t cache;    /* MODEL_LOGITS: positions of each sequence whose keys and values are kept */
    enum dtype dtype; /* of activations and parameters */
    struct graph_group tensor, context; /* as in struct graph */
    float loss_factor;                  /* MODEL_LOSS: gradients are multiplied by it */
};

/* Make the forward graph of a unit with all its blocks.  Returns a graph for graph_destroy(), or
 * NULL with err set if shapes do not fit. */
struct graph *model_unit_graph(const struct model *model, int unit, const struct model_graph *form,
                               struct error *err);

/* A logical tensor. */
enum { MODEL_TENSOR = 72 }; /* bytes of its name */
struct model_tensor {
    char name[MODEL_TENSOR];
    int dims;
    int64_t dim[GRAPH_DIMS]; /* of the whole tensor; 1 from `dims` on */
    int is_linear;           /* 1: a matrix of a block, not of the embedding or the head */
    int is_of_experts;       /* 1: experts, or their router; is_linear is 0 */
};
/* Call visit for every tensor of a model once, in the order of its units.  Stops when visit returns
 * other than 0, and returns that; returns -1 with err set where a unit's graph cannot be made. */
int model_each_tensor(const struct model *model,
                      int (*visit)(void *user, const struct model_tensor *tensor,
                                   struct error *err),
                      void *user, struct error *err);

/* Count the logical parameters (numbers) of all units, each once. */
int64_t model_params(const struct model *model);

/* Count those that one token goes through: of the experts of a block only those that are chosen. */
int64_t model_params_per_token(const struct model *model);

/* Floating-point operations to train on one token of a sequence of seq tokens (in a model of two
 * sequences the other one is as long).  A weight that is multiplied takes 6, or 4 where it is
 * frozen beside adapters. */
struct model_flops {
    double weights; /* of linear layers alone */
    double causal;  /* weights, and the half of attention's scores that kernels compute */
    double full;    /* weights, and all of attention's scores, as most published figures count */
};
struct model_flops model_flops_per_token(const struct model *model, int64_t seq,
                                         void (*freeze)(const void *user, int unit,
                                                        struct graph *graph),
                                         const void *user);

#endif
