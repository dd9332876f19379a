/* measure_files.c - measuring how much updates and copies from and to the page cache slow one
 * another down.  On CPUs, threads that copy take processors from the threads that compute; beside a
 * GPU, whose host has processors to spare, neither is slower.
 */
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/round.h"
#include "doctor/measure_file.h"

enum { TIMES = 5 };

struct beside {
    struct measure_file file;
    int64_t elems;  /* that are updated at a time */
    double *factor; /* in the device's memory */
};

static int update(struct measure *m, struct beside *b, struct error *err)
{
    float *p = measure_cold(m, (size_t)b->elems * 4 * sizeof *p);
    const struct adamw_state state = {.dt_p = DTYPE_F32,
                                      .dt_m = DTYPE_F32,
                                      .dt_g = DTYPE_F32,
                                      .p = p,
                                      .m = p + b->elems,
                                      .v = p + 2 * b->elems,
                                      .g = p + 3 * b->elems,
                                      .dt_copy = DTYPE_BF16};
    m->device->ops->adamw(m->device, &measure_adamw, b->factor, &state, NULL, b->elems);
    return device_check(m->device, err);
}

/* Submit `ops` operations, alternately reads and writes, as a step has them: the queue of reads and
 * that of writes advance side by side. */
static void submit(struct beside *b, struct swap_op *op, int ops)
{
    for (int i = 0; i < ops; i++) {
        op[i] = (struct swap_op){.queue = i % 2 ? SWAP_WRITE : SWAP_READ,
                                 .data = b->file.data + i % MEASURE_IN_FLIGHT * b->file.op_bytes,
                                 .bytes = (size_t)b->file.op_bytes,
                                 .offset = i * b->file.op_bytes % b->file.bytes};
        swap_submit(b->file.swap, &op[i]);
    }
}

/* Run updates and copies at once.  took: seconds until the last update, and until the last copy, of
 * the slowest rank.  Collective. */
static int run_both(struct measure *m, struct beside *b, int updates, int ops, double took[2],
                    struct error *err)
{
    struct swap_op *op = array_make((size_t)ops + 1, sizeof *op);
    int rc = 0;
    world_barrier(m->world);
    int64_t start_ns = clock_ns(), last_ns = start_ns;
    submit(b, op, ops);
    for (int i = 0; i < updates && !rc; i++)
        rc = update(m, b, err);
    took[0] = (double)(clock_ns() - start_ns) * 1e-9;
    for (int i = 0; i < ops; i++) {
        if (swap_wait(b->file.swap, &op[i], rc ? NULL : err))
            rc = -1;
        last_ns = max_i64(last_ns, op[i].end_ns);
    }
    took[1] = (double)(last_ns - start_ns) * 1e-9;
    free(op);
    if (world_agree(m->world, rc, err))
        return -1;
    world_all_reduce(m->world, took, 2, WORLD_MAX);
    return 0;
}

/* Set times to the number of updates, and of copies, that take about beside_s alone. */
static int measure_alone(struct measure *m, struct beside *b, int times[2], struct error *err)
{
    double took[2], none[2];
    if (run_both(m, b, 1, 2 * MEASURE_IN_FLIGHT, took, err) || run_both(m, b, 1, 0, took, err) ||
        run_both(m, b, 0, 2 * MEASURE_IN_FLIGHT, none, err))
        return -1;
    times[0] = (int)(m->limits->beside_s / (took[0] + 1e-9)) + 1;
    times[1] = 2 * MEASURE_IN_FLIGHT * ((int)(m->limits->beside_s / (none[1] + 1e-9)) + 1);
    return 0;
}

static int measure_both(struct measure *m, struct beside *b, struct error *err)
{
    double shares[2][TIMES], alone[2], copies[2], both[2], share[2];
    int times[2];
    if (measure_alone(m, b, times, err))
        return -1;
    for (int i = 0; i < TIMES; i++) {
        if (run_both(m, b, times[0], 0, alone, err) || run_both(m, b, 0, times[1], copies, err) ||
            run_both(m, b, times[0], times[1], both, err))
            return -1;
        alone[1] = copies[1];
        measure_shares(alone, both, share);
        shares[0][i] = share[0];
        shares[1][i] = share[1];
    }
    m->machine->beside_file_compute = median_higher(shares[0], TIMES);
    m->machine->beside_file = median_higher(shares[1], TIMES);
    return 0;
}

/* Return the bytes that a rank writes to the page cache in disk_s, in whole operations. */
static int64_t bytes_of(const struct measure *m, const struct measure_file *f)
{
    double rate = m->machine->disk_cached_write_bytes_per_s / world_local_size(m->world);
    int64_t ops = (int64_t)(rate * m->limits->disk_s) / f->op_bytes;
    int64_t most = (int64_t)m->limits->disk_bytes / f->op_bytes;
    return f->op_bytes * min_i64(max_i64(ops, 1), most);
}

int measure_files(struct measure *m, struct error *err)
{
    const double one = 1;
    struct beside b = {.elems = (int64_t)(m->limits->memory_bytes / 4 / sizeof(float))};
    if (m->device->asynchronous)
        return 0;
    measure_progress(m, "updates beside copies of files");
    if (measure_block(m, 2 * m->limits->memory_bytes, DTYPE_F32, err))
        return -1;
    b.factor = device_alloc(m->device, m->mem, POOL_WORKSPACE, sizeof one, err);
    int rc = b.factor ? device_upload(m->device, b.factor, &one, sizeof one, err) : -1;
    if (!rc)
        rc = measure_file_open(m, &b.file, err);
    if (!rc) {
        b.file.bytes = bytes_of(m, &b.file);
        rc = measure_file_move(&b.file, SWAP_WRITE, 0, b.file.bytes, err);
    }
    rc = world_agree(m->world, rc, err);
    if (!rc)
        rc = measure_both(m, &b, err);
    measure_file_close(&b.file);
    device_free(m->device, m->mem, POOL_WORKSPACE, sizeof one, b.factor);
    return rc ? -1 : 0;
}
