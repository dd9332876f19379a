/* nccl_start.c - make the communicators of a link.
 *
 * nccl_start() makes the root communicator, splits a communicator off it for each channel, ends the
 * root, and sends a few bytes by each channel, so that a network that does not work is found before
 * the first step.  After each of these calls all ranks meet in together(): every rank polls its own
 * call, and every 50 ms the ranks exchange by MPI whether one of them has failed.  So a
 * failure on one rank, for which NCCL would let the others wait for ever, ends the start on all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "comm/gpu/nccl_call.h"

enum { ROUND_NS = 50000000 };

/* --- waiting: all ranks go on together, or all fail --- */

/* A call for which all ranks wait. */
struct nccl_wait {
    const char *what;               /* the call, for errors */
    struct channel *first, *second; /* communicators that have to be ready; second may be NULL */
    int stream_of_first;            /* 1: the stream of first has to be idle, too */
};

/* Return whether this rank's part of the call is done.  Does not wait. */
static enum nccl_state state_of_step(const struct nccl_wait *s, struct error *err)
{
    enum nccl_state state = nccl_state_of(s->first, s->what, err);
    if (state == NCCL_READY && s->second)
        state = nccl_state_of(s->second, s->what, err);
    if (state != NCCL_READY || !s->stream_of_first)
        return state;
    int idle = device_stream_idle(s->first->link->device, link_stream(s->first->stream), err);
    if (idle < 0)
        error_prefix(err, "%s", s->what);
    return idle < 0 ? NCCL_BROKEN : idle ? NCCL_READY : NCCL_WAITS;
}

/* Wait up to ns nanoseconds for this rank's part of the call.  Returns its state then. */
static enum nccl_state wait_for_part(const struct nccl_wait *s, int64_t ns, struct error *err)
{
    int64_t begin_ns = clock_ns();
    enum nccl_state state;
    for (int times = 0; (state = state_of_step(s, err)) == NCCL_WAITS; times++) {
        if (clock_ns() - begin_ns > ns)
            break;
        nccl_nap(times);
    }
    return state;
}

/* Wait until the call that returned `code` on this rank is done on all ranks, in rounds, so that a
 * failure of one rank ends the wait of all.  Collective over world.  Returns 0, or -1 on all ranks
 * with err set. */
static int together(struct link *l, const struct nccl_wait *s, ncclResult_t code, struct error *err)
{
    int64_t begin_ns = clock_ns(), hang_ns = link_hang_ns(l);
    enum nccl_state state = NCCL_WAITS;
    double sums[2]; /* ranks that failed, that wait */
    if (code != ncclSuccess && code != ncclInProgress) {
        nccl_failed(s->first, s->what, code, err);
        state = NCCL_BROKEN;
    }
    do {
        if (state == NCCL_WAITS)
            state = wait_for_part(s, ROUND_NS, err);
        int expired = hang_ns && state == NCCL_WAITS && clock_ns() - begin_ns > hang_ns;
        if (expired) {
            nccl_too_long(s->second ? s->second : s->first, s->what, hang_ns, err);
            state = NCCL_BROKEN;
        }
        sums[0] = state == NCCL_BROKEN;
        sums[1] = state == NCCL_WAITS;
        world_all_reduce(l->world, sums, 2, WORLD_SUM);
    } while (sums[0] == 0 && sums[1] > 0);
    return world_agree(l->world, state == NCCL_BROKEN ? -1 : 0, err);
}

/* --- the communicators --- */

/* The root communicator: its size, this rank's number in it, and the rank of world that is its
 * first member and makes its id. */
struct root {
    int size, rank, leader;
};

static struct root root_of(const struct link *l)
{
    const struct mesh *mesh = l->mesh;
    struct root root = {.leader = -1};
    for (int rank = 0; rank < l->world->size; rank++) {
        struct mesh_coord coord = mesh_coord_of_rank(&mesh->shape, rank);
        if (l->host_staging_bytes && coord.at[MESH_REPLICATE] != mesh->coord.at[MESH_REPLICATE])
            continue;
        if (root.leader < 0)
            root.leader = rank;
        root.rank += rank < l->world->rank;
        root.size++;
    }
    return root;
}

