/* swap.c - a file that stands in for memory; see swap.h.
 *
 * Reads and writes each have a queue of operations.  The first operation of a queue is cut into
 * pieces of 4 MiB; each of four threads takes the next piece of either queue, reads or writes it,
 * and takes another.  The thread that does the last piece of an operation ends it, and the queue's
 * next operation becomes the first.  One mutex guards queues and counters; threads hold it only
 * between pieces.
 */
#include "io/swap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/quiet_thread.h"
#include "base/round.h"
#include "io/disk.h"

enum { THREADS = 4, PIECE_BYTES = 4 << 20 };

/* A file that hangs is noticed in two places: here, by the rank that waits for its file, and in
 * world_watch(), by the other ranks, which wait for this rank.  world_watch() waits for
 * run.hang_seconds, and the job ends with the text of whoever notices first.  Only this rank knows
 * that the file is the cause, so its limit is shorter: this part of run.hang_seconds. */
static const double part_of_hang_seconds = 0.75;

struct swap {
    int fd;
    char *path;   /* for messages; the file no longer has this name */
    size_t bytes; /* size of the file */
    pthread_mutex_t lock;
    pthread_cond_t work, ended; /* there may be a piece to take; an operation has ended */
    struct swap_op *first[SWAP_QUEUES], *last[SWAP_QUEUES]; /* lists; NULL: the queue is empty */
    int64_t moved_ns;     /* clock_ns() when a piece was last done */
    int64_t limit_ns;     /* time without progress after which swap_wait() fails; 0: none */
    int stuck;            /* swap_wait() has failed so */
    struct error failure; /* of the first operation that failed */
    struct swap_use use;  /* use.busy_ns counts up to since_ns while operations are under way */
    int64_t since_ns;     /* clock_ns() when the swap last became busy */
    pthread_t thread[THREADS];
    int threads; /* started */
    int stop;    /* threads end once the queues are empty */
};

/* The functions that say "Locked." are called with swap->lock held. */

/* A part of an operation, which one thread reads or writes. */
struct piece {
    struct swap_op *op;
    size_t at, bytes;
};

/* Returns 1 if an operation is in a queue.  Locked. */
static int busy(const struct swap *swap)
{
    return swap->first[SWAP_READ] || swap->first[SWAP_WRITE];
}

/* Take the next piece of the first operation of any queue.  Returns 1, or 0 where all pieces of the
 * first operations are taken.  Locked. */
static int take(struct swap *swap, struct piece *piece)
{
    for (int queue = 0; queue < SWAP_QUEUES; queue++) {
        struct swap_op *op = swap->first[queue];
        if (!op || op->taken == op->bytes)
            continue;
        size_t left = op->bytes - op->taken;
        *piece = (struct piece){op, op->taken, min_bytes(left, PIECE_BYTES)};
        if (!op->taken)
            op->start_ns = clock_ns();
        op->taken += piece->bytes;
        return 1;
    }
    return 0;
}

/* End an operation, whose queue's next operation becomes the first.  Locked. */
static void end(struct swap *swap, struct swap_op *op)
{
    swap->first[op->queue] = op->next;
    if (!op->next)
        swap->last[op->queue] = NULL;
    op->end_ns = clock_ns();
    op->ended = 1;
    swap->use.bytes[op->queue] += (int64_t)op->bytes;
    if (!busy(swap))
        swap->use.busy_ns += op->end_ns - swap->since_ns;
    pthread_cond_broadcast(&swap->ended);
    pthread_cond_broadcast(&swap->work);
}

/* Is the file as long as it was made?  A write after the end of a shorter one would fill the gap
 * with zeros, which reads would take for state. */
static int check_size(const struct swap *swap, struct error *err)
{
    struct stat at;
    if (fstat(swap->fd, &at))
        return error_errno(err, "cannot look at %s", swap->path);
    return at.st_size >= (off_t)swap->bytes
               ? 0
               : error_set(err, "%s: the file ends at byte %lld, it is truncated", swap->path,
                           (long long)at.st_size);
}

static int transfer(const struct swap *swap, const struct piece *piece, struct error *err)
{
    if (piece->op->queue == SWAP_WRITE && check_size(swap, err))
        return -1;
    char *data = piece->op->data + piece->at;
    int64_t offset = piece->op->offset + (int64_t)piece->at;
    return piece->op->queue == SWAP_READ
               ? disk_read(swap->fd, data, piece->bytes, offset, swap->path, err)
               : disk_write(swap->fd, data, piece->bytes, offset, swap->path, err);
}

