/* test_comm_device.c - groups on a GPU's memory against serial references: every operation, at odd
 * counts and in pieces; several streams at once, related by events; what is refused; failures.
 * Ranks go round the GPUs there are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/gpu/gpu.h"
#include "device/ops.h"
#include "tests/mpi/device_arrays.h"

/* Of the emulated NCCL: communicators of one rank it was ever asked for. */
int emulate_nccl_single_rank_comms(void) __attribute__((weak));

/* Pieces so small that all of these but the first go in several, the last one cut off. */
static const int64_t counts[] = {1, 3, 251, 2039};
enum { COUNTS = sizeof counts / sizeof counts[0], PIECE_BYTES = 2048, WATCH_S = 60 };

/* A sum of fp32 terms in any order differs from the exact one by less than this. */
static double slack(int ranks, double magnitudes)
{
    return ranks * 0x1p-23 * magnitudes;
}

static void test_all_gather(struct rig *r, struct group *g, int64_t n, enum dtype dtype,
                            int in_place)
{
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    struct array all = array_new(r, n * size, dtype), mine = array_new(r, n, dtype);
    char *send = in_place ? all.device + (size_t)(n * rank) * dtype_bytes(dtype) : mine.device;
    struct comm_op op;
    array_fill(&mine, rank);
    to_device(r, &mine);
    memcpy(all.host + (size_t)(n * rank) * dtype_bytes(dtype), mine.host,
           in_place ? (size_t)n * dtype_bytes(dtype) : 0);
    to_device(r, &all);
    group_all_gather(g, COMM_GATHER, &op, all.device, send, n, dtype);
    done(r, &op);
    to_host(r, &all, DEVICE_GATHER);
    for (int64_t i = 0; i < n * size; i++)
        wrong += get(all.host, i, dtype) != sent((int)(i / n), i % n, dtype);
    CHECK(&r->c, !wrong);
    CHECK(&r->c, op.sent_bytes == (size - 1) * n * (int64_t)dtype_bytes(dtype));
    array_free(r, &all);
    array_free(r, &mine);
}

enum how { FRESH, IN_PLACE, ACCUMULATE };

/* Whether got is the sum of element i over ranks, after what was there before. */
static int is_sum(double got, int ranks, int64_t i, enum dtype dtype, const float *before)
{
    float in_order = before ? *before : 0;
    double exact = in_order, magnitudes = fabs(exact);
    for (int rank = 0; rank < ranks; rank++) {
        in_order += rounded(value(rank, i), dtype);
        exact += value(rank, i);
        magnitudes += fabs(value(rank, i));
    }
    return dtype_bytes(dtype) == 2 ? got == in_order
                                   : fabs(got - exact) <= slack(ranks, magnitudes);
}

static void test_reduce_scatter(struct rig *r, struct group *g, int64_t n, enum dtype dtype,
                                enum how how)
{
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    struct array send = array_new(r, n * size, dtype), own = array_new(r, n, DTYPE_F32);
    struct array *result = how == IN_PLACE ? &send : &own;
    int64_t at = how == IN_PLACE ? n * rank : 0;
    struct comm_op op;
    array_fill(&send, rank);
    array_fill(&own, 100 + rank);
    to_device(r, &send);
    to_device(r, &own);
    group_reduce_scatter(g, COMM_REDUCE, &op, (float *)result->device + at, DTYPE_F32, send.device,
                         n, dtype, how == ACCUMULATE);
    done(r, &op);
    to_host(r, result, DEVICE_REDUCE);
    for (int64_t i = 0; i < n; i++) {
        float before = value(100 + rank, i);
        wrong += !is_sum(((float *)result->host)[at + i], size, n * rank + i, dtype,
                         how == ACCUMULATE ? &before : NULL);
    }
    CHECK(&r->c, !wrong);
    wrong = 0;
    to_host(r, &send, DEVICE_REDUCE);
    for (int64_t i = 0; i < n * size; i++) /* the others' parts are as they were */
        wrong += i / n != rank && get(send.host, i, dtype) != sent(rank, i, dtype);
    CHECK(&r->c, !wrong);
    CHECK(&r->c, op.sent_bytes == (size - 1) * n * (int64_t)dtype_bytes(dtype));
    array_free(r, &send);
    array_free(r, &own);
}

