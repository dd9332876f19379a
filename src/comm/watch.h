/* watch.h - is a job stuck, and who is it that does not get on?  Private to comm/.
 *
 * A rank whose transfers wait for a peer asks that peer how it is, by a small message that the
 * communication thread answers beside its other work.  The answer says how long ago the peer last
 * saw a sign of life: a transfer of its own that moved, work that was done (base/alive.h), or, if
 * it waits itself, what the rank that it waits for answered.  So the news of one busy rank reaches
 * all that wait for it, one after another along the chain, and each rank asks only those it waits
 * for, a few times in run.hang_seconds.
 *
 *      3 --waits for--> 1 --waits for--> 0, which writes a file
 *      "0 s ago"  <---   "0 s ago"  <---   "0 s ago: a piece was written"
 *
 * When the last sign of life is run.hang_seconds ago the job is stuck.  At the end of the chain is
 * a rank that does not answer (its process is stopped or its node gone), or one that answers, waits
 * for nobody, and has done nothing: that one is named.  All time is counted while this process is
 * awake, so that a job that was suspended as a whole is not stuck.
 */
#ifndef TRIREME_COMM_WATCH_H
#define TRIREME_COMM_WATCH_H

#include "base/error.h"

struct watch;
struct world;

/* Make the communication thread of a world of several ranks ask and answer; how often follows from
 * world_watch()'s seconds.  Returns a watch for watch_close(). */
struct watch *watch_open(struct world *world);

/* Free a watch (NULL allowed).  To be called on the communication thread, when that no longer calls
 * the watch (thread_set_watch() with NULL). */
void watch_close(struct watch *watch);

#endif
