/* measure_beside.c - measuring how much products and a transfer slow one another down when both are
 * under way, as where a program gathers the parameters of the next unit.
 *
 *   1. how many products, and how many gathers, take about beside_s each, alone (measure_alone())
 *   2. so many products alone, gathers alone, and both at once (measure_both())
 *   3. from these times follows the share of its speed that each keeps (measure_shares())
 */
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/round.h"
#include "comm/mesh.h"
#include "doctor/measure_work.h"

enum { BYTES = 16 << 20, SIDE = 1024 };

struct beside {
    struct group *group;
    struct gemm gemm;
    void *scratch;
    int64_t each;            /* elements that each rank gives to the gather */
    int products, transfers; /* numbers of each that take about beside_s, alone */
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

/* Products and transfers that begin at once. */
struct both {
    int products, transfers;      /* how many of each; may be 0 */
    double compute_s, transfer_s; /* seconds from the begin to the end of the last of each */
};

/* On a CPU, transfers proceed on the communication thread while this thread computes. */
static int run_on_cpu(struct measure *m, struct beside *b, struct both *both, struct error *err)
{
    struct comm_op *op = array_make((size_t)both->transfers, sizeof *op);
    int64_t start_ns = clock_ns(), last_ns = start_ns;
    int rc = 0;
    for (int i = 0; i < both->transfers; i++)
        gather(m, b, &op[i]);
    for (int i = 0; i < both->products && !rc; i++)
        rc = multiply(m, b, err);
    both->compute_s = (double)(clock_ns() - start_ns) * 1e-9;
    for (int i = 0; i < both->transfers; i++) {
        if (comm_wait(&op[i], err))
            rc = -1;
        last_ns = op[i].end_ns;
    }
    both->transfer_s = (double)(last_ns - start_ns) * 1e-9;
    free(op);
    return rc;
}

/* On a GPU, products and transfers have a stream each; both streams begin after one event. */
static int enqueue(struct measure *m, struct beside *b, const struct both *both,
                   struct device_event *const end[2], struct error *err)
{
    struct device *d = m->device;
    if (device_event_record(d, m->from, DEVICE_COMPUTE, err) ||
        device_event_wait(d, DEVICE_GATHER, m->from, err))
        return -1;
    for (int i = 0; i < both->products || i < both->transfers; i++)
        if ((i < both->transfers && gather_alone(m, b, err)) ||
            (i < both->products && multiply(m, b, err)))
            return -1;
    if (device_event_record(d, end[0], DEVICE_COMPUTE, err) ||
        device_event_record(d, end[1], DEVICE_GATHER, err))
        return -1;
    return device_sync(d, err);
}

static int run_on_gpu(struct measure *m, struct beside *b, struct both *both, struct error *err)
{
    struct device *d = m->device;
    struct device_event *end[2] = {NULL, NULL};
    int rc = 0;
    for (int i = 0; i < 2 && !rc; i++)
        rc = (end[i] = device_event_create(d, DEVICE_EVENT_TIMED, err)) ? 0 : -1;
    if (!rc)
        rc = enqueue(m, b, both, end, err);
    if (!rc) {
        both->compute_s = (double)device_event_ns(d, m->from, end[0]) * 1e-9;
        both->transfer_s = (double)device_event_ns(d, m->from, end[1]) * 1e-9;
    }
    for (int i = 0; i < 2; i++)
        if (end[i])
            device_event_destroy(d, end[i]);
    return rc;
}

/* Run products and transfers at once on all ranks; the times are those of the slowest rank.
 * Collective. */
static int run_both(struct measure *m, struct beside *b, struct both *both, struct error *err)
{
    world_barrier(m->world);
    int rc = m->device->asynchronous ? run_on_gpu(m, b, both, err) : run_on_cpu(m, b, both, err);
    if (world_agree(m->world, rc, err))
        return -1;
    double took[] = {both->compute_s, both->transfer_s};
    world_all_reduce(m->world, took, 2, WORLD_MAX);
    both->compute_s = took[0];
    both->transfer_s = took[1];
    return 0;
}

/* The work that ends first was slowed down all the time; the other one did the rest at full speed
 * then:
 *
 *   first    |=========|            alone / took
 *   second   |=========|=====|      (alone - (took - first's took)) / first's took
 */
void measure_shares(const double alone[2], const double took[2], double share[2])
{
    int first = took[0] > took[1], second = !first;
    share[first] = alone[first] / took[first];
    share[second] = (alone[second] - (took[second] - took[first])) / took[first];
    for (int i = 0; i < 2; i++)
        share[i] = share[i] < 0.01 ? 0.01 : share[i] > 1 ? 1 : share[i];
}

/* Measure several times, each time alone and at once one after the other, so that what else the
 * machine does disturbs both alike; take the median of the shares. */
static int measure_both(struct measure *m, struct beside *b, struct error *err)
{
    enum { TRIES = 5 };
    double shares[2][TRIES];
    for (int i = 0; i < TRIES; i++) {
        struct both compute = {.products = b->products}, transfer = {.transfers = b->transfers};
        struct both both = {.products = b->products, .transfers = b->transfers};
        double share[2];
        if (run_both(m, b, &compute, err) || run_both(m, b, &transfer, err) ||
            run_both(m, b, &both, err))
            return -1;
        const double alone[] = {compute.compute_s, transfer.transfer_s};
        const double took[] = {both.compute_s, both.transfer_s};
        measure_shares(alone, took, share);
        shares[0][i] = share[0];
        shares[1][i] = share[1];
    }
    m->machine->beside_compute = median_higher(shares[0], TRIES);
    m->machine->beside_transfer = median_higher(shares[1], TRIES);
    return 0;
}

/* Measure a product and a gather alone, and set b->products and b->transfers. */
static int measure_alone(struct measure *m, struct beside *b, struct error *err)
{
    const struct measure_work compute = {.run = multiply, .data = b};
    const struct measure_work transfer = {.run = gather_alone, .data = b, .stream = DEVICE_GATHER};
    double compute_s, transfer_s;
    if (measure_seconds(m, &compute, &compute_s, err) ||
        measure_seconds(m, &transfer, &transfer_s, err))
        return -1;
    b->products = (int)(m->limits->beside_s / compute_s) + 1;
    b->transfers = (int)(m->limits->beside_s / transfer_s) + 1;
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
