/* test_messages.c - SEND and RECV of programs, by the executor: ranks in a ring, of which the first
 * sends and the others receive first, on the CPU and on a GPU.  Ranks go round the GPUs there are.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/gpu/gpu.h"
#include "execute/execute.h"
#include "program/memory.h"
#include "verify/verify.h"
#include "tests/mpi/check.h"

enum { ELEMS = 50021, HANG_SECONDS = 30 };

/* A step of every rank, written by hand: the second half of `out` and then the first to the next
 * rank, into `in`; then what came is passed on, into `out`. */
struct ring {
    struct units units;
    struct layout *layout;
    struct state *state;     /* by rank */
    struct program *program; /* by rank */
    int ranks, out, in, half[4];
};

static int add_message(struct program *p, enum instr_kind kind, int buffer, int peer)
{
    struct instr *instr = program_add_instr(p, kind, STREAM_POINT);
    instr->axes = 1u << MESH_PIPELINE;
    instr->peer = peer;
    instr->elems = (int64_t)(p->buffer[buffer].bytes / sizeof(float));
    instr->dtype = DTYPE_F32;
    instr_bind(instr, kind == INSTR_SEND ? SLOT_FROM : SLOT_TO, buffer,
               kind == INSTR_SEND ? ACCESS_READ : ACCESS_WRITE);
    return p->instrs - 1;
}

static void write_program(struct ring *ring, int rank)
{
    struct program *p = &ring->program[rank];
    struct state *state = &ring->state[rank];
    size_t bytes = ELEMS * sizeof(float), first = ELEMS / 2 * sizeof(float);
    int next = (rank + 1) % ring->ranks, before = (rank + ring->ranks - 1) % ring->ranks;
    p->units = &ring->units;
    p->kind = PROGRAM_EVALUATE;
    p->micros = 1;
    p->layout = ring->layout;
    p->state = state;
    *state = (struct state){.layout = ring->layout,
                            .coord = mesh_coord_of_rank(&ring->layout->shape, rank)};
    state->sums = program_add_buffer(p, POOL_GRADS, SUM_COUNT * sizeof(double), 1, "sums");
    ring->out = program_add_buffer(p, POOL_PARAMS, bytes, 1, "out");
    ring->in = program_add_buffer(p, POOL_PARAMS, bytes, 1, "in");
    for (int k = 0; k < 4; k++) {
        ring->half[k] =
            program_add_buffer(p, POOL_PARAMS, k & 1 ? bytes - first : first, 1, "half");
        state_make_view(p->buffer, ring->half[k], k < 2 ? ring->out : ring->in, k & 1 ? first : 0);
    }
    memory_plan(p);
    if (ring->ranks == 1)
        return;
    const int sent[] = {ring->half[1], ring->half[0], ring->in};
    const int received[] = {ring->half[3], ring->half[2], ring->out};
    for (int k = 0; k < 3; k++) {
        if (rank == 0)
            add_message(p, INSTR_SEND, sent[k], next);
        add_message(p, INSTR_RECV, received[k], before);
        if (rank != 0)
            add_message(p, INSTR_SEND, sent[k], next);
    }
}

static struct ring ring_new(int ranks)
{
    struct ring ring = {.ranks = ranks,
                        .units = {.request = {.batch = 1, .seq = {1}}, .stages = 1}};
    ring.program = calloc((size_t)ranks, sizeof *ring.program);
    ring.state = calloc((size_t)ranks, sizeof *ring.state);
    ring.layout = calloc(1, sizeof *ring.layout);
    ring.layout->shape = (struct mesh_shape){.degree = {ranks, 1, 1, 1, 1}, .points = 1};
    return ring;
}

static void ring_free(struct ring *ring)
{
    for (int r = 0; r < ring->ranks; r++) {
        free(ring->program[r].buffer);
        free(ring->program[r].instr);
    }
    free(ring->program);
    free(ring->state);
    free(ring->layout);
}