/* bf16 and fp16: the sum in rank order, rounded once. */
static void test_rounded(struct rig *r, struct group *g, int64_t n, enum dtype dtype)
{
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    struct array send = array_new(r, n * size, dtype), recv = array_new(r, n, dtype);
    struct comm_op op;
    array_fill(&send, rank);
    to_device(r, &send);
    to_device(r, &recv);
    group_reduce_scatter(g, COMM_REDUCE, &op, recv.device, dtype, send.device, n, dtype, 0);
    done(r, &op);
    to_host(r, &recv, DEVICE_REDUCE);
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int m = 0; m < size; m++)
            sum += rounded(value(m, n * rank + i), dtype);
        wrong += get(recv.host, i, dtype) != rounded(sum, dtype);
    }
    CHECK(&r->c, !wrong);
    CHECK(&r->c, op.sent_bytes == (size - 1) * n * (int64_t)dtype_bytes(dtype));
    array_free(r, &send);
    array_free(r, &recv);
}

static int is_total(double got, int ranks, int64_t i, enum dtype dtype)
{
    float in_order = 0;
    double exact = 0, magnitudes = 0;
    for (int rank = 0; rank < ranks; rank++) {
        in_order += rounded(value(rank, i), dtype);
        exact += value(rank, i);
        magnitudes += fabs(value(rank, i));
    }
    return dtype_bytes(dtype) == 2 ? got == rounded(in_order, dtype)
           : dtype == DTYPE_F64    ? fabs(got - exact) <= slack(ranks, magnitudes) * 0x1p-29
                                   : fabs(got - exact) <= slack(ranks, magnitudes);
}

static void test_all_reduce(struct rig *r, struct group *g, int64_t n, enum dtype dtype)
{
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    struct array data = array_new(r, n, dtype);
    struct comm_op op;
    array_fill(&data, rank);
    to_device(r, &data);
    group_all_reduce(g, COMM_REDUCE, &op, data.device, n, dtype, GROUP_SUM);
    done(r, &op);
    to_host(r, &data, DEVICE_REDUCE);
    for (int64_t i = 0; i < n; i++)
        wrong += !is_total(get(data.host, i, dtype), size, i, dtype);
    CHECK(&r->c, !wrong);
    CHECK(&r->c, op.sent_bytes == group_all_reduce_sent(size, rank, n, dtype));
    array_free(r, &data);
}

/* The same bits in any order. */
static void test_maximum(struct rig *r, struct group *g, int64_t n, enum dtype dtype)
{
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    struct array data = array_new(r, n, dtype);
    struct comm_op op;
    array_fill(&data, rank);
    to_device(r, &data);
    group_all_reduce(g, COMM_REDUCE, &op, data.device, n, dtype, GROUP_MAX);
    done(r, &op);
    to_host(r, &data, DEVICE_REDUCE);
    for (int64_t i = 0; i < n; i++) {
        double max = sent(0, i, dtype);
        for (int m = 1; m < size; m++)
            max = fmax(max, sent(m, i, dtype));
        wrong += get(data.host, i, dtype) != max;
    }
    CHECK(&r->c, !wrong);
    CHECK(&r->c, op.sent_bytes == group_all_reduce_sent(size, rank, n, dtype));
    array_free(r, &data);
}

/* Member `from` sends from + 2 * to parts of n elements to member `to`, each but the first behind a
 * gap. */
static int64_t part_elems(int from, int to, int64_t n)
{
    return n * ((from + 2 * to) % 5);
}

