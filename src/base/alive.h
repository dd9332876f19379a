/* alive.h - signs of life: how much this process has done, for ranks that wait for it.
 *
 * Work that can take long, on files above all, calls alive_note() after every piece of it.  A
 * process that is stuck in a call notes nothing, so the ranks that wait for it can distinguish a
 * slow process from a stuck one.
 */
#ifndef TRIREME_BASE_ALIVE_H
#define TRIREME_BASE_ALIVE_H

/* Count one more finished piece of work.  Any thread may call it. */
void alive_note(void);

/* Returns the number of pieces that this process has finished so far.  Pieces differ in size: only
 * whether the number changes means something. */
int alive_count(void);

#endif
