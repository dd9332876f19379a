/* ucx.h - what UCX, a library that MPI may bring, changes in a process.  Used by train/, which
 * waits for signals. */
#ifndef TRIREME_COMM_UCX_H
#define TRIREME_COMM_UCX_H

/* Undo what UCX did to the signal when it was loaded, so that the action is that with which the
 * process was started.  Nothing changes where UCX is not loaded or has not touched the signal. */
void ucx_release_signal(int signal);

#endif
