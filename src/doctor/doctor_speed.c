/* doctor_speed.c - measuring roughly how fast the ranks copy and transfer, and their GPUs multiply,
 * all ranks at once.
 *
 * One block of memory per rank is copied, gathered and reduced, ten times each where that is fast,
 * and a large product of bf16 is computed.  The figures are those of the slowest rank.  They are to
 * find what is badly wrong; trireme doctor --measure (measure.c) has figures for plans.
 */
#include <stdlib.h>
#include <string.h>

#include "base/round.h"
#include "doctor/doctor_report.h"
#include "comm/mesh.h"
#include "device/ops.h"

/* Rows and columns of the product; one of MOST_DIM takes an H200 1.5 ms. */
enum { MOST_DIM = 8192, LEAST_DIM = 512 };

/* How a kind of device is measured; to copy a GPU's bytes takes an H200 0.1 ms. */
static const struct bench_kind {
    size_t bytes;                 /* of a block */
    size_t blocks;                /* 3: a, c and b; 2: a and c alone */
    const char *gather, *scatter; /* names of the lines of the transfers */
    int digits;                   /* of the transfers' GB/s, after the point */
} kinds[] = {
    [DEVICE_CPU] = {.bytes = 64 << 20,
                    .blocks = 2,
                    .gather = "all-gather",
                    .scatter = "reduce-scatter",
                    .digits = 2},
    [DEVICE_CUDA] = {.bytes = 128 << 20,
                     .blocks = 3,
                     .gather = "GPU all-gather",
                     .scatter = "GPU reduce-scatter",
                     .digits = 1},
};

enum work { WORK_GEMM, WORK_COPY, WORK_UP, WORK_DOWN, WORK_GATHER, WORK_REDUCE, WORKS };

static const char *const names[WORKS] = {
    [WORK_GEMM] = "product",          [WORK_COPY] = "copy",
    [WORK_UP] = "copy to the device", [WORK_DOWN] = "copy from the device",
    [WORK_GATHER] = "all-gather",     [WORK_REDUCE] = "reduce-scatter"};

static const enum device_stream stream_of[WORKS] = {
    [WORK_GATHER] = DEVICE_GATHER, [WORK_REDUCE] = DEVICE_REDUCE}; /* others: DEVICE_COMPUTE, 0 */

struct bench {
    struct world *world;
    struct mem *mem;
    struct device *device;
    struct device_event *from, *to;
    struct mesh *mesh;
    struct group *group;
    const struct bench_kind *kind;
    size_t bytes;         /* of each block: a, c, b and host; a, c and b lie end to end */
    char *a, *c;          /* operand and result, on the device */
    char *b, *host;       /* of GPUs alone: second operand, and memory of the host */
    void *scratch;        /* of GPUs alone: of a product */
    size_t scratch_bytes; /* of scratch */
    int64_t dim;          /* of GPUs alone: rows and columns of the product */
};

static struct gemm cube(const struct bench *s)
{
    struct gemm g = {
        .dt = DTYPE_BF16, .dt_c = DTYPE_BF16, .trans_b = 1, .a = s->a, .b = s->b, .c = s->c};
    g.m = g.n = g.k = s->dim;
    return gemm_dense(g);
}

static int copy(struct bench *s, char *to, const char *from, struct error *err)
{
    return device_copy_async(s->device, DEVICE_COMPUTE, to, from, s->bytes, err);
}

/* Return the bytes of a gather or reduction that each rank has. */
static int64_t part_bytes(const struct bench *s)
{
    return (int64_t)s->bytes / world_size(s->world) / 64 * 64;
}

static int enqueue(struct bench *s, enum work work, struct error *err)
{
    struct comm_op op;
    struct gemm g;
    int64_t part = part_bytes(s);
    switch (work) {
    case WORK_GEMM: g = cube(s); return s->device->ops->gemm(s->device, &g, s->scratch, err);
    case WORK_COPY: return copy(s, s->c, s->a, err);
    case WORK_UP: return copy(s, s->a, s->host, err);
    case WORK_DOWN: return copy(s, s->host, s->a, err);
    case WORK_GATHER:
        group_all_gather(s->group, COMM_GATHER, &op, s->c, s->c + group_rank(s->group) * part, part,
                         DTYPE_U8);
        return comm_wait(&op, err);
    case WORK_REDUCE:
        group_reduce_scatter(s->group, COMM_REDUCE, &op, s->c, DTYPE_F32, s->a, part / 4, DTYPE_F32,
                             0);
        return comm_wait(&op, err);
    default: return 0;
    }
}

