/* ordered.h - work of several threads whose results are taken in the order of the work.
 *
 * The caller fills one item after the other; threads work on them; the caller takes the results in
 * the order in which it filled the items, whichever was done first.  There are so many items and no
 * more: memory is bounded, and a caller that is ahead takes the oldest result before it fills its
 * item again.
 *
 *     caller     fill 3   fill 4   take 1 . fill 5   take 2 . fill 6
 *     thread a   work on 1        . work on 3
 *     thread b   work on 2   . work on 4
 *
 * With one thread there is none besides the caller's: an item is worked on when it is given.
 */
#ifndef TRIREME_IO_ORDERED_H
#define TRIREME_IO_ORDERED_H

#include <stddef.h>

#include "base/error.h"

/* What is done with items; user is the caller's, shared by all threads, which only read it. */
struct ordered_job {
    size_t item_bytes; /* of an item; all zero at first */
    /* What one thread needs for itself.  Returns 0, or -1 with err set. */
    int (*begin)(void **state, void *user, struct error *err);
    void (*end)(void *state);
    /* Work on an item.  What goes wrong is kept in the item. */
    void (*work)(void *state, void *item);
    /* Take a result, in the caller's thread.  Returns 0, or -1 with err set: the rest is not taken.
     */
    int (*take)(void *user, void *item, struct error *err);
    void (*free_item)(void *item);
};

struct ordered;

enum { ORDERED_MOST_THREADS = 256 };

/* Returns 0 and an object for ordered_destroy(), or -1 with err set.  job lives as long. */
int ordered_create(struct ordered **ordered, const struct ordered_job *job, void *user, int threads,
                   struct error *err);

/* An item to be filled, after older results were taken if none was free.  NULL: taking failed, with
 * err set.  It holds what it held when it was last taken. */
void *ordered_item(struct ordered *ordered, struct error *err);
/* Give the item that ordered_item() returned last to the threads. */
void ordered_give(struct ordered *ordered);
/* Take all results that are left.  Returns 0, or -1 with err set. */
int ordered_finish(struct ordered *ordered, struct error *err);

/* End the threads, each after the item that it works on.  NULL allowed. */
void ordered_destroy(struct ordered *ordered);

#endif
