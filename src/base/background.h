/* background.h - threads of low priority that work beside the ones that compute.
 *
 * Where all cores compute, such a thread takes a small share of one.  Kernels that leave out
 * threads which find no core (device/cpu/run_queue.h) would take it for another program, leave one
 * out, and so give it a core; they ask here how long it ran.
 */
#ifndef TRIREME_BASE_BACKGROUND_H
#define TRIREME_BASE_BACKGROUND_H

#include <stdint.h>

/* Give the calling thread a low priority, for the rest of its life: about a tenth of a core that
 * others want too, and all of one that is free.  Its time is counted, as of BACKGROUND_MOST threads
 * at a time, until background_end(), which it must call before it ends. */
enum { BACKGROUND_MOST = 4 };
void background_begin(void);
void background_end(void);

/* Returns for how many nanoseconds the background threads of this process had a core so far. */
int64_t background_ran_ns(void);

#endif
