/* units.h - a model compiled: its units, the flats that they use, the segments of its kinds of
 * unit.
 *
 * Independent of the rank except for the number of shards and, where layers or sequences are
 * divided among tensor or context ranks, the variant (layout_variants()): which part of them is the
 * rank's.  Programs of all ranks of one variant share it.
 */
#ifndef TRIREME_SEGMENT_UNITS_H
#define TRIREME_SEGMENT_UNITS_H

#include "device/device.h"
#include "model/model.h"
#include "segment/flat.h"
#include "segment/segment.h"

/* What generation runs, forward alone: so many tokens of each sequence's prompt, or one of each. */
enum units_generation { GENERATE_PROMPT, GENERATE_TOKEN, GENERATE_PASSES };

/* The segments of one kind of unit: blocks of one kind, as many, recomputed and frozen alike. */
struct unit_kind {
    int block_kind, blocks;
    enum config_recompute recompute;
    struct graph *train, *evaluate, *generate[GENERATE_PASSES];
    struct segment_param_place *place; /* per parameter of the graphs: in the flats of its units */
    struct segment segment[PHASES];    /* of training, where the request asks for the phase */
    struct segment evaluation;         /* forward without keeping anything */
    struct segment generation[GENERATE_PASSES];
    int ends_in_loss;
};

/* Sequences that are continued at a time; tokens of each in GENERATE_PROMPT, an even number; and
 * positions of each whose keys and values are kept.  batch 0: none are. */
struct units_generate {
    int64_t batch, prompt, cache;
};

struct units_request {
    enum dtype dtype;       /* of activations and gathered parameters */
    int64_t batch;          /* sequences of one micro-batch */
    int64_t eval_batch;     /* sequences of a micro-batch of evaluation; 0: as many */
    int64_t seq[SEQUENCES]; /* tokens that a rank has of each; 0: the model has no such sequence */
    int shards;
    unsigned shard_axes, data_axes; /* mesh axes (bits): of the shards, and of the ranks with data
                                       of their own; those of more than one rank */
    struct graph_group tensor;  /* the group among whose ranks layers are divided, and the place in
                                   it that is compiled for; size 0 is 1 */
    struct graph_group context; /* the group among whose ranks each sequence is divided: `seq`
                                   tokens are for each of these */
    int64_t persist_below;      /* flats with fewer parameters are whole on every rank */
    enum config_optimizer optimizer;
    enum dtype grad_dtype; /* of gradients of matrices that activations are multiplied by, where one
                              product makes them: fp32, or dtype, of a step of one micro-batch */
    enum dtype ns_dtype;   /* of the products of ORTHOGONALIZE */
    const char *freeze;    /* patterns of tensors that are not trained (config train.freeze), or
                              NULL; units_create() copies them */
    int frozen_whole;      /* 1: what is frozen is whole on every rank */
    enum config_quantize quantize; /* of the frozen matrices of the model, beside adapters */
    enum config_recompute recompute;
    int recompute_every; /* of units that repeat, one in so many recomputes; 0: every one */
    float loss_factor;   /* gradients of the summed loss are multiplied by it */
    struct units_generate generate;
    int splits_loss;     /* 1: the unit that ends in the loss has no PHASE_BOTH, but the others' */
    int splits_backward; /* 1: backward in two parts, PHASE_BACKWARD_INPUT and _WEIGHT */
    int stages;          /* of a pipeline; 0 is 1 */
    const int *rank_of;  /* per stage: its rank on the pipeline axis; NULL: its own number */
    const char *stage_units; /* how many units each stage has (config parallel.stages), or NULL or
                                "": by cost.  It and rank_of are read by units_create() only */
};

/* The flats that a unit uses: its own, then those of another unit that it shares. */
struct unit_flats {
    int count, flat[FLAT_USES];
};

/* What a unit reads of units before it and puts out for those after it. */
struct unit_boundaries {
    int inputs, producer[BOUNDARY_USES];    /* per input, the unit whose output it is */
    int readers;                            /* units that read its output */
    size_t bytes;                           /* of its output; 0: it has none */
    size_t eval_bytes;                      /* the same in evaluation, */
    size_t generate_bytes[GENERATE_PASSES]; /* and in generation */
};

