/* measure_disk.c - how fast the disk of a node writes and reads, where state would be offloaded to.
 *
 * All ranks of a node write a file each, flush it to the disk, drop it from the page cache and read
 * it: what a state larger than the memory gets.  One that fits in the page cache is faster.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/round.h"
#include "config/config.h"
#include "doctor/measure_work.h"
#include "io/disk.h"

enum { PIECE_BYTES = 4 << 20 };

struct disk_file {
    int fd;
    char path[CONFIG_TEXT + 64];
    char *piece;
    int64_t bytes; /* written */
};

/* Write until the time is over, or all bytes are; with what the disk takes until it has them. */
static int write_file(struct measure *m, struct disk_file *f, double *seconds, struct error *err)
{
    const int64_t most = (int64_t)m->limits->disk_bytes, start_ns = clock_ns();
    do {
        size_t piece = min_bytes(PIECE_BYTES, (size_t)(most - f->bytes));
        if (disk_write(f->fd, f->piece, piece, f->bytes, f->path, err) ||
            disk_flush(f->fd, f->bytes, (int64_t)piece, f->path, err))
            return -1;
        f->bytes += (int64_t)piece;
        *seconds = (double)(clock_ns() - start_ns) * 1e-9;
    } while (f->bytes < most && *seconds < m->limits->disk_s);
    return 0;
}

static int read_file(struct measure *m, struct disk_file *f, double *seconds, struct error *err)
{
    int64_t at = 0, start_ns;
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
    start_ns = clock_ns();
    do {
        size_t piece = min_bytes(PIECE_BYTES, (size_t)(f->bytes - at));
        if (disk_read(f->fd, f->piece, piece, at, f->path, err))
            return -1;
        at += (int64_t)piece;
        *seconds = (double)(clock_ns() - start_ns) * 1e-9;
    } while (at < f->bytes && *seconds < m->limits->disk_s);
    *seconds *= (double)f->bytes / (double)at;
    return 0;
}

static int open_file(struct measure *m, struct disk_file *f, struct error *err)
{
    snprintf(f->path, sizeof f->path, "%s/.trireme-measure-%d-%d",
             m->options->folder ? m->options->folder : ".", world_rank(m->world), (int)getpid());
    f->piece = malloc(PIECE_BYTES);
    if (!f->piece)
        return error_set(err, "out of memory");
    for (size_t i = 0; i < PIECE_BYTES; i++) /* what no file system makes smaller */
        f->piece[i] = (char)((i * 2654435761u) >> 13);
    f->fd = disk_open(f->path, O_RDWR | O_CREAT | O_TRUNC, err);
    if (f->fd < 0)
        return -1;
    unlink(f->path); /* it is gone with the process, however that ends */
    return 0;
}

int measure_disk(struct measure *m, struct error *err)
{
    struct disk_file f = {.fd = -1};
    double seconds[2] = {0}, rate[2];
    measure_progress(m, "the disk of %s",
                     m->options->folder ? m->options->folder : "the working directory");
    int rc = world_agree(m->world, open_file(m, &f, err), err);
    if (!rc)
        rc = world_agree(m->world, write_file(m, &f, &seconds[0], err), err);
    if (!rc)
        rc = world_agree(m->world, read_file(m, &f, &seconds[1], err), err);
    if (f.fd >= 0)
        close(f.fd);
    free(f.piece);
    if (rc)
        return -1;
    for (int i = 0; i < 2; i++)
        rate[i] = (double)f.bytes / (seconds[i] + 1e-9);
    world_all_reduce(m->world, rate, 2, WORLD_MIN);
    m->machine->disk_write = rate[0] * world_local_size(m->world);
    m->machine->disk_read = rate[1] * world_local_size(m->world);
    return 0;
}
