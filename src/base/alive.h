/* alive.h - signs of life: how much this process has done, for ranks that wait for it.
 *
 * Work that can take long, on files above all, counts every piece that is done.  A process that is
 * stuck in a call counts nothing, so the ranks that wait for it can distinguish a slow process from
 * a stuck one.
 */
#ifndef TRIREME_BASE_ALIVE_H
#define TRIREME_BASE_ALIVE_H

/* A piece of work is done; any thread may call it. */
void alive_note(void);

/* The number of pieces done so far.  Only a change of it means something. */
int alive_count(void);

#endif