static void make_parts(struct comm_part *part, int size, int rank, int64_t n)
{
    int64_t send = 0, recv = 0;
    for (int m = 0; m < size; m++) {
        part[m] = (struct comm_part){send, part_elems(rank, m, n), recv, part_elems(m, rank, n)};
        send += part[m].send_elems + 1;
        recv += part[m].recv_elems + 1;
    }
}

static void test_all_to_all(struct rig *r, struct group *g, int64_t n, enum dtype dtype)
{
    enum { MEMBERS = 8 };
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    int64_t space = size * (4 * n + 1), others = 0;
    struct array send = array_new(r, space, dtype), recv = array_new(r, space, dtype);
    struct comm_part part[MEMBERS], theirs[MEMBERS];
    struct comm_op op;
    array_fill(&send, rank);
    array_fill(&recv, 100);
    to_device(r, &send);
    to_device(r, &recv);
    make_parts(part, size, rank, n);
    group_all_to_all(g, COMM_REDUCE, &op, recv.device, send.device, part, dtype);
    done(r, &op);
    to_host(r, &recv, DEVICE_REDUCE);
    for (int m = 0; m < size; m++) {
        int64_t at = part[m].recv_from, end = at + part[m].recv_elems;
        make_parts(theirs, size, m, n);
        for (int64_t i = at; i < end; i++)
            wrong += get(recv.host, i, dtype) != sent(m, theirs[rank].send_from + i - at, dtype);
        wrong += get(recv.host, end, dtype) != sent(100, end, dtype);
        others += m == rank ? 0 : part[m].send_elems;
    }
    CHECK(&r->c, !wrong);
    CHECK(&r->c, op.sent_bytes == others * (int64_t)dtype_bytes(dtype));
    array_free(r, &send);
    array_free(r, &recv);
}

/* Everybody sends to the next before it receives, twice; then passes on what it got. */
static void test_ring(struct rig *r, struct group *g, int64_t n)
{
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int64_t half = n / 2;
    struct array out = array_new(r, n, DTYPE_F32), in = array_new(r, n, DTYPE_F32);
    struct comm_op op[5];
    array_fill(&out, rank);
    to_device(r, &out);
    to_device(r, &in);
    float *o = (float *)out.device, *i = (float *)in.device;
    group_send(g, COMM_POINT, &op[0], o, half, DTYPE_F32, to);
    group_send(g, COMM_POINT, &op[1], o + half, n - half, DTYPE_F32, to);
    group_recv(g, COMM_POINT, &op[2], i, half, DTYPE_F32, from);
    group_recv(g, COMM_POINT, &op[3], i + half, n - half, DTYPE_F32, from);
    group_send(g, COMM_POINT, &op[4], i, n, DTYPE_F32, to);
    done(r, &op[3]);
    group_recv(g, COMM_POINT, &op[3], o, n, DTYPE_F32, from);
    for (int k = 0; k < 5; k++)
        done(r, &op[k]);
    to_host(r, &out, DEVICE_POINT);
    to_host(r, &in, DEVICE_POINT);
    for (int64_t k = 0; k < n; k++) {
        wrong += ((float *)in.host)[k] != value(from, k);
        wrong += ((float *)out.host)[k] != value((rank + 2 * size - 2) % size, k);
    }
    CHECK(&r->c, !wrong);
    CHECK(&r->c, op[0].sent_bytes + op[1].sent_bytes == n * (int64_t)sizeof(float));
    array_free(r, &out);
    array_free(r, &in);
}

/* Rounds of: copy to the shard (compute), gather it, sum the gathered over the members, and copy
 * the sum into the next round's shard; only events tell the streams about one another. */
