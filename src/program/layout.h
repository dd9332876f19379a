/* layout.h - from a configuration and a number of ranks to what every rank compiles.  Pure, but for
 * a schedule that is read from a file, and for a look at whether model.path holds weights. */
#ifndef TRIREME_PROGRAM_LAYOUT_H
#define TRIREME_PROGRAM_LAYOUT_H

#include "comm/mesh.h"
#include "config/config.h"
#include "segment/units.h"

/* The sharding strategies, as what a rank has whole, and for how long.  Where the shard axis has
 * one rank every shard is the whole, and these make no difference. */
enum layout_whole_params {
    PARAMS_ALWAYS, /* parameters are whole, and updated whole: stage 0 */
    PARAMS_STEP,   /* whole in place; each rank updates its shard, which is gathered once a step:
                      stages 1, 2 */
    PARAMS_USE     /* gathered for each use, then released: stage 3 */
};
enum layout_whole_grads {
    GRADS_ALWAYS, /* gradients are accumulated whole over the step: stages 0, 1 */
    GRADS_MICRO /* reduced to the shard after each micro-batch, or, with accumulate_local, after the
                   last: stages 2, 3 */
};

struct schedule;

struct layout_strategy {
    enum layout_whole_params params;
    enum layout_whole_grads grads;
    int accumulate_local; /* 1: gradients stay whole until the last micro-batch */
    size_t bucket_bytes;  /* of whole gradients that are summed over replicas in one transfer */
};

/* What of a rank's state is copied to the host's memory while a checkpoint is written from there.
 */
enum layout_copy {
    COPY_NONE,
    COPY_TRAINED, /* adapters and what else is trained; no checkpoint holds what is frozen */
    COPY_ALL
};

/* Micro-batches of a step, at most: its list of instructions grows with them. */
enum { LAYOUT_MOST_MICROS = 65536 };

struct layout {
    struct mesh_shape shape;
    struct layout_strategy strategy;
    struct config_offload offload; /* where state lives: OFFLOAD_NONE where ops work on it; the
                                      path is not read here */
    int host_apart;                /* 1: the host's memory is not the device's: on a GPU */
    int data_ranks;                /* replicate x shard: ranks with sequences of their own */
    int64_t micro_batch;           /* sequences a rank computes at once */
    int64_t eval_batch;            /* sequences a rank computes at once in evaluation */
    int micros;                    /* micro-batches a step */
    int64_t global_batch;          /* sequences a step, of all ranks */
    struct schedule *schedule;     /* the layout's own */
    enum dtype dtype;              /* of whole parameters and activations */
    enum dtype optimizer_dtype;    /* of the optimizer's state */
    enum dtype reduce_dtype;       /* of fp32 gradients on their way to shards */
    int row_chunks;        /* chunks in which tensor ranks exchange rows; 1: all rows at once */
    int tensor_fp32;       /* 1: terms of sums over tensor ranks are sent in fp32 */
    int no_masters;        /* 1: there are no fp32 masters (precision bf16_pure) */
    int overlap_update;    /* 1: the update of a step is in the next one's program */
    enum layout_copy copy; /* checkpoint.async */
    int prefetch_forward, prefetch_backward; /* runs ahead of the present one whose parameters are
                                                gathered beside it, in either direction */
    int prefetch_late; /* 1: in backward these gathers follow the present run's reduction */
};

/* The format that a configuration's precision computes in. */
enum dtype layout_dtype(const struct config *config);

/* The format in which the matrices of the blocks are multiplied: fp8 on GPUs, where precision says
 * so; CPUs round to it, and multiply in bf16. */
enum dtype layout_product_dtype(const struct config *config, int on_gpu);

/* per_node: ranks on every node, 0 where nodes differ: what HYBRID_SHARD shards over by default.
 * device: of every rank.  Returns 0 and a layout for layout_release(), or -1 with err set and
 * nothing to release: degrees that do not multiply to ranks, a schedule that schedule_create()
 * refuses, gradients in bf16 of several micro-batches, sequences that blocks of fp8 do not divide.
 * A global batch that ranks and micro-batches do not divide is filled up with masked sequences. */
int layout_resolve(struct layout *layout, const struct config *config, int ranks, int per_node,
                   enum device_kind device, struct error *err);

/* Does a checkpoint of adapters only say where the frozen tensors are (checkpoint.frozen)?  A run
 * at model.path has no files of weights that it could name; of a folder that is not on this machine
 * it is taken to have them. */
int layout_refers_to_folder(const struct config *config);

/* Return the chunks that parallel.tensor_overlap asks for where the rows of a micro-batch cannot be
 * cut into so many; 0 where they can, or where it asks for no number. */
int layout_lost_overlap(const struct layout *layout, const struct config *config);

/* Free what a layout has; one that is all zero is allowed. */
void layout_release(struct layout *layout);

/* Append advice to err (NULL allowed) after layout_resolve() has failed: settings with which it
 * succeeds, each of which was tried; where there are none, and degrees do not multiply to the
 * ranks, that parallel.layout=auto finds some.  Always returns -1. */
int layout_advise(const struct config *config, int ranks, int per_node, enum device_kind device,
                  struct error *err);

/* Return the tokens of a step, masked ones too.  Backward makes the gradients of the summed loss
 * divided by this number; SCALE makes them those of the mean over the tokens not masked. */
static inline int64_t layout_step_tokens(const struct layout *layout, const struct config *config)
{
    return layout->global_batch * config->data.seq_len;
}

/* Join a model's blocks to units as parallel.wrap says.  To be called once for a model. */
void layout_wrap(struct model *model, const struct config *config);

/* Make the configuration's model, with its adapters and wrapped, for model_destroy().  0, or -1
 * with err set. */
int layout_model(struct model **model, const struct config *config, struct error *err);

/* Return the sizes for generating `texts` texts: texts at a time, tokens of a prompt in one pass
 * (no more than generate.longest needs), and cached positions of each text: data.seq_len, and
 * after these one pass, for the rows of a prompt that are padding. */
struct units_generate layout_generate(const struct config *config, int64_t texts);

/* Return the request for units_create() of a layout's first variant (layout_variants()).  For a
 * model with two sequences the caller sets seq[1]. */
struct units_request layout_units(const struct layout *layout, const struct config *config);

/* Variants of units: ranks that differ in their coordinates along context and tensor have other
 * parts of sequences or of layers, and so compile other units.  Rank r uses variant r %
 * layout_variants(). */
int layout_variants(const struct layout *layout);

/* Have a request for the first variant ask for another one. */
void layout_set_variant(struct units_request *request, int variant);

/* Do gradients live within a step only, from backward to the update, and share the memory of
 * activations?  Backward frees activations as it makes gradients, so that both together take little
 * more than the larger of them.  With several micro-batches gradients would lie beside all
 * activations of the second one, and nothing would be gained; a pipeline has several. */
static inline int layout_grads_pass(const struct layout *layout)
{
    return layout->micros == 1 && layout->shape.degree[MESH_PIPELINE] == 1 &&
           !layout->overlap_update && layout->offload.gradients == OFFLOAD_NONE;
}

/* Write to folder the path of the directory for the file of POOL_DISK (offload.path, or one in the
 * run's directory). */
void layout_swap_folder(const struct config *config, char folder[CONFIG_TEXT + 16]);

/* How GPUs communicate. */
struct mesh_options layout_comm(const struct config *config);

/* Return which of the layout's data_ranks is at coord: replicas outside, shards inside. */
int layout_data_rank(const struct layout *layout, struct mesh_coord coord);

#endif