/* Have the leader of each root make an id, and give every rank that of its own root.  Collective
 * over world.  Returns 0, or -1 on all ranks with err set. */
static int share_id(struct link *l, const struct root *root, ncclUniqueId *id, struct error *err)
{
    struct world *world = l->world;
    ncclResult_t code = ncclSuccess;
    ncclUniqueId *all = array_make((size_t)world->size, sizeof *all);
    int rc = 0;
    memset(id, 0, sizeof *id);
    if (root->leader == world->rank)
        code = ncclGetUniqueId(id);
    if (code != ncclSuccess)
        rc = nccl_failed(&l->root, "NCCL's start", code, err);
    rc = world_agree(world, rc, err);
    if (!rc) {
        world_all_gather(world, all, id, sizeof *id);
        *id = all[root->leader];
    }
    free(all);
    return rc;
}

static int make_root(struct link *l, struct error *err)
{
    struct root root = root_of(l);
    struct nccl_wait step = {.what = "NCCL's start", .first = &l->root};
    ncclConfig_t config = nccl_config(&l->root);
    ncclUniqueId id;
    if (share_id(l, &root, &id, err))
        return -1;
    ncclResult_t code =
        ncclCommInitRankConfig((ncclComm_t *)&l->root.comm, root.size, id, root.rank, &config);
    return together(l, &step, code, err);
}

/* Split c's communicator off the root.  NCCL fills in c->comm while the root becomes ready again.
 */
static int split(struct channel *c, struct error *err)
{
    struct link *l = c->link;
    struct nccl_wait step = {.what = "making communicators", .first = &l->root, .second = c};
    ncclConfig_t config = nccl_config(c);
    ncclResult_t code = ncclCommSplit(comm_of(&l->root), c->group->ranks[0], c->group->rank,
                                      (ncclComm_t *)&c->comm, &config);
    return together(l, &step, code, err);
}

/* The first transfers: connections are made now, and a network that does not work
 * is found now.  NCCL has different algorithms for few and for many bytes (since 2.23 for gathers
 * and reduce-scatters, too) and connects each at its first use (since 2.22), so collectives of many
 * bytes are made, too: what fills half of the staging. */
enum greeting {
    GREET_GATHER,
    GREET_LARGE_GATHER,
    GREET_REDUCE,
    GREET_LARGE_REDUCE,
    GREET_SUM,
    GREET_LARGE_SUM,
    GREET_SWAP,
    GREET_PEERS,
    GREETINGS
};
enum { GREETING_BYTES = 64 };

/* Return 1 where the two members are neighbours and messages from one to the other go by c's
 * stream. */
static int is_way(const struct channel *c, int from, int to)
{
    int ranks = c->group->size, apart = from < to ? to - from : from - to;
    int point = (int)c->stream - COMM_POINT;
    return (apart == 1 || apart == ranks - 1) && (mesh_point(ranks, from, to, WAY_UP) == point ||
                                                  mesh_point(ranks, from, to, WAY_DOWN) == point);
}

/* Return 1 where this rank will send to a member by c's stream (sends: 1), or receive from it (0).
 */
static int is_peer(const struct channel *c, int member, int sends)
{
    const struct mesh_options *options = &c->link->options;
    int me = c->group->rank;
    for (int i = 0; i < options->peers; i++)
        if (options->peer[i].stream == c->stream && options->peer[i].member == member &&
            options->peer[i].sends == sends)
            return 1;
    return !options->peers && (sends ? is_way(c, me, member) : is_way(c, member, me));
}

/* Exchange a few bytes with every member with which this rank will exchange messages.  With no
 * others, because NCCL keeps memory for each peer; and with each of these, because a first message
 * later would wait for its peer to connect, while that peer may wait in a message of its own. */