static void test_streams(struct rig *r, struct group *g)
{
    enum { N = 509, ROUNDS = 6 };
    int size = group_size(g), rank = group_rank(g), wrong = 0;
    struct array shard = array_new(r, N, DTYPE_F32), whole = array_new(r, N * size, DTYPE_F32);
    struct array sum = array_new(r, N, DTYPE_F32);
    struct device *d = r->device;
    struct comm_op gather, reduce;
    for (int i = 0; i < N; i++)
        put(sum.host, i, DTYPE_F32, (rank + 1) * 1000 + i);
    to_device(r, &sum);
    for (int round = 0; round < ROUNDS; round++) {
        d->ops->copy(d, shard.device, sum.device, N * sizeof(float));
        CHECK(&r->c, !device_event_record(d, r->event, DEVICE_COMPUTE, &r->said));
        CHECK(&r->c, !device_event_wait(d, DEVICE_GATHER, r->event, &r->said));
        group_all_gather(g, COMM_GATHER, &gather, whole.device, shard.device, N, DTYPE_F32);
        done(r, &gather);
        CHECK(&r->c, !device_event_record(d, r->event, DEVICE_GATHER, &r->said));
        CHECK(&r->c, !device_event_wait(d, DEVICE_REDUCE, r->event, &r->said));
        group_reduce_scatter(g, COMM_REDUCE, &reduce, sum.device, DTYPE_F32, whole.device, N,
                             DTYPE_F32, 0);
        done(r, &reduce);
        CHECK(&r->c, !device_event_record(d, r->event, DEVICE_REDUCE, &r->said));
        CHECK(&r->c, !device_event_wait(d, DEVICE_COMPUTE, r->event, &r->said));
    }
    to_host(r, &sum, DEVICE_COMPUTE);
    for (int i = 0; i < N; i++) { /* every round multiplies by the size; exact in fp32 */
        double expect = ((rank + 1) * 1000 + i) * pow(size, ROUNDS);
        wrong += fabs(((float *)sum.host)[i] - expect) > expect * ROUNDS * 0x1p-8;
    }
    CHECK(&r->c, !wrong);
    array_free(r, &shard);
    array_free(r, &whole);
    array_free(r, &sum);
}

/* --- meshes --- */

static void attach_shape(struct rig *r, struct mesh_shape shape)
{
    struct mem before;
    CHECK(&r->c, !mesh_create(&r->mesh, r->c.world, shape, &r->said));
    before = r->c.mem;
    CHECK(&r->c, !mesh_attach(r->mesh, r->c.world, r->device, &r->c.mem, &r->options, &r->said));
    CHECK(&r->c, r->c.mem.now_bytes[POOL_COMM] - before.now_bytes[POOL_COMM] ==
                     mesh_device_staging_bytes(&shape, &r->options));
    CHECK(&r->c, r->c.mem.now_bytes[POOL_HOST] - before.now_bytes[POOL_HOST] ==
                     mesh_host_staging_bytes(&shape, &r->options));
}

static void attach(struct rig *r, int pipeline, int replicate, int shard)
{
    attach_shape(r, (struct mesh_shape){.degree = {pipeline, replicate, shard, 1, 1}, .points = 1});
}

static void detach(struct rig *r)
{
    CHECK(&r->c, !mesh_poll(r->mesh, &r->said));
    CHECK(&r->c, !device_sync(r->device, &r->said));
    mesh_destroy(r->mesh);
    r->mesh = NULL;
}

static void test_shard(struct rig *r, int replicate, int shard)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F64};
    struct group *g;
    attach(r, 1, replicate, shard);
    g = mesh_group(r->mesh, MESH_SHARD);
    for (int i = 0; i < COUNTS; i++) {
        for (int d = 0; d < 4; d++) {
            test_all_gather(r, g, counts[i], dtypes[d], 0);
            test_all_gather(r, g, counts[i], dtypes[d], 1);
            test_all_reduce(r, g, counts[i], dtypes[d]);
            test_all_to_all(r, g, counts[i], dtypes[d]);
            test_all_reduce(r, mesh_group(r->mesh, MESH_REPLICATE), counts[i], dtypes[d]);
            test_all_reduce(r, mesh_group_of(r->mesh, MESH_DATA), counts[i], dtypes[d]);
            test_maximum(r, mesh_group_of(r->mesh, MESH_DATA), counts[i], dtypes[d]);
        }
        for (int d = 0; d < 3; d++) {
            test_reduce_scatter(r, g, counts[i], dtypes[d], FRESH);
            test_reduce_scatter(r, g, counts[i], dtypes[d], ACCUMULATE);
        }
        test_reduce_scatter(r, g, counts[i], DTYPE_F32, IN_PLACE);
        test_rounded(r, g, counts[i], DTYPE_BF16);
        test_rounded(r, g, counts[i], DTYPE_F16);
    }
    test_streams(r, g);
    detach(r);
}

