/* swap.h - a file of a rank that stands in for memory: read and written by a few threads while the
 * rank computes.
 *
 * The file has no name once it is open: it is gone with the process, however that ends.  What must
 * outlast a run is in its checkpoints.
 */
#ifndef TRIREME_IO_SWAP_H
#define TRIREME_IO_SWAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct swap;

/* Operations of a queue begin in the order of their submission, each when the one before has ended;
 * the queues advance side by side. */
enum swap_queue { SWAP_READ, SWAP_WRITE, SWAP_QUEUES };

/* A read or write under way.  The caller's, like its data, until swap_wait(). */
struct swap_op {
    enum swap_queue queue;
    char *data; /* only read by a write */
    size_t bytes;
    int64_t offset;
    int64_t start_ns, end_ns; /* when it was worked on */
    /* swap.c's own */
    size_t taken, left;
    int ended, failed;
    struct swap_op *next;
};

/* Can each of `ranks` ranks of this node make a file of this size in folder dir?  The folder is
 * made if it is absent, and an empty file is tried.  Returns 0, or -1 with err naming what is asked
 * for, what is free, and what to do. */
int swap_check(const char *dir, int rank, size_t bytes, int ranks, struct error *err);

/* Make a file of this size in folder dir, which is made if it is absent.  All blocks are allocated
 * at once, so that a full disk is an error here and not later.  The file reads as zeros; rank is
 * part of its name.  Returns 0 and a swap for swap_close(), or -1 with err set. */
int swap_open(struct swap **swap, const char *dir, int rank, size_t bytes, struct error *err);

/* Waits for what was submitted; NULL allowed. */
void swap_close(struct swap *swap);

/* Begin an operation whose queue, data, bytes and offset are set. */
void swap_submit(struct swap *swap, struct swap_op *op);

/* Wait for it.  Returns 0, or -1 with err set (a fault of the node) and a part of it done.  An
 * operation that was never submitted, all zero, counts as done. */
int swap_wait(struct swap *swap, struct swap_op *op, struct error *err);

/* Let swap_wait() fail with EXIT_HANG when nothing was read or written for three quarters of
 * `seconds`, which is how long other ranks wait for this one (world_watch()): so the rank whose
 * file hangs is the first to report.  0, as at the start: never.  NULL allowed. */
void swap_watch(struct swap *swap, int seconds);

/* Is an operation under way?  NULL allowed. */
int swap_busy(struct swap *swap);

/* Wait until the disk has what was written, and forget what the page cache has of the file, so that
 * it is read from the disk; nothing may be under way.  Returns 0, or -1 with err set. */
int swap_flush(struct swap *swap, struct error *err);

/* What was done with the file since it was opened. */
struct swap_use {
    int64_t bytes[SWAP_QUEUES];
    int64_t busy_ns;   /* an operation was under way */
    int64_t waited_ns; /* spent in swap_wait() */
};
void swap_measure(struct swap *swap, struct swap_use *use);

/* Submit and wait. */
int swap_transfer(struct swap *swap, enum swap_queue queue, void *data, size_t bytes,
                  int64_t offset, struct error *err);

#endif
