/* measure_disk.c - measuring how fast a file is written and read where state would be offloaded to.
 *
 * All ranks of a node have a file each, as training has it (io/swap.h): operations of several
 * pieces, which a few threads read or write.
 *
 *   sustained   written, and waited for until the disk has it; then read from there
 *   cached      written and read again while the page cache has all of it
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/round.h"
#include "doctor/measure_file.h"

enum {
    OP_BYTES = 16 << 20, /* of an operation, about as many as of a flat */
    IN_FLIGHT = MEASURE_IN_FLIGHT,
    TIMES = 5 /* cached reads or writes of which the lower quartile is taken, at most */
};

int measure_file_move(struct measure_file *f, enum swap_queue queue, int64_t from, int64_t to,
                      struct error *err)
{
    struct swap_op op[IN_FLIGHT] = {{0}};
    int rc = 0, i = 0;
    for (int64_t at = from; at < to && !rc; at += f->op_bytes, i = (i + 1) % IN_FLIGHT) {
        rc = swap_wait(f->swap, &op[i], err);
        op[i] = (struct swap_op){.queue = queue,
                                 .data = f->data + i * f->op_bytes,
                                 .bytes = (size_t)min_i64(f->op_bytes, to - at),
                                 .offset = at};
        if (!rc)
            swap_submit(f->swap, &op[i]);
    }
    for (i = 0; i < IN_FLIGHT; i++)
        if (op[i].data && swap_wait(f->swap, &op[i], rc ? NULL : err))
            rc = -1;
    return rc;
}

static double since_s(int64_t start_ns)
{
    return (double)(clock_ns() - start_ns) * 1e-9;
}

/* Write until disk_s is over or the file is full, and set f->bytes.  *rate is in bytes per second,
 * of the time until the disk itself has the bytes. */
static int write_sustained(struct measure *m, struct measure_file *f, double *rate,
                           struct error *err)
{
    const int64_t most = (int64_t)m->limits->disk_bytes, start_ns = clock_ns();
    while (f->bytes < most && (!f->bytes || since_s(start_ns) < m->limits->disk_s)) {
        int64_t to = min_i64(f->bytes + IN_FLIGHT * f->op_bytes, most);
        if (measure_file_move(f, SWAP_WRITE, f->bytes, to, err) || swap_flush(f->swap, err))
            return -1;
        f->bytes = to;
    }
    *rate = (double)f->bytes / since_s(start_ns);
    return 0;
}

static int read_sustained(struct measure *m, struct measure_file *f, double *rate,
                          struct error *err)
{
    const int64_t start_ns = clock_ns();
    int64_t at = 0;
    while (at < f->bytes && (!at || since_s(start_ns) < m->limits->disk_s)) {
        int64_t to = min_i64(at + IN_FLIGHT * f->op_bytes, f->bytes);
        if (measure_file_move(f, SWAP_READ, at, to, err))
            return -1;
        at = to;
    }
    *rate = (double)at / since_s(start_ns);
    return 0;
}

/* Read or write the whole file again and again while it is in the page cache, where the first time
 * brings it.  *rate, in bytes per second, is by the lower quartile of the other times. */
static int move_cached(struct measure *m, struct measure_file *f, enum swap_queue queue,
                       double *rate, struct error *err)
{
    const int64_t begin_ns = clock_ns();
    double took[1 + TIMES];
    int times = 0;
    while (times < 2 || (times < 1 + TIMES && since_s(begin_ns) < m->limits->disk_s)) {
        int64_t start_ns = clock_ns();
        if (measure_file_move(f, queue, 0, f->bytes, err))
            return -1;
        took[times++] = since_s(start_ns);
    }
    *rate = (double)f->bytes / median_quartile(took + 1, times - 1);
    return 0;
}

/* Read a number from a file of /proc/sys/vm; 0: it cannot be read. */
static double kernel_limit(const char *name)
{
    char path[64];
    double value = 0;
    snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
    FILE *in = fopen(path, "r");
    if (in && fscanf(in, "%lf", &value) != 1)
        value = 0;
    if (in)
        fclose(in);
    return value;
}

/* Return the share of memory in which Linux keeps bytes that the disk does not have yet, before
 * writes wait for the disk: half-way between two limits, which are set as percentages or as bytes.
 */
static double unwritten_share(void)
{
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double bytes[] = {kernel_limit("dirty_background_bytes"), kernel_limit("dirty_bytes")};
    double share[] = {kernel_limit("dirty_background_ratio") / 100,
                      kernel_limit("dirty_ratio") / 100};
    for (int i = 0; i < 2; i++)
        share[i] = bytes[i] > 0 ? bytes[i] / memory : share[i];
    double half = (share[0] + share[1]) / 2;
    return half > 1 ? 1 : half;
}

int measure_file_open(struct measure *m, struct measure_file *f, struct error *err)
{
    const char *folder = m->options->folder ? m->options->folder : ".";
    const size_t bytes = m->limits->disk_bytes;
    f->op_bytes = (int64_t)min_bytes(OP_BYTES, bytes / IN_FLIGHT);
    f->data = malloc((size_t)(IN_FLIGHT * f->op_bytes));
    if (!f->data)
        return error_set(err, "out of memory");
    for (int64_t i = 0; i < IN_FLIGHT * f->op_bytes;
         i++) /* numbers that no file system compresses */
        f->data[i] = (char)((uint32_t)i * 2654435761u >> 13);
    if (access(folder, W_OK | X_OK))
        return error_errno(err, "the disk to be measured: %s", folder);
    if (!swap_open(&f->swap, folder, world_rank(m->world), bytes, err))
        return 0;
    return error_prefix(err, "the disk to be measured");
}

void measure_file_close(struct measure_file *f)
{
    swap_close(f->swap);
    free(f->data);
}

enum { WRITE, READ, CACHED_WRITE, CACHED_READ, RATES };

static int measure_rates(struct measure *m, struct measure_file *f, double rate[RATES],
                         struct error *err)
{
    if (world_agree(m->world, write_sustained(m, f, &rate[WRITE], err), err) ||
        world_agree(m->world, read_sustained(m, f, &rate[READ], err), err) ||
        world_agree(m->world, move_cached(m, f, SWAP_WRITE, &rate[CACHED_WRITE], err), err))
        return -1;
    return world_agree(m->world, move_cached(m, f, SWAP_READ, &rate[CACHED_READ], err), err);
}

int measure_disk(struct measure *m, struct error *err)
{
    struct measure_file f = {0};
    double rate[RATES] = {0};
    measure_progress(m, "the disk of %s",
                     m->options->folder ? m->options->folder : "the working directory");
    int rc = world_agree(m->world, measure_file_open(m, &f, err), err);
    if (!rc)
        rc = measure_rates(m, &f, rate, err);
    measure_file_close(&f);
    if (rc)
        return -1;
    world_all_reduce(m->world, rate, RATES, WORLD_MIN);
    const double ranks = world_local_size(m->world);
    m->machine->disk_write_bytes_per_s = rate[WRITE] * ranks;
    m->machine->disk_read_bytes_per_s = rate[READ] * ranks;
    m->machine->disk_cached_write_bytes_per_s = rate[CACHED_WRITE] * ranks;
    m->machine->disk_cached_read_bytes_per_s = rate[CACHED_READ] * ranks;
    m->machine->disk_unwritten = unwritten_share();
    m->machine->beside_file = m->machine->beside_file_compute = 1;
    return 0;
}
