/* measure_transfers.c - how long collectives and messages take, by kind, group and bytes, through
 * the groups that training uses.
 *
 * Groups of all ranks, of half of them, of a node's, and of one rank of each node; those of a node
 * all transfer at the same time, as in training, while of groups across nodes that share a node one
 * transfers.  A message goes from one rank to another and back: between neighbours within a node,
 * all pairs at once, and between the first ranks of two nodes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "comm/mesh.h"
#include "doctor/measure_work.h"

enum { LEAST_BYTES = 1 << 10, RATIO = 4 };

/* Ranks that transfer. */
struct team {
    struct group *group;
    int ranks, nodes; /* of each group like this one */
    int works;        /* 0: this rank's group rests */
    int peer;         /* of messages: who is at the other end */
};

struct transfer {
    const struct team *team;
    enum machine_transfer_kind kind;
    int64_t elems; /* of all ranks together, in fp32; of a message its own */
    char *from, *to;
    struct comm_part *part;
};

static int64_t elems_each(const struct transfer *t)
{
    return t->elems / group_size(t->team->group);
}

/* To the other one and back again: the same memory, so that the two follow one another. */
static int ping_pong(const struct transfer *t, struct error *err)
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
    const struct transfer *t = data;
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

static enum device_stream stream_of(enum machine_transfer_kind kind)
{
    return kind == MACHINE_MESSAGE                                ? DEVICE_POINT
           : kind == MACHINE_REDUCE || kind == MACHINE_ALL_REDUCE ? DEVICE_REDUCE
                                                                  : DEVICE_GATHER;
}

/* A transfer of about so many bytes, in memory of the block. */
static struct transfer transfer_of(struct measure *m, const struct team *team,
                                   enum machine_transfer_kind kind, size_t bytes)
{
    int size = group_size(team->group);
    struct transfer t = {.team = team, .kind = kind, .from = m->block};
    int64_t each = max_i64((int64_t)(bytes / sizeof(float)) / size, 1);
    t.elems = kind == MACHINE_MESSAGE ? (int64_t)(bytes / sizeof(float)) : each * size;
    t.to = m->block + round_up_bytes((size_t)t.elems * sizeof(float), 256);
    t.part = array_make((size_t)size, sizeof *t.part);
    for (int i = 0; i < size; i++)
        t.part[i] = (struct comm_part){i * each, each, i * each, each};
    return t;
}

static int measure_kind(struct measure *m, const struct team *team, enum machine_transfer_kind kind,
                        struct error *err)
{
    struct machine *machine = m->machine;
    for (size_t bytes = LEAST_BYTES; bytes <= m->limits->transfer_bytes; bytes *= RATIO) {
        struct transfer t = transfer_of(m, team, kind, bytes);
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
        machine->transfer = array_grow(machine->transfer, machine->transfers, &m->transfer_capacity,
                                       sizeof *machine->transfer);
        machine->transfer[machine->transfers++] = row;
    }
    return 0;
}

/* ---- groups ---- */

/* Where all ranks are. */
struct place {
    int node, local;
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

/* On how many nodes each shard group is; 0: not all on as many. */
static int nodes_along(struct measure *m, struct mesh *mesh, const struct place *place)
{
    struct mesh_shape shape = mesh_shape(mesh);
    struct mesh_coord at = mesh_coord(mesh);
    int nodes = 0;
    for (int i = 0; i < shape.degree[MESH_SHARD]; i++) {
        int is_new = 1;
        at.at[MESH_SHARD] = i;
        int node = place[mesh_rank(&shape, at)].node;
        for (int j = 0; j < i; j++) {
            at.at[MESH_SHARD] = j;
            is_new &= place[mesh_rank(&shape, at)].node != node;
        }
        nodes += is_new;
    }
    double extremes[] = {nodes, -nodes};
    world_all_reduce(m->world, extremes, 2, WORLD_MAX);
    return extremes[0] == -extremes[1] ? nodes : 0;
}

/* All collectives of groups of `size` ranks that follow one another, or, if they are one of each
 * node (across), of those of the first ranks of nodes. */
static int measure_groups(struct measure *m, int size, int across, const struct place *place,
                          struct error *err)
{
    const int rest = world_size(m->world) / size;
    const struct mesh_shape shape = {.degree = {1, across ? 1 : rest, size, 1, across ? rest : 1}};
    struct mesh *mesh = NULL;
    struct team team = {.ranks = size};
    int rc = measure_open_mesh(m, &mesh, shape, err);
    if (!rc) {
        team.group = mesh_group(mesh, MESH_SHARD);
        team.nodes = nodes_along(m, mesh, place);
        team.works = !across || place[world_rank(m->world)].local == 0;
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

/* The rank that this one exchanges messages with, or -1. */
static int peer_of(const struct measure *m, const struct place *place, int between)
{
    const struct place own = place[world_rank(m->world)];
    struct place wanted = {own.node, own.local ^ 1};
    if (between)
        wanted = (struct place){own.node ^ 1, own.local};
    for (int r = 0; r < world_size(m->world) && (!between || own.local == 0); r++)
        if (place[r].node == wanted.node && place[r].local == wanted.local)
            return r;
    return -1;
}

static int measure_messages(struct measure *m, const struct place *place, struct error *err)
{
    struct mesh *mesh = NULL;
    struct mesh_shape shape = {.degree = {world_size(m->world), 1, 1, 1, 1}, .points = 1};
    int rc = measure_open_mesh(m, &mesh, shape, err);
    measure_progress(m, "messages");
    for (int between = 0; between < 2 && !rc; between++) {
        struct team team = {.ranks = 2, .nodes = 1 + between};
        team.group = mesh_group(mesh, MESH_PIPELINE);
        team.peer = peer_of(m, place, between);
        team.works = team.peer >= 0;
        double any = team.works;
        world_all_reduce(m->world, &any, 1, WORLD_MAX);
        if (any > 0)
            rc = measure_kind(m, &team, MACHINE_MESSAGE, err);
    }
    measure_close_mesh(m, mesh);
    return rc;
}

/* A way's speed and latency, from the gathers of the largest group that uses it. */
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

static int measure_all(struct measure *m, const struct place *place, struct error *err)
{
    const int size = world_size(m->world), nodes = world_nodes(m->world), local = size / nodes;
    const int even = nodes > 1 && size % nodes == 0 && local > 1;
    if (measure_groups(m, size, 0, place, err) || measure_messages(m, place, err) ||
        (size % 2 == 0 && size > 2 && measure_groups(m, size / 2, 0, place, err)) ||
        (even && measure_groups(m, local, 0, place, err)) ||
        (even && measure_groups(m, nodes, 1, place, err)))
        return -1;
    set_link(m->machine, 0, &m->machine->node);
    set_link(m->machine, 1, &m->machine->network);
    return 0;
}

int measure_transfers(struct measure *m, struct error *err)
{
    struct place own = {world_node(m->world), world_local_rank(m->world)};
    if (world_size(m->world) == 1)
        return 0;
    if (measure_block(m, 4 * m->limits->transfer_bytes, DTYPE_F32, err))
        return -1;
    struct place *place = array_make((size_t)world_size(m->world), sizeof *place);
    world_all_gather(m->world, place, &own, sizeof own);
    int rc = measure_all(m, place, err);
    free(place);
    return rc;
}
