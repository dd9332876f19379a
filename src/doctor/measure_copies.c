/* measure_copies.c - measuring memory: how much the device and the host have, how fast it is copied
 * within the device and between device and host, how fast the host updates state in its own memory;
 * and how long the launch of an op takes.
 */
#include <string.h>

#include "base/round.h"
#include "doctor/measure_work.h"

enum {
    TINY = 16,         /* elements of an op that does almost nothing */
    OPS_IN_A_ROW = 64, /* such ops of one measurement */
    UPDATE_BYTES = 28  /* of an element that an update reads and writes, in fp32: master and two
                          moments, both ways, and the gradient */
};

struct copy {
    char *host;                         /* memory of the host, of `bytes` bytes */
    size_t bytes;                       /* of a copy */
    struct device_recording *recording; /* of OPS_IN_A_ROW tiny ops; NULL on a CPU */
};

static int within(struct measure *m, void *data, struct error *err)
{
    const struct copy *c = data;
    m->device->ops->copy(m->device, m->block + m->block_bytes / 2, m->block, c->bytes);
    return device_check(m->device, err);
}

static int up(struct measure *m, void *data, struct error *err)
{
    const struct copy *c = data;
    return device_copy_async(m->device, DEVICE_FETCH, m->block, c->host, c->bytes, err);
}

static int down(struct measure *m, void *data, struct error *err)
{
    const struct copy *c = data;
    return device_copy_async(m->device, DEVICE_SPILL, c->host, m->block, c->bytes, err);
}

static int tiny_ops(struct measure *m, void *data, struct error *err)
{
    for (int i = 0; i < OPS_IN_A_ROW; i++)
        m->device->ops->add(m->device, DTYPE_F32, m->block, m->block, m->block + 256, TINY);
    return device_check(m->device, err);
}

/* Replay the tiny ops from a recording, as a GPU does with the ops of a segment. */
static int tiny_ops_recorded(struct measure *m, void *data, struct error *err)
{
    const struct copy *c = data;
    return device_replay(m->device, c->recording, err);
}

/* Record the tiny ops, after running them once, which loads their kernel.  Also after a failure of
 * an op the recording is ended. */
static int record_tiny_ops(struct measure *m, struct copy *c, struct error *err)
{
    if (tiny_ops(m, NULL, err) || device_record_begin(m->device, err))
        return -1;
    int rc = tiny_ops(m, NULL, err);
    c->recording = device_record_end(m->device, rc ? NULL : err);
    return rc || !c->recording ? -1 : 0;
}

static int measure_launch(struct measure *m, struct copy *c, struct error *err)
{
    int is_gpu = m->device->asynchronous, rc = 0;
    double seconds = 0;
    if (is_gpu)
        rc = world_agree(m->world, record_tiny_ops(m, c, err), err);
    if (!rc)
        rc = measure_seconds(
            m, &(struct measure_work){.run = is_gpu ? tiny_ops_recorded : tiny_ops, .data = c},
            &seconds, err);
    if (c->recording)
        device_recording_destroy(m->device, c->recording);
    m->machine->launch_s = seconds / OPS_IN_A_ROW;
    return rc;
}

/* ---- what the host updates ---- */

struct update {
    struct device *host;
    char *block;
    int64_t elems;
};

static int update(struct measure *m, void *data, struct error *err)
{
    const struct update *u = data;
    const double factor = 1;
    float *p = (float *)u->block;
    const struct adamw_state state = {.dt_p = DTYPE_F32,
                                      .dt_m = DTYPE_F32,
                                      .p = p,
                                      .m = p + u->elems,
                                      .v = p + 2 * u->elems,
                                      .g = p + 3 * u->elems,
                                      .dt_copy = DTYPE_BF16};
    u->host->ops->adamw(u->host, &measure_adamw, &factor, &state, NULL, u->elems);
    return 0;
}

/* Measure updates of state in the host's memory, by the processors of each rank. */
static int measure_host(struct measure *m, const struct copy *c, struct error *err)
{
    const struct device_request request = {.kind = DEVICE_CPU,
                                           .local_ranks = world_local_size(m->world)};
    struct update u = {.block = c->host,
                       .elems = (int64_t)(c->bytes / sizeof(float) / 4 / 64 * 64)};
    struct measure host = *m; /* with the CPU as its device */
    double seconds = 1;
    size_t left;
    memset(c->host, 0, c->bytes);
    int rc = device_open(&u.host, &request, err) ||
             device_memory(u.host, &m->machine->host_memory_bytes, &left, err);
    rc = world_agree(m->world, rc ? -1 : 0, err);
    host.device = u.host;
    if (!rc)
        rc = measure_seconds(&host, &(struct measure_work){.run = update, .data = &u}, &seconds,
                             err);
    device_close(u.host);
    m->machine->host_memory_bytes_per_s = (double)UPDATE_BYTES * (double)u.elems / seconds;
    return rc;
}

static int measure_rates(struct measure *m, struct copy *c, struct error *err)
{
    double bytes = (double)c->bytes, in_s = 1, out_s = 1, within_s = 1;
    struct measure_work work = {.run = within, .data = c};
    if (measure_seconds(m, &work, &within_s, err))
        return -1;
    work.run = up;
    work.stream = DEVICE_FETCH;
    if (measure_seconds(m, &work, &in_s, err))
        return -1;
    work.run = down;
    work.stream = DEVICE_SPILL;
    if (measure_seconds(m, &work, &out_s, err))
        return -1;
    m->machine->memory_bytes_per_s = 2 * bytes / within_s;
    m->machine->bandwidth_efficiency = 1;
    m->machine->host_link_bytes_per_s = bytes / (in_s > out_s ? in_s : out_s);
    return 0;
}

int measure_copies(struct measure *m, struct error *err)
{
    struct copy c = {.bytes = m->limits->memory_bytes};
    size_t total = 0, left = 0;
    measure_progress(m, "memory");
    if (measure_block(m, 2 * c.bytes, DTYPE_F32, err))
        return -1;
    c.host = device_host_alloc(m->device, m->mem, POOL_HOST, c.bytes, err);
    int rc = c.host ? device_memory(m->device, &total, &left, err) : -1;
    if (c.host)
        memset(c.host, 0, c.bytes);
    rc = world_agree(m->world, rc, err);
    m->machine->memory_bytes =
        m->device->kind == DEVICE_CPU ? total / (size_t)world_local_size(m->world) : total;
    if (!rc)
        rc = measure_rates(m, &c, err) || measure_launch(m, &c, err) || measure_host(m, &c, err);
    device_host_free(m->device, m->mem, POOL_HOST, c.bytes, c.host);
    return rc ? -1 : 0;
}
