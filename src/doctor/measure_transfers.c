/* measure_transfers.c - measuring how long collectives and messages take, by kind, group and bytes,
 * through the groups that training uses.  With 2 nodes of 4 ranks, 0123 and 4567:
 *
 *   collectives of all ranks               01234567
 *               of half of the ranks       0123  4567        at the same time, as in training
 *               of the ranks of a node     0123  4567        at the same time
 *               of one rank of each node   04                of 15, 26, 37 none
 *   messages    within a node              0-1 2-3 4-5 6-7   all pairs at once
 *               between nodes              0-4               the first ranks of pairs of nodes
 *
 * A message goes to the other rank and back.  On CPUs this is also measured while the rank that
 * sends first computes, as ranks of a pipeline do: the thread that communicates then has to get a
 * processor first.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/round.h"
#include "comm/mesh.h"
#include "doctor/measure_work.h"

enum { LEAST_BYTES = 1 << 10, RATIO = 4, SIDE = 256, TIMES = 15 };

/* The group of this rank, while all groups of one size are measured. */
struct team {
    struct group *group;
    int ranks, nodes; /* of this group, and of each other one */
    int works;        /* 1: this rank's group transfers; 0: it waits for the others */
    int peer;         /* of messages: the rank of the group at the other end */
};

struct timed_transfer {
    const struct team *team;
    enum machine_transfer_kind kind;
    int64_t elems; /* of all ranks together, in fp32; of a message its own */
    char *from, *to;
    struct comm_part *part;
    struct gemm gemm; /* of messages, while one computes */
    void *scratch;
};

static int64_t elems_each(const struct timed_transfer *t)
{
    return t->elems / group_size(t->team->group);
}

/* Send a message to the peer and back.  Both use the same memory, so that the way back begins when
 * the message is there. */
static int ping_pong(const struct timed_transfer *t, struct error *err)
{
    struct group *g = t->team->group;
    struct comm_op op;
    int is_first = group_rank(g) < t->team->peer;
    for (int i = 0; i < 2; i++) {
        if (is_first == (i == 0))
            group_send(g, COMM_POINT, &op, t->from, t->elems, DTYPE_F32, t->team->peer);
        else
            group_recv(g, COMM_POINT, &op, t->from, t->elems, DTYPE_F32, t->team->peer);
        if (comm_wait(&op, err))
            return -1;
    }
    return 0;
}

static int transfer(struct measure *m, void *data, struct error *err)
{
    const struct timed_transfer *t = data;
    struct group *g = t->team->group;
    struct comm_op op;
    int64_t each = elems_each(t);
    char *own = t->to + (size_t)(group_rank(g) * each) * sizeof(float);
    switch (t->kind) {
    case MACHINE_GATHER: group_all_gather(g, COMM_GATHER, &op, t->to, own, each, DTYPE_F32); break;
    case MACHINE_REDUCE:
        group_reduce_scatter(g, COMM_REDUCE, &op, t->to, DTYPE_F32, t->from, each, DTYPE_F32, 0);
        break;
    case MACHINE_ALL_REDUCE:
        group_all_reduce(g, COMM_REDUCE, &op, t->to, t->elems, DTYPE_F32, GROUP_SUM);
        break;
    case MACHINE_ALL_TO_ALL:
        group_all_to_all(g, COMM_GATHER, &op, t->to, t->from, t->part, DTYPE_F32);
        break;
    default: return ping_pong(t, err);
    }
    return comm_wait(&op, err);
}

/* ---- a message to and from a rank that computes ---- */

static double spent_s(int64_t from_ns, int64_t to_ns)
{
    return (double)(to_ns - from_ns) * 1e-9;
}

/* Send a message to the peer and back, where the rank that sends first computes for compute_s
 * meanwhile, and the other one waits.  *seconds: on the first one, half of the time until the
 * answer is there; else 0. */
