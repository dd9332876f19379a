/* watch.h - finding out whether a job is stuck, and which rank holds it up.  Private to comm/.
 *
 * A rank whose transfers wait for a peer sends that peer a question, a small message that the
 * peer's communication thread answers beside its other work.  The answer says how long ago the
 * peer's last sign of life was: a transfer of its own that moved, work that was done
 * (base/alive.h), or, if the peer waits for another rank itself, that rank's answer.  So the sign
 * of life of one busy rank reaches all ranks that wait for it, along the chain, and each rank asks
 * only the ranks that it waits for, a few times in run.hang_seconds.
 *
 *      3 --waits for--> 1 --waits for--> 0, which writes a file
 *      "0 s ago"  <---   "0 s ago"  <---   "0 s ago: a piece was written"
 *
 * When the last sign of life was run.hang_seconds ago, the job is stuck.  At the end of the chain
 * is a rank that does not answer (its process is stopped, or its node is gone), or a rank that
 * answers, waits for no other, and has done nothing: this rank is named, with the file that it
 * reads or writes (alive_doing() of base/alive.h).  Only time in which this process is awake
 * counts, so that a job that was suspended as a whole is not stuck.
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