static ncclResult_t greet_peers(const struct channel *c, char *in, const char *out)
{
    ncclResult_t code = ncclGroupStart();
    for (int m = 0; m < c->group->size && code == ncclSuccess; m++) {
        if (is_peer(c, m, 1))
            code = ncclSend(out, GREETING_BYTES, ncclInt8, m, comm_of(c), nccl_stream(c));
        if (is_peer(c, m, 0) && code == ncclSuccess)
            code = ncclRecv(in + m * GREETING_BYTES, GREETING_BYTES, ncclInt8, m, comm_of(c),
                            nccl_stream(c));
    }
    ncclResult_t ended = ncclGroupEnd();
    return code == ncclSuccess ? ended : code;
}

/* Make one kind of first transfer on c and wait until all ranks have made it.  The staging holds
 * the bytes sent and received, whose values do not matter. */
static int greet(struct channel *c, enum greeting greeting, struct error *err)
{
    enum { PART = GREETING_BYTES, FLOATS = PART / sizeof(float) };
    struct link *l = c->link;
    cudaStream_t stream = nccl_stream(c);
    char *in = link_staging(l, 0), *out = link_staging(l, 1);
    struct nccl_wait step = {.what = "first transfer", .first = c, .stream_of_first = 1};
    const size_t half = l->device_staging_bytes / 2;
    const size_t large = half / (size_t)c->group->size / sizeof(float); /* floats of each rank */
    struct nccl_swap swap = {
        .from = out, .into = in, .into_step = PART, .part = PART, .total = c->group->size * PART};
    ncclResult_t code = ncclSuccess;
    switch (greeting) {
    case GREET_GATHER: code = ncclAllGather(out, in, PART, ncclInt8, comm_of(c), stream); break;
    case GREET_LARGE_GATHER:
        code = ncclAllGather(out, in, large * sizeof(float), ncclInt8, comm_of(c), stream);
        break;
    case GREET_REDUCE:
        code = ncclReduceScatter(in, out, FLOATS, ncclFloat32, ncclSum, comm_of(c), stream);
        break;
    case GREET_LARGE_REDUCE:
        code = ncclReduceScatter(in, out, large, ncclFloat32, ncclSum, comm_of(c), stream);
        break;
    case GREET_SUM:
        code = ncclAllReduce(out, out, FLOATS, ncclFloat32, ncclSum, comm_of(c), stream);
        break;
    case GREET_LARGE_SUM:
        code =
            ncclAllReduce(out, out, half / sizeof(float), ncclFloat32, ncclSum, comm_of(c), stream);
        break;
    case GREET_SWAP: code = nccl_swap(c, &swap, SWAP_OUT); break;
    default: code = greet_peers(c, in, out); break;
    }
    return together(l, &step, code, err);
}

/* Return 1 where the run will make transfers of the greeting's kind on channel c. */
static int is_due(const struct channel *c, enum greeting greeting)
{
    switch (greeting) {
    case GREET_GATHER:
    case GREET_LARGE_GATHER: return c->stream == COMM_GATHER;
    case GREET_REDUCE:
    case GREET_LARGE_REDUCE:
    case GREET_SUM:
    case GREET_LARGE_SUM: return c->stream == COMM_REDUCE;
    case GREET_SWAP: return c->swaps;
    default: return c->stream >= COMM_POINT;
    }
}

static int greet_all(struct link *l, struct error *err)
{
    for (int i = 0; i < l->channels; i++)
        for (int k = 0; k < GREETINGS; k++)
            if (is_due(&l->channel[i], k) && greet(&l->channel[i], k, err))
                return -1;
    return 0;
}

/* Fail on all ranks unless half of the staging holds a first message of each member. */
static int check_staging(const struct link *l, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < l->channels; i++)
        if ((size_t)l->channel[i].group->size * GREETING_BYTES > l->device_staging_bytes / 2)
            rc = error_set(err, "pieces of %zu bytes are too small for %s",
                           l->device_staging_bytes / 2, l->channel[i].name);
    return world_agree(l->world, rc, err);
}

int nccl_start(struct link *l, struct error *err)
{
    if (nccl_prepare(l, err) || check_staging(l, err) || make_root(l, err))
        return -1;
    for (int i = 0; i < l->channels; i++)
        if (split(&l->channel[i], err))
            return -1;
    if (world_agree(l->world, nccl_end(&l->root, err), err))
        return -1;
    return greet_all(l, err);
}
