/* mesh_channels.c - the channels of a mesh whose memory is a GPU's, and counting the memory of a
 * GPU that they need; also for plans, without a GPU. */
#include "comm/gpu/link.h"

/* Bytes of a piece of a staged transfer, on a GPU and in host memory: enough to be worth a launch,
 * little beside everything else. */
static const int64_t piece_bytes = 16 << 20, host_piece_bytes = 8 << 20;

/* Bytes that NCCL takes of a GPU's memory for a connection, from its logs on nodes of eight H100:
 * each channel (thread block) of a communicator takes 10 MiB for a rank that it receives from, and
 * 2 MiB for a rank that it sends to.  A ring has one of each; swaps have both for every other rank
 * of the node. */
static const size_t connection_bytes = (size_t)12 << 20;
/* Estimate: of a communicator whose sums are made by switches, a slot of 1 MiB for each of 16
 * channels, 8 GPUs and both directions. */
static const size_t nvls_bytes = (size_t)256 << 20;
/* Estimate: of the windows of copy engines, whose memory comes in pages of 2 MiB, and of what ranks
 * signal by. */
static const size_t windows_bytes = (size_t)16 << 20;
enum {
    NODE_RANKS = 8,
    USUAL_CTAS = 24,      /* channels that NCCL chooses for collectives there, by its logs */
    USUAL_SWAP_CTAS = 32, /* and for swaps */
};

/* Thread blocks where the configuration asks for no number. */
enum {
    POINT_CTAS = 4, /* of messages between stages, whose kernels wait for the peer beside products
                       and need little speed: four should move 64 MiB in a millisecond, which was
                       not measured */
    SWAP_CTAS = 16  /* of parts between any two ranks, whose connections take memory by the
                       channel */
};

int mesh_is_staged(const struct mesh_shape *shape, const struct mesh_options *options,
                   unsigned axes)
{
    return options->inter_node == COMM_INTER_NODE_MPI &&
           mesh_wide_axes(shape, axes) >> MESH_REPLICATE & 1;
}

/* Append a channel to the list of `count`, unless its group has one rank, the list has it already,
 * or MPI takes its sums.  Returns the new count. */
static int add_channel(const struct mesh_shape *shape, const struct mesh_options *options,
                       struct mesh_channel list[MESH_CHANNELS], int count, struct mesh_channel more)
{
    more.axes = mesh_wide_axes(shape, more.axes);
    if (!more.axes || mesh_is_staged(shape, options, more.axes))
        return count;
    for (int k = 0; k < count; k++)
        if (list[k].axes == more.axes && list[k].stream == more.stream)
            return count;
    list[count] = more;
    return count + 1;
}

/* List the channels that programs use: of collectives, then of messages along the pipeline. */
int mesh_channels(const struct mesh_shape *shape, const struct mesh_options *options,
                  struct mesh_channel list[MESH_CHANNELS])
{
    static const struct mesh_channel own[MESH_COLLECTIVES] = {
        {.axes = MESH_SHARDS, .stream = COMM_GATHER},
        {.axes = MESH_SHARDS, .stream = COMM_REDUCE},
        {.axes = 1 << MESH_REPLICATE, .stream = COMM_REDUCE},
        {.axes = MESH_DATA, .stream = COMM_REDUCE},
        {.axes = 1 << MESH_PIPELINE, .stream = COMM_REDUCE},
        {.axes = 1 << MESH_CONTEXT, .stream = COMM_GATHER},
        {.axes = 1 << MESH_CONTEXT, .stream = COMM_REDUCE},
        {.axes = 1 << MESH_TENSOR, .stream = COMM_GATHER},
        {.axes = 1 << MESH_TENSOR, .stream = COMM_REDUCE},
    };
    int count = 0;
    for (int k = 0; k < MESH_COLLECTIVES; k++)
        count = add_channel(shape, options, list, count, own[k]);
    for (int k = 0; k < COMM_POINTS; k++)
        if (shape->points >> k & 1)
            count = add_channel(shape, options, list, count,
                                (struct mesh_channel){1u << MESH_PIPELINE, COMM_POINT + k});
    return count;
}

size_t mesh_device_staging_bytes(const struct mesh_shape *shape, const struct mesh_options *options)
{
    struct mesh_channel list[MESH_CHANNELS];
    if (!mesh_channels(shape, options, list))
        return 0;
    return 2 * (size_t)(options->piece_bytes ? options->piece_bytes : piece_bytes);
}

int mesh_swaps(const struct mesh_options *options, const struct mesh_channel *channel)
{
    return channel->stream == COMM_REDUCE && options->swaps >> channel->axes & 1;
}

/* Messages between stages have at most POINT_CTAS: several of their kernels wait for peers at a
 * time, and must leave multiprocessors to the kernels for which the peers wait. */
int mesh_most_ctas(const struct mesh_options *options, const struct mesh_channel *channel)
{
    int most = options->max_ctas;
    if (channel->stream >= COMM_POINT)
        return most && most < POINT_CTAS ? most : POINT_CTAS;
    if (!most && mesh_swaps(options, channel))
        return options->min_ctas > SWAP_CTAS ? options->min_ctas : SWAP_CTAS;
    return most;
}

int mesh_least_ctas(const struct mesh_options *options, const struct mesh_channel *channel)
{
    int most = mesh_most_ctas(options, channel);
    return most && most < options->min_ctas ? most : options->min_ctas;
}

/* Returns how many other ranks of rank 0's group are on its node, if a node has NODE_RANKS ranks.
 */
static int node_peers(const struct mesh_shape *shape, unsigned axes)
{
    int ranks = mesh_members(shape, MESH_SETS - 1), peers = 0;
    for (int rank = 1; rank < ranks && rank < NODE_RANKS; rank++)
        peers += mesh_first_rank(shape, mesh_coord_of_rank(shape, rank), axes) == 0;
    return peers;
}

/* Returns an estimate of the bytes that NCCL takes for the communicator of a channel. */
static size_t communicator_bytes(const struct mesh_shape *shape, const struct mesh_options *options,
                                 const struct mesh_channel *channel)
{
    int most = mesh_most_ctas(options, channel), rings = USUAL_CTAS, to_each = 0;
    int least = mesh_least_ctas(options, channel);
    int is_point = channel->stream >= COMM_POINT; /* to and from two neighbours, as in a ring */
    if (mesh_swaps(options, channel))
        to_each = most && most < USUAL_SWAP_CTAS ? most : USUAL_SWAP_CTAS;
    if (most && most < rings)
        rings = most;
    if (least > rings)
        rings = least;
    if (is_point && mesh_members(shape, channel->axes) > 2)
        rings *= 2;
    int connections = rings + to_each * node_peers(shape, channel->axes);
    return (size_t)connections * connection_bytes + (options->nvls ? nvls_bytes : 0);
}

size_t mesh_reserve_bytes(const struct mesh_shape *shape, const struct mesh_options *options)
{
    struct mesh_channel list[MESH_CHANNELS];
    int count = mesh_channels(shape, options, list);
    size_t bytes = options->copy_engines ? windows_bytes : 0;
    for (int k = 0; k < count; k++)
        bytes += communicator_bytes(shape, options, &list[k]);
    return bytes;
}

size_t mesh_host_staging_bytes(const struct mesh_shape *shape, const struct mesh_options *options)
{
    if (!mesh_is_staged(shape, options, MESH_DATA))
        return 0;
    return 2 * (size_t)(options->piece_bytes ? options->piece_bytes : host_piece_bytes);
}