static void test_pipeline(struct rig *r, int stages)
{
    struct group *g;
    attach(r, stages, 1, 1);
    g = mesh_group(r->mesh, MESH_PIPELINE);
    for (int i = 0; i < COUNTS && stages > 1; i++)
        test_ring(r, g, counts[i] + 1);
    detach(r);
}

/* What ranks exchange within a unit, over one axis or two. */
static void test_exchanges(struct rig *r, struct mesh_shape shape, unsigned axes)
{
    attach_shape(r, shape);
    struct group *g = mesh_group_of(r->mesh, axes);
    CHECK(&r->c, group_size(g) == mesh_members(&shape, axes));
    for (int i = 0; i < COUNTS; i++) {
        test_all_gather(r, g, counts[i], DTYPE_BF16, 0);
        test_all_reduce(r, g, counts[i], DTYPE_F32);
        test_all_reduce(r, g, counts[i], DTYPE_BF16);
        test_maximum(r, g, counts[i], DTYPE_F32);
        test_all_to_all(r, g, counts[i], DTYPE_F16);
        test_reduce_scatter(r, g, counts[i], DTYPE_F32, FRESH);
    }
    detach(r);
}

static void test_wrong_use(struct rig *r, int size)
{
    struct comm_op op;
    struct group *g;
    float *data = device_alloc(r->device, &r->c.mem, POOL_WORKSPACE, 64, &r->said);
    attach(r, 1, 1, size);
    g = mesh_group(r->mesh, MESH_SHARD);
    group_send(g, COMM_POINT, &op, data, 1, DTYPE_F32, group_rank(g));
    CHECK(&r->c, comm_wait(&op, &r->said) == -1 && strstr(r->said.text, "shard"));
    group_all_reduce(g, COMM_REDUCE, &op, data, 1, DTYPE_I32, GROUP_SUM);
    CHECK(&r->c, comm_wait(&op, &r->said) == -1 && strstr(r->said.text, "i32"));
    group_reduce_scatter(g, COMM_REDUCE, &op, data, DTYPE_F32, data, 1, DTYPE_F64, 0);
    CHECK(&r->c, comm_wait(&op, &r->said) == -1 && strstr(r->said.text, "fp64"));
    group_reduce_scatter(g, COMM_REDUCE, &op, data, DTYPE_F16, data, 1, DTYPE_BF16, 0);
    CHECK(&r->c, comm_wait(&op, &r->said) == -1 && strstr(r->said.text, "bf16 in fp16"));
    group_reduce_scatter(g, COMM_REDUCE, &op, data, DTYPE_BF16, data, 1, DTYPE_BF16, 1);
    CHECK(&r->c, comm_wait(&op, &r->said) == -1 && strstr(r->said.text, "bf16 added to bf16"));
    group_all_gather(g, COMM_GATHER, &op, data, data, -1, DTYPE_F32);
    CHECK(&r->c, comm_wait(&op, &r->said) == -1);
    group_all_gather(g, COMM_GATHER, &op, data, data, 0, DTYPE_F32);
    CHECK(&r->c, !comm_wait(&op, &r->said));
    group_all_reduce(g, COMM_POINT, &op, data, 1, DTYPE_F32, GROUP_SUM);
    CHECK(&r->c, comm_wait(&op, &r->said) == (size > 1 ? -1 : 0));
    int taken = mesh_register(r->mesh, data, 64, &r->said);
    CHECK(&r->c, size > 1 || !taken);
    mesh_unregister(r->mesh, data);
    mesh_unregister(r->mesh, data);
    detach(r);
    device_free(r->device, &r->c.mem, POOL_WORKSPACE, 64, data);
}