static int ping_pong_busy(struct measure *m, struct timed_transfer *t, double compute_s,
                          double *seconds, struct error *err)
{
    struct group *g = t->team->group;
    struct comm_op send, recv;
    int is_first = group_rank(g) < t->team->peer, rc = 0;
    int64_t start_ns = clock_ns();
    if (!is_first) {
        group_recv(g, COMM_POINT, &recv, t->to, t->elems, DTYPE_F32, t->team->peer);
        rc = comm_wait(&recv, err);
    }
    group_send(g, COMM_POINT, &send, t->from, t->elems, DTYPE_F32, t->team->peer);
    if (is_first)
        group_recv(g, COMM_POINT, &recv, t->to, t->elems, DTYPE_F32, t->team->peer);
    while (is_first && !rc && spent_s(start_ns, clock_ns()) < compute_s)
        rc = m->device->ops->gemm(m->device, &t->gemm, t->scratch, err);
    if (comm_wait(&send, rc ? NULL : err) || (is_first && comm_wait(&recv, rc ? NULL : err)))
        rc = -1;
    *seconds = is_first ? spent_s(start_ns, recv.end_ns) / 2 : 0;
    return rc;
}

/* Measure a message while a rank computes: the median of several tries, of the slowest pair.  The
 * rank computes as long as the answer may take; idle_s: seconds of the message without it. */
static int busy_s(struct measure *m, struct timed_transfer *t, double idle_s, double *seconds,
                  struct error *err)
{
    double took[TIMES] = {0}, compute_s = 4 * idle_s + 0.02;
    int works = t->team->works;
    world_barrier(m->world);
    int rc = works ? ping_pong_busy(m, t, compute_s, &took[0], err) : 0;
    int times = measure_repeats(m, rc, compute_s, m->limits->work_s * 6, err);
    if (times < 0)
        return -1;
    times = times > TIMES ? TIMES : times;
    for (int i = 1; i < times && works && !rc; i++)
        rc = ping_pong_busy(m, t, compute_s, &took[i], err);
    *seconds = works && !rc ? median_higher(took, times) : 0;
    if (world_agree(m->world, rc, err))
        return -1;
    world_all_reduce(m->world, seconds, 1, WORLD_MAX);
    return 0;
}

static enum device_stream stream_of(enum machine_transfer_kind kind)
{
    return kind == MACHINE_MESSAGE                                ? DEVICE_POINT
           : kind == MACHINE_REDUCE || kind == MACHINE_ALL_REDUCE ? DEVICE_REDUCE
                                                                  : DEVICE_GATHER;
}

/* Make a transfer of about so many bytes, in memory of the block. */
static struct timed_transfer transfer_of(struct measure *m, const struct team *team,
                                         enum machine_transfer_kind kind, size_t bytes)
{
    int size = group_size(team->group);
    struct timed_transfer t = {.team = team, .kind = kind, .from = m->block};
    int64_t each = max_i64((int64_t)(bytes / sizeof(float)) / size, 1);
    t.elems = kind == MACHINE_MESSAGE ? (int64_t)(bytes / sizeof(float)) : each * size;
    t.to = m->block + round_up_bytes((size_t)t.elems * sizeof(float), 256);
    t.part = array_make((size_t)size, sizeof *t.part);
    for (int i = 0; i < size; i++)
        t.part[i] = (struct comm_part){i * each, each, i * each, each};
    return t;
}

static void add_row(struct measure *m, const struct machine_transfer *row)
{
    struct machine *machine = m->machine;
    machine->transfer = array_grow(machine->transfer, machine->transfers, &m->transfer_capacity,
                                   sizeof *machine->transfer);
    machine->transfer[machine->transfers++] = *row;
}

static int measure_kind(struct measure *m, const struct team *team, enum machine_transfer_kind kind,
                        struct error *err)
{
    for (size_t bytes = LEAST_BYTES; bytes <= m->limits->transfer_bytes; bytes *= RATIO) {
        struct timed_transfer t = transfer_of(m, team, kind, bytes);
        struct machine_transfer row = {.kind = kind,
                                       .ranks = team->ranks,
                                       .nodes = team->nodes,
                                       .bytes = (double)t.elems * sizeof(float)};
        int rc = measure_seconds(m,
                                 &(struct measure_work){.run = team->works ? transfer : NULL,
                                                        .data = &t,
                                                        .stream = stream_of(kind)},
                                 &row.seconds, err);
        free(t.part);
        if (rc)
            return -1;
        row.seconds /= kind == MACHINE_MESSAGE ? 2 : 1;
        add_row(m, &row);
    }
    return 0;
}

