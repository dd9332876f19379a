/* stop.h - signals that ask to save and stop: SIGUSR1 and SIGTERM. */
#ifndef TRIREME_TRAIN_STOP_H
#define TRIREME_TRAIN_STOP_H

/* From now on both only set a flag; they stay caught until the process ends, so that a
 * launcher that signals the slower ranks of a job that is ending does no harm. */
void stop_watch(void);

/* Has one arrived? */
int stop_asked(void);

#endif