/* The last rank gives up in a gather no other has come to; the others learn it soon, are told who
 * they are, and can end. */
static void test_failure(struct rig *r, int size)
{
    enum { LIMIT_S = 30 };
    struct array data = array_new(r, 1009, DTYPE_F32);
    struct array all = array_new(r, 1009 * size, DTYPE_F32);
    int64_t begin_ns = clock_ns(), failed = 0;
    struct comm_op op;
    struct error err = {0};
    char place[64];
    attach(r, 1, 1, size);
    to_device(r, &data);
    world_barrier(r->c.world);
    if (world_rank(r->c.world) == size - 1) {
        group_all_gather(mesh_group(r->mesh, MESH_SHARD), COMM_GATHER, &op, all.device, data.device,
                         1009, DTYPE_F32);
        done(r, &op);
        mesh_abandon(r->mesh);
    } else {
        group_all_reduce(mesh_group(r->mesh, MESH_SHARD), COMM_REDUCE, &op, data.device, 1009,
                         DTYPE_F32, GROUP_SUM);
        failed = comm_wait(&op, &err);
        while (!failed && clock_ns() - begin_ns < (int64_t)LIMIT_S * 1000000000)
            failed = mesh_poll(r->mesh, &err);
        snprintf(place, sizeof place, "rank %d", world_rank(r->c.world));
        CHECK(&r->c, failed && strstr(err.text, "group shard") && strstr(err.text, place) &&
                         strstr(err.text, world_host(r->c.world)) && err.code == EXIT_NODE);
        begin_ns = clock_ns();
        mesh_abandon(r->mesh);
        CHECK(&r->c, clock_ns() - begin_ns < (int64_t)10 * 1000000000);
    }
    CHECK(&r->c, mesh_poll(r->mesh, &err) == -1);
    group_all_reduce(mesh_group(r->mesh, MESH_SHARD), COMM_REDUCE, &op, data.device, 1, DTYPE_F32,
                     GROUP_SUM);
    CHECK(&r->c, comm_wait(&op, &err) == -1);
    device_sync(r->device, NULL); /* ends, well or not */
    mesh_destroy(r->mesh);
    array_free(r, &data);
    array_free(r, &all);
}

/* What the last rank does instead of its part in a sum. */
enum absence { SILENT, GONE };

/* A sum of more pieces than a stream has places for calls, in which the last rank takes no part:
 * the others notice, while the stream is full.  A rank that is silent they notice by the time that
 * has passed, one that is gone at once, by what NCCL says. */
static void test_absence(struct rig *r, int size, enum absence absence)
{
    enum { ELEMS = 1 << 20, HANG_S = 3, LIMIT_S = 30 };
    struct array data = array_new(r, ELEMS, DTYPE_BF16);
    const int64_t begin_ns = clock_ns();
    double hung = 0;
    struct comm_op op;
    struct error err = {0};
    attach(r, 1, size, 1);
    to_device(r, &data);
    world_watch(r->c.world, absence == SILENT ? HANG_S : WATCH_S);
    world_barrier(r->c.world);
    if (world_rank(r->c.world) == size - 1) {
        sleep(absence == SILENT ? 2 * HANG_S : 1);
    } else {
        group_all_reduce(mesh_group(r->mesh, MESH_REPLICATE), COMM_REDUCE, &op, data.device, ELEMS,
                         DTYPE_BF16, GROUP_SUM);
        CHECK(&r->c, comm_wait(&op, &err) && strstr(err.text, "group replicate"));
        hung = err.code == EXIT_HANG && strstr(err.text, "does not go on");
        CHECK(&r->c, hung || (err.code == EXIT_NODE && strstr(err.text, "a peer died")));
        CHECK(&r->c, clock_ns() - begin_ns < (int64_t)LIMIT_S * 1000000000);
    }
    mesh_abandon(r->mesh);
    world_watch(r->c.world, WATCH_S);
    world_all_reduce(r->c.world, &hung, 1, WORLD_MAX); /* the first one ends the others' wait */
    CHECK(&r->c, hung == (absence == SILENT));
    device_sync(r->device, NULL); /* ends, well or not */
    mesh_destroy(r->mesh);
    array_free(r, &data);
}

