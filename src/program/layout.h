/* layout.h - from a configuration and a number of ranks to what every rank compiles.  Pure. */
#ifndef TRIREME_STEP_LAYOUT_H
#define TRIREME_STEP_LAYOUT_H

#include "comm/mesh.h"
#include "config/config.h"
#include "program/program.h"
#include "segment/units.h"

struct layout {
    struct mesh_shape shape;
    struct strategy strategy;
    struct offload offload;
    int data_ranks;       /* replicate x shard */
    int64_t micro_batch;  /* sequences a rank computes at once */
    int micros;           /* micro-batches a step */
    int64_t global_batch; /* sequences a step, of all ranks */
    enum dtype dtype;
    enum config_optimizer optimizer;
    enum dtype optimizer_dtype;
    enum dtype reduce_dtype; /* of gradients on their way to shards */
    int pure;                /* no fp32 masters */
    int prefetch_forward, prefetch_backward, prefetch_late;
};

/* per_node: ranks on every node, 0 where nodes differ: what HYBRID_SHARD shards over by default.
 * Returns 0, or -1 with err set (degrees that do not multiply to ranks).  A global batch that
 * ranks and micro-batches do not divide is filled up with masked sequences. */
int layout_resolve(struct layout *layout, const struct config *config, int ranks, int per_node,
                   struct error *err);

/* Append to err, of degrees that do not make the ranks, settings that would: each was checked. */
void layout_advise(const struct config *config, int ranks, int per_node, struct error *err);

/* The model, wrapped into units as the config says.  0, or -1 with err set. */
int layout_model(struct model **model, const struct config *config, struct error *err);

/* Settle what depends on the kind of device. */
static inline void layout_device(struct layout *layout, enum device_kind device)
{
    layout->offload.apart = device != DEVICE_CPU;
}

/* What to compile for it. */
struct units_request layout_units(const struct layout *layout, const struct config *config);
struct program_request layout_program(const struct layout *layout, enum program_kind kind,
                                      int training, int rank);

/* The folder of files that stand in for memory. */
void layout_swap_folder(const struct config *config, char folder[CONFIG_TEXT + 16]);

/* How GPUs communicate. */
struct mesh_options layout_comm(const struct config *config);

/* Number of the data rank at coord: replicas outside, shards inside. */
int layout_data_rank(const struct layout *layout, struct mesh_coord coord);

#endif