/* Measure the messages of the rows from `first` on again, while ranks compute. */
static int measure_busy(struct measure *m, const struct team *team, int first, struct error *err)
{
    const int64_t side = min_i64(SIDE, m->limits->side);
    const int end = m->machine->transfers;
    const size_t operand = (size_t)(side * side) * sizeof(float);
    struct gemm gemm = gemm_dense((struct gemm){
        .dt = DTYPE_F32, .dt_c = DTYPE_F32, .trans_b = 1, .m = side, .n = side, .k = side});
    const size_t bytes = m->device->ops->gemm_scratch(m->device, &gemm);
    void *scratch = device_alloc(m->device, m->mem, POOL_WORKSPACE, bytes, err);
    int rc = world_agree(m->world, scratch ? 0 : -1, err);
    char *at = m->block + m->block_bytes - 3 * operand;
    gemm.a = at;
    gemm.b = at + operand;
    gemm.c = at + 2 * operand;
    for (int i = first; i < end && !rc; i++) {
        struct machine_transfer row = m->machine->transfer[i];
        struct timed_transfer t = transfer_of(m, team, MACHINE_MESSAGE, (size_t)row.bytes);
        t.gemm = gemm;
        t.scratch = scratch;
        rc = busy_s(m, &t, row.seconds, &row.seconds, err);
        row.kind = MACHINE_MESSAGE_BUSY;
        free(t.part);
        add_row(m, &row);
    }
    device_free(m->device, m->mem, POOL_WORKSPACE, bytes, scratch);
    return rc;
}

/* ---- groups ---- */

/* The node that a rank is on. */
struct rank_node {
    int node, local; /* number of its node; its number among the ranks of the node */
};

static int is_measured(const struct measure *m, int ranks, int nodes)
{
    for (int i = 0; i < m->machine->transfers; i++) {
        const struct machine_transfer *row = &m->machine->transfer[i];
        if (row->kind == MACHINE_GATHER && row->ranks == ranks && row->nodes == nodes)
            return 1;
    }
    return 0;
}

/* Return the number of nodes that each shard group of the mesh is on; 0: not all groups are on the
 * same number.  Collective. */
static int nodes_along(struct measure *m, struct mesh *mesh, const struct rank_node *of_rank)
{
    struct mesh_shape shape = mesh_shape(mesh);
    struct mesh_coord at = mesh_coord(mesh);
    int nodes = 0;
    for (int i = 0; i < shape.degree[MESH_SHARD]; i++) {
        int is_new = 1;
        at.at[MESH_SHARD] = i;
        int node = of_rank[mesh_rank(&shape, at)].node;
        for (int j = 0; j < i; j++) {
            at.at[MESH_SHARD] = j;
            is_new &= of_rank[mesh_rank(&shape, at)].node != node;
        }
        nodes += is_new;
    }
    double extremes[] = {nodes, -nodes};
    world_all_reduce(m->world, extremes, 2, WORLD_MAX);
    return extremes[0] == -extremes[1] ? nodes : 0;
}

/* Measure all collectives of groups of `size` ranks: of consecutive ranks, all groups at once; or,
 * with `across`, of one rank of each node, of which only the group of the nodes' first ranks
 * transfers. Groups are left out where others of as many ranks and nodes were measured. */
static int measure_groups(struct measure *m, int size, int across, const struct rank_node *of_rank,
                          struct error *err)
{
    const int rest = world_size(m->world) / size;
    const struct mesh_shape shape = {.degree = {1, across ? 1 : rest, size, 1, across ? rest : 1}};
    struct mesh *mesh = NULL;
    struct team team = {.ranks = size};
    int rc = measure_open_mesh(m, &mesh, shape, err);
    if (!rc) {
        team.group = mesh_group(mesh, MESH_SHARD);
        team.nodes = nodes_along(m, mesh, of_rank);
        team.works = !across || of_rank[world_rank(m->world)].local == 0;
    }
    if (team.nodes && !is_measured(m, team.ranks, team.nodes)) {
        measure_progress(m, "transfers among %d ranks on %d node%s", team.ranks, team.nodes,
                         team.nodes > 1 ? "s" : "");
        for (int kind = 0; kind < MACHINE_MESSAGE && !rc; kind++)
            rc = measure_kind(m, &team, (enum machine_transfer_kind)kind, err);
    }
    measure_close_mesh(m, mesh);
    return rc;
}

