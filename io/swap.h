/* swap.h - a rank's file that holds offloaded state: a few threads read and write it while the rank
 * computes.
 *
 * The file has no name once it is open, so it disappears with the process, however the process
 * ends.  What must outlast a run is in its checkpoints.
 */
#ifndef TRIREME_IO_SWAP_H
#define TRIREME_IO_SWAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct swap;

/* Each queue works on its operations one after the other, in the order of their submission; the two
 * queues work at the same time. */
enum swap_queue { SWAP_READ, SWAP_WRITE, SWAP_QUEUES };

/* A read or write.  It and its data belong to the caller, and must not move or change between
 * swap_submit() and swap_wait(). */
struct swap_op {
    enum swap_queue queue;
    char *data; /* host memory */
    size_t bytes;
    int64_t offset; /* byte in the file */
    int64_t start_ns,
        end_ns; /* clock_ns() when the first byte was asked for, and the last was done */
    /* swap.c's own */
    size_t taken, left;
    int ended, failed;
    struct swap_op *next;
};

/* Check that each of `ranks` ranks of this node can make a file of `bytes` bytes in folder dir: the
 * folder is made if it is absent, an empty file of this rank is created and removed, and its limit
 * (ulimit -f) and the free space are compared.  Not collective.  Returns 0, or -1 with err naming
 * the bytes asked for, the bytes free, and what to do. */
int swap_check(const char *dir, int rank, size_t bytes, int ranks, struct error *err);

/* Make a file of `bytes` bytes, which reads as zeros, in folder dir; the folder is made if it is
 * absent.  All blocks are allocated at once, so that a full disk is an error here and not later.
 * rank is part of the file's name in messages.  Returns 0 and a swap for swap_close(), or -1 with
 * err set. */
int swap_open(struct swap **swap, const char *dir, int rank, size_t bytes, struct error *err);

/* Wait for all submitted operations, and free the swap.  After swap_wait() has failed with
 * EXIT_HANG it returns at once, and leaves memory and threads behind.  NULL allowed. */
void swap_close(struct swap *swap);

/* Submit an operation whose queue, data, bytes (0 allowed) and offset are set. */
void swap_submit(struct swap *swap, struct swap_op *op);

/* Wait until an operation has ended.  An operation that is all zero and was never submitted has.
 * Returns 0, or -1 with err set (code EXIT_NODE or EXIT_HANG); the operation is then done in part.
 */
int swap_wait(struct swap *swap, struct swap_op *op, struct error *err);

/* Make swap_wait() fail with EXIT_HANG when nothing was read or written for three quarters of
 * `seconds`, which is how long other ranks wait for this one (world_watch()): so the rank whose
 * file hangs is the first to report.  0, as after swap_open(): it waits for ever.  NULL allowed. */
void swap_watch(struct swap *swap, int seconds);

/* Returns 1 if an operation has been submitted and not ended.  NULL allowed. */
int swap_busy(struct swap *swap);

/* Wait until all that was written is on the disk, and drop the file's pages from the page cache, so
 * that later reads are from the disk.  No operation may be under way.  Returns 0, or -1 with err
 * set. */
int swap_flush(struct swap *swap, struct error *err);

/* Totals since swap_open(). */
struct swap_use {
    int64_t bytes[SWAP_QUEUES]; /* of ended operations */
    int64_t busy_ns;            /* time in which an operation was under way */
    int64_t waited_ns;          /* time spent in swap_wait() */
};
void swap_measure(struct swap *swap, struct swap_use *use);

/* Do swap_submit() and swap_wait() with an operation of its own. */
int swap_transfer(struct swap *swap, enum swap_queue queue, void *data, size_t bytes,
                  int64_t offset, struct error *err);

#endif