/* Measure the seconds that some work takes on this rank, done `times` times. */
static int find_seconds(struct bench *s, enum work work, int times, double *seconds,
                        struct error *err)
{
    *seconds = 0;
    if (device_event_record(s->device, s->from, stream_of[work], err))
        return -1;
    for (int i = 0; i < times; i++)
        if (enqueue(s, work, err))
            return -1;
    if (device_event_record(s->device, s->to, stream_of[work], err) || device_sync(s->device, err))
        return -1;
    *seconds = (double)device_event_ns(s->device, s->from, s->to) * 1e-9;
    return *seconds > 0 ? 0 : error_set(err, "the time of a %s was not measured", names[work]);
}

/* Measure the rate of some work on all ranks at once, in bytes or operations per second; amount:
 * those of the work done once.  *rate is the slowest rank's mean.  Collective.  Returns 0, or -1 on
 * every rank with err set. */
static int find_rate(struct bench *s, enum work work, double amount, double *rate,
                     struct error *err)
{
    enum { TIMES = 10 };
    double first, all;
    world_barrier(s->world);
    /* the first call is slow: it chooses kernels and connects ranks */
    if (world_agree(s->world, find_seconds(s, work, 1, &first, err), err))
        return -1;
    world_all_reduce(s->world, &first, 1, WORLD_MAX);
    int times = first < 0.1 ? TIMES : 1;
    if (world_agree(s->world, find_seconds(s, work, times, &all, err), err))
        return -1;
    *rate = times * amount / all;
    world_all_reduce(s->world, rate, 1, WORLD_MIN);
    return 0;
}

/* Measure products of growing size, as long as they are fast, and return the best rate in *best, in
 * operations per second.  An emulated or small GPU stops at small ones. */
static int find_gemm_rate(struct bench *s, double *best, struct error *err)
{
    *best = 0;
    for (s->dim = LEAST_DIM; s->dim <= MOST_DIM; s->dim *= 2) {
        double flops = 2.0 * (double)s->dim * (double)s->dim * (double)s->dim;
        struct gemm g = cube(s);
        if (s->device->ops->gemm_scratch(s->device, &g) > s->scratch_bytes)
            break;
        double now;
        if (find_rate(s, WORK_GEMM, flops, &now, err))
            return -1;
        *best = now > *best ? now : *best;
        if (8 * flops / now > 0.5)
            break;
    }
    return 0;
}

/* Fill host with numbers of either sign between 1/2 and 1; products of zeros would be faster. */
static void fill(struct bench *s)
{
    uint32_t x = 1;
    for (size_t i = 0; i < s->bytes / sizeof(bf16); i++) {
        x = x * 1664525 + 1013904223;
        ((uint16_t *)s->host)[i] = (uint16_t)(0x3f00 | (x >> 16 & 0x7f) | (x >> 31 << 15));
    }
}

static int prepare_gpu(struct bench *s, struct error *err)
{
    s->b = s->c + s->bytes;
    s->dim = MOST_DIM;
    struct gemm g = cube(s);
    s->scratch_bytes = s->device->ops->gemm_scratch(s->device, &g);
    s->scratch = device_alloc(s->device, s->mem, POOL_WORKSPACE, s->scratch_bytes, err);
    s->host = device_host_alloc(s->device, s->mem, POOL_HOST, s->bytes, err);
    if (!s->scratch || !s->host)
        return -1;
    fill(s);
    if (device_upload(s->device, s->a, s->host, s->bytes, err))
        return -1;
    return device_upload(s->device, s->b, s->host, s->bytes, err);
}

static int open_device(const struct doctor *d, struct bench *s, enum device_kind kind,
                       struct error *err)
{
    struct device_request request = {.kind = kind,
                                     .index = d->gpu,
                                     .local_ranks = world_local_size(s->world),
                                     .replaced = d->replaced};
    if (device_open(&s->device, &request, err))
        return -1;
    s->from = device_event_create(s->device, DEVICE_EVENT_TIMED, err);
    s->to = device_event_create(s->device, DEVICE_EVENT_TIMED, err);
    return s->from && s->to ? 0 : -1;
}