/* Return the rank that this rank exchanges messages with, in its node or (between) in the next one;
 * -1: none. */
static int peer_of(const struct measure *m, const struct rank_node *of_rank, int between)
{
    const struct rank_node own = of_rank[world_rank(m->world)];
    struct rank_node wanted = {own.node, own.local ^ 1};
    if (between)
        wanted = (struct rank_node){own.node ^ 1, own.local};
    for (int r = 0; r < world_size(m->world) && (!between || own.local == 0); r++)
        if (of_rank[r].node == wanted.node && of_rank[r].local == wanted.local)
            return r;
    return -1;
}

static int measure_messages(struct measure *m, const struct rank_node *of_rank, struct error *err)
{
    struct mesh *mesh = NULL;
    struct mesh_shape shape = {.degree = {world_size(m->world), 1, 1, 1, 1}, .points = 1};
    int rc = measure_open_mesh(m, &mesh, shape, err);
    measure_progress(m, "messages");
    for (int between = 0; between < 2 && !rc; between++) {
        struct team team = {.ranks = 2, .nodes = 1 + between};
        team.group = mesh_group(mesh, MESH_PIPELINE);
        team.peer = peer_of(m, of_rank, between);
        team.works = team.peer >= 0;
        double any = team.works;
        world_all_reduce(m->world, &any, 1, WORLD_MAX);
        int first = m->machine->transfers;
        if (any > 0)
            rc = measure_kind(m, &team, MACHINE_MESSAGE, err);
        if (any > 0 && !rc && !m->device->asynchronous)
            rc = measure_busy(m, &team, first, err);
    }
    measure_close_mesh(m, mesh);
    return rc;
}

/* Set speed and latency of the links within a node, or between nodes, from the gathers of the
 * largest group that uses them. */
static void set_link(const struct machine *machine, int between, struct machine_link *link)
{
    const struct machine_transfer *small = NULL, *large = NULL;
    for (int i = 0; i < machine->transfers; i++) {
        const struct machine_transfer *row = &machine->transfer[i];
        if (row->kind != MACHINE_GATHER || (row->nodes > 1) != between ||
            (large && row->ranks < large->ranks))
            continue;
        if (!large || row->ranks > large->ranks)
            small = row;
        large = row;
    }
    if (!large)
        return;
    double out = (large->ranks - 1.0) / large->ranks;
    link->bytes_per_s = large->bytes * out / large->seconds;
    link->efficiency = 1;
    link->latency_s = small->seconds / (large->ranks - 1);
}

static int measure_all(struct measure *m, const struct rank_node *of_rank, struct error *err)
{
    const int size = world_size(m->world), nodes = world_nodes(m->world), local = size / nodes;
    const int even = nodes > 1 && size % nodes == 0 && local > 1;
    if (measure_groups(m, size, 0, of_rank, err) || measure_messages(m, of_rank, err) ||
        (size % 2 == 0 && size > 2 && measure_groups(m, size / 2, 0, of_rank, err)) ||
        (even && measure_groups(m, local, 0, of_rank, err)) ||
        (even && measure_groups(m, nodes, 1, of_rank, err)))
        return -1;
    set_link(m->machine, 0, &m->machine->node);
    set_link(m->machine, 1, &m->machine->network);
    return 0;
}

int measure_transfers(struct measure *m, struct error *err)
{
    struct rank_node own = {world_node(m->world), world_local_rank(m->world)};
    if (world_size(m->world) == 1)
        return 0;
    if (measure_block(m, 4 * m->limits->transfer_bytes, DTYPE_F32, err))
        return -1;
    struct rank_node *of_rank = array_make((size_t)world_size(m->world), sizeof *of_rank);
    world_all_gather(m->world, of_rank, &own, sizeof own);
    int rc = measure_all(m, of_rank, err);
    free(of_rank);
    return rc;
}
