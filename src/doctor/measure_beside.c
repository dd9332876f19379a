/* measure_beside.c - how much products and a transfer slow one another down when both are under
 * way, as they are where a program gathers the parameters of the next unit.
 */
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/round.h"
#include "comm/mesh.h"
#include "doctor/measure_work.h"

enum { BYTES = 16 << 20, SIDE = 1024 };

struct beside {
    struct group *group;
    struct gemm gemm;
    void *scratch;
    int64_t each;            /* elements of a rank that are gathered */
    int products, transfers; /* that each take about as long, alone */
    double compute_s, transfer_s;
};

static int multiply(struct measure *m, void *data, struct error *err)
{
    struct beside *b = data;
    const size_t in = (size_t)(b->gemm.m * b->gemm.k) * dtype_bytes(b->gemm.dt);
    char *at = m->block + m->block_bytes / 2; /* the transfer has the first half */
    b->gemm.a = at;
    b->gemm.b = at + in;
    b->gemm.c = at + 2 * in;
    return m->device->ops->gemm(m->device, &b->gemm, b->scratch, err);
}

static void gather(struct measure *m, const struct beside *b, struct comm_op *op)
{
    char *own = m->block + (size_t)(group_rank(b->group) * b->each) * sizeof(float);
    group_all_gather(b->group, COMM_GATHER, op, m->block, own, b->each, DTYPE_F32);
}

static int gather_alone(struct measure *m, void *data, struct error *err)
{
    struct comm_op op;
    gather(m, data, &op);
    return comm_wait(&op, err);
}

/* Both at once: on a CPU transfers proceed on the communication thread. */
static int both_on_cpu(struct measure *m, struct beside *b, double took[2], struct error *err)
{
    struct comm_op *op = array_make((size_t)b->transfers, sizeof *op);
    int64_t start_ns = clock_ns(), last_ns = start_ns;
    int rc = 0;
    for (int i = 0; i < b->transfers; i++)
        gather(m, b, &op[i]);
    for (int i = 0; i < b->products && !rc; i++)
        rc = multiply(m, b, err);
    took[0] = (double)(clock_ns() - start_ns) * 1e-9;
    for (int i = 0; i < b->transfers; i++) {
        if (comm_wait(&op[i], err))
            rc = -1;
        last_ns = op[i].end_ns;
    }
    took[1] = (double)(last_ns - start_ns) * 1e-9;
    free(op);
    return rc;
}

/* On a GPU on their streams, from one event on. */
static int both_on_gpu(struct measure *m, struct beside *b, double took[2], struct error *err)
{
    struct device *d = m->device;
    struct device_event *end[2] = {NULL, NULL};
    int rc = 0;
    for (int i = 0; i < 2 && !rc; i++)
        rc = (end[i] = device_event_create(d, DEVICE_EVENT_TIMED, err)) ? 0 : -1;
    if (!rc)
        rc = device_event_record(d, m->from, DEVICE_COMPUTE, err) ||
             device_event_wait(d, DEVICE_GATHER, m->from, err);
    for (int i = 0; (i < b->products || i < b->transfers) && !rc; i++) {
        if (i < b->transfers)
            rc = gather_alone(m, b, err);
        if (i < b->products && !rc)
            rc = multiply(m, b, err);
    }
    if (!rc)
        rc = device_event_record(d, end[0], DEVICE_COMPUTE, err) ||
             device_event_record(d, end[1], DEVICE_GATHER, err);
    if (!rc)
        rc = device_sync(d, err);
    for (int i = 0; i < 2 && !rc; i++)
        took[i] = (double)device_event_ns(d, m->from, end[i]) * 1e-9;
    for (int i = 0; i < 2; i++)
        if (end[i])
            device_event_destroy(d, end[i]);
    return rc ? -1 : 0;
}

/* The share of its speed that each keeps while both are under way.  Alone they would take
 * alone[i]; both begin at once and take took[i].  What ends first has been slowed down all the
 * time; the other one has then done the rest at full speed:
 *
 *   first    |=========|            alone / took
 *   second   |=========|=====|      (alone - (took - first's took)) / first's took
 */
