/* measure_work.c - timing one kind of work on all ranks at once.
 *
 *  1. all ranks wait for one another, and do the work twice: the second time is a first guess
 *  2. from the slowest rank's guess follows how often all do it within the time there is for it
 *  3. a rank's result is the lower quartile of its times, that of all the slowest rank's
 *
 * On CPUs one time is by the clock.  On a GPU it is by a pair of events around TOGETHER runs, with
 * copies enqueued before, so that the host is ahead of the GPU when the first event is reached:
 *
 *   stream:  copy copy copy copy | event | work work work work | event
 *
 * Operands lie in a block larger than the caches, each call's after those of the call before.
 */
#include "doctor/measure_work.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/round.h"

enum {
    MOST_REPEATS = 64, /* times of which the lower quartile is taken, at most */
    TOGETHER = 4,      /* on a GPU: times that the work is done between two events */
    HOLDS = 4,         /* on a GPU: copies before the first event.  While they keep the stream busy,
                          the host enqueues the work, so that the GPU does not wait for the host */
    ALIGN = 256,
    FILL_BYTES = 1 << 20
};

const struct adamw measure_adamw = {.lr = 1e-3f,
                                    .beta2 = 0.95f,
                                    .eps = 1e-8f,
                                    .weight_decay = 0.1f,
                                    .one_minus_beta1 = 0.1f,
                                    .one_minus_beta2 = 0.05f,
                                    .bias1 = 0.5f,
                                    .bias2 = 0.5f};

static int run_times(struct measure *m, const struct measure_work *work, int times,
                     struct error *err)
{
    for (int i = 0; i < times; i++)
        if (work->run(m, work->data, err))
            return -1;
    return 0;
}

static int hold(struct measure *m, enum device_stream stream, struct error *err)
{
    size_t half = m->block_bytes / 2;
    for (int i = 0; i < HOLDS; i++)
        if (device_copy_async(m->device, stream, m->block + half, m->block, half, err))
            return -1;
    return 0;
}

static int sample_gpu(struct measure *m, const struct measure_work *work, double *seconds,
                      struct error *err)
{
    struct device *d = m->device;
    if (hold(m, work->stream, err) || device_event_record(d, m->from, work->stream, err) ||
        run_times(m, work, TOGETHER, err) || device_event_record(d, m->to, work->stream, err) ||
        device_sync(d, err))
        return -1;
    *seconds = (double)device_event_ns(d, m->from, m->to) * 1e-9 / TOGETHER;
    return 0;
}

static int sample(struct measure *m, const struct measure_work *work, double *seconds,
                  struct error *err)
{
    if (m->device->asynchronous)
        return sample_gpu(m, work, seconds, err);
    int64_t start_ns = clock_ns();
    if (run_times(m, work, 1, err))
        return -1;
    *seconds = (double)(clock_ns() - start_ns) * 1e-9;
    return 0;
}

int measure_repeats(struct measure *m, int rc, double took_s, double budget_s, struct error *err)
{
    const double late_s = 0.01; /* budget that is always there: short times vary most */
    double most[] = {rc ? 1 : 0, took_s, clock_ns() > m->deadline_ns};
    world_all_reduce(m->world, most, 3, WORLD_MAX);
    if (most[0] > 0)
        return world_agree(m->world, rc, err);
    m->is_late = most[2] > 0;
    int least = m->is_late ? 1 : m->limits->least;
    double times = (m->is_late ? late_s : budget_s) / (most[1] + 1e-9);
    return times < least ? least : times > m->limits->most ? m->limits->most : (int)times;
}

int measure_seconds(struct measure *m, const struct measure_work *work, double *seconds,
                    struct error *err)
{
    double took[MOST_REPEATS] = {0}, slowest;
    int works = work->run != NULL, rc = 0;
    world_barrier(m->world);
    for (int i = m->is_late; i < 2 && works && !rc; i++)
        rc = sample(m, work, &took[0], err);
    int times = measure_repeats(m, rc, took[0], m->limits->work_s, err);
    if (times < 0)
        return -1;
    for (int i = 1; i < times && works && !rc; i++)
        rc = sample(m, work, &took[i], err);
    slowest = works && !rc ? median_quartile(took, times) : 0;
    if (measure_repeats(m, rc, 0, 0, err) < 0)
        return -1;
    world_all_reduce(m->world, &slowest, 1, WORLD_MAX);
    *seconds = slowest > 1e-9 ? slowest : 1e-9; /* a nanosecond is the clock's resolution */
    return 0;
}

/* Return memory of the block between offsets from and to: after that of the call before (*at), or
 * at `from` where the rest is too short. */
static void *next_cold(struct measure *m, size_t *at, size_t from, size_t to, size_t bytes)
{
    bytes = round_up_bytes(bytes, ALIGN);
    if (*at < from || *at + bytes > to)
        *at = from;
    void *start = m->block + *at;
    *at += bytes;
    return start;
}

/* Return the offset in the block from which on products write. */
static size_t targets(const struct measure *m)
{
    return m->block_bytes / (3 * ALIGN) * (2 * ALIGN);
}

void *measure_cold(struct measure *m, size_t bytes)
{
    return next_cold(m, &m->cold, 0, m->block_bytes, bytes);
}

