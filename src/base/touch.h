/* touch.h - memory that is asked for ahead of its use.
 *
 * The kernel gives a program the pages of its memory, cleared, when they are first written to.  For
 * gigabytes that takes seconds, in which the writer waits.  A thread can write to each page before.
 */
#ifndef TRIREME_BASE_TOUCH_H
#define TRIREME_BASE_TOUCH_H

#include <stddef.h>

struct touch;

/* Start a thread, of the lowest priority, that writes to each page of `bytes` bytes at memory;
 * until touch_end() nothing else may read or write them.  Returns it for touch_end(); NULL where no
 * thread can be started: then the pages come when they are used. */
struct touch *touch_begin(void *memory, size_t bytes);

/* Stop the thread, wherever it is, and free it; NULL allowed. */
void touch_end(struct touch *touch);

#endif
