/* layout.c - see layout.h. */
#include "step/layout.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* NO_SHARD keeps copies, FULL_SHARD one copy in shards: what is left goes to that axis. */
static struct mesh_shape wanted(const struct config_parallel *p)
{
    struct mesh_shape shape = {{1, 1, 1, 1}};
    int shards = p->strategy == STRATEGY_FULL_SHARD;
    shape.degree[MESH_PIPELINE] = p->pipeline ? (int)p->pipeline : 1;
    shape.degree[MESH_TENSOR] = p->tensor ? (int)p->tensor : 1;
    shape.degree[MESH_SHARD] = shards ? (int)p->shard : 1;
    shape.degree[MESH_REPLICATE] = shards ? 1 : (int)p->replicate;
    return shape;
}

int layout_resolve(struct layout *layout, const struct config *config, int ranks, struct error *err)
{
    *layout = (struct layout){
        .shape = wanted(&config->parallel),
        .global_batch = config->train.global_batch,
        .dtype = config->precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32,
        .prefetch_forward = config->parallel.forward_prefetch,
        .prefetch_backward = config->parallel.backward_prefetch == PREFETCH_BACKWARD_PRE,
    };
    if (mesh_resolve(&layout->shape, ranks, err))
        return -1;
    layout->data_ranks = layout->shape.degree[MESH_REPLICATE] * layout->shape.degree[MESH_SHARD];
    int64_t each = ceil_div(layout->global_batch, layout->data_ranks);
    layout->micro_batch = config->train.micro_batch ? config->train.micro_batch : each;
    layout->micros = (int)ceil_div(each, layout->micro_batch);
    return 0;
}

struct units_request layout_units(const struct layout *layout, const struct config *config)
{
    return (struct units_request){
        .dtype = layout->dtype,
        .batch = layout->micro_batch,
        .seq = config->data.seq_len,
        .shards = layout->shape.degree[MESH_SHARD],
        .recompute = config->recompute,
        .loss_scale = 1.0f / (float)(layout->global_batch * config->data.seq_len),
    };
}

struct program_request layout_program(const struct layout *layout, enum program_kind kind,
                                      int training, int rank)
{
    return (struct program_request){
        .kind = kind,
        .shape = layout->shape,
        .coord = mesh_place(&layout->shape, rank),
        .training = training,
        .micros = kind == PROGRAM_TRAIN ? layout->micros : 1,
        .prefetch_forward = layout->prefetch_forward,
        .prefetch_backward = layout->prefetch_backward,
    };
}

struct mesh_options layout_comm(const struct config *config)
{
    return (struct mesh_options){
        .reduce = config->comm.reduce == CONFIG_REDUCE_BF16 ? COMM_REDUCE_BF16 : COMM_REDUCE_FP32,
        .inter_node = config->comm.inter_node == CONFIG_INTER_NODE_MPI ? COMM_INTER_NODE_MPI
                                                                       : COMM_INTER_NODE_NCCL,
        .share_gpu = config->comm.share_gpu,
    };
}

int layout_data_rank(const struct layout *layout, struct mesh_coord coord)
{
    return coord.at[MESH_REPLICATE] * layout->shape.degree[MESH_SHARD] + coord.at[MESH_SHARD];
}