struct units {
    const struct model *model; /* the caller's */
    struct units_request request;
    char *freeze; /* request.freeze */
    int count;
    int flats; /* of all units, in the order of the units */
    struct flat *flat;
    struct unit_flats *use;           /* per unit */
    int *kind_of;                     /* per unit */
    struct unit_boundaries *boundary; /* per unit */
    int stages;
    int *stage;    /* per unit: of the pipeline, in order */
    int *rank;     /* per unit: the rank on the pipeline axis that has it */
    double *flops; /* per unit: floating point operations of forward of a micro-batch, over whole
                      sequences and undivided layers: of all tensor and context ranks together */
    int kinds;
    struct unit_kind *kind;
    int64_t positions; /* positions that data gives are below this; 0: no unit reads them */
    int64_t generate_positions; /* the same in generation */
    size_t work_bytes;          /* of the largest segment, or orthogonalization */
};

/* Returns 0 and units for units_destroy(), or -1 with err set: shapes that do not fit, boundaries
 * that no unit puts out or none reads, targets of two sequences, a format of gradients that none
 * can have, products in fp8 of which there are none, patterns that freeze no tensor, all of them,
 * or one half of a matrix that is stored as one; stages that the units do not make. */
int units_create(struct units **units, const struct model *model,
                 const struct units_request *request, struct device *device, struct error *err);
void units_destroy(struct units *units); /* NULL allowed */

/* Are the units of two variants of a model the same but for which part of layers and sequences is
 * theirs: flats and values of the same sizes, the same nodes and steps?  Then so are the programs
 * of ranks of these variants. */
int units_are_alike(const struct units *a, const struct units *b);

/* Rows of a rank's constants: the most tokens that it has of a sequence; of packed documents, which
 * may have any position there, the most that a sequence has; and as many as are kept of one. */
static inline int64_t units_const_rows(const struct units *units)
{
    const struct units_request *r = &units->request;
    int64_t ranks = units->model->packed && r->context.size > 1 ? r->context.size : 1;
    int64_t rows = (r->seq[0] > r->seq[1] ? r->seq[0] : r->seq[1]) * ranks;
    return r->generate.batch && r->generate.cache > rows ? r->generate.cache : rows;
}

/* Bytes of the keys and values that a unit keeps in generation; 0: none. */
size_t units_cache_bytes(const struct units *units, int unit);

/* Experts of a unit's routers, in training: of each, the step's tokens are counted. */
int64_t units_expert_tokens_elems(const struct units *units, int unit);

/* Fill the constants of a rank, [units_const_rows(), const_width]: the rows of the model's table at
 * the positions that the rank has, or at all.  Returns 0, or -1 with err set where memory does not
 * suffice. */
int units_constants(const struct units *units, float *constants, struct error *err);

/* The units of a pipeline stage. */
struct units_stage {
    int first, count;
};
struct units_stage units_stage(const struct units *units, int stage);

/* Has a rank of the pipeline axis a unit that uses a flat? */
int units_rank_uses(const struct units *units, int rank, int flat);

static inline const struct unit_kind *units_kind(const struct units *units, int unit)
{
    return &units->kind[units->kind_of[unit]];
}

/* What a unit runs in a phase of training. */
static inline const struct segment *units_segment(const struct units *units, int unit,
                                                  enum segment_phase phase)
{
    return &units_kind(units, unit)->segment[phase];
}

/* The flats that a unit uses, for segment_run_piece(). */
void units_flats(const struct units *units, int unit, const struct flat *flat[FLAT_USES]);

/* Parameters of the model that are kept in 4 bits (lora.quantize_base), on all ranks. */
int64_t units_nf4_elems(const struct units *units);

/* Does one of the patterns (NULL: none), with commas between them, match a tensor's name? */
int units_is_frozen(const char *patterns, const char *name);

#endif