/* Allocate the blocks; on CPUs they are memory as training has it for transfers. */
static int prepare(struct bench *s, struct error *err)
{
    s->a = mesh_alloc(s->mesh, s->device, s->mem, POOL_WORKSPACE, s->kind->blocks * s->bytes, err);
    if (!s->a)
        return -1;
    s->c = s->a + s->bytes;
    if (s->device->kind == DEVICE_CUDA)
        return prepare_gpu(s, err);
    memset(s->a, 0, 2 * s->bytes);
    return 0;
}

static void release(struct bench *s)
{
    struct device *device = s->device;
    if (!device)
        return;
    if (s->mesh)
        mesh_unregister(s->mesh, s->a);
    mesh_free(s->mesh, device, s->mem, POOL_WORKSPACE, s->kind->blocks * s->bytes, s->a);
    mesh_destroy(s->mesh);
    device_event_destroy(device, s->from);
    device_event_destroy(device, s->to);
    device_free(device, s->mem, POOL_WORKSPACE, s->scratch_bytes, s->scratch);
    device_host_free(device, s->mem, POOL_HOST, s->bytes, s->host);
    device_close(device);
}

/* Compute attention of a few tokens with heads like Llama-3-8B's, backward twice; print which
 * kernels did it, and whether they gave the same bits both times. */
static int check_attention(struct doctor *d, struct bench *s, struct error *err)
{
    const struct attention a = {DTYPE_BF16, 1, 128, 4, 1, 128, 0.088f};
    const size_t o_bytes = (size_t)(a.seq * a.heads * a.head_dim) * sizeof(bf16);
    const size_t qkv_bytes = o_bytes * (size_t)(a.heads + 2 * a.kv_heads) / (size_t)a.heads;
    const size_t forward = s->device->ops->attention_scratch(s->device, &a, DEVICE_FORWARD);
    const size_t both = s->device->ops->attention_scratch(s->device, &a, DEVICE_BACKWARD);
    const size_t bytes = max_bytes(both, forward);
    char *o = s->c, *lse = o + o_bytes, *again[2] = {lse + o_bytes, lse + o_bytes + qkv_bytes};
    void *scratch = device_alloc(s->device, s->mem, POOL_WORKSPACE, bytes, err);
    struct device_attention met;
    int rc = scratch ? 0 : -1;
    if (!rc)
        s->device->ops->attention(s->device, &a, o, (float *)lse, s->a, scratch);
    for (int i = 0; i < 2 && !rc; i++)
        s->device->ops->attention_backward(s->device, &a, again[i], s->b, o, (float *)lse, s->a,
                                           scratch);
    for (int i = 0; i < 2 && !rc; i++)
        rc = device_download(s->device, s->host + (size_t)i * qkv_bytes, again[i], qkv_bytes, err);
    if (!rc)
        rc = device_check(s->device, err);
    device_free(s->device, s->mem, POOL_WORKSPACE, bytes, scratch);
    if (rc)
        return -1;
    int same = !memcmp(s->host, s->host + qkv_bytes, qkv_bytes);
    device_attention(s->device, &met);
    doctor_fact(d, "GPU attention", "%s; backward twice: %s",
                met.by_own ? "trireme's own kernels" : "cuDNN",
                same ? "the same bits" : "other bits");
    if (met.why[0])
        doctor_problem(
            d,
            "attention is not done by cuDNN (%s); it compiles its kernels and needs "
            "libnvrtc and libnvrtc-builtins where the loader finds them (LD_LIBRARY_PATH)",
            met.why);
    if (!same)
        doctor_problem(d, "attention's gradients differ from run to run: runs will not repeat; "
                          "configure trireme --with-cudnn=no");
    return 0;
}

/* Make one group of all ranks.  It also works where ranks share a GPU. */
static int connect(struct doctor *d, struct bench *s, struct error *err)
{
    int size = world_size(s->world);
    struct mesh_options options = {.share_gpu = d->share_gpu};
    struct mesh_shape shape = {.degree = {1, 1, size, 1, 1}};
    if (mesh_create(&s->mesh, s->world, shape, err) ||
        mesh_attach(s->mesh, s->world, s->device, s->mem, &options, err))
        return -1;
    s->group = mesh_group(s->mesh, MESH_SHARD);
    return 0;
}