/* A thread: read and write pieces until swap->stop is set and the queues are empty. */
static void *work(void *arg)
{
    struct swap *swap = arg;
    struct piece piece;
    pthread_mutex_lock(&swap->lock);
    for (;;) {
        if (!take(swap, &piece)) {
            if (swap->stop && !busy(swap))
                break;
            pthread_cond_wait(&swap->work, &swap->lock);
            continue;
        }
        struct error err = {0};
        pthread_mutex_unlock(&swap->lock);
        int rc = transfer(swap, &piece, &err);
        pthread_mutex_lock(&swap->lock);
        if (rc && !swap->failure.text[0])
            swap->failure = err;
        piece.op->failed |= rc;
        piece.op->left -= piece.bytes;
        swap->moved_ns = clock_ns();
        if (!piece.op->left)
            end(swap, piece.op);
    }
    pthread_mutex_unlock(&swap->lock);
    return NULL;
}

static int check_limit(const struct swap *swap, struct error *err)
{
    char asked[DISK_SIZE], may[DISK_SIZE];
    double limit;
    if (disk_allows_file((double)swap->bytes, &limit))
        return 0;
    return error_set(err,
                     "offload.path: %s would have %s, but files here may have %s; raise the limit "
                     "(ulimit -f)",
                     swap->path, disk_size((double)swap->bytes, asked), disk_size(limit, may));
}

/* Allocate all blocks of the file, which is in folder dir. */
static int reserve(struct swap *swap, const char *dir, struct error *err)
{
    char asked[DISK_SIZE], left[DISK_SIZE];
    double free_now = 0;
    if (!swap->bytes)
        return 0;
    if (check_limit(swap, err))
        return -1;
    disk_free(dir, &free_now, NULL);
    errno = posix_fallocate(swap->fd, 0, (off_t)swap->bytes);
    if (!errno)
        return 0;
    return error_errno(err,
                       "offload.path: not enough disk space for the %s of %s: %s are free; name "
                       "another folder, or use more ranks",
                       disk_size((double)swap->bytes, asked), swap->path,
                       disk_size(free_now, left));
}

static int check_space(const struct swap *swap, const char *dir, int ranks, struct error *err)
{
    char each[DISK_SIZE], all[DISK_SIZE], left[DISK_SIZE];
    double asked = (double)swap->bytes * ranks, free_now = 0;
    disk_free(dir, &free_now, NULL);
    if (asked <= free_now)
        return 0;
    return error_set(err,
                     "offload.path: not enough disk space in %s for the %s of a rank, %s for %d of "
                     "them: %s are free; name another folder",
                     dir, disk_size((double)swap->bytes, each), disk_size(asked, all), ranks,
                     disk_size(free_now, left));
}

static int start_threads(struct swap *swap, struct error *err)
{
    for (; swap->threads < THREADS; swap->threads++) {
        errno = quiet_thread_start(&swap->thread[swap->threads], "swap", work, swap);
        if (errno)
            return error_errno(err, "cannot start a thread for offload.path");
    }
    return 0;
}

/* Make the lock and conditions.  Waits for `ended` have a limit: its clock is the monotonic one, so
 * that a change of the date cannot make them longer. */
static void init_lock(struct swap *swap)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&swap->lock, NULL);
    pthread_cond_init(&swap->work, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&swap->ended, &attr);
    pthread_condattr_destroy(&attr);
}

/* Create an empty file in folder dir and remove its name, so that nobody else can open it.  Returns
 * a swap without threads for swap_close(), or NULL with err set. */
static struct swap *begin(const char *dir, int rank, size_t bytes, struct error *err)
{
    struct swap *swap = array_make(1, sizeof *swap);
    swap->fd = -1;
    swap->bytes = bytes;
    init_lock(swap);
    swap->path = array_format("%s/rank-%05d-of-process-%ld", dir, rank, (long)getpid());
    if (!disk_make_folders(dir, err))
        swap->fd = disk_open(swap->path, O_RDWR | O_CREAT | O_TRUNC, err);
    if (swap->fd < 0)
        error_prefix(err, "offload.path");
    else if (unlink(swap->path))
        error_errno(err, "offload.path: cannot remove the name of %s", swap->path);
    else
        return swap;
    swap_close(swap);
    return NULL;
}

int swap_open(struct swap **out, const char *dir, int rank, size_t bytes, struct error *err)
{
    struct swap *swap = begin(dir, rank, bytes, err);
    if (!swap)
        return -1;
    if (reserve(swap, dir, err) || start_threads(swap, err)) {
        swap_close(swap);
        return -1;
    }
    *out = swap;
    return 0;
}

int swap_check(const char *dir, int rank, size_t bytes, int ranks, struct error *err)
{
    struct error why = {0};
    char each[DISK_SIZE];
    struct swap *swap = begin(dir, rank, bytes, &why);
    if (!swap)
        return error_set(err, "%s; it would have %s of each of %d ranks here: name another folder",
                         why.text, disk_size((double)bytes, each), ranks);
    int rc = check_limit(swap, err) || check_space(swap, dir, ranks, err) ? -1 : 0;
    swap_close(swap);
    return rc;
}

