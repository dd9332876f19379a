/* alive.c - see alive.h.  Of the process, as a clock is: whoever works may note it. */
#include "base/alive.h"

#include <signal.h>

static volatile sig_atomic_t pieces;

void alive_note(void)
{
    __atomic_add_fetch(&pieces, 1, __ATOMIC_RELAXED);
}

int alive_count(void)
{
    return __atomic_load_n(&pieces, __ATOMIC_RELAXED);
}