static void set_shares(struct machine *machine, const double alone[2], const double took[2])
{
    double share[2];
    int first = took[0] > took[1], second = !first;
    share[first] = alone[first] / took[first];
    share[second] = (alone[second] - (took[second] - took[first])) / took[first];
    for (int i = 0; i < 2; i++)
        share[i] = share[i] < 0.01 ? 0.01 : share[i] > 1 ? 1 : share[i];
    machine->beside_compute = share[0];
    machine->beside_transfer = share[1];
}

static int measure_both(struct measure *m, struct beside *b, struct error *err)
{
    enum { TRIES = 5 };
    double best[2][TRIES] = {{0}}, took[2];
    double alone[] = {b->products * b->compute_s, b->transfers * b->transfer_s};
    int rc = 0;
    for (int i = 0; i < TRIES; i++) {
        world_barrier(m->world);
        if (!rc)
            rc = m->device->asynchronous ? both_on_gpu(m, b, took, err)
                                         : both_on_cpu(m, b, took, err);
        if (world_agree(m->world, rc, err))
            return -1;
        world_all_reduce(m->world, took, 2, WORLD_MAX);
        best[0][i] = took[0];
        best[1][i] = took[1];
    }
    took[0] = measure_quartile(best[0], TRIES);
    took[1] = measure_quartile(best[1], TRIES);
    set_shares(m->machine, alone, took);
    return 0;
}

/* Each alone, which says how often each is done beside the other. */
static int measure_alone(struct measure *m, struct beside *b, struct error *err)
{
    const struct measure_work compute = {.run = multiply, .data = b};
    const struct measure_work transfer = {.run = gather_alone, .data = b, .stream = DEVICE_GATHER};
    if (measure_seconds(m, &compute, &b->compute_s, err) ||
        measure_seconds(m, &transfer, &b->transfer_s, err))
        return -1;
    b->products = (int)(m->limits->beside_s / b->compute_s) + 1;
    b->transfers = (int)(m->limits->beside_s / b->transfer_s) + 1;
    return 0;
}

int measure_beside(struct measure *m, struct error *err)
{
    const int64_t side = min_i64(SIDE, m->limits->side), ranks = world_size(m->world);
    const size_t gathered = min_bytes(BYTES, m->limits->transfer_bytes);
    const enum dtype dtype = m->device->kind == DEVICE_CPU ? DTYPE_F32 : DTYPE_BF16;
    struct beside b = {.each = (int64_t)(gathered / sizeof(float)) / ranks};
    struct mesh *mesh = NULL;
    m->machine->beside_compute = m->machine->beside_transfer = 1;
    if (ranks == 1)
        return 0;
    measure_progress(m, "products beside transfers");
    b.gemm = gemm_dense(
        (struct gemm){.dt = dtype, .dt_c = dtype, .trans_b = 1, .m = side, .n = side, .k = side});
    size_t bytes = m->device->ops->gemm_scratch(m->device, &b.gemm);
    size_t operands = 3 * (size_t)(side * side) * sizeof(float);
    if (measure_block(m, 2 * max_bytes(operands, gathered), dtype, err))
        return -1;
    b.scratch = device_alloc(m->device, m->mem, POOL_WORKSPACE, bytes, err);
    int rc = world_agree(m->world, b.scratch ? 0 : -1, err);
    if (!rc)
        rc = measure_open_mesh(m, &mesh, (struct mesh_shape){.degree = {1, 1, (int)ranks, 1, 1}},
                               err);
    if (!rc) {
        b.group = mesh_group(mesh, MESH_SHARD);
        rc = measure_alone(m, &b, err);
    }
    if (!rc)
        rc = measure_both(m, &b, err);
    measure_close_mesh(m, mesh);
    device_free(m->device, m->mem, POOL_WORKSPACE, bytes, b.scratch);
    return rc;
}
