/* stop.h - signals that ask a run to save and stop.
 *
 * SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU (a limit of processor time), SIGINT (Ctrl-C) and SIGHUP (a
 * lost terminal) are received by a thread of their own, so that no call of another thread is
 * interrupted, and a call that hangs cannot keep the user from ending the program.  A signal that
 * was ignored when the program began, as SIGHUP is under nohup, stays ignored.  SIGPIPE is ignored.
 *
 * While training, each rank sends with every step, every batch of an evaluation and every pass over
 * its samples, whether it got a signal; when one did, all ranks save after that step, or leave the
 * evaluation and save.  Before training there is nothing to save: the ranks end together at the
 * next call of stop_early(), and the thread ends a rank that makes no such call for some seconds.
 * After the last step all is saved: a signal is answered, and what is being done goes on.
 */
#ifndef TRIREME_TRAIN_STOP_H
#define TRIREME_TRAIN_STOP_H

#include "base/log.h"
#include "comm/world.h"

struct stop;

/* Begin to receive the signals.  To be called before other threads are started.  Returns 0 and a
 * stop for stop_end(), or -1 with err set. */
int stop_open(struct stop **stop, struct error *err);

/* Stop receiving them; NULL allowed.  All but SIGINT stay blocked, so that a launcher that signals
 * the slower ranks of a job that is ending does no harm. */
void stop_end(struct stop *stop);

/* The signal that came first; 0: none, or stop is NULL. */
int stop_asked(const struct stop *stop);

/* The world is started: from now on an early end is the end of all ranks. */
void stop_join(struct stop *stop, struct world *world);

/* resumable: would the same command find a checkpoint to resume?  It decides the exit code of an
 * early end: EXIT_SAVED, or the one of the signal. */
void stop_resumable(struct stop *stop, int resumable);

/* Before training: has a rank been asked to stop?  Collective.  Returns 0, or -1 on all ranks with
 * err's code set and no text, after a line in the log.  A stop of NULL, on all ranks: 0. */
int stop_early(struct stop *stop, struct log *log, struct error *err);

/* Training begins: from now on the trainer asks after every step (stop_asked()). */
void stop_begin(struct stop *stop);

/* All steps are done and saved.  To be called once; stop may be NULL.  left: for the answer to a
 * signal, what is done after that and what becomes of it where it is cut short, such as "; the
 * export is being written"; or "". */
void stop_trained(struct stop *stop, const char *left);

#endif