/* All that is tried with one way to communicate. */
static void test_options(struct rig *r, int size)
{
    test_shard(r, 1, size);
    test_shard(r, size, 1);
    if (size == 4)
        test_shard(r, 2, 2);
}

/* GPUs fewer than ranks are refused, unless they may be shared.  Returns the GPU, or -1. */
static int choose(struct rig *r, int size)
{
    char why[128];
    int index = -1, gpus = device_gpu_count(why);
    double fewest = gpus;
    world_all_reduce(r->c.world, &fewest, 1, WORLD_MIN);
    if (fewest < 1) {
        CHECK(&r->c, gpu_choose(r->c.world, GPU_SHARED, &index, &r->said) == -1 && r->said.text[0]);
        CHECK(&r->c, !gpu_everywhere(r->c.world));
        if (world_rank(r->c.world) == 0)
            printf("# skipped: no GPU: %s\n", why);
        return -1;
    }
    int enough = gpus >= size || gpus >= world_local_size(r->c.world);
    CHECK(&r->c, gpu_everywhere(r->c.world) == enough);
    CHECK(&r->c, (gpu_choose(r->c.world, GPU_OWN, &index, &r->said) == 0) == enough);
    if (!enough)
        CHECK(&r->c, strstr(r->said.text, gpus == 1 ? "comm.share_gpu" : "GPU"));
    CHECK(&r->c, !gpu_choose(r->c.world, GPU_SHARED, &index, &r->said));
    return index;
}

static void test_all(struct rig *r, int size)
{
    r->options = (struct mesh_options){.share_gpu = 1, .piece_bytes = PIECE_BYTES};
    test_options(r, size);
    r->options.inter_node = COMM_INTER_NODE_MPI;
    test_options(r, size);
    test_pipeline(r, size);
    test_exchanges(r, (struct mesh_shape){{1, 1, 1, 1, size}}, 1u << MESH_TENSOR);
    if (size == 4) {
        test_exchanges(r, (struct mesh_shape){{1, 1, 2, 1, 2}}, 1u << MESH_TENSOR);
        test_exchanges(r, (struct mesh_shape){{1, 1, 2, 2, 1}}, MESH_SHARDS);
    }
    test_wrong_use(r, size);
    if (size > 1) {
        test_failure(r, size);
        r->options.inter_node = COMM_INTER_NODE_NCCL; /* sums by MPI could not be ended here */
        test_absence(r, size, SILENT);
        test_absence(r, size, GONE);
    }
    if (emulate_nccl_single_rank_comms)
        CHECK(&r->c, emulate_nccl_single_rank_comms() == 0);
}

int main(void)
{
    struct rig r = {0};
    struct device_request request = {.kind = DEVICE_CUDA};
    if (checks_start(&r.c))
        return 1;
    world_watch(r.c.world, WATCH_S);
    request.index = choose(&r, world_size(r.c.world));
    if (request.index >= 0) {
        int rc = device_open(&r.device, &request, &r.said);
        CHECK(&r.c, !world_agree(r.c.world, rc, &r.said));
        r.event = r.device ? device_event_create(r.device, DEVICE_EVENT_UNTIMED, &r.said) : NULL;
        CHECK(&r.c, r.event);
        if (r.event)
            test_all(&r, world_size(r.c.world));
        if (r.device)
            device_event_destroy(r.device, r.event);
        device_close(r.device);
    }
    if (r.said.text[0] && r.c.failed)
        fprintf(stderr, "# last error: %s\n", r.said.text);
    return checks_finish(&r.c);
}