void swap_close(struct swap *swap)
{
    if (!swap)
        return;
    pthread_mutex_lock(&swap->lock);
    int lost = swap->stuck && busy(swap);
    swap->stop = 1;
    pthread_cond_broadcast(&swap->work);
    pthread_mutex_unlock(&swap->lock);
    if (lost)
        return; /* a thread hangs in a call; the process is about to end */
    for (int i = 0; i < swap->threads; i++)
        pthread_join(swap->thread[i], NULL);
    if (swap->fd >= 0)
        close(swap->fd);
    pthread_mutex_destroy(&swap->lock);
    pthread_cond_destroy(&swap->work);
    pthread_cond_destroy(&swap->ended);
    free(swap->path);
    free(swap);
}

void swap_submit(struct swap *swap, struct swap_op *op)
{
    op->taken = 0;
    op->left = op->bytes;
    op->ended = !op->bytes;
    op->failed = 0;
    op->next = NULL;
    op->start_ns = op->end_ns = clock_ns();
    if (!op->bytes)
        return;
    pthread_mutex_lock(&swap->lock);
    if (!busy(swap))
        swap->since_ns = op->start_ns;
    struct swap_op **after =
        swap->last[op->queue] ? &swap->last[op->queue]->next : &swap->first[op->queue];
    *after = swap->last[op->queue] = op;
    pthread_cond_broadcast(&swap->work);
    pthread_mutex_unlock(&swap->lock);
}

void swap_watch(struct swap *swap, int seconds)
{
    if (swap)
        swap->limit_ns = (int64_t)(seconds * part_of_hang_seconds * 1e9);
}

int swap_busy(struct swap *swap)
{
    if (!swap)
        return 0;
    pthread_mutex_lock(&swap->lock);
    int is = busy(swap);
    pthread_mutex_unlock(&swap->lock);
    return is;
}

void swap_measure(struct swap *swap, struct swap_use *use)
{
    pthread_mutex_lock(&swap->lock);
    *use = swap->use;
    if (busy(swap))
        use->busy_ns += clock_ns() - swap->since_ns;
    pthread_mutex_unlock(&swap->lock);
}

int swap_flush(struct swap *swap, struct error *err)
{
    if (disk_flush(swap->fd, 0, (int64_t)swap->bytes, swap->path, err))
        return -1;
    posix_fadvise(swap->fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

/* Wait until the operation has ended.  Returns 0, or -1 when nothing was read or written for
 * limit_ns.  Locked. */
static int await(struct swap *swap, const struct swap_op *op)
{
    enum { LOOK_NS = 200000000 };
    int64_t begin_ns = clock_ns(), moved_ns = swap->moved_ns;
    struct clock_awake awake = {0}; /* a process that was suspended was not waiting */
    int64_t since_ns = clock_awake_ns(&awake);
    int rc = 0;
    while (!op->ended && !rc) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&swap->ended, &swap->lock, &until);
        int64_t now_ns = clock_awake_ns(&awake);
        since_ns = swap->moved_ns != moved_ns ? now_ns : since_ns;
        moved_ns = swap->moved_ns;
        if (!op->ended && swap->limit_ns && now_ns - since_ns > swap->limit_ns)
            rc = -1;
    }
    swap->use.waited_ns += clock_ns() - begin_ns;
    return rc;
}

int swap_wait(struct swap *swap, struct swap_op *op, struct error *err)
{
    if (!op->bytes)
        return 0;
    pthread_mutex_lock(&swap->lock);
    int stuck = swap->stuck |= await(swap, op) < 0;
    pthread_mutex_unlock(&swap->lock);
    if (stuck && err)
        err->code = EXIT_HANG;
    if (stuck)
        return error_set(
            err,
            "offload.path: %s: nothing was %s for %.0f s (%.0f %% of run.hang_seconds): "
            "the file system does not answer",
            swap->path, op->queue == SWAP_READ ? "read" : "written", (double)swap->limit_ns * 1e-9,
            part_of_hang_seconds * 100);
    if (!op->failed)
        return 0;
    if (err)
        err->code = EXIT_NODE;
    return error_set(err, "offload.path: %s", swap->failure.text);
}

int swap_transfer(struct swap *swap, enum swap_queue queue, void *data, size_t bytes,
                  int64_t offset, struct error *err)
{
    struct swap_op op = {.queue = queue, .data = data, .bytes = bytes, .offset = offset};
    swap_submit(swap, &op);
    return swap_wait(swap, &op, err);
}
