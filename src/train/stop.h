/* stop.h - signals that ask a run to save and stop.
 *
 * SIGTERM, SIGUSR1, SIGINT (Ctrl-C) and SIGHUP (a lost terminal) are taken by a thread of their
 * own, so that no call of any other thread is interrupted, and none that is stuck keeps the user
 * from ending the program.  Those of them that were ignored when the program began, as SIGHUP is
 * under nohup, stay ignored.  SIGPIPE is ignored: a reader that went away harms nothing.
 *
 * While training, a signal is a vote that travels with the step, after which all ranks save.
 * Before, there is nothing to save: the ranks leave together at the next place where they ask
 * (stop_early()), and a rank that gets to none for some seconds is ended by the thread.
 */
#ifndef TRIREME_TRAIN_STOP_H
#define TRIREME_TRAIN_STOP_H

#include "base/log.h"
#include "comm/world.h"

struct stop;

/* Begin to watch.  To be called before other threads are started.  Returns 0 and a stop for
 * stop_end(), or -1 with err set. */
int stop_watch(struct stop **stop, struct error *err);

/* No longer; NULL allowed.  The signals stay blocked but for SIGINT, so that a launcher that
 * signals the slower ranks of a job that is ending does no harm. */
void stop_end(struct stop *stop);

/* The signal that came first; 0: none. */
int stop_asked(const struct stop *stop);

/* The world is started: it ends as a whole. */
void stop_join(struct stop *stop, struct world *world);

/* Whether the same command would find a checkpoint to go on from: how an early stop ends, with
 * EXIT_SAVED or as by the signal. */
void stop_resumable(struct stop *stop, int resumable);

/* Before training: has a rank been asked to stop?  Collective.  Returns 0, or -1 on all ranks with
 * err's code set and no text, after a line in the log. */
int stop_early(struct stop *stop, struct log *log, struct error *err);

/* Training begins: from now on the run asks with every step. */
void stop_begin(struct stop *stop);

#endif