void *measure_cold_source(struct measure *m, size_t bytes)
{
    return next_cold(m, &m->cold_source, 0, targets(m), bytes);
}

void *measure_cold_target(struct measure *m, size_t bytes)
{
    return next_cold(m, &m->cold_target, targets(m), m->block_bytes, bytes);
}

int measure_fill(struct measure *m, void *to, size_t bytes, enum dtype dtype, struct error *err)
{
    const uint16_t least = dtype == DTYPE_F16 ? 0x2400 : 0x3c80; /* 2^-6; of fp32 the upper half */
    const uint16_t fraction = dtype == DTYPE_F16 ? 0x3ff : 0x7f;
    uint16_t *values = malloc(FILL_BYTES);
    uint32_t x = 1;
    int rc = values ? 0 : error_set(err, "out of memory");
    for (size_t i = 0; values && i < FILL_BYTES / sizeof *values; i++) {
        x = x * 1664525 + 1013904223;
        values[i] = (uint16_t)(least | (x >> 16 & fraction) | (x >> 31 << 15));
    }
    for (size_t at = 0; at < bytes && !rc; at += FILL_BYTES)
        rc = device_upload(m->device, (char *)to + at, values, min_bytes(bytes - at, FILL_BYTES),
                           err);
    free(values);
    return rc;
}

int measure_block(struct measure *m, size_t bytes, enum dtype dtype, struct error *err)
{
    int rc = 0;
    bytes = max_bytes(round_up_bytes(bytes, ALIGN), m->limits->block_bytes);
    if (bytes > m->block_bytes) {
        mesh_free(m->mesh, m->device, m->mem, POOL_WORKSPACE, m->block_bytes, m->block);
        m->block = mesh_alloc(m->mesh, m->device, m->mem, POOL_WORKSPACE, bytes, err);
        m->block_bytes = m->block ? bytes : 0;
        m->cold = m->cold_source = m->cold_target = 0;
        rc = m->block ? 0 : -1;
    }
    if (!rc)
        rc = measure_fill(m, m->block, m->block_bytes, dtype, err);
    return world_agree(m->world, rc, err);
}

const enum dtype *measure_formats(const struct measure *m)
{
    static const enum dtype cpu[] = {DTYPE_F32, DTYPE_BF16, DTYPE_COUNT},
                            gpu[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_COUNT};
    return m->device->kind == DEVICE_CPU ? cpu : gpu;
}

const enum dtype *measure_product_formats(const struct measure *m)
{
    static const enum dtype with_fp8[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F8, DTYPE_COUNT};
    int has_fp8 = m->device->kind == DEVICE_CUDA && !device_check_fp8(m->device, NULL);
    return has_fp8 ? with_fp8 : measure_formats(m);
}

int measure_open_mesh(struct measure *m, struct mesh **mesh, struct mesh_shape shape,
                      struct error *err)
{
    struct mesh_options options = {.share_gpu = m->share_gpu};
    if (mesh_create(mesh, m->world, shape, err) ||
        mesh_attach(*mesh, m->world, m->device, m->mem, &options, err))
        return -1;
    return mesh_register(*mesh, m->block, m->block_bytes, err) < 0 ? -1 : 0;
}

void measure_close_mesh(struct measure *m, struct mesh *mesh)
{
    if (mesh)
        mesh_unregister(mesh, m->block);
    mesh_destroy(mesh);
}

void measure_add_op(struct measure *m, const char *name, enum dtype dtype, double size, double work,
                    double seconds)
{
    int i = 0;
    while (i < m->ops &&
           (strcmp(m->op[i].name, name) || m->op[i].dtype != dtype || m->op[i].size != size))
        i++;
    if (i == m->ops) {
        m->op = array_grow(m->op, m->ops, &m->op_capacity, sizeof *m->op);
        m->op[i] = (struct measure_op){.dtype = dtype, .size = size};
        snprintf(m->op[i].name, MACHINE_OP, "%s", name);
        m->ops++;
    }
    m->op[i].work += work;
    m->op[i].seconds += seconds;
}

/* Order rows by name, format and size, for people who read the file. */
static int by_op(const void *x, const void *y)
{
    const struct measure_op *a = x, *b = y;
    int by_name = strcmp(a->name, b->name);
    if (by_name)
        return by_name;
    return a->dtype != b->dtype ? (int)a->dtype - (int)b->dtype
                                : (a->size > b->size) - (a->size < b->size);
}

void measure_set_ops(struct measure *m)
{
    struct machine *machine = m->machine;
    if (m->ops)
        qsort(m->op, (size_t)m->ops, sizeof *m->op, by_op);
    machine->op = array_make((size_t)m->ops, sizeof *machine->op);
    machine->ops = m->ops;
    for (int i = 0; i < m->ops; i++) {
        const struct measure_op *op = &m->op[i];
        machine->op[i] = (struct machine_op){
            .dtype = op->dtype, .size = op->size, .rate = op->work / (op->seconds + 1e-9)};
        memcpy(machine->op[i].name, op->name, MACHINE_OP);
    }
}

void measure_progress(const struct measure *m, const char *fmt, ...)
{
    va_list args;
    if (world_rank(m->world))
        return;
    fprintf(stderr, "trireme: measuring ");
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n");
}
