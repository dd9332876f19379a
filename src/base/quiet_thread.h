/* quiet_thread.h - threads that work beside the main one and receive no signals. */
#ifndef TRIREME_BASE_QUIET_THREAD_H
#define TRIREME_BASE_QUIET_THREAD_H

#include <pthread.h>

/* Start a thread that runs run(arg), for pthread_join().  All signals are blocked in it: they are
 * for the main thread, or for the one that train/stop.h starts.  name: a constant of up to 15
 * characters, which ps and debuggers show.  Returns 0, or an error number and no thread. */
int quiet_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *arg);

#endif
