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

/* Operations of a lane begin in the order of their submission, each when the one before has ended;
 * the lanes advance side by side. */
enum swap_lane { SWAP_READ, SWAP_WRITE, SWAP_LANES };

/* A read or write under way.  The caller's, like its data, until swap_wait(). */
struct swap_op {
    enum swap_lane lane;
    char *data; /* only read by a write */
    size_t bytes;
    int64_t offset;
    int64_t start_ns, end_ns; /* when it was worked on */
    /* swap.c's own */
    size_t taken, left;
    int ended;
    struct error err;
    struct swap_op *next;
};

/* Could each of so many ranks of this node make a file of this size in folder dir, which is made if
 * it is absent?  Tries with an empty one.  Returns 0, or -1 with err naming what is asked, what is
 * there, and what to do. */
int swap_check(const char *dir, int rank, size_t bytes, int ranks, struct error *err);

/* Make a file of this size in folder dir, which is made if it is absent, with all its blocks, so
 * that a full disk is known now.  Its content is zero.  rank is for its name.  Returns 0 and a
 * swap for swap_close(), or -1 with err set. */
int swap_open(struct swap **swap, const char *dir, int rank, size_t bytes, struct error *err);

/* Waits for what was submitted; NULL allowed. */
void swap_close(struct swap *swap);

/* Begin an operation whose lane, data, bytes and offset are set. */
void swap_submit(struct swap *swap, struct swap_op *op);

/* Wait for it.  Returns 0, or -1 with err set (a fault of the node) and part of it done.  Of one
 * that was never submitted, and zero: 0. */
int swap_wait(struct swap *swap, struct swap_op *op, struct error *err);

/* Fail in waits with EXIT_HANG when nothing was read or written for three quarters of so long, so
 * that who knows the reason speaks before those that wait for it do; 0, as at the start: never.
 * NULL allowed. */
void swap_watch(struct swap *swap, int seconds);

/* Is an operation under way?  NULL allowed. */
int swap_busy(struct swap *swap);

/* What was done with the file since it was opened. */
struct swap_use {
    int64_t bytes[SWAP_LANES];
    int64_t busy_ns;   /* an operation was under way */
    int64_t waited_ns; /* spent in swap_wait() */
};
void swap_measure(struct swap *swap, struct swap_use *use);

/* Submit and wait. */
int swap_transfer(struct swap *swap, enum swap_lane lane, void *data, size_t bytes, int64_t offset,
                  struct error *err);

#endif
