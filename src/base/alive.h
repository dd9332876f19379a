/* alive.h - signs of life: how much this process has done, for those that wait for it.
 *
 * Work that can take long, on files above all, notes every piece that is done.  A process that is
 * stuck in a call notes nothing, and so the ranks that wait for it can tell slow from stuck.
 */
#ifndef TRIREME_BASE_ALIVE_H
#define TRIREME_BASE_ALIVE_H

/* A piece of work is done; any thread may call it. */
void alive_note(void);

/* How many there were; only whether it changes means something. */
int alive_count(void);

#endif