/* Make the group of all ranks on GPUs, and print the GPU memory that it takes. */
static int connect_gpus(struct doctor *d, struct bench *s, struct error *err)
{
    size_t total, before, after;
    if (world_agree(s->world, device_memory(s->device, &total, &before, err), err) ||
        connect(d, s, err) ||
        world_agree(s->world, device_memory(s->device, &total, &after, err), err))
        return -1;
    doctor_fact(d, "GPU memory", "%.2f of %.2f GiB free, %.2f once the ranks are connected",
                gib_of(before), gib_of(total), gib_of(after));
    return 0;
}

static int measure_transfers(struct doctor *d, struct bench *s, struct error *err)
{
    if (world_size(s->world) == 1)
        return 0;
    if (s->device->kind == DEVICE_CUDA && connect_gpus(d, s, err))
        return -1;
    double moved = (double)part_bytes(s) * (world_size(s->world) - 1);
    double gather, reduce;
    if (find_rate(s, WORK_GATHER, moved, &gather, err) ||
        find_rate(s, WORK_REDUCE, moved, &reduce, err))
        return -1;
    doctor_fact(d, s->kind->gather, "%.*f GB/s into every rank", s->kind->digits, gather * 1e-9);
    doctor_fact(d, s->kind->scatter, "%.*f GB/s into every rank, fp32", s->kind->digits,
                reduce * 1e-9);
    return 0;
}

/* Let the ranks of a node read one another's blocks, and print whether they do. */
static int share(struct doctor *d, struct bench *s, struct error *err)
{
    int is_shared = mesh_register(s->mesh, s->a, 2 * s->bytes, err);
    if (is_shared < 0)
        return -1;
    if (world_nodes(s->world) < world_size(s->world))
        doctor_fact(d, "ranks of a node", "%s",
                    is_shared ? "read one another's memory"
                              : "exchange messages through MPI: reading one another's memory "
                                "needs Linux 6.1 or later, and no limit by ulimit -v");
    return 0;
}

static int measure_cpu(struct doctor *d, struct bench *s, struct error *err)
{
    double copied;
    if (s->mesh && share(d, s, err))
        return -1;
    if (find_rate(s, WORK_COPY, (double)s->bytes, &copied, err))
        return -1;
    doctor_fact(d, "copy", "%.1f GB/s", copied * 1e-9);
    return measure_transfers(d, s, err);
}

static int measure_gpu(struct doctor *d, struct bench *s, struct error *err)
{
    double bytes = (double)s->bytes, gemm, copied, up, down;
    if (find_gemm_rate(s, &gemm, err) || find_rate(s, WORK_COPY, 2 * bytes, &copied, err) ||
        find_rate(s, WORK_UP, bytes, &up, err) || find_rate(s, WORK_DOWN, bytes, &down, err))
        return -1;
    doctor_fact(d, "GPU products", "%.3g TFLOP/s bf16", gemm * 1e-12);
    doctor_fact(d, "GPU copy", "%.0f GB/s read and written; from the host %.1f GB/s, to it %.1f",
                copied * 1e-9, up * 1e-9, down * 1e-9);
    if (world_agree(s->world, check_attention(d, s, err), err))
        return -1;
    return measure_transfers(d, s, err);
}

static int measure(struct doctor *d, enum device_kind kind, struct error *err)
{
    struct bench s = {
        .world = d->world, .mem = d->mem, .kind = &kinds[kind], .bytes = kinds[kind].bytes};
    int rc = world_agree(s.world, open_device(d, &s, kind, err), err);
    if (!rc && kind == DEVICE_CPU && world_size(s.world) > 1)
        rc = connect(d, &s, err);
    if (!rc)
        rc = world_agree(s.world, prepare(&s, err), err);
    if (!rc)
        rc = kind == DEVICE_CUDA ? measure_gpu(d, &s, err) : measure_cpu(d, &s, err);
    release(&s);
    return rc;
}

int doctor_measure(struct doctor *d, struct error *err)
{
    double gpu = d->gpu;
    world_all_reduce(d->world, &gpu, 1, WORLD_MIN);
    doctor_fact(d, "speeds",
                "all ranks at once, the slowest one's: mean of 10 times, or one above 0.1 s");
    if (measure(d, DEVICE_CPU, err))
        return -1;
    return gpu < 0 ? 0 : measure(d, DEVICE_CUDA, err);
}