/* The checks find that all fits. */
static void check_program(struct checks *c, const struct ring *ring)
{
    struct error err = {0};
    const struct program **all = calloc((size_t)ring->ranks, sizeof *all);
    for (int r = 0; r < ring->ranks; r++)
        all[r] = &ring->program[r];
    if (verify_ranks(all, ring->ranks, &err))
        fprintf(stderr, "%s\n", err.text);
    CHECK(c, !err.text[0]);
    free(all);
}

static float value(int rank, int i)
{
    return (float)(rank * 1000003 + i);
}

static void step(struct checks *c, const struct ring *ring, struct executor *x, struct trace *trace)
{
    int rank = world_rank(c->world), wrong = 0;
    const struct program *p = &ring->program[rank];
    float *data = malloc(ELEMS * sizeof *data);
    struct step_input input = {.step = 1};
    struct error err = {0};
    for (int i = 0; i < ELEMS; i++)
        data[i] = value(rank, i);
    CHECK(c, !executor_write(x, &p->buffer[ring->out], 0, data, ELEMS * sizeof *data, &err));
    CHECK(c, !executor_run_step(x, p, &input, NULL, trace, &err));
    if (err.text[0])
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
    for (int hops = 1; hops <= 2 && ring->ranks > 1; hops++) {
        int from = (rank + 2 * ring->ranks - hops) % ring->ranks;
        CHECK(c, !executor_read(x, &p->buffer[hops == 1 ? ring->in : ring->out], 0, data,
                                ELEMS * sizeof *data, &err));
        for (int i = 0; i < ELEMS; i++)
            wrong += data[i] != value(from, i);
    }
    CHECK(c, !wrong);
    CHECK(c, ring->ranks == 1 || executor_sent_bytes(x) == 2 * ELEMS * (int64_t)sizeof(float));
    free(data);
}

static void test_ring(struct checks *c, struct device *device)
{
    struct error err = {0};
    struct mesh_options options = {.share_gpu = 1};
    struct mesh *mesh;
    struct executor *x = NULL;
    struct ring ring = ring_new(world_size(c->world));
    for (int r = 0; r < ring.ranks; r++)
        write_program(&ring, r);
    const struct program *mine = &ring.program[world_rank(c->world)];
    check_program(c, &ring);
    CHECK(c, !mesh_create(&mesh, c->world, ring.layout->shape, &err));
    CHECK(c, !mesh_attach(mesh, c->world, device, &c->mem, &options, &err));
    CHECK(c, !executor_create(&x, device, mesh, &c->mem, &mine, 1, NULL, NULL, &err));
    if (x) {
        struct trace trace;
        executor_watch(x, HANG_SECONDS);
        step(c, &ring, x, NULL);
        trace_begin(&trace);
        step(c, &ring, x, &trace);
        CHECK(c, trace.events == mine->instrs);
        trace_free(&trace);
    }
    executor_destroy(x);
    mesh_destroy(mesh);
    ring_free(&ring);
}

/* A GPU where all have one; -1: none. */
static int find_gpu(struct checks *c, struct error *err)
{
    char why[128];
    int index = -1;
    double fewest = device_gpu_count(why);
    world_all_reduce(c->world, &fewest, 1, WORLD_MIN);
    if (fewest >= 1)
        CHECK(c, !gpu_choose(c->world, GPU_SHARED, &index, err));
    return index;
}

int main(void)
{
    struct checks c = {0};
    struct error err = {0};
    struct device_request request = {.kind = DEVICE_CPU, .threads = 1};
    struct device *device;
    if (checks_start(&c))
        return 1;
    world_watch(c.world, 2 * HANG_SECONDS);
    CHECK(&c, !device_open(&device, &request, &err));
    test_ring(&c, device);
    device_close(device);
    request = (struct device_request){.kind = DEVICE_CUDA, .index = find_gpu(&c, &err)};
    if (request.index >= 0) {
        CHECK(&c, !device_open(&device, &request, &err));
        test_ring(&c, device);
        device_close(device);
    }
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
    return checks_finish(&c);
}
