/* ordered.h - work of several threads whose results are taken in the order of the work.
 *
 * The caller fills one item after the other, threads work on them, and the caller takes the results
 * in the order in which it filled the items, whichever was done first.  The number of items is
 * fixed, so memory is bounded: when none is free, the caller takes the oldest result, and fills
 * that item again.
 *
 *     caller     fill 3   fill 4   take 1 . fill 5   take 2 . fill 6
 *     thread a   work on 1        . work on 3
 *     thread b   work on 2   . work on 4
 *
 * With `threads` 1 no thread is started: ordered_give() works on the item.
 */
#ifndef TRIREME_IO_ORDERED_H
#define TRIREME_IO_ORDERED_H

#include <stddef.h>

#include "base/error.h"

/* What is done with items.  user is the caller's; threads share it, so begin() may only read it. */
struct ordered_job {
    size_t item_bytes; /* size of an item, which is all zero at first */
    /* Make and free the state of one thread.  Returns 0, or -1 with err set. */
    int (*begin)(void **state, void *user, struct error *err);
    void (*end)(void *state);
    /* Work on an item, in a thread.  A failure is kept in the item, for take(). */
    void (*work)(void *state, void *item);
    /* Take the result from an item, in the caller's thread.  Returns 0, or -1 with err set; then no
     * further result is taken. */
    int (*take)(void *user, void *item, struct error *err);
    /* Free what an item holds, at the end. */
    void (*free_item)(void *item);
};

struct ordered;

enum { ORDERED_MOST_THREADS = 256 };

/* Start `threads` threads, 1 to ORDERED_MOST_THREADS.  job and user must live as long as *ordered.
 * Returns 0 and an object for ordered_destroy(), or -1 with err set. */
int ordered_create(struct ordered **ordered, const struct ordered_job *job, void *user, int threads,
                   struct error *err);

/* Returns an item for the caller to fill, which still holds what it held when its result was last
 * taken.  Takes the oldest result first if no item is free, which may wait for its work; NULL with
 * err set: take() failed. */
void *ordered_item(struct ordered *ordered, struct error *err);
/* Have the item that ordered_item() returned last worked on. */
void ordered_give(struct ordered *ordered);
/* Wait for all work and take all results that are left.  Returns 0, or -1 with err set: take()
 * failed. */
int ordered_finish(struct ordered *ordered, struct error *err);

/* End the threads, each after the item that it works on, and free all items and the object.  NULL
 * allowed. */
void ordered_destroy(struct ordered *ordered);

#endif
