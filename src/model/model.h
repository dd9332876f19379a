/* model.h - a model as a chain of units, each a forward graph.
 *
 * A unit reads what units before it put out by a name (graph/build.h): of the one before it, or of
 * one far before, as blocks of a decoder do.  Units of one kind share their graph (all blocks of a
 * transformer).  A family makes each block
 * one unit; neighbours of a kind may be wrapped into larger units.  A model knows nothing of ranks,
 * sharding or optimizers.
 */
#ifndef TRIREME_MODEL_MODEL_H
#define TRIREME_MODEL_MODEL_H

#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "graph/graph.h"

enum { MODEL_PREFIX = 24 };

/* What a graph is for: its last unit ends in the loss, in training or in evaluation, in which
 * nothing is dropped; or, of rows that continue sequences whose keys and values are kept, in the
 * logits of one row of each sequence: of row targets[i] of all, for sequence i. */
enum model_purpose { MODEL_LOSS, MODEL_EVALUATION, MODEL_LOGITS };

struct model_unit {
    int kind;                  /* units of equal kind have equal graphs */
    char prefix[MODEL_PREFIX]; /* of its parameters' logical names: "layers.3." */
    int shared;                /* unit whose flat parameter holds its shared parameters, or -1 */
    int first, blocks;         /* blocks [first, first + blocks) form it; families leave it 0 */
};

struct model;

struct model_name;

/* One row per family. */
struct model_family {
    const char *name;
    const struct model_name *names; /* of Hugging Face's files (names.h); NULL: it has none */
    /* Fill units; the graph of a kind. */
    void (*units)(struct model *model);
    void (*graph)(const struct model *model, int kind, enum model_purpose purpose,
                  float loss_factor, struct graph *graph);
    /* The constant table (rotary cosines and sines), fp32 [seq, const_width]. */
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
    struct model_unit *block; /* the chain as the family made it, whose prefixes name tensors */
    int64_t const_width;      /* columns of the constant table */
    int sequences;            /* of tokens that it reads: 1 unless the family says 2 */
    struct config_lora lora;  /* its adapters (adapters.h); r 0: it has none */
    int packed;    /* 1: it is trained on packed documents (graph->packed), as who makes it says */
    uint64_t seed; /* of what training drops; the same */
    int fp8;       /* 1: its matrices, but for the head's and tables, are multiplied in fp8 in
                      training and evaluation, where activations are bf16; the same */
    enum dtype logits;   /* of a head in training and evaluation, where activations have that format
                            too; else fp32; the same */
    int64_t logits_rows; /* of a head at once; 0: as the device likes it; the same */
};

/* A model of a family, for model_destroy(). */
struct model *model_make(const struct model_family *family, const struct config_model *config);

/* The same of the family that config names.  Returns 0 and a model for model_destroy(), or -1 with
 * err set. */
int model_create(struct model **model, const struct config_model *config, struct error *err);
void model_destroy(struct model *model); /* NULL allowed */

/* Join neighbouring units of equal kind, `blocks` at most, into one; the last takes what is left.
 * Once, before anything is made of the units. */
void model_wrap(struct model *model, int blocks);

/* "layers.3", "embed" or "head" into name; returns name. */
const char *model_unit_name(const struct model *model, int unit, char name[MODEL_PREFIX]);

/* Logical parameters of a unit, those it shares not counted. */
int64_t model_unit_params(const struct model *model, int unit);

/* What a unit's graph is made for: batch sequences of which a rank of the groups tensor and context
 * has seq tokens, of each of the model's sequences. */
struct model_graph {
    enum model_purpose purpose;
    int64_t batch, seq[SEQUENCES];
    int64_t cache; /* MODEL_LOGITS: positions of each sequence whose keys and values are kept */
    enum dtype dtype;
    struct graph_group tensor, context;
    float loss_factor; /* MODEL_LOSS: gradients are multiplied by it */
};

/* The forward graph of a unit with all its blocks.  NULL with err set if its shapes do not fit.
 * Free with graph_destroy(). */
struct graph *model_unit_graph(const struct model *model, int unit, const struct model_graph *form,
                               struct error *err);

/* A logical tensor: its name, its whole shape, and whether it is a matrix of a block. */
enum { MODEL_TENSOR = 72 };
struct model_tensor {
    char name[MODEL_TENSOR];
    int dims;
    int64_t dim[2];
    int is_linear;
};
/* Visit all tensors of a model, in the order of its units, each once.  Ends where visit returns
 * other than 0, and returns that; -1 with err set where a unit has no graph. */
int model_each_tensor(const struct model *model,
                      int (*visit)(void *user, const struct model_tensor *tensor,
                                   struct error *err),
                      void *user, struct error *err);

/* Logical parameters, each counted once. */
int64_t model_params(const struct model *model);

/* Floating point operations to train on one token of a sequence of seq (of a model of two, with
 * another as long): 6 per weight that is multiplied, and attention; without the gradients of what
 * is frozen, by the parameters that freeze() sets frozen in a unit's graph (NULL: none), and of
 * what is made of nothing else.  causal counts the half of the scores that is computed (what the
 * kernels do); full counts the square, as most published figures do. */
struct model_flops {
    double weights, causal, full;
};
struct model_flops model_flops_per_token(const struct model *model, int64_t seq,
                                         void (*freeze)(const void *user, int unit,
                                                        struct graph *graph),
                                         const void *user);

#endif
